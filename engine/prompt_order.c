// prompt_order.c - a random order in which every category is spread evenly: consecutive prompts have about the shares
// of all.
//
// Experiments decode prompts in this order, since files are often sorted by category. Otherwise the prompts that are
// decoded together, or first in an experiment that is cut short, would be of one kind. This is systematic sampling of
// strata (Cochran, Sampling Techniques, 3rd ed., section 8.2): prompt k of the m of its category, in random order, is
// at (k + u) / m with u uniform.
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/memory.h"
#include "engine/prompts.h"

struct place {
    struct prompt prompt;
    uint64_t random;
    double at; // a number in [0, 1)
};

static int category_order(const struct place *x, const struct place *y) // 0: one category, or none
{
    const char *c = x->prompt.category, *d = y->prompt.category;
    return c == NULL || d == NULL ? (c != NULL) - (d != NULL) : strcmp(c, d);
}

static int by_category(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int order = category_order(x, y);
    return order != 0               ? order
           : x->random != y->random ? (x->random < y->random ? -1 : 1)
                                    : x->prompt.number - y->prompt.number;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->prompt.number - y->prompt.number;
}

// Returns bits that depend on the seed and the prompt's number only, so that another limit changes few places.
static uint64_t random_of(uint64_t seed, const struct prompt *p)
{
    struct digest *d = digest_begin();
    digest_int(d, (int64_t)seed);
    digest_int(d, p->number);
    return digest_end(d).low;
}

void prompts_shuffle(struct prompts *p, uint64_t seed)
{
    struct place *place = xcalloc((size_t)p->n + 1, sizeof(*place));
    for (int i = 0; i < p->n; i++)
        place[i] = (struct place){ .prompt = p->prompt[i], .random = random_of(seed, &p->prompt[i]) };
    qsort(place, (size_t)p->n, sizeof(*place), by_category);
    for (int i = 0, n; i < p->n; i += n) {
        for (n = 1; i + n < p->n && category_order(&place[i], &place[i + n]) == 0;)
            n++;
        for (int k = 0; k < n; k++) // u is the low half, since the high one is in order
            place[i + k].at = (k + (double)(uint32_t)place[i + k].random / 0x1p32) / n;
    }
    qsort(place, (size_t)p->n, sizeof(*place), by_place);
    for (int i = 0; i < p->n; i++)
        p->prompt[i] = place[i].prompt;
    free(place);
}
