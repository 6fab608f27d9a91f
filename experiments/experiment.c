// experiment.c - reads and checks an experiment's file: keys, types and ranges of values, options of drafters and
// rules, compatibility of every drafter with every rule, existence of model and prompts. All checks come before a model
// is opened.
#include "experiments/experiment.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "core/tensor.h"
#include "engine/plugin.h"
#include "experiments/cells.h"
#include "experiments/replay/packed_rows.h"
#include "experiments/sweep/cell_lists.h"
#include "experiments/yaml.h"
#include "kernels/devices.h"
#include "models/kv_cache.h"
#include "models/paths.h"

enum { MAX_STOPS = 16, MAX_CONTEXT = 1 << 24 };

// A path of the file: one that does not begin with / is relative to the file's folder. The caller frees it.
static char *path_in(const struct experiment *e, const char *path)
{
    const bool as_is = *path == '/' || strcmp(e->folder, ".") == 0;
    return xformat("%s%s%s", as_is ? "" : e->folder, as_is ? "" : "/", path);
}

// ---- keys with a scalar value

#define AT(member) offsetof(struct experiment, member)

static const struct option file_keys[] = {
    { "name", OPTION_PATH, AT(name), NULL, "one line", 0, 0, NULL },
    { "threads", OPTION_INT, AT(threads), "0", "threads that compute; 0: one for each processor", 0, MAX_THREADS,
      NULL },
    { "repeat", OPTION_INT, AT(repeat), "1", "how often every text is decoded", 1, MAX_REPEATS, NULL },
    { "share_prompts", OPTION_BOOL, AT(share_prompts), "true", "whether cells of a pair compute a prompt once", 0, 0,
      NULL },
    { 0 },
};
static const struct option prompts_keys[] = {
    { "file", OPTION_PATH, AT(prompts_file), NULL, "the prompts", 0, 0, NULL },
    { "limit", OPTION_INT, AT(limit), "0", "how many prompts of the file; 0: all", 0, MAX_PROMPTS, NULL },
    { "per_category", OPTION_INT, AT(per_category), "0", "how many prompts of each category; 0: all", 0, MAX_PROMPTS,
      NULL },
    { 0 },
};
static const struct option limits_keys[] = {
    { "new_tokens", OPTION_INT, AT(new_tokens), "256", "maximum number of new tokens of a turn", 1, MAX_CONTEXT, NULL },
    { "context", OPTION_INT, AT(context), "2048", "maximum number of tokens of a text, the prompt included", 2,
      MAX_CONTEXT, NULL },
    { "ignore_end", OPTION_BOOL, AT(ignore_end), "false", "whether end-of-text tokens are ignored", 0, 0, NULL },
    { 0 },
};
static const struct option record_keys[] = {
    { "trials", OPTION_BOOL, AT(trials), "false",
      "whether each accepted or rejected draft token is a row of table trial", 0, 0, NULL },
    { "expected", OPTION_BOOL, AT(expected), "false",
      "whether what every rule would accept is stored in table step_rule", 0, 0, NULL },
    { 0 },
};

const struct experiment_part experiment_parts[] = {
    { NULL, file_keys, true },        { "target", target_keys, false }, { "prompts", prompts_keys, true },
    { "limits", limits_keys, false }, { "record", record_keys, false }, { NULL, NULL, false },
};

// Reads a mapping of the file: *s, NULL if it is optional and missing. keys: those of the table, and others.
static bool read_part(struct experiment *e, const char *key, bool required, const char *const *keys,
                      const struct option *table, const struct settings **s, struct error *err)
{
    *s = settings_get(e->file, key);
    if (*s == NULL && required)
        return settings_fail(err, e->file, "an experiment needs the key \"%s\"", key);
    return (*s == NULL || settings_is_map(*s, key, keys, err)) && options_take(*s, key, table, e, err);
}

// Loads the files of the list `plugins` as --plugin does. What they register is known to the keys read after it.
static bool load_plugins(const struct experiment *e, const struct settings *plugins, struct error *err)
{
    if (plugins != NULL && plugins->kind != SETTINGS_LIST)
        return settings_fail(err, plugins, "plugins: expected a list of files, as in [idea.py], found %s",
                             settings_described(plugins));
    bool ok = true;
    for (int i = 0; ok && plugins != NULL && i < plugins->n; i++) {
        const char *name;
        struct error why;
        if (!settings_text(plugins->item[i], "plugins", &name, err))
            return false;
        char *path = path_in(e, name);
        ok = plugin_load(path, &why) || settings_fail(err, plugins->item[i], "plugins: %s", why.text);
        free(path);
    }
    return ok;
}

