// registry.c - the list of all rules; the first is the default. A rule `name` defines name##_rule in a file of this
// folder.
#include <string.h>

#include "core/registry.h"
#include "extensions.h"
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
    RULE(synthetic) \
    EXTENSION_RULES(RULE)

#define DECLARE(name) extern const struct rule name##_rule;
RULES(DECLARE)

#define LIST(name) &name##_rule,
const struct rule *const rules[] = { RULES(LIST) NULL };

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
