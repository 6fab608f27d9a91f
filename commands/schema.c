// schema.c - `speclab schema`: a JSON schema of experiment files, from the tables of options, so that editors complete
// keys and check values.
//
// It is draft 7, which yaml-language-server reads. What an experiment may write in the place of a value, a range or
// `any` (experiments/sweep/variants.h), is accepted where it is. What depends on other files or on several keys at once
// is left to `speclab run --dry-run`.
#include "commands/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/options.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "experiments/experiment.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

static struct json *list_of(struct json *first)
{
    struct json *list = json_new_array();
    json_push(list, first);
    return list;
}

static struct json *typed(const char *type)
{
    return json_object_of(JSON("type", type));
}

static struct json *reference(const char *name)
{
    char *path = xformat("#/definitions/%s", name);
    struct json *j = json_object_of(JSON("$ref", path));
    free(path);
    return j;
}

// A mapping with these keys and no others.
static struct json *mapping(struct json *properties)
{
    return json_object_of(JSON("type", "object"), JSON("properties", properties),
                          JSON("additionalProperties", json_new_bool(false)));
}

// ---- values

static struct json *number_type(const struct option *o, const char *type)
{
    struct json *j = typed(type);
    if (o->min != 0 || o->max != 0)
        json_add(j, JSON("minimum", o->min), JSON("maximum", o->max));
    return j;
}

// The value, a range of it if it is a number, or any of several.
static struct json *variants(struct json *value, bool number)
{
    struct json *all = list_of(json_clone(value)), *one = json_new_object();
    if (number)
        json_push(all, reference("range"));
    json_set(one, "anyOf", json_clone(all));
    json_push(all, json_object_of(JSON("type", "object"), JSON("additionalProperties", json_new_bool(false)),
                                  JSON("required", json_choices("any")),
                                  JSON("properties", json_object_of(JSON("any", json_object_of(JSON("type", "array"),
                                                                                               JSON("minItems", 1),
                                                                                               JSON("items", one)))))));
    json_free(value);
    return json_object_of(JSON("anyOf", all));
}

static struct json *pairs_type(const struct option *o)
{
    return json_object_of(
        JSON("type", "object"), JSON("additionalProperties", json_new_bool(false)),
        JSON("patternProperties", json_object_of(JSON("^[0-9]+$", variants(number_type(o, "number"), true)))));
}

// One value of an option, without variants.
static struct json *value_type(const struct option *o)
{
    switch (o->type) {
    case OPTION_INT:
        return number_type(o, "integer");
    case OPTION_REAL:
        return number_type(o, "number");
    case OPTION_BOOL:
        return typed("boolean");
    case OPTION_CHOICE:
        return json_object_of(JSON("enum", json_choices(o->choices)));
    case OPTION_INTS:
        return json_object_of(JSON("type", "array"), JSON("items", variants(number_type(o, "integer"), true)));
    case OPTION_PAIRS:
        return pairs_type(o);
    case OPTION_TEXT:
        return json_object_of(JSON("type", json_choices("string|number|boolean|array")));
    case OPTION_PATH:
        return json_object_of(JSON("type", json_choices("string|number")));
    case OPTION_ANY:
        break;
    }
    return json_object_of(JSON("anyOf", list_of(reference("part"))));
}

static struct json *described(struct json *j, const struct option *o)
{
    const bool has_default = o->default_value != NULL && *o->default_value != '\0';
    char *text = xformat(has_default ? "%s; default: %s" : "%s", o->help, has_default ? o->default_value : "");
    json_set(j, "description", json_new_text(text));
    free(text);
    return j;
}

// with_variants: in cells, where a value may be a range or `any`.
static void add_options(struct json *properties, const struct option *o, bool with_variants)
{
    for (; o != NULL && o->name != NULL; o++) {
        struct json *value = value_type(o);
        if (o->type == OPTION_ANY)
            json_push(json_get(value, "anyOf"),
                      json_object_of(JSON("type", "array"), JSON("items", reference("part")), JSON("minItems", 1)));
        else if (with_variants)
            value = variants(value, o->type == OPTION_INT || o->type == OPTION_REAL);
        json_set(properties, o->name, described(value, o));
    }
}

static struct json *required(const struct option *o)
{
    struct json *list = json_new_array();
    for (; o != NULL && o->name != NULL; o++)
        if (o->default_value == NULL)
            json_push(list, json_new_text(o->name));
    return list;
}

// ---- drafters, rules, stages

