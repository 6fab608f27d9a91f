#include "exact/audit.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

// ---- the log

static void note(struct listening *l, struct address at, int n, int answer)
{
    struct audit *a = l->audit;
    if (a->n == a->capacity) {
        a->capacity = (int)grow_capacity((size_t)a->capacity, (size_t)a->n + 1);
        a->asked = xrealloc(a->asked, (size_t)a->capacity * sizeof(*a->asked));
    }
    struct asked *to = &a->asked[a->n++];
    *to = l->asked;
    to->at = at;
    to->n = n;
    to->answer = answer;
}

static bool recording_accept(struct rng *self, double num, double den, struct address at)
{
    struct listening *l = (struct listening *)self;
    bool answer = l->of.rng.accept(&l->of.rng, num, den, at);
    note(l, at, 0, answer);
    return answer;
}

static int listening_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct listening *l = (struct listening *)self;
    int answer = l->of.rng.pick(&l->of.rng, weight, n, at);
    note(l, at, n, answer);
    return answer;
}

static int listening_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct listening *l = (struct listening *)self;
    int answer = l->of.rng.pick_row(&l->of.rng, weight, n, at);
    note(l, at, n, answer);
    return answer;
}

struct listening audit_listen(struct audit *a, const struct philox *of, int64_t text, int32_t root, enum asker who)
{
    return (struct listening){ .rng = { recording_accept, listening_pick, of->rng.root, listening_pick_row },
                               .of = *of,
                               .audit = a,
                               .asked = { .text = text, .who = who, .root = root, .stream = of->sequence } };
}

void audit_free(struct audit *a)
{
    free(a->asked);
    *a = (struct audit){ 0 };
}

// ---- what it says

#define ORDER(x, y) ((x) < (y) ? -1 : (x) > (y))

static int by_address(const struct asked *a, const struct asked *b)
{
    int order = ORDER(a->text, b->text);
    order = order ? order : ORDER(a->at.purpose, b->at.purpose);
    order = order ? order : ORDER(a->at.position, b->at.position);
    return order ? order : ORDER(a->at.node, b->at.node);
}

// Everything but the stream, which no answer need depend on.
static int by_draw(const void *x, const void *y)
{
    const struct asked *a = x, *b = y;
    int order = by_address(a, b);
    order = order ? order : ORDER(a->who, b->who);
    order = order ? order : ORDER(a->root, b->root);
    order = order ? order : ORDER(a->n, b->n);
    return order ? order : ORDER(a->answer, b->answer);
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
        qsort(a->asked, (size_t)a->n, sizeof(*a->asked), by_draw);
}

static bool is_coupled(const struct asked *q)
{
    return q->who == ASKED_BY_DRAFTER && q->at.purpose == FOR_TOKEN;
}

static bool is_misplaced(const struct asked *q)
{
    if (q->at.purpose == FOR_TOKEN)
        return q->at.position <= q->root || q->at.node != 0;
    return q->at.position != q->root;
}

static int uniforms_of(const struct asked *q)
{
    return q->at.purpose == FOR_TOKEN ? q->n : 1;
}

static int count_shared(const struct audit *a)
{
    size_t n = 0, capacity = 0;
    int shared = 0;
    for (int i = 0; i < a->n; i++)
        capacity += (size_t)uniforms_of(&a->asked[i]);
    struct counter *counter = xcalloc(capacity + 1, sizeof(*counter));
    for (int i = 0; i < a->n; i++)
        for (int k = 0; !is_coupled(&a->asked[i]) && k < uniforms_of(&a->asked[i]); k++)
            counter[n++] = philox_counter(a->asked[i].stream, a->asked[i].at, (uint32_t)k);
    qsort(counter, n, sizeof(*counter), by_counter);
    for (size_t i = 1; i < n; i++)
        shared += by_counter(&counter[i - 1], &counter[i]) == 0;
    free(counter);
    return shared;
}

struct audited audit_examine(struct audit *a)
{
    struct audited f = { .draws = a->n, .shared = count_shared(a) };
    unsigned purposes[2] = { 0, 0 };
    const struct asked *before = NULL; // the last that was not coupled
    sort(a);
    for (int i = 0; i < a->n; i++)
        purposes[a->asked[i].who] |= 1u << a->asked[i].at.purpose;
    for (int i = 0; i < a->n; i++) {
        const struct asked *q = &a->asked[i];
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
        int order = by_draw(&a->asked[i], &b->asked[k]);
        differences += order != 0;
        i += order <= 0;
        k += order >= 0;
    }
    return differences + (a->n - i) + (b->n - k);
}
