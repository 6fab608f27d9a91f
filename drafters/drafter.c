// drafter.c - creates and destroys a drafter of any type, and answers for its type what is left out there.
#include "drafters/drafter.h"

#include <stdlib.h>

#include "core/memory.h"
#include "core/settings.h"

// A copy of its own, with the text that it points to: a drafter may keep the pointer.
static struct drafter_env *env_copy(const struct drafter_env *env)
{
    struct drafter_env *own = xmalloc(sizeof(*own));
    *own = *env;
    own->beside = env->beside != NULL ? xstrdup(env->beside) : NULL;
    return own;
}

static void env_free(struct drafter_env *own)
{
    if (own == NULL) // a test made the drafter by itself
        return;
    free((char *)(uintptr_t)own->beside);
    free(own);
}

struct drafter *drafter_create(const struct drafter_type *type, const struct drafter_env *env, const void *options,
                               struct error *err)
{
    struct drafter_env *own = env_copy(env);
    struct drafter *d = type->create(own, options, err);
    if (d == NULL) {
        env_free(own);
        return NULL;
    }
    d->type = type;
    d->env = own;
    return d;
}

void drafter_destroy(struct drafter *d)
{
    if (d == NULL)
        return;
    struct drafter_env *own = d->env;
    d->type->destroy(d);
    env_free(own);
}

void drafter_resolve(const struct drafter *d, struct settings *options)
{
    for (int i = 0; i < MAX_RESOLVED && d->resolved[i].option != NULL; i++)
        settings_put(options, d->resolved[i].option, settings_scalar(d->resolved[i].value));
    for (int i = 0; d->resolved_options != NULL && i < d->resolved_options->n; i++)
        settings_put(options, d->resolved_options->key[i], settings_copy(d->resolved_options->item[i]));
}

unsigned drafter_makes(const struct drafter_type *type, const void *options)
{
    return type->makes != NULL ? type->makes(options) : TAKES_DETERMINISTIC;
}

enum draft_memory drafter_remembers(const struct drafter_type *type, const void *options)
{
    return type->remembers != NULL ? type->remembers(options) : DRAFTS_OF_TEXT;
}
