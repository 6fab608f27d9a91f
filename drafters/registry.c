// registry.c - the list of all drafters; the first is the default, and the baseline. A drafter `name` defines
// name##_drafter in a file of this folder. Those of plugins follow.
#include <string.h>

#include "core/memory.h"
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

#define NAMES(entry) { #entry, &entry##_drafter.name },

__attribute__((constructor)) static void check_names(void)
{
    static const struct registered list[] = { DRAFTERS(NAMES) };
    registry_require(list, sizeof(list) / sizeof(*list), "drafter");
    parts_choose_among(drafter_types);
}

const struct drafter_type *drafter_named(const char *name)
{
    for (int i = 0; drafter_types[i] != NULL; i++)
        if (strcmp(drafter_types[i]->name, name) == 0)
            return drafter_types[i];
    return NULL;
}

bool speclab_register_drafter(const struct drafter_type *type, struct error *err)
{
    int n = 0;
    while (drafter_types[n] != NULL)
        n++;
    const char *lacks = type->create == NULL                               ? "create"
                        : type->propose == NULL                            ? "propose"
                        : type->destroy == NULL                            ? "destroy"
                        : type->options != NULL && type->options_size == 0 ? "options_size"
                                                                           : NULL;
    const bool known = type->name != NULL && drafter_named(type->name) != NULL;
    if (!registry_admits("drafter", type->name, type->summary, known, lacks, n, MAX_REGISTERED, err))
        return false;
    struct drafter_type *own = xmalloc(sizeof(*own)); // it stays for the rest of the process, as the list does
    *own = *type;
    own->source = registry_source();
    drafter_types[n] = own;
    return true;
}
