// repeat.c - an example of a drafter without weights: it proposes that the text goes on with its last tokens again and again.
//
// With period 2 the draft after "a b c" is "b c b c ...".
#include <stdlib.h>

#include "core/memory.h"
#include "engine/plugin.h"

struct repeat_options {
    int period; // tokens that are repeated
    int tokens; // tokens to propose
};

struct repeat {
    struct drafter drafter; // first
    struct repeat_options o;
};

static struct drafter *repeat_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)env, (void)err;
    struct repeat *d = xcalloc(1, sizeof(*d));
    d->o = *(const struct repeat_options *)options;
    d->drafter.nodes = 1 + d->o.tokens;
    return &d->drafter;
}

static bool repeat_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    const struct repeat_options *o = &((struct repeat *)d)->o;
    for (int i = 0; i < n; i++) {
        const int32_t *last = r[i].token + r[i].n - o->period;
        if (r[i].n < o->period)
            continue;
        for (int depth = 0, node = 0; depth < o->tokens && depth < r[i].depth && node >= 0; depth++)
            node = draft_add(r[i].draft, node, last[depth % o->period], DETERMINISTIC);
    }
    return true;
}

static void repeat_destroy(struct drafter *d)
{
    free(d);
}

static const struct option repeat_options[] = {
    { "period", OPTION_INT, offsetof(struct repeat_options, period), "1", "tokens that are repeated", 1, 64, NULL },
    { "tokens", OPTION_INT, offsetof(struct repeat_options, tokens), "4", "tokens to propose", 1, 256, NULL },
    { 0 },
};

static const struct drafter_type repeat_drafter = {
    .name = "repeat",
    .summary = "an example: the last tokens again",
    .options = repeat_options,
    .options_size = sizeof(struct repeat_options),
    .create = repeat_create,
    .propose = repeat_propose,
    .destroy = repeat_destroy,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_drafter(&repeat_drafter, err);
}
