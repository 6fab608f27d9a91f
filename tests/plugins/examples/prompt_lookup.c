// prompt_lookup.c - an example of a drafter that uses where the prompt ends: it proposes what followed the last token in the prompt.
//
// Tokens that were generated are not looked up.
#include <stdlib.h>

#include "core/memory.h"
#include "engine/plugin.h"

struct prompt_lookup_options {
    int tokens; // tokens to propose
};

struct prompt_lookup {
    struct drafter drafter; // first
    struct prompt_lookup_options o;
};

static struct drafter *prompt_lookup_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)env, (void)err;
    struct prompt_lookup *d = xcalloc(1, sizeof(*d));
    d->o = *(const struct prompt_lookup_options *)options;
    d->drafter.nodes = 1 + d->o.tokens;
    return &d->drafter;
}

static bool prompt_lookup_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    const struct prompt_lookup *l = (const struct prompt_lookup *)d;
    for (int i = 0; i < n; i++) {
        int at = (r[i].prompt < r[i].n ? r[i].prompt : r[i].n - 1) - 1;
        while (at >= 0 && r[i].token[at] != r[i].token[r[i].n - 1])
            at--;
        for (int depth = 0, node = 0; at >= 0 && node >= 0; depth++) {
            if (++at == r[i].prompt || depth == l->o.tokens || depth == r[i].depth)
                break;
            node = draft_add(r[i].draft, node, r[i].token[at], DETERMINISTIC);
        }
    }
    return true;
}

static void prompt_lookup_destroy(struct drafter *d)
{
    free(d);
}

static const struct option prompt_lookup_options[] = {
    { "tokens", OPTION_INT, offsetof(struct prompt_lookup_options, tokens), "4", "tokens to propose", 1, 256, NULL },
    { 0 },
};

static const struct drafter_type prompt_lookup_drafter = {
    .name = "prompt_lookup",
    .summary = "an example: what followed the last token in the prompt",
    .options = prompt_lookup_options,
    .options_size = sizeof(struct prompt_lookup_options),
    .create = prompt_lookup_create,
    .propose = prompt_lookup_propose,
    .destroy = prompt_lookup_destroy,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_drafter(&prompt_lookup_drafter, err);
}
