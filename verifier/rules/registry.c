// registry.c - the list of all rules; the first is the default. A rule `name` defines name##_rule in a file of this
// folder. Those of plugins follow.
#include "core/registry.h"
#include "verifier/rules/rule.h"

#define RULES(RULE) \
    RULE(rejection) \
    RULE(match) \
    RULE(block) \
    RULE(traversal) \
    RULE(spectr) \
    RULE(multipath) \
    RULE(typical) \
    RULE(blockwise) \
    RULE(lenient) \
    RULE(synthetic)

#define DECLARE(name) extern const struct rule name##_rule;
RULES(DECLARE)

#define LIST(name) &name##_rule,
const struct rule *rules[MAX_REGISTERED + 1] = { RULES(LIST) };

static const char *lacks(const void *entry)
{
    const struct rule *rule = entry;
    return rule->verify == NULL                               ? "verify"
           : rule->takes == 0                                 ? "takes"
           : rule->options != NULL && rule->options_size == 0 ? "options_size"
                                                              : NULL;
}

#define NAME(name) #name,
static const char *const listed[] = { RULES(NAME) NULL };
static const struct registry registry = { "rule", rules, listed, MAX_REGISTERED, lacks, REGISTRY_OF(rule) };

__attribute__((constructor)) static void check_names(void)
{
    registry_require(&registry);
}

const struct rule *rule_named(const char *name)
{
    return registry_named(&registry, name);
}

int rule_names(const char **to)
{
    return registry_names(&registry, to);
}

bool speclab_register_rule(const struct rule *rule, struct error *err)
{
    return registry_add(&registry, rule, err);
}
