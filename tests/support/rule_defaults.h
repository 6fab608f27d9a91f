// rule_defaults.h - the options of a rule that none were given for.
#pragma once

struct rule;

void *rule_defaults(const struct rule *rule); // owned by the caller; NULL: the rule has no options
void rule_defaults_free(const struct rule *rule, void *options);