// If the mapping is of this kind, it has the kind's options and no others. own: keys that every kind has besides.
static struct json *of_kind(const char *name, const char *summary, const struct option *options, struct json *own)
{
    struct json *properties = json_clone(own);
    add_options(properties, options, true);
    json_add(properties, JSON("kind", json_object_of(JSON("description", summary))), JSON("zip", typed("object")));
    struct json *then = mapping(properties);
    struct json *needed = required(options);
    if (json_count(needed) > 0) { // an option may stand in a zip
        struct json *either = list_of(json_object_of(JSON("required", json_incref(needed))));
        json_push(either, json_object_of(JSON("required", json_choices("zip"))));
        json_set(then, "anyOf", either);
    }
    json_free(needed);
    return json_object_of(
        JSON("if",
             json_object_of(JSON("properties", json_object_of(JSON("kind", json_object_of(JSON("const", name))))))),
        JSON("then", then));
}

// A kind's name, or a mapping with `kind` and its options.
static struct json *kinds(struct json *names, struct json *conditions)
{
    struct json *kind = variants(json_object_of(JSON("enum", json_clone(names))), false);
    struct json *map =
        json_object_of(JSON("type", "object"), JSON("required", json_choices("kind")),
                       JSON("properties", json_object_of(JSON("kind", kind))), JSON("allOf", conditions));
    struct json *all = list_of(json_object_of(JSON("enum", names)));
    json_push(all, map);
    return json_object_of(JSON("anyOf", all));
}

// part: of ladder, union or adaptive, which may have at_least; else one of the experiment, which may have `length`.
static struct json *drafters(bool part)
{
    struct json *names = json_new_array(), *conditions = json_new_array(), *own = json_new_object();
    if (part)
        json_set(own, "at_least",
                 json_object_of(
                     JSON("type", "integer"), JSON("minimum", 1),
                     JSON("description", "of ladder: draft tokens that the draft must have to be taken; default: 1")));
    else
        json_set(own, "length",
                 json_object_of(
                     JSON("type", json_choices("string|object")),
                     JSON("description", "adaptive, or options of the drafter adaptive: as many draft tokens as pay")));
    for (int i = 0; drafter_types[i] != NULL; i++) {
        const struct drafter_type *t = drafter_types[i];
        if (part && t->of != NULL)
            continue;
        json_push(names, json_new_text(t->name));
        json_push(conditions, of_kind(t->name, t->summary, t->options, own));
    }
    json_free(own);
    return kinds(names, conditions);
}

static struct json *all_rules(void)
{
    struct json *names = json_new_array(), *conditions = json_new_array(), *own = json_new_object();
    for (int i = 0; rules[i] != NULL; i++) {
        json_push(names, json_new_text(rules[i]->name));
        json_push(conditions, of_kind(rules[i]->name, rules[i]->summary, rules[i]->options, own));
    }
    json_free(own);
    return kinds(names, conditions);
}

static struct json *sampling(void)
{
    struct json *properties = json_object_of(JSON("zip", typed("object")));
    for (int i = 0; stages[i] != NULL; i++)
        add_options(properties, stages[i]->option, true);
    return mapping(properties);
}

// ---- the file

// One value or a list of them, each with variants.
static struct json *axis(const char *definition, bool number, const char *help)
{
    struct json *value = variants(reference(definition), number);
    struct json *list = json_object_of(JSON("type", "array"), JSON("minItems", 1), JSON("items", json_clone(value)));
    json_push(json_get(value, "anyOf"), list);
    json_set(value, "description", json_new_text(help));
    return value;
}

static struct json *partial(void)
{
    struct json *any = json_new_object();
    return json_add(any, JSON("sampling", json_new_object()), JSON("batch", json_new_object()),
                    JSON("rule", json_new_object()), JSON("drafter", json_new_object()),
                    JSON("target", json_new_object()));
}

static struct json *one_or_list(struct json *one)
{
    struct json *all = list_of(json_clone(one));
    json_push(all, json_object_of(JSON("type", "array"), JSON("items", one)));
    return json_object_of(JSON("anyOf", all));
}

static struct json *cells(void)
{
    struct json *axes = json_object_of(
        JSON("sampling", axis("sampling", false, "sampling stages with their values; a list varies them")),
        JSON("batch", axis("batch", true, "how many texts are decoded at a time; a list varies it")),
        JSON("rule", axis("rule", false, "rules, by name or with options; a list varies them")),
        JSON("drafter", axis("drafter", false, "drafters, by name or with options; a list varies them; none is added")),
        JSON("target", json_object_of(JSON("description", "targets, if they are not given beside `cells`"))));
    struct json *zip = mapping(json_clone(axes));
    json_add(axes, JSON("zip", one_or_list(zip)), JSON("exclude", one_or_list(mapping(partial()))));
    return described(mapping(axes), &(struct option){ .help = "the cells: every combination of these lists" });
}

