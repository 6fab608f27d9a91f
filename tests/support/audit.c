#include "tests/support/audit.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

// ---- the log

static void record_draw(struct auditing_rng *l, struct address at, int n, int result)
{
    struct audit *a = l->audit;
    if (a->n == a->capacity) {
        a->capacity = (int)next_capacity((size_t)a->capacity, (size_t)a->n + 1);
        a->draw = xrealloc(a->draw, (size_t)a->capacity * sizeof(*a->draw));
    }
    struct draw_record *to = &a->draw[a->n++];
    *to = l->common;
    to->at = at;
    to->n = n;
    to->result = result;
}

static bool auditing_accept(struct rng *self, double num, double den, struct address at)
{
    struct auditing_rng *l = (struct auditing_rng *)self;
    bool result = l->of.rng.accept(&l->of.rng, num, den, at);
    record_draw(l, at, 0, result);
    return result;
}

static int auditing_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct auditing_rng *l = (struct auditing_rng *)self;
    int result = l->of.rng.pick(&l->of.rng, weight, n, at);
    record_draw(l, at, n, result);
    return result;
}

static int auditing_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct auditing_rng *l = (struct auditing_rng *)self;
    int result = l->of.rng.pick_row(&l->of.rng, weight, n, at);
    record_draw(l, at, n, result);
    return result;
}

struct auditing_rng audit_rng(struct audit *a, const struct philox *of, int64_t text, int32_t root,
                              enum consumer consumer)
{
    return (
        struct auditing_rng){ .rng = { auditing_accept, auditing_pick, of->rng.root, auditing_pick_row },
                              .of = *of,
                              .audit = a,
                              .common = { .text = text, .consumer = consumer, .root = root, .stream = of->sequence } };
}

void audit_free(struct audit *a)
{
    free(a->draw);
    *a = (struct audit){ 0 };
}

// ---- checks

#define ORDER(x, y) ((x) < (y) ? -1 : (x) > (y))

static int by_address(const struct draw_record *a, const struct draw_record *b)
{
    int order = ORDER(a->text, b->text);
    order = order ? order : ORDER(a->at.purpose, b->at.purpose);
    order = order ? order : ORDER(a->at.position, b->at.position);
    return order ? order : ORDER(a->at.node, b->at.node);
}

// All fields but the stream: results need not depend on it.
static int by_draw(const void *x, const void *y)
{
    const struct draw_record *a = x, *b = y;
    int order = by_address(a, b);
    order = order ? order : ORDER(a->consumer, b->consumer);
    order = order ? order : ORDER(a->root, b->root);
    order = order ? order : ORDER(a->n, b->n);
    return order ? order : ORDER(a->result, b->result);
}

static int by_counter(const void *x, const void *y)
{
    const struct counter *a = x, *b = y;
    int order = ORDER(a->half, b->half);
    for (int i = 0; order == 0 && i < 4; i++)
        order = ORDER(a->word[i], b->word[i]);
    return order;
}

static void sort(struct audit *a)
{
    if (a->n > 0)
        qsort(a->draw, (size_t)a->n, sizeof(*a->draw), by_draw);
}

static bool is_coupled(const struct draw_record *q)
{
    return q->consumer == CONSUMER_DRAFTER && q->at.purpose == FOR_TOKEN;
}

static bool is_misplaced(const struct draw_record *q)
{
    if (q->at.purpose == FOR_TOKEN)
        return q->at.position <= q->root || q->at.node != 0;
    return q->at.position != q->root;
}

static int uniforms_of(const struct draw_record *q)
{
    return q->at.purpose == FOR_TOKEN ? q->n : 1;
}

static int count_shared(const struct audit *a)
{
    size_t n = 0, capacity = 0;
    int shared = 0;
    for (int i = 0; i < a->n; i++)
        capacity += (size_t)uniforms_of(&a->draw[i]);
    struct counter *counter = xcalloc(capacity + 1, sizeof(*counter));
    for (int i = 0; i < a->n; i++)
        for (int k = 0; !is_coupled(&a->draw[i]) && k < uniforms_of(&a->draw[i]); k++)
            counter[n++] = philox_counter(a->draw[i].stream, a->draw[i].at, (uint32_t)k);
    qsort(counter, n, sizeof(*counter), by_counter);
    for (size_t i = 1; i < n; i++)
        shared += by_counter(&counter[i - 1], &counter[i]) == 0;
    free(counter);
    return shared;
}

struct audit_result audit_examine(struct audit *a)
{
    struct audit_result f = { .draws = a->n, .shared = count_shared(a) };
    unsigned purposes[2] = { 0, 0 };
    const struct draw_record *before = NULL; // the last one that is not coupled
    sort(a);
    for (int i = 0; i < a->n; i++)
        purposes[a->draw[i].consumer] |= 1u << a->draw[i].at.purpose;
    for (int i = 0; i < a->n; i++) {
        const struct draw_record *q = &a->draw[i];
        f.misplaced += is_misplaced(q);
        f.mixed += q->at.purpose != FOR_TOKEN && (purposes[0] & purposes[1] & 1u << q->at.purpose) != 0;
        f.coupled += is_coupled(q);
        if (is_coupled(q))
            continue;
        f.repeated += before != NULL && by_address(before, q) == 0;
        before = q;
    }
    return f;
}

int audit_differences(struct audit *a, struct audit *b)
{
    int differences = 0, i = 0, k = 0;
    sort(a);
    sort(b);
    while (i < a->n && k < b->n) {
        int order = by_draw(&a->draw[i], &b->draw[k]);
        differences += order != 0;
        i += order <= 0;
        k += order >= 0;
    }
    return differences + (a->n - i) + (b->n - k);
}