static bool read_file(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "name",   "target", "threads",       "prompts", "limits", "seed", "repeat",
                                        "record", "cells",  "share_prompts", "plugins", "x-*",    NULL };
    const struct settings *seed = settings_get(e->file, "seed");
    long long v = 0;
    cpu_set_t allowed;
    if (!settings_is_map(e->file, "an experiment", keys, err) ||
        !options_take(e->file, "an experiment", file_keys, e, err) ||
        (seed != NULL && !settings_int(seed, "seed", 0, LLONG_MAX, &v, err)))
        return false;
    for (const unsigned char *c = (const unsigned char *)e->name; *c != '\0'; c++)
        if (*c < 0x20)
            return settings_fail(err, settings_get(e->file, "name"),
                                 "name: expected one line, found a control character in it");
    e->seed = (uint64_t)v;
    e->slice_ns = SLICE_NS;
    if (e->threads == 0)
        e->threads = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                          : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return true;
}

// ---- the file's parts

// Returns variables as JSON, with YAML 1.2's spellings of true, false and null. Those of YAML 1.1 are refused, since
// Jinja would take them for texts.
static struct json *template_variables(const struct settings *s, struct error *err)
{
    static const char *const null[] = { "~", "null", "Null", "NULL" }, *const yes[] = { "True", "TRUE" },
                             *const no[] = { "False", "FALSE" };
    static const char *const other[] = { "yes", "Yes", "YES", "no",  "No",  "NO", "on",
                                         "On",  "ON",  "off", "Off", "OFF", "" };
    if (s->kind == SETTINGS_SCALAR && !s->quoted) {
        for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
            if (strcmp(s->text, other[i]) == 0) {
                settings_fail(
                    err, s,
                    "variables: expected true, false, null, a number or a text, found %s; quote it if it is a text",
                    *s->text == '\0' ? "nothing" : s->text);
                return NULL;
            }
        for (size_t i = 0; i < sizeof(null) / sizeof(*null); i++)
            if (strcmp(s->text, null[i]) == 0)
                return json_new_null();
        for (int i = 0; i < 2; i++)
            if (strcmp(s->text, yes[i]) == 0 || strcmp(s->text, no[i]) == 0)
                return json_new_bool(strcmp(s->text, yes[i]) == 0);
    }
    if (s->kind == SETTINGS_SCALAR)
        return settings_json(s);
    struct json *j = s->kind == SETTINGS_MAP ? json_new_object() : json_new_array();
    for (int i = 0; i < s->n; i++) {
        struct json *one = template_variables(s->item[i], err);
        if (one == NULL) {
            json_free(j);
            return NULL;
        }
        if (s->kind == SETTINGS_MAP)
            json_set(j, s->key[i], one);
        else
            json_push(j, one);
    }
    return j;
}

// Reads a name or a file, or {template: .., variables: {..}}. A file's path is relative to the experiment's folder.
static bool read_chat(struct experiment *e, const struct settings *s, struct error *err)
{
    static const char *const keys[] = { "template", "variables", NULL };
    const bool map = s != NULL && s->kind == SETTINGS_MAP;
    const struct settings *variables = map ? settings_get(s, "variables") : NULL,
                          *name = map ? settings_get(s, "template") : s;
    struct error why;
    if (map && !settings_is_map(s, "chat", keys, err))
        return false;
    if (variables != NULL && variables->kind != SETTINGS_MAP)
        return settings_fail(err, variables, "variables: expected a mapping, as in {enable_thinking: false}");
    if (name != NULL && name->kind != SETTINGS_SCALAR)
        return settings_fail(err, name, "chat: expected a name, a file, or {template: .., variables: {..}}");
    const char *text = name != NULL ? name->text : "auto";
    e->chat = choice_index(CHAT_NAMES, text) < 0 ? path_in(e, text) : xstrdup(text);
    e->chat_variables = variables != NULL ? template_variables(variables, err) : NULL;
    if (variables != NULL && e->chat_variables == NULL)
        return false;
    return chat_name_known(e->chat, &why) || settings_fail(err, name, "chat: %s", why.text);
}

