// head_rows.c - prints the logits of a head as the drafters compute them, for tests/training/test_parity.py.
//
//     head_rows TARGET HEAD ROWS.safetensors
//
// ROWS has `input_ids` I32 (n) and `states` F32 (n, W), the states of these tokens (docs/training.md). An EAGLE head reads
// tokens 1 .. n - 1 with states 0 .. n - 2 in one pass, then drafts a greedy chain from the last row; Medusa heads read all
// states. Output: one row of logits a line; lines `draft ID` with the target's ids of the chain come between its rows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "kernels/backend.h"
#include "models/heads/eagle.h"
#include "models/heads/head.h"
#include "models/kv_cache.h"
#include "models/heads/medusa.h"
#include "models/model.h"
#include "models/weights.h"

enum { MAX_ROWS = 256, CHAIN = 4 };

struct rows {
    int n;
    int32_t token[MAX_ROWS];
    struct tensor states; // (n, width)
};

static char *same(const char *stored)
{
    return xstrdup(stored);
}

static bool read_rows(struct weights *w, struct rows *r, const char *path, struct error *err)
{
    const struct weight *states = weights_find(w, "states"), *ids = weights_find(w, "input_ids");
    const int64_t n = ids != NULL ? ids->tensor.width : 0;
    int64_t id[MAX_ROWS];
    if (states == NULL || n < 2 || n > MAX_ROWS)
        return fail(err, "%s: expected input_ids and states of 2 to %d tokens", path, MAX_ROWS);
    r->n = (int)n;
    if (!weights_integers(w, "input_ids", n, 0, INT32_MAX, id, err))
        return false;
    for (int i = 0; i < r->n; i++)
        r->token[i] = (int32_t)id[i];
    return weights_get(w, "states", n, states->tensor.width, &r->states, err);
}

static int print_row(const float *row, int vocab)
{
    int best = 0;
    for (int v = 0; v < vocab; v++) {
        printf("%.9g%c", (double)row[v], v + 1 < vocab ? ' ' : '\n');
        best = row[v] > row[best] ? v : best;
    }
    return best;
}

// Returns the draft id of the largest logit of the last row.
static int print_rows(struct eagle *e, struct tensor states)
{
    const int n = (int)states.rows, vocab = eagle_facts(e)->vocab;
    float *logits = xmalloc((size_t)n * (size_t)vocab * sizeof(float));
    int best = 0;
    eagle_logits(e, tensor_of(logits, F32, n, vocab), states);
    for (int i = 0; i < n; i++)
        best = print_row(logits + (size_t)i * (size_t)vocab, vocab);
    free(logits);
    return best;
}

static bool run_eagle(const char *path, const struct model *target, struct backend *b, enum head_kind kind,
                      const struct rows *r, struct error *err)
{
    static int32_t slot[MAX_ROWS], parent[MAX_ROWS], places[MAX_ROWS];
    const struct eagle_setup setup = { .kind = kind, .activations = ACTIVATIONS_F32, .rows = MAX_ROWS };
    struct eagle *e = eagle_open(path, target, b, &setup, err);
    if (e == NULL)
        return false;
    const struct kv_shape shape = eagle_kv_shape(e, 1, MAX_ROWS + CHAIN, MAX_ROWS);
    struct kv_cache *c = kv_create(b, &shape, err);
    if (c == NULL)
        return false;
    for (int i = 0; i < r->n; i++)
        parent[i] = i - 1, places[i] = i;
    struct pass p = { .n = r->n - 1, .token = r->token + 1, .slot = slot, .parent = parent };
    const struct eagle_states own = { rows_on(b, 1 + CHAIN, eagle_facts(e)->width), 1 + CHAIN };
    struct tensor out = eagle_forward(e, c, &p, tensor_rows(r->states, 0, p.n), &own);
    int best = print_rows(e, out);
    kv_keep(c, 0, places, p.n);
    for (int i = 0; i < CHAIN; i++) {
        const int32_t token = eagle_facts(e)->target_id != NULL ? eagle_facts(e)->target_id[best] : best,
                      before = i - 1;
        printf("draft %d\n", token);
        p = (struct pass){ .n = 1, .token = &token, .slot = slot, .parent = &before };
        out = eagle_forward(e, c, &p, (struct tensor){ 0 }, &own);
        best = print_rows(e, out);
    }
    b->release(b, own.rows.data);
    kv_destroy(c);
    eagle_close(e);
    return true;
}

static bool run_medusa(const char *path, const struct model *target, struct backend *b, const struct rows *r,
                       struct error *err)
{
    struct medusa *m = medusa_open(path, target, b, ACTIVATIONS_F32, QUANTIZE_NONE, MAX_ROWS, err);
    if (m == NULL)
        return false;
    const int vocab = medusa_facts(m)->vocab;
    float *logits = xmalloc((size_t)r->n * (size_t)vocab * sizeof(float));
    for (int h = 0; h < medusa_facts(m)->heads; h++) {
        medusa_logits(m, h, tensor_of(logits, F32, r->n, vocab), r->states);
        for (int i = 0; i < r->n; i++)
            print_row(logits + (size_t)i * (size_t)vocab, vocab);
    }
    free(logits);
    medusa_close(m);
    return true;
}

static bool run(char **path, struct error *err)
{
    static struct rows r;
    struct backend *b = backend_cpu(1, err);
    struct model *target = b != NULL ? model_open(path[0], b, ACTIVATIONS_F32, MAX_ROWS, err) : NULL;
    struct weights *w = target != NULL ? weights_open_files(path[2], same, err) : NULL;
    struct head h;
    bool ok = w != NULL && read_rows(w, &r, path[2], err) && head_open(&h, path[1], HEAD_MEDUSA, NULL, err);
    if (ok) {
        const enum head_kind kind = h.kind;
        head_close(&h);
        ok = kind == HEAD_MEDUSA ? run_medusa(path[1], target, b, &r, err)
                                 : run_eagle(path[1], target, b, kind, &r, err);
    }
    weights_close(w);
    model_close(target);
    if (b != NULL)
        b->destroy(b);
    return ok;
}

int main(int argc, char **argv)
{
    struct error err;
    if (argc != 4) {
        fprintf(stderr, "usage: head_rows TARGET HEAD ROWS.safetensors\n");
        return 2;
    }
    if (run(argv + 1, &err))
        return 0;
    fprintf(stderr, "head_rows: %s\n", err.text);
    return 1;
}