// The keys that no table describes, of a part by its key.
static void add_other_keys(struct json *properties, const char *part)
{
    if (part == NULL)
        json_add(
            properties,
            JSON("seed", json_object_of(JSON("type", "integer"), JSON("minimum", 0),
                                        JSON("description", "seed of all random numbers; default: 0"))),
            JSON("plugins", json_object_of(JSON("type", "array"), JSON("items", typed("string")),
                                           JSON("description", "files of drafters and rules, as --plugin takes them"))),
            JSON("cells", cells()));
    else if (strcmp(part, "prompts") == 0)
        json_set(
            properties, "chat",
            json_object_of(
                JSON("type", json_choices("string|object|boolean")),
                JSON("description",
                     "auto, none, chatml, vicuna, zephyr, a template's file, or {template: .., variables: {..}}")));
    else if (strcmp(part, "limits") == 0)
        json_set(properties, "stop",
                 json_object_of(JSON("type", json_choices("string|number|boolean|array")),
                                JSON("description", "texts that end an answer: one, or a list")));
    else if (strcmp(part, "record") == 0) {
        struct json *rows = list_of(json_object_of(JSON("const", "full")));
        json_push(rows, json_object_of(JSON("type", "integer"), JSON("minimum", 1)));
        json_set(properties, "rows",
                 json_object_of(
                     JSON("anyOf", rows),
                     JSON("description", "drafts with their rows of p and q: full, or how many entries of each row")));
    }
}

static struct json *file_schema(void)
{
    struct json *root = NULL, *needed = NULL;
    for (const struct experiment_part *p = experiment_parts; p->keys != NULL; p++) {
        struct json *properties = json_new_object(), *part = mapping(properties), *own = required(p->keys);
        const bool target = p->key != NULL && strcmp(p->key, "target") == 0; // one or several, here or under `cells`
        add_options(properties, p->keys, target);
        add_other_keys(properties, p->key);
        if (p->key == NULL) {
            root = part;
            needed = own;
            continue;
        }
        if (json_count(own) > 0)
            json_set(part, "required", json_incref(own));
        json_free(own);
        if (p->required)
            json_push(needed, json_new_text(p->key));
        if (target) {
            struct json *forms = list_of(part);
            json_push(forms, typed("array"));
            part = json_object_of(JSON("anyOf", forms));
        }
        json_set(json_get(root, "properties"), p->key, part);
    }
    json_set(root, "patternProperties", json_object_of(JSON("^x-", json_new_object())));
    json_set(root, "required", needed);
    return root;
}

static struct json *range(void)
{
    struct json *ends = json_object_of(JSON("from", typed("number")), JSON("to", typed("number")),
                                       JSON("step", typed("number")), JSON("factor", typed("integer")));
    struct json *j = mapping(ends);
    json_set(j, "required", json_choices("from|to"));
    return j;
}

static const char about[] =
    "Prints a JSON schema of experiment files, with which editors complete keys, kinds and options and check their values: a line\n"
    "`# yaml-language-server: $schema=FILE` at the beginning of an experiment names it. What depends on other files is checked by\n"
    "`speclab run --dry-run`.\n";
static const char examples[] = "  speclab schema > experiment.schema.json\n";

int command_schema(int argc, char **argv)
{
    const struct flag flags[] = { { 0 } };
    const struct usage u = { "schema", "", about, flags, examples, 0, 0 };
    char **operand;
    const int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    struct json *definitions = json_object_of(
        JSON("range", range()), JSON("sampling", sampling()),
        JSON("batch", json_object_of(JSON("type", "integer"), JSON("minimum", 1), JSON("maximum", MAX_SLOTS))),
        JSON("rule", all_rules()), JSON("drafter", drafters(false)), JSON("part", drafters(true)));
    struct json *j = json_object_of(JSON("$schema", "http://json-schema.org/draft-07/schema#"),
                                    JSON("title", "An experiment of speclab"));
    struct json *file = file_schema();
    for (void *at = json_first(file); at != NULL; at = json_next(file, at))
        json_set(j, json_key(at), json_incref(json_value(at)));
    json_free(file);
    json_set(j, "definitions", definitions);
    json_print(j, stdout);
    return command_done(&u);
}
