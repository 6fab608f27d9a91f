// drafter.c - creates and destroys a drafter of any type, and supplies what its type leaves out.
#include "drafters/drafter.h"

#include <stdlib.h>

#include "core/memory.h"
#include "core/settings.h"
#include "drafters/parts.h"
#include "drafters/trees/tree_builder.h"

// Returns a copy of env and of the text that it points to: a drafter may keep the pointer.
static struct drafter_env *env_copy(const struct drafter_env *env)
{
    struct drafter_env *own = xmalloc(sizeof(*own));
    *own = *env;
    own->beside = env->beside != NULL ? xstrdup(env->beside) : NULL;
    return own;
}

static void env_free(struct drafter_env *own)
{
    if (own == NULL) // a test made the drafter without drafter_create
        return;
    free((char *)(uintptr_t)own->beside);
    free(own);
}

struct drafter *drafter_create(const struct drafter_type *type, const struct drafter_env *env, const void *options,
                               struct error *err)
{
    struct drafter_env *own = env_copy(env);
    own->type = type;
    struct drafter *d = type->create(own, options, err);
    if (d == NULL) {
        env_free(own);
        return NULL;
    }
    d->type = type;
    d->env = own;
    if (!hash_is_none(type->source)) {
        struct digest *sum = digest_begin();
        digest_hash(sum, d->identity);
        digest_hash(sum, type->source);
        d->identity = digest_end(sum);
    }
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

static const struct tree_options *tree_of(const struct drafter_type *type, const void *options)
{
    return (const struct tree_options *)((const char *)options + type->tree);
}

static const struct settings *parts_of(const void *options)
{
    return *(struct settings *const *)options;
}

bool drafter_check(const struct drafter_type *type, const void *options, struct error *err)
{
    char *what = xformat("drafter %s", type->name);
    const bool ok = (type->tree == 0 || tree_options_check(tree_of(type, options), what, err)) &&
                    (type->of == NULL || type->of->check(parts_of(options), type->of, err));
    free(what);
    return ok && (type->check == NULL || type->check(options, err));
}

unsigned drafter_makes(const struct drafter_type *type, const void *options)
{
    enum draft_memory ignored;
    return type->makes != NULL ? type->makes(options)
           : type->of != NULL  ? type->of->makes(parts_of(options), type->of, &ignored)
           : type->tree > 0    ? tree_options_kinds(tree_of(type, options))
           : type->kinds != 0  ? type->kinds
                               : TAKES_DETERMINISTIC;
}

enum draft_memory drafter_remembers(const struct drafter_type *type, const void *options)
{
    enum draft_memory memory = type->remembers != NULL ? type->remembers(options) : type->memory;
    if (type->remembers == NULL && type->of != NULL)
        type->of->makes(parts_of(options), type->of, &memory);
    return memory;
}