static bool read_prompts(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "file", "limit", "per_category", "chat", NULL };
    const struct settings *s;
    if (!read_part(e, "prompts", true, keys, prompts_keys, &s, err) || !read_chat(e, settings_get(s, "chat"), err))
        return false;
    char *path = path_in(e, e->prompts_file);
    bool ok = access(path, R_OK) == 0
                  ? prompts_read(path, e->limit, e->per_category, &e->prompts, err)
                  : settings_fail(err, settings_get(s, "file"), "file: %s: %s", path, strerror(errno));
    free(path);
    if (ok)
        prompts_shuffle(&e->prompts, e->seed);
    return ok;
}

static bool read_stops(struct experiment *e, const struct settings *s, struct error *err)
{
    int n = s->kind == SETTINGS_LIST ? s->n : 1;
    if (s->kind == SETTINGS_MAP || n > MAX_STOPS)
        return settings_fail(err, s, "stop: expected a list of at most %d texts, found %s", MAX_STOPS,
                             s->kind == SETTINGS_MAP ? "a mapping" : "more");
    e->stop = xcalloc((size_t)n + 1, sizeof(*e->stop));
    for (int i = 0; i < n; i++) {
        const struct settings *one = s->kind == SETTINGS_LIST ? s->item[i] : s;
        const char *text;
        if (!settings_text(one, "stop", &text, err))
            return false;
        if (*text == '\0')
            return settings_fail(err, one, "stop: expected a text, found an empty one");
        e->stop[e->n_stop++] = xstrdup(text);
    }
    return true;
}

static bool read_limits(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "new_tokens", "context", "ignore_end", "stop", NULL };
    const struct settings *s;
    if (!read_part(e, "limits", false, keys, limits_keys, &s, err))
        return false;
    e->context_given = settings_get(s, "context") != NULL;
    return settings_get(s, "stop") == NULL || read_stops(e, settings_get(s, "stop"), err);
}

// Reads `full`, or how many entries of a row are kept.
static bool read_rows(struct experiment *e, const struct settings *s, struct error *err)
{
    long long n = 0;
    if (s != NULL && s->kind == SETTINGS_SCALAR && strcmp(s->text, "full") == 0) {
        e->rows = ROWS_FULL;
        return true;
    }
    if (s != NULL && (s->kind != SETTINGS_SCALAR || *s->text < '0' || *s->text > '9'))
        return settings_fail(err, s, "rows: expected full, or the number of entries of a row, found %s",
                             settings_described(s));
    if (s != NULL && !settings_int(s, "rows", 1, MAX_CONTEXT, &n, err))
        return false;
    e->rows = (int)n;
    return true;
}

static bool read_record(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "trials", "expected", "rows", NULL };
    const struct settings *s;
    return read_part(e, "record", false, keys, record_keys, &s, err) && read_rows(e, settings_get(s, "rows"), err);
}

// ---- the experiment

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? xstrdup(".") : xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
}

// Checks each rule with each drafter with which it has a cell.
static bool check_pairings(const struct experiment *e, struct error *err)
{
    for (int r = 0; r < e->rule.n; r++)
        for (int d = 0; d < e->drafter.n; d++) {
            bool any = false;
            for (int g = 0; g < groups(e) && !any; g++) {
                struct cell c = group_cell(e, g);
                c.rule = r;
                c.drafter = d;
                any = experiment_has(e, c);
            }
            struct speclab_decoder *pairing =
                any ? decoder_read(e->drafter.entry[d].given, e->rule.entry[r].given, NULL, err) : NULL;
            if (any && pairing == NULL)
                return false;
            speclab_decoder_destroy(pairing);
        }
    return true;
}

// Looks for the targets' files last, so that a file without models is checked as far as possible.
static bool find_targets(const struct experiment *e, struct error *err)
{
    struct error why;
    for (int i = 0; i < e->target.n; i++) {
        const struct entry *t = &e->target.entry[i];
        char *path = model_path(t->target.model, e->folder, &why);
        free(path);
        if (path == NULL)
            return settings_fail(err, settings_get(t->given, "model"), "model: %s", why.text);
    }
    return true;
}

static struct experiment *read_or_free(struct experiment *e, struct error *err)
{
    if (read_file(e, err) && read_limits(e, err) && read_record(e, err) && cell_lists_read(e, err) &&
        check_pairings(e, err) && find_targets(e, err) && read_prompts(e, err))
        return e;
    experiment_free(e);
    return NULL;
}

