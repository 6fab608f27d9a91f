// registry.c - the list of all sampling stages, in the order of application. A stage `name` defines name##_stage, in
// stages.c or in a file of its own in this folder. Those of plugins follow.
#include <string.h>

#include "core/memory.h"
#include "core/registry.h"
#include "sampling/sampling.h"

#define STAGES(STAGE) \
    STAGE(repetition_penalty) \
    STAGE(frequency_penalty) \
    STAGE(presence_penalty) \
    STAGE(logit_bias) \
    STAGE(temperature) \
    STAGE(top_k) \
    STAGE(top_p) \
    STAGE(min_p)

#define DECLARE(name) extern const struct stage name##_stage;
STAGES(DECLARE)

#define LIST(name) &name##_stage,
const struct stage *stages[MAX_STAGES + 1] = { STAGES(LIST) };

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

bool speclab_register_stage(const struct stage *stage, struct error *err)
{
    int n = 0;
    while (stages[n] != NULL)
        n++;
    const struct option *o = stage->option;
    const bool has_option = o != NULL && o->name != NULL && stage->name != NULL && strcmp(o->name, stage->name) == 0 &&
                            o[1].name == NULL && o->default_value != NULL && stage->options_size > 0;
    const char *lacks = stage->apply == NULL ? "apply"
                        : !has_option        ? "option, one of the stage's name that has a default"
                                             : NULL;
    const bool known = stage->name != NULL && stage_named(stage->name) != NULL;
    if (!registry_admits("stage", stage->name, stage->summary, known, lacks, n, MAX_STAGES, err))
        return false;
    struct stage *own = xmalloc(sizeof(*own)); // it stays for the rest of the process, as the list does
    *own = *stage;
    own->source = registry_source();
    stages[n] = own;
    return true;
}
