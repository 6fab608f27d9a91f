// experiment.c - reads and checks an experiment's file: keys, types and ranges of values, options of drafters and rules,
// compatibility of every drafter with every rule, existence of model and prompts. All before a model is opened.
#include "experiments/experiment.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/length.h"
#include "experiments/cells.h"
#include "experiments/replay/packed_rows.h"
#include "experiments/sweep/cell_lists.h"
#include "experiments/yaml.h"
#include "kernels/devices.h"
#include "models/paths.h"
#include "verifier/rules/rule.h"

enum { MAX_STOPS = 16, MAX_CONTEXT = 1 << 24 };

// ---- keys and values

static bool get_required(const struct settings *map, const char *what, const char *key, const struct settings **to,
                         struct error *err)
{
    *to = settings_get(map, key);
    return *to != NULL || settings_fail(err, map, "%s needs the key \"%s\"", what, key);
}

static bool read_int(const struct settings *map, const char *key, int min, int max, int *to, struct error *err)
{
    const struct settings *s = settings_get(map, key);
    long long v = *to;
    if (s != NULL && !settings_int(s, key, min, max, &v, err))
        return false;
    *to = (int)v;
    return true;
}

static bool read_bool(const struct settings *map, const char *key, bool *to, struct error *err)
{
    const struct settings *s = settings_get(map, key);
    return s == NULL || settings_bool(s, key, to, err);
}

// A non-empty text; default_value NULL: the key is required.
static bool read_text(const struct settings *map, const char *what, const char *key, const char *default_value,
                      char **to, struct error *err)
{
    const struct settings *s = settings_get(map, key);
    const char *text = default_value;
    if (s == NULL && default_value == NULL)
        return get_required(map, what, key, &s, err);
    if (s != NULL && !settings_text(s, key, &text, err))
        return false;
    if (*text == '\0')
        return settings_fail(err, s, "%s: expected a text, found nothing", key);
    *to = xstrdup(text);
    return true;
}

static bool read_word(const struct settings *map, const char *key, const char *const *words, char **to,
                      struct error *err)
{
    if (!read_text(map, "", key, words[0], to, err))
        return false;
    struct text known = { 0 };
    bool found = false;
    for (const char *const *w = words; *w != NULL; w++) {
        text_printf(&known, "%s%s", w == words ? "" : ", ", *w);
        found = found || strcmp(*w, *to) == 0;
    }
    if (!found)
        settings_fail(err, settings_get(map, key), "%s: expected %s%s, found \"%s\"", key,
                      words[1] != NULL ? "one of " : "", known.s, *to);
    free(known.s);
    return found;
}

// The index of the word.
static bool read_choice(const struct settings *map, const char *key, const char *const *words, int *to,
                        struct error *err)
{
    char *word = NULL;
    bool ok = read_word(map, key, words, &word, err);
    for (*to = 0; ok && strcmp(words[*to], word) != 0;)
        ++*to;
    free(word);
    return ok;
}

// ---- the file's parts

static bool read_name(struct experiment *e, struct error *err)
{
    if (!read_text(e->file, "an experiment", "name", NULL, &e->name, err))
        return false;
    for (const unsigned char *c = (const unsigned char *)e->name; *c != '\0'; c++)
        if (*c < 0x20)
            return settings_fail(err, settings_get(e->file, "name"),
                                 "name: expected one line, found a control character in it");
    return true;
}

static bool read_device(const struct settings *s, char **to, struct error *err)
{
    struct error why;
    if (!read_text(s, "target", "device", "cpu", to, err))
        return false;
    return device_name_check(*to, "device", &why) || settings_fail(err, settings_get(s, "device"), "%s", why.text);
}

static bool read_target(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "model", "device", "activations", "cache", NULL };
    const struct settings *s;
    if (!get_required(e->file, "an experiment", "target", &s, err) || !settings_is_map(s, "target", keys, err) ||
        !read_text(s, "target", "model", NULL, &e->target, err) || !read_device(s, &e->device, err) ||
        !read_choice(s, "activations", activations_names, &e->precision.activations, err) ||
        !read_choice(s, "cache", kv_type_names, &e->precision.cache, err))
        return false;
    e->precision.device = e->device;
    struct error why;
    char *path = model_path(e->target, e->folder, &why);
    free(path);
    return path != NULL || settings_fail(err, settings_get(s, "model"), "model: %s", why.text);
}

static bool read_threads(struct experiment *e, struct error *err)
{
    cpu_set_t allowed;
    if (!read_int(e->file, "threads", 0, MAX_THREADS, &e->threads, err))
        return false;
    if (e->threads == 0)
        e->threads = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                          : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return true;
}

