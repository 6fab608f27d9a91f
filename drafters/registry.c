// registry.c - the list of all drafters; the first is the default, and the baseline. A drafter `name` defines
// name##_drafter in a file of this folder.
#include <string.h>

#include "core/registry.h"
#include "drafters/drafter.h"
#include "extensions.h"

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
    DRAFTER(blockwise) \
    EXTENSION_DRAFTERS(DRAFTER)

#define DECLARE(name) extern const struct drafter_type name##_drafter;
#define LIST(name) &name##_drafter,

DRAFTERS(DECLARE)

const struct drafter_type *const drafter_types[] = { DRAFTERS(LIST) NULL };

#define NAMES(entry) { #entry, &entry##_drafter.name },

__attribute__((constructor)) static void check_names(void)
{
    static const struct registered list[] = { DRAFTERS(NAMES) };
    registry_require(list, sizeof(list) / sizeof(*list), "drafter");
}

const struct drafter_type *drafter_named(const char *name)
{
    for (int i = 0; drafter_types[i] != NULL; i++)
        if (strcmp(drafter_types[i]->name, name) == 0)
            return drafter_types[i];
    return NULL;
}
