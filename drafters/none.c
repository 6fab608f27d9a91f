// none.c - proposes nothing: plain autoregressive decoding, the baseline of all comparisons.
#include <stdlib.h>

#include "core/memory.h"
#include "drafters/drafter.h"

static struct drafter *none_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)env, (void)options, (void)err;
    struct drafter *d = xcalloc(1, sizeof(*d));
    d->nodes = 1;
    return d;
}

static bool none_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)d, (void)r, (void)n, (void)err;
    return true;
}

static unsigned none_makes(const void *options)
{
    (void)options;
    return 0; // any rule takes empty drafts
}

static void none_destroy(struct drafter *d)
{
    free(d);
}

const struct drafter_type none_drafter = {
    .name = "none",
    .summary = "no draft tokens: plain autoregressive decoding, the baseline",
    .create = none_create,
    .propose = none_propose,
    .destroy = none_destroy,
    .makes = none_makes,
};
