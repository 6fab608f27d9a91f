// list_command.c - `speclab list --json`: the registered drafters, rules and sampling stages with all their options, of
// which python/speclab/words/list.py makes text.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/registry.h"
#include "drafters/drafter.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

static const struct {
    unsigned bit;
    const char *name;
} takes[] = {
    { TAKES_DETERMINISTIC, "deterministic" },
    { TAKES_SAMPLED, "sampled" },
    { TAKES_WITHOUT_REPLACEMENT, "sampled_without_replacement" },
    { TAKES_CHAINS, "chains" },
    { TAKES_TREES, "trees" },
};
enum { KINDS = sizeof(takes) / sizeof(takes[0]) };

static const char *type_name(enum option_type type)
{
    static const char *const names[] = {
        [OPTION_INT] = "integer",
        [OPTION_REAL] = "number",
        [OPTION_BOOL] = "true or false",
        [OPTION_TEXT] = "text or list",
        [OPTION_PATH] = "path",
        [OPTION_CHOICE] = "one of",
        [OPTION_INTS] = "list of integers",
        [OPTION_PAIRS] = "mapping from token ids to numbers",
        [OPTION_ANY] = "list",
    };
    return names[type];
}

static bool has_range(const struct option *o)
{
    return o->min != 0 || o->max != 0;
}

static bool is_listed(const char *only, const char *name)
{
    return only == NULL || strcmp(only, name) == 0;
}

struct json *options_json(const struct option *o)
{
    struct json *list = json_new_array();
    for (; o != NULL && o->name != NULL; o++) {
        struct json *j = json_object_of(JSON("name", o->name), JSON("type", type_name(o->type)));
        if (o->type == OPTION_CHOICE)
            json_set(j, "choices", json_choices(o->choices));
        json_add(j, JSON("required", json_new_bool(o->default_value == NULL)),
                 JSON("default", o->default_value != NULL && *o->default_value != '\0' ? o->default_value : NULL),
                 JSON("min", has_range(o) ? o->min : NAN), JSON("max", has_range(o) ? o->max : NAN),
                 JSON("help", o->help));
        json_push(list, j);
    }
    return list;
}

static struct json *entry_json(const char *name, const char *summary, const struct option *options)
{
    return json_object_of(JSON("name", name), JSON("summary", summary), JSON("options", options_json(options)));
}

static struct json *rule_json(const struct rule *r)
{
    struct json *j = entry_json(r->name, r->summary, r->options), *list = json_new_array();
    for (int i = 0; i < KINDS; i++)
        if (r->takes & takes[i].bit)
            json_push(list, json_new_text(takes[i].name));
    json_add(j, JSON("exact", r->exact), JSON("optimal", r->optimal), JSON("takes", list));
    return j;
}

struct json *registries_json(const char *only)
{
    struct json *d = json_new_array(), *r = json_new_array(), *s = json_new_array();
    for (int i = 0; drafter_types[i] != NULL; i++) {
        const struct drafter_type *t = drafter_types[i];
        if (!is_listed(only, t->name))
            continue;
        struct json *j = entry_json(t->name, t->summary, t->options);
        // drafts may depend on earlier passes or texts
        json_add(j, JSON("remembers", json_new_bool(t->remembers != NULL || t->of != NULL || t->memory != 0)));
        json_push(d, j);
    }
    for (int i = 0; rules[i] != NULL; i++)
        if (is_listed(only, rules[i]->name))
            json_push(r, rule_json(rules[i]));
    for (int i = 0; stages[i] != NULL; i++)
        if (is_listed(only, stages[i]->name))
            json_push(s, entry_json(stages[i]->name, stages[i]->summary, stages[i]->option));
    return json_object_of(JSON("drafters", d), JSON("rules", r), JSON("stages", s));
}

static int fail_name(const struct usage *u, const char *name)
{
    const char *names[2 * MAX_REGISTERED + MAX_STAGES + 1];
    struct text hint = { 0 };
    const int drafters = drafter_names(names), known = drafters + rule_names(names + drafters);
    stage_names(names + known);
    text_puts(&hint, "");
    name_hint(&hint, NAME_KIND, name, names);
    usage_fail(u, "there is no drafter, rule or sampling stage \"%s\"%s%s", name, hint.s,
               hint.n == 0 ? "; speclab list prints all" : "");
    free(hint.s);
    return 2;
}

static bool is_known(const char *name)
{
    return drafter_named(name) != NULL || rule_named(name) != NULL || stage_named(name) != NULL;
}

static const char about[] =
    "Lists drafters, rules and sampling stages with their options: type, range, default and meaning. NAME: only what has\n"
    "this name.\n";
static const char examples[] = "  speclab list\n  speclab list ngram\n  speclab list --json\n";

int command_list(int argc, char **argv)
{
    bool unused; // without --json the package prints (commands/main.c)
    const struct flag flags[] = {
        { "json", FLAG_ON, &unused, NULL, "print one JSON object", 0, 0 },
        { 0 },
    };
    const struct usage u = { "list", "[NAME]", about, flags, examples, 0, 1 };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    const char *only = n > 0 ? operand[0] : NULL;
    if (only != NULL && !is_known(only))
        return fail_name(&u, only);
    json_print(registries_json(only), stdout);
    return command_done(&u);
}
