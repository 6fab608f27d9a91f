// top_k.c - one job per row: blocks whose largest logit cannot enter the list are skipped.
#include "sampling/top_k.h"

#include <assert.h>
#include <math.h>

#include "sampling/loops.h"

enum { BLOCK = 64 };

struct work {
    const struct logit_loops *loops;
    float *x;
    int vocab, used_vocab, k;
    int32_t *id;
    float *p;
};

// Inserts a logit behind those that are not smaller. The list has n of at most k entries.
static int insert(int32_t *id, float *logit, int n, int k, int32_t new_id, float x)
{
    int i = n < k ? n : k - 1;
    for (; i > 0 && logit[i - 1] < x; i--) {
        id[i] = id[i - 1];
        logit[i] = logit[i - 1];
    }
    id[i] = new_id;
    logit[i] = x;
    return n < k ? n + 1 : k;
}

// Ids ascend, so a logit that is equal to the last of a full list does not enter.
static void select_largest(const struct work *w, const float *x, int32_t *id, float *logit)
{
    int n = 0;
    for (int at = 0; at < w->used_vocab; at += BLOCK) {
        const int length = w->used_vocab - at < BLOCK ? w->used_vocab - at : BLOCK;
        if (n == w->k && !(w->loops->largest(x + at, length) > logit[n - 1]))
            continue;
        for (int i = at; i < at + length; i++)
            if (n < w->k || x[i] > logit[n - 1])
                n = insert(id, logit, n, w->k, i, x[i]);
    }
}

static void top_k_row(void *of, int row)
{
    const struct work *w = of;
    float *x = w->x + (int64_t)row * w->vocab, *p = w->p + (int64_t)row * w->k;
    int32_t *id = w->id + (int64_t)row * w->k;
    const float max = w->loops->sanitize(x, w->used_vocab);
    select_largest(w, x, id, p);
    if (max == -INFINITY) {
        for (int i = 0; i < w->k; i++)
            p[i] = i == 0;
        return;
    }
    const double total = grid_total(w->loops->exponentials(x, w->used_vocab, max));
    for (int i = 0; i < w->k; i++)
        p[i] = (float)(grid_exp((double)p[i] - max) / total);
}

void top_k_rows(struct workers workers, float *x, int rows, int vocab, int used_vocab, int k, int32_t *id, float *p)
{
    assert(k >= 1 && k <= used_vocab && used_vocab <= vocab);
    struct work w = {
        .loops = loops()->logits, .x = x, .vocab = vocab, .used_vocab = used_vocab, .k = k, .id = id, .p = p
    };
    workers_run(workers, rows, top_k_row, &w);
}
