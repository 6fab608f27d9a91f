// registry.c - the list of all rules; the first is the default. A rule `name` defines name##_rule in a file of this
// folder. Those of plugins follow.
#include <string.h>

#include "core/memory.h"
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

#define NAMES(entry) { #entry, &entry##_rule.name },

__attribute__((constructor)) static void check_names(void)
{
    static const struct registered list[] = { RULES(NAMES) };
    registry_require(list, sizeof(list) / sizeof(*list), "rule");
}

const struct rule *rule_named(const char *name)
{
    for (int i = 0; rules[i]; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

bool speclab_register_rule(const struct rule *rule, struct error *err)
{
    int n = 0;
    while (rules[n] != NULL)
        n++;
    const char *lacks = rule->verify == NULL                               ? "verify"
                        : rule->takes == 0                                 ? "takes"
                        : rule->options != NULL && rule->options_size == 0 ? "options_size"
                                                                           : NULL;
    const bool known = rule->name != NULL && rule_named(rule->name) != NULL;
    if (!registry_admits("rule", rule->name, rule->summary, known, lacks, n, MAX_REGISTERED, err))
        return false;
    struct rule *own = xmalloc(sizeof(*own)); // it stays for the rest of the process, as the list does
    *own = *rule;
    own->source = registry_source();
    rules[n] = own;
    return true;
}
