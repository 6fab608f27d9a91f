#include "sampling/logits.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "sampling/loops.h"
#include "sampling/sampling.h"

// The parameters of a job over all chunks.
struct work {
    const struct loops *loops;
    struct logits *l;
    int used_vocab;
    float max;
    double by;
    struct exact_sum sum[LOGITS_CHUNKS];
    void (*one)(struct work *w, float *x, int n, int chunk);
};

static int chunks(int n)
{
    return (n + LOGITS_CHUNK - 1) / LOGITS_CHUNK;
}

static int length(const struct logits *l, int chunk)
{
    int left = l->n - chunk * LOGITS_CHUNK;
    return left < LOGITS_CHUNK ? left : LOGITS_CHUNK;
}

static void work_on(void *of, int chunk)
{
    struct work *w = of;
    w->one(w, w->l->x + chunk * LOGITS_CHUNK, length(w->l, chunk), chunk);
}

static void run_chunks(struct work *w)
{
    w->loops = loops();
    workers_run(w->l->workers, chunks(w->l->n), work_on, w);
}

static void fill(float *x, int n, float value)
{
    for (int i = 0; i < n; i++)
        x[i] = value;
}

static bool is_empty(const struct logits *l, int chunk)
{
    return l->max[chunk] == -INFINITY;
}

static void sanitize(struct work *w, float *x, int n, int chunk)
{
    int used_vocab = w->used_vocab - chunk * LOGITS_CHUNK;
    if (used_vocab < n)
        fill(x + (used_vocab > 0 ? used_vocab : 0), n - (used_vocab > 0 ? used_vocab : 0), -INFINITY);
    w->l->max[chunk] = used_vocab > 0 ? w->loops->logits->sanitize(x, n) : -INFINITY;
}

struct logits logits_of(float *x, int n, int used_vocab, struct workers workers)
{
    assert(n > 0 && n <= MAX_VOCAB && used_vocab > 0 && used_vocab <= n);
    struct logits l = { .n = n, .x = x, .workers = workers };
    struct work w = { .l = &l, .used_vocab = used_vocab, .one = sanitize };
    run_chunks(&w);
    return l;
}

float logits_largest(const struct logits *l)
{
    float max = -INFINITY;
    for (int s = 0; s < chunks(l->n); s++)
        max = l->max[s] > max ? l->max[s] : max;
    return max;
}

float logits_at(const struct logits *l, int i)
{
    return is_empty(l, i / LOGITS_CHUNK) ? -INFINITY : l->x[i];
}

void logits_set(struct logits *l, int i, float value)
{
    int s = i / LOGITS_CHUNK, n = length(l, s);
    float *x = l->x + s * LOGITS_CHUNK, before = logits_at(l, i);
    if (is_empty(l, s))
        fill(x, n, -INFINITY);
    l->x[i] = value > FLT_MAX ? FLT_MAX : value;
    if (l->x[i] >= l->max[s])
        l->max[s] = l->x[i];
    else if (before == l->max[s])
        l->max[s] = loops()->logits->largest(x, n);
}

static void temperature(struct work *w, float *x, int n, int chunk)
{
    float *max = &w->l->max[chunk];
    if (*max == -INFINITY)
        return;
    w->loops->logits->temperature(x, n, w->max, w->by);
    w->loops->logits->temperature(max, 1, w->max, w->by); // the maximum goes through the same arithmetic
}

void logits_scale(struct logits *l, double by)
{
    struct work w = { .l = l, .max = logits_largest(l), .by = by, .one = temperature };
    run_chunks(&w);
}

static void drop_below(struct work *w, float *x, int n, int chunk)
{
    if (w->l->max[chunk] < w->by)
        w->l->max[chunk] = -INFINITY;
    else if (!is_empty(w->l, chunk))
        w->loops->logits->drop_below(x, n, w->by);
}

void logits_drop_below(struct logits *l, double min)
{
    struct work w = { .l = l, .by = min, .one = drop_below };
    run_chunks(&w);
}

