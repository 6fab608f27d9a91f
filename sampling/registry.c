// registry.c - the list of all sampling stages, in the order of application. A stage `name` defines name##_stage, in
// stages.c or in a file of its own in this folder. Those of plugins follow.
#include <string.h>

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

static const char *lacks(const void *entry)
{
    const struct stage *stage = entry;
    const struct option *o = stage->option;
    const bool has_option = o != NULL && o->name != NULL && strcmp(o->name, stage->name) == 0 && o[1].name == NULL &&
                            o->default_value != NULL && stage->options_size > 0;
    return stage->apply == NULL ? "apply" : !has_option ? "option, one of the stage's name that has a default" : NULL;
}

#define NAME(name) #name,
static const char *const listed[] = { STAGES(NAME) NULL };
static const struct registry registry = { "stage", stages, listed, MAX_STAGES, lacks, REGISTRY_OF(stage) };

__attribute__((constructor)) static void check_names(void)
{
    registry_require(&registry);
}

const struct stage *stage_named(const char *name)
{
    return registry_named(&registry, name);
}

int stage_names(const char **to)
{
    return registry_names(&registry, to);
}

bool speclab_register_stage(const struct stage *stage, struct error *err)
{
    return registry_add(&registry, stage, err);
}
