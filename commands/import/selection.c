// selection.c - sorts candidates by what they are compared by, removes, and puts them in the files' order again.
#include "commands/import/selection.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"

void selection_add(struct selection *s, struct made_prompt p, char *place, int64_t number)
{
    if (s->n == s->capacity) {
        s->capacity = next_capacity(s->capacity, s->n + 1);
        s->candidate = xrealloc(s->candidate, s->capacity * sizeof(*s->candidate));
    }
    s->candidate[s->n++] = (struct candidate){ p, place, number, 0 };
}

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_hash(struct hash a, struct hash b)
{
    return a.high != b.high ? order(a.high, b.high) : order(a.low, b.low);
}

static int by_number(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const int c = by_hash(x->p.id, y->p.id);
    return c != 0 ? c : by_number(a, b);
}

static int by_text(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const int c = by_hash(x->p.text, y->p.text);
    return c != 0 ? c : by_number(a, b);
}

static int by_rank(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->rank != y->rank ? order(x->rank, y->rank) : by_number(a, b);
}

static int by_category(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const int c = strcmp(x->p.category, y->p.category);
    return c != 0 ? c : by_rank(a, b);
}

static void sort(struct selection *s, int (*by)(const void *, const void *))
{
    if (s->n > 0)
        qsort(s->candidate, s->n, sizeof(*s->candidate), by);
}

static void drop(struct candidate *c)
{
    made_prompt_free(&c->p);
    free(c->place);
    c->place = NULL;
}

static void remove_dropped(struct selection *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->candidate[i].place != NULL)
            s->candidate[kept++] = s->candidate[i];
    s->n = kept;
}

bool selection_check(struct selection *s, bool collected, int64_t *repeated, struct error *err)
{
    *repeated = 0;
    for (int pass = 0; pass < 2; pass++) { // ids, then texts
        sort(s, pass == 0 ? by_id : by_text);
        const struct candidate *first = s->candidate;
        for (size_t i = 1; i < s->n; i++) {
            struct candidate *c = &s->candidate[i];
            if (by_hash(pass == 0 ? c->p.id : c->p.text, pass == 0 ? first->p.id : first->p.text) != 0) {
                first = c;
                continue;
            }
            if (pass == 0 && !collected)
                return fail(err, "%s: expected an id that no other entry has, found that of %s", c->place,
                            first->place);
            ++*repeated;
            if (collected)
                drop(c);
        }
        remove_dropped(s);
    }
    sort(s, by_number);
    return true;
}

void selection_limit(struct selection *s, int64_t per_category, int64_t limit, int64_t seed)
{
    for (size_t i = 0; i < s->n; i++) {
        struct candidate *c = &s->candidate[i];
        uint64_t state = (uint64_t)seed + (uint64_t)c->number * 0x9e3779b97f4a7c15; // after `number` calls
        c->rank = seed < 0 ? (uint64_t)c->number : splitmix(&state);
    }
    if (per_category > 0) {
        sort(s, by_category);
        int64_t taken = 0;
        const char *category = NULL; // of a candidate that is kept
        for (size_t i = 0; i < s->n; i++) {
            struct candidate *c = &s->candidate[i];
            taken = category != NULL && strcmp(c->p.category, category) == 0 ? taken + 1 : 1;
            if (taken > per_category)
                drop(c);
            else
                category = c->p.category;
        }
        remove_dropped(s);
    }
    if (limit > 0) {
        sort(s, by_rank);
        for (size_t i = (size_t)limit; i < s->n; i++)
            drop(&s->candidate[i]);
        remove_dropped(s);
    }
    sort(s, by_number);
}

void selection_free(struct selection *s)
{
    for (size_t i = 0; i < s->n; i++)
        drop(&s->candidate[i]);
    free(s->candidate);
    *s = (struct selection){ 0 };
}