// Variables as JSON, with YAML 1.2's spellings of true, false and null; those of YAML 1.1 are refused, as Jinja would take them for texts.
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

// A name or a file, or {template: .., variables: {..}}. A file's path is relative to the experiment's folder.
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
    const bool beside = choice_index(CHAT_NAMES, text) < 0 && *text != '/' && strcmp(e->folder, ".") != 0;
    e->chat = xformat("%s%s%s", beside ? e->folder : "", beside ? "/" : "", text);
    e->chat_variables = variables != NULL ? template_variables(variables, err) : NULL;
    if (variables != NULL && e->chat_variables == NULL)
        return false;
    return chat_name_known(e->chat, &why) || settings_fail(err, name, "chat: %s", why.text);
}

static bool read_prompts(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "file", "limit", "per_category", "chat", NULL };
    const struct settings *s;
    if (!get_required(e->file, "an experiment", "prompts", &s, err) || !settings_is_map(s, "prompts", keys, err) ||
        !read_text(s, "prompts", "file", NULL, &e->prompts_file, err) ||
        !read_int(s, "limit", 0, MAX_PROMPTS, &e->limit, err) ||
        !read_int(s, "per_category", 0, MAX_PROMPTS, &e->per_category, err) ||
        !read_chat(e, settings_get(s, "chat"), err))
        return false;
    bool as_is = *e->prompts_file == '/' || strcmp(e->folder, ".") == 0;
    char *path = xformat("%s%s%s", as_is ? "" : e->folder, as_is ? "" : "/", e->prompts_file);
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
    const struct settings *s = settings_get(e->file, "limits");
    e->new_tokens = 256;
    e->context = 2048;
    if (s == NULL)
        return true;
    e->context_given = settings_get(s, "context") != NULL;
    const struct settings *stop = settings_get(s, "stop");
    return settings_is_map(s, "limits", keys, err) && read_int(s, "new_tokens", 1, MAX_CONTEXT, &e->new_tokens, err) &&
           read_int(s, "context", 2, MAX_CONTEXT, &e->context, err) &&
           read_bool(s, "ignore_end", &e->ignore_end, err) && (stop == NULL || read_stops(e, stop, err));
}

// `full`, or how many entries of a row are kept.
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

static bool read_numbers(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "trials", "expected", "rows", NULL };
    const struct settings *seed = settings_get(e->file, "seed"), *record = settings_get(e->file, "record");
    long long v = 0;
    if (seed != NULL && !settings_int(seed, "seed", 0, LLONG_MAX, &v, err))
        return false;
    e->seed = (uint64_t)v;
    e->repeat = 1;
    e->slice_ns = SLICE_NS;
    e->share_prompts = true;
    return read_int(e->file, "repeat", 1, MAX_REPEATS, &e->repeat, err) &&
           read_bool(e->file, "share_prompts", &e->share_prompts, err) &&
           (record == NULL ||
            (settings_is_map(record, "record", keys, err) && read_bool(record, "trials", &e->trials, err) &&
             read_bool(record, "expected", &e->expected, err) && read_rows(e, settings_get(record, "rows"), err)));
}

// ---- the experiment

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? xstrdup(".") : xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static bool read_experiment(struct experiment *e, struct error *err)
{
    static const char *const keys[] = { "name",   "target", "threads", "prompts",       "limits", "seed",
                                        "repeat", "record", "cells",   "share_prompts", "x-*",    NULL };
    return settings_is_map(e->file, "an experiment", keys, err) && read_name(e, err) && read_threads(e, err) &&
           read_limits(e, err) && read_numbers(e, err) && cell_lists_read(e, err) && read_target(e, err) &&
           read_prompts(e, err);
}

static struct experiment *read_or_free(struct experiment *e, struct error *err)
{
    if (e->file != NULL && read_experiment(e, err))
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

struct experiment *experiment_load(const char *path, struct error *err)
{
    struct experiment *e = xcalloc(1, sizeof(*e));
    e->path = xstrdup(path);
    e->folder = folder_of(path);
    e->file = yaml_read(e->path, err); // its settings borrow the path
    return read_or_free(e, err);
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
    free(e->name);
    free(e->target);
    free(e->device);
    free(e->prompts_file);
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

bool experiment_has_text(const struct experiment *e)
{
    for (int i = 0; i < e->prompts.n; i++)
        if (e->prompts.prompt[i].turn != NULL)
            return true;
    return false;
}