struct experiment *experiment_of(struct settings *file, const char *path, const char *folder, struct error *err)
{
    struct experiment *e = xcalloc(1, sizeof(*e));
    e->path = xstrdup(path);
    e->folder = xstrdup(folder);
    e->file = file;
    return read_or_free(e, err);
}

// ---- --set

// The place of a key, or of an index, in `in`: *at. A mapping that lacks the key gets it, with an empty mapping.
static bool find_place(struct settings *in, const char *key, const char *given, struct settings ***at,
                       struct error *err)
{
    char *end;
    const long i = strtol(key, &end, 10);
    if (in->kind == SETTINGS_MAP) {
        if (settings_get(in, key) == NULL)
            settings_put(in, key, settings_map());
        *at = &in->item[settings_find(in, key)];
        return true;
    }
    if (in->kind != SETTINGS_LIST)
        return fail(err, "--set %s: \"%s\" is a key of a value, \"%s\", which has no keys", given, key, in->text);
    if (*key < '0' || *key > '9' || *end != '\0' || i >= in->n)
        return fail(err, "--set %s: expected the index of one of %d values, from 0, found \"%s\"", given, in->n, key);
    *at = &in->item[i];
    return true;
}

// given: "limits.new_tokens=64".
static bool set_value(struct settings *file, const char *given, struct error *err)
{
    const char *equals = strchr(given, '=');
    struct error why;
    if (equals == NULL || equals == given)
        return fail(err, "--set: expected KEY=VALUE, as in limits.new_tokens=64, found \"%s\"", given);
    struct settings *value = equals[1] != '\0' ? yaml_parse(equals + 1, strlen(equals + 1), "--set", &why) : NULL,
                    **at = NULL, *in = file;
    if (value == NULL)
        return equals[1] != '\0' ? fail(err, "--set %.*s: %s", (int)(equals - given), given, why.text)
                                 : fail(err, "--set %s: expected a value behind =, found none", given);
    char *path = xstrndup(given, (size_t)(equals - given));
    bool ok = true;
    for (char *key = path, *next; ok && key != NULL; key = next) {
        next = strchr(key, '.');
        if (next != NULL)
            *next++ = '\0';
        ok = *key != '\0' ? find_place(in, key, given, &at, err)
                          : fail(err, "--set %s: expected a key on each side of a dot, found none", given);
        in = ok ? *at : NULL;
    }
    free(path);
    settings_free(ok ? *at : value);
    if (ok)
        *at = value;
    return ok;
}

struct experiment *experiment_load_with(const char *path, const char *const *set, int n, struct error *err)
{
    struct experiment *e = xcalloc(1, sizeof(*e));
    e->path = xstrdup(path);
    e->folder = folder_of(path);
    e->file = yaml_read(e->path, err); // its settings borrow the path
    bool ok = e->file != NULL;
    for (int i = 0; i < n && ok; i++)
        ok = set_value(e->file, set[i], err);
    if (!ok || !load_plugins(e, settings_get(e->file, "plugins"), err)) {
        experiment_free(e);
        return NULL;
    }
    struct error why;
    struct text sets = { 0 };
    for (int i = 0; i < n; i++)
        text_printf(&sets, "%s--set %s", i > 0 ? ", " : "", set[i]);
    e = read_or_free(e, n > 0 ? &why : err);
    if (e == NULL && n > 0) // what is wrong may be in one of them
        fail(err, "%s (with %s)", why.text, sets.s);
    free(sets.s);
    return e;
}

struct experiment *experiment_load(const char *path, struct error *err)
{
    return experiment_load_with(path, NULL, 0, err);
}

void experiment_free(struct experiment *e)
{
    if (e == NULL)
        return;
    cell_lists_free(e);
    prompts_free(&e->prompts);
    for (int i = 0; i < e->n_stop; i++)
        free(e->stop[i]);
    free(e->stop);
    options_free(file_keys, e);
    options_free(prompts_keys, e);
    free(e->chat);
    json_free(e->chat_variables);
    settings_free(e->file);
    free(e->folder);
    free(e->path);
    free(e);
}

int experiment_batch(const struct experiment *e, int entry)
{
    return (int)strtol(e->batch.entry[entry].settings->text, NULL, 10);
}

int experiment_turns(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < e->prompts.n; i++)
        n += e->prompts.prompt[i].n_turns;
    return n;
}
