#include "models/experts.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "models/model.h"

bool expert_scratch_create(struct expert_scratch *t, struct backend *b, const struct model_shape *s, int rows)
{
    *t = (struct expert_scratch){ 0 };
    if (s->experts == 0)
        return true;
    const size_t n = (size_t)rows, used = n * (size_t)s->experts_used;
    t->logits = rows_on(b, rows, s->experts);
    t->gate = rows_on(b, (int64_t)used, s->expert_hidden);
    t->y = rows_on(b, (int64_t)used, s->width);
    t->out = rows_on(b, rows, s->width);
    t->score = xcalloc(n * (size_t)s->experts, sizeof(*t->score));
    t->weight = xcalloc(used, sizeof(*t->weight));
    t->chosen = xcalloc(used, sizeof(*t->chosen));
    t->row = xcalloc(used, sizeof(*t->row));
    t->at = xcalloc(used, sizeof(*t->at));
    t->group = xcalloc((size_t)s->experts, sizeof(*t->group));
    t->down = xcalloc((size_t)s->experts, sizeof(*t->down));
    return t->logits.data != NULL && t->gate.data != NULL && t->y.data != NULL && t->out.data != NULL;
}

void expert_scratch_destroy(struct expert_scratch *t, struct backend *b)
{
    struct tensor *const all[] = { &t->logits, &t->gate, &t->y, &t->out };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    free(t->score);
    free(t->weight);
    free(t->chosen);
    free(t->row);
    free(t->at);
    free(t->group);
    free(t->down);
    *t = (struct expert_scratch){ 0 };
}

// Chooses the experts that a row uses, by descending score, and their weights: the softmax over the scores of all
// experts, or over those used.
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

// Sorts the rows by expert: sets the rows of y, and the groups.
static void group_rows(const struct experts *e, struct expert_scratch *t, int n)
{
    int32_t done = 0;
    for (int k = 0; k < e->count; k++) {
        const int32_t first = done;
        for (int i = 0; i < n * e->used; i++)
            if (t->chosen[i] == k) {
                t->row[done] = i / e->used;
                t->at[i] = done++;
            }
        t->group[k] = (struct row_group){ .w = e->gate[k], .up = e->up[k], .rows = done - first };
        t->down[k] = (struct row_group){ .w = e->down[k], .rows = done - first };
        t->touched += done > first;
    }
}

struct tensor experts_forward(struct backend *b, const struct experts *e, struct expert_scratch *t, struct tensor x,
                              enum gate_function f)
{
    const int n = (int)x.rows, used = e->used;
    const struct tensor logits = tensor_rows(t->logits, 0, n), out = tensor_rows(t->out, 0, n);
    struct tensor gate = tensor_rows(t->gate, 0, (int64_t)n * used), y = tensor_rows(t->y, 0, (int64_t)n * used);
    multiply(b, logits, x, e->router);
    b->download(b, t->score, logits.data, (size_t)n * (size_t)e->count * sizeof(float));
    for (int i = 0; i < n; i++)
        choose(e, t->score + (size_t)i * (size_t)e->count, t->chosen + i * used, t->weight + i * used);
    group_rows(e, t, n);
    gate = b->grouped(b, gate, x, t->row, t->group, e->count, f);
    y = b->grouped(b, y, gate, NULL, t->down, e->count, f);
    b->mix(b, out, y, t->at, t->weight, used);
    return out;
}
