#include "tests/support/rule_defaults.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

void *rule_defaults(const struct rule *rule)
{
    struct error err;
    if (rule->options == NULL)
        return NULL;
    void *options = xcalloc(1, rule->options_size);
    assert_ok(options_read(NULL, rule->name, rule->options, options, &err), err);
    return options;
}

void rule_defaults_free(const struct rule *rule, void *options)
{
    if (options != NULL)
        options_free(rule->options, options);
    free(options);
}
