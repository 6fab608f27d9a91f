#include "models/experts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "models/model.h"

bool expert_scratch_create(struct expert_scratch *t, struct backend *b, const struct model_shape *s, int rows)
{
    *t = (struct expert_scratch){ 0 };
    if (s->experts == 0)
        return true;
    const size_t n = (size_t)rows, used = n * (size_t)s->experts_used;
    t->logits = rows_on(b, rows, s->experts);
    t->x = rows_on(b, rows, s->width);
    t->gate = rows_on(b, rows, s->expert_hidden);
    t->y = rows_on(b, (int64_t)used, s->width);
    t->out = rows_on(b, rows, s->width);
    t->score = xcalloc(n * (size_t)s->experts, sizeof(*t->score));
    t->weight = xcalloc(used, sizeof(*t->weight));
    t->chosen = xcalloc(used, sizeof(*t->chosen));
    t->row = xcalloc(n, sizeof(*t->row));
    t->at = xcalloc(used, sizeof(*t->at));
    return t->logits.data != NULL && t->x.data != NULL && t->gate.data != NULL && t->y.data != NULL &&
           t->out.data != NULL;
}

void expert_scratch_destroy(struct expert_scratch *t, struct backend *b)
{
    struct tensor *const all[] = { &t->logits, &t->x, &t->gate, &t->y, &t->out };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    free(t->score);
    free(t->weight);
    free(t->chosen);
    free(t->row);
    free(t->at);
    *t = (struct expert_scratch){ 0 };
}

// The used experts of a row, by descending score, and their weights: the softmax of the scores of all, or of the used ones.
static void choose(const struct experts *e, const float *score, int32_t *chosen, float *weight)
{
    int n = 0;
    for (int i = 0; i < e->count; i++) {
        int at = n < e->used ? n++ : e->used;
        if (at == e->used && !(score[i] > score[chosen[at - 1]]))
            continue;
        at = at < e->used ? at : e->used - 1;
        for (; at > 0 && score[i] > score[chosen[at - 1]]; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = i;
    }
    double total = 0;
    for (int i = 0; i < (e->normalized ? e->used : e->count); i++)
        total += exp((double)score[e->normalized ? chosen[i] : i] - (double)score[chosen[0]]);
    for (int i = 0; i < e->used; i++)
        weight[i] = (float)(exp((double)score[chosen[i]] - (double)score[chosen[0]]) / total);
}

struct tensor experts_forward(struct backend *b, const struct experts *e, struct expert_scratch *t, struct tensor x,
                              enum gate_function f)
{
    const int n = (int)x.rows, used = e->used;
    const struct tensor logits = tensor_rows(t->logits, 0, n), out = tensor_rows(t->out, 0, n);
    multiply(b, logits, x, e->router);
    b->download(b, t->score, logits.data, (size_t)n * (size_t)e->count * sizeof(float));
    for (int i = 0; i < n; i++)
        choose(e, t->score + (size_t)i * (size_t)e->count, t->chosen + i * used, t->weight + i * used);
    int32_t done = 0; // rows of y
    for (int expert = 0; expert < e->count && done < n * used; expert++) {
        int32_t rows = 0;
        for (int i = 0; i < n * used; i++)
            if (t->chosen[i] == expert) {
                t->at[i] = done + rows;
                t->row[rows++] = i / used;
            }
        if (rows == 0)
            continue;
        struct tensor some = tensor_rows(t->x, 0, rows), gate = tensor_rows(t->gate, 0, rows);
        b->take(b, some, x, t->row);
        gate = b->gated(b, gate, some, e->gate[expert], e->up[expert], f);
        multiply(b, tensor_rows(t->y, done, rows), gate, e->down[expert]);
        done += rows;
        t->touched++;
    }
    b->mix(b, out, tensor_rows(t->y, 0, (int64_t)n * used), t->at, t->weight, used);
    return out;
}
