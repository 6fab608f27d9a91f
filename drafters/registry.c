// registry.c - the list of all drafters; the first is the default, and the baseline. A drafter `name` defines
// name##_drafter in a file of this folder. Those of plugins follow.
#include "core/registry.h"
#include "drafters/drafter.h"
#include "drafters/parts.h"

#define DRAFTERS(DRAFTER) \
    DRAFTER(none) \
    DRAFTER(ngram) \
    DRAFTER(small) \
    DRAFTER(medusa) \
    DRAFTER(eagle) \
    DRAFTER(eagle3) \
    DRAFTER(ladder) \
    DRAFTER(suffix) \
    DRAFTER(rest) \
    DRAFTER(recycling) \
    DRAFTER(lookahead) \
    DRAFTER(early_exit) \
    DRAFTER(layer_skip) \
    DRAFTER(oracle) \
    DRAFTER(union) \
    DRAFTER(adaptive) \
    DRAFTER(blockwise)

#define DECLARE(name) extern const struct drafter_type name##_drafter;
#define LIST(name) &name##_drafter,

DRAFTERS(DECLARE)

const struct drafter_type *drafter_types[MAX_REGISTERED + 1] = { DRAFTERS(LIST) };

static const char *lacks(const void *entry)
{
    const struct drafter_type *type = entry;
    return type->create == NULL                               ? "create"
           : type->propose == NULL                            ? "propose"
           : type->destroy == NULL                            ? "destroy"
           : type->options != NULL && type->options_size == 0 ? "options_size"
                                                              : NULL;
}

#define NAME(name) #name,
static const char *const listed[] = { DRAFTERS(NAME) NULL };
static const struct registry registry = { "drafter",      drafter_types, listed,
                                          MAX_REGISTERED, lacks,         REGISTRY_OF(drafter_type) };

__attribute__((constructor)) static void check_names(void)
{
    registry_require(&registry);
    parts_choose_among(drafter_types);
}

const struct drafter_type *drafter_named(const char *name)
{
    return registry_named(&registry, name);
}

int drafter_names(const char **to)
{
    return registry_names(&registry, to);
}

bool speclab_register_drafter(const struct drafter_type *type, struct error *err)
{
    return registry_add(&registry, type, err);
}