void logits_drop_ties(struct logits *l, float value, int keep)
{
    for (int s = 0; s < chunks(l->n); s++) {
        int32_t index[LOGITS_CHUNK];
        float *x = l->x + s * LOGITS_CHUNK;
        if (is_empty(l, s) || l->max[s] < value)
            continue;
        int n = length(l, s), found = loops()->logits->find_at_least(x, n, value, index, n);
        for (int k = 0; k < found; k++)
            if (x[index[k]] == value && keep-- <= 0)
                x[index[k]] = -INFINITY;
        if (l->max[s] == value && keep < 0)
            l->max[s] = loops()->logits->largest(x, n);
    }
}

void logits_keep_argmax(struct logits *l)
{
    float max = logits_largest(l);
    for (int s = 0, found = 0; s < chunks(l->n) && max > -INFINITY; s++) {
        if (l->max[s] != max || found++ > 0) {
            l->max[s] = -INFINITY;
            continue;
        }
        int32_t first = 0;
        float *x = l->x + s * LOGITS_CHUNK;
        loops()->logits->find_at_least(x, length(l, s), max, &first, 1);
        fill(x, length(l, s), -INFINITY);
        x[first] = max;
    }
}

int logits_from(const struct logits *l, float min, int32_t *id, int capacity)
{
    int found = 0;
    for (int s = 0; s < chunks(l->n); s++) {
        if (is_empty(l, s) || l->max[s] < min)
            continue;
        int n =
            loops()->logits->find_at_least(l->x + s * LOGITS_CHUNK, length(l, s), min, id + found, capacity - found);
        if (n > capacity - found)
            return -1;
        for (int k = 0; k < n; k++)
            id[found + k] += s * LOGITS_CHUNK;
        found += n;
    }
    return found;
}

static double total(const struct work *w)
{
    struct exact_sum sum = { 0, 0 };
    for (int s = 0; s < chunks(w->l->n); s++)
        sum = grid_sum(sum, w->sum[s]);
    return grid_total(sum);
}

static void weigh(struct work *w, float *x, int n, int chunk)
{
    double weight[LOGITS_CHUNK];
    const struct exact_sum none = { 0, 0 };
    w->sum[chunk] = is_empty(w->l, chunk) ? none : w->loops->logits->weights(weight, x, n, w->max);
}

double logits_weight(const struct logits *l)
{
    struct work w = { .l = (struct logits *)l, .max = logits_largest(l), .one = weigh }; // this loop only reads l
    run_chunks(&w);
    return total(&w);
}

static void exponentials(struct work *w, float *x, int n, int chunk)
{
    if (is_empty(w->l, chunk))
        memset(x, 0, (size_t)n * sizeof(*x));
    const struct exact_sum none = { 0, 0 };
    w->sum[chunk] = is_empty(w->l, chunk) ? none : w->loops->logits->exponentials(x, n, w->max);
}

static void scale(struct work *w, float *x, int n, int chunk)
{
    if (!is_empty(w->l, chunk))
        w->loops->logits->scale(x, n, w->by);
}

void logits_softmax(struct logits *l)
{
    struct work w = { .l = l, .max = logits_largest(l), .one = exponentials };
    if (w.max == -INFINITY) {
        memset(l->x, 0, (size_t)l->n * sizeof(*l->x));
        l->x[0] = 1;
        return;
    }
    run_chunks(&w);
    w.by = 1 / total(&w);
    w.one = scale;
    run_chunks(&w);
}

void sampling_row(const struct sampling *s, float *row, int vocab, int used_vocab, const struct path *before)
{
    struct logits l = logits_of(row, vocab, used_vocab, s->workers);
    for (int k = 0; k < s->n; k++)
        s->step[k].stage->apply(&l, s->step[k].options, before);
    logits_softmax(&l);
}

// ---- the largest probabilities; one job per row: blocks whose largest logit cannot enter the list are skipped

enum { BLOCK = 64 };

struct top_k {
    const struct logit_loops *loops;
    float *x;
    int vocab, used_vocab, k;
    int32_t *id;
    float *p;
};

// Inserts a logit after those that are not smaller. The list has n of at most k entries.
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
static void select_largest(const struct top_k *w, const float *x, int32_t *id, float *logit)
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
    const struct top_k *w = of;
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
    struct top_k w = {
        .loops = loops()->logits, .x = x, .vocab = vocab, .used_vocab = used_vocab, .k = k, .id = id, .p = p
    };
    workers_run(workers, rows, top_k_row, &w);
}
