// registry.c - the list of all sampling stages, in the order of application. A stage `name` defines name##_stage, in
// stages.c or in a file of its own in this folder.
#include <string.h>

#include "core/registry.h"
#include "extensions.h"
#include "sampling/sampling.h"

#define STAGES(STAGE) \
    STAGE(repetition_penalty) \
    STAGE(logit_bias) \
    STAGE(temperature) \
    STAGE(top_k) \
    STAGE(top_p) \
    STAGE(min_p) \
    EXTENSION_STAGES(STAGE)

#define DECLARE(name) extern const struct stage name##_stage;
STAGES(DECLARE)

#define LIST(name) &name##_stage,
const struct stage *const stages[] = { STAGES(LIST) NULL };

_Static_assert(sizeof(stages) / sizeof(*stages) - 1 <= MAX_STAGES, "a step for every stage");

#define NAMES(entry) { #entry, &entry##_stage.name },

__attribute__((constructor)) static void check_names(void)
{
    static const struct registered list[] = { STAGES(NAMES) };
    registry_require(list, sizeof(list) / sizeof(*list), "stage");
}

const struct stage *stage_named(const char *name)
{
    for (int i = 0; stages[i] != NULL; i++)
        if (strcmp(stages[i]->name, name) == 0)
            return stages[i];
    return NULL;
}
