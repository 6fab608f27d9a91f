// cells.c - the values of which cells are made: how they are read, shown and matched; numbers and identities of cells.
//
// The hash of a cell covers everything that its texts or times depend on: the resolved settings (threads, device and
// precision included; default precision is resolved when the model opens), everything read of the checkpoints of target
// and drafter (all weight bytes, and the input of the readers of configuration, tokenizer and chat template:
// models/formats/identity.h), and the bytes of the prompt file. A draft tree from a file is in the settings, node by
// node, and a plugin (engine/plugin.h) is hashed with the bytes of its file. So a changed model or prompt file makes
// another cell, which runs from the start. The hash excludes:
//
//     repeat, limit, per_category   larger values add sequences to the cell; a prompt is identified by its position in
//                                   the file, which they do not change
//     machine, revision             columns of the row; results/store.h says whether a run may resume under others
//
// The settings are a valid experiment file of this one cell: `speclab run` reads them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "core/tensor.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/replay/packed_rows.h"
#include "kernels/devices.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

static void put_text(struct settings *map, const char *key, const char *text)
{
    settings_put(map, key, settings_scalar(text));
}

static void put_int(struct settings *map, const char *key, long long v)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", v);
    put_text(map, key, text);
}

static struct settings *put_map(struct settings *map, const char *key)
{
    struct settings *s = settings_map();
    settings_put(map, key, s);
    return s;
}

// d: NULL: only the settings that it shares with its peers.
static struct settings *cell_settings(const struct loaded_experiment *o, struct cell cell, const struct drafter *d)
{
    const struct experiment *e = o->e;
    struct settings *s = settings_map(), *stop = settings_list();
    put_text(s, "name", e->name);
    struct settings *target = put_map(s, "target");
    put_text(target, "model", o->chosen->model);
    put_text(target, "device", o->chosen->device);
    put_text(target, "activations", activations_names[model_activations(o->target->model)]);
    put_text(target, "cache", type_facts[o->target->cache].name);
    put_int(s, "threads", e->threads);
    struct settings *prompts = put_map(s, "prompts");
    put_text(prompts, "file", e->prompts_file);
    put_text(prompts, "chat", o->target->chat.label);
    struct settings *limits = put_map(s, "limits");
    put_int(limits, "new_tokens", e->new_tokens);
    put_int(limits, "context", o->context);
    put_text(limits, "ignore_end", e->ignore_end ? "true" : "false");
    for (int i = 0; i < e->n_stop; i++)
        settings_append(stop, settings_scalar(e->stop[i]));
    settings_put(limits, "stop", stop);
    put_int(s, "seed", (long long)e->seed);
    struct settings *record = put_map(s, "record");
    put_text(record, "trials", e->trials ? "true" : "false");
    if (e->expected) // this and the next are written only if set, so that cells without them keep their hash
        put_text(record, "expected", "true");
    if (e->rows == ROWS_FULL)
        put_text(record, "rows", "full");
    else if (e->rows != ROWS_NONE)
        put_int(record, "rows", e->rows);
    struct settings *cells = put_map(s, "cells");
    settings_put(cells, "sampling", settings_copy(e->sampling.entry[cell.sampling].settings));
    settings_put(cells, "batch", settings_copy(e->batch.entry[cell.batch].settings));
    if (d != NULL) {
        struct settings *drafter = settings_copy(e->drafter.entry[cell.drafter].settings);
        drafter_resolve(d, drafter);
        settings_put(cells, "rule", settings_copy(e->rule.entry[cell.rule].settings));
        settings_put(cells, "drafter", drafter);
    }
    return s;
}

// Only files of plugins are hashed, so that other cells keep their hash.
static void hash_source(struct digest *d, struct hash source)
{
    if (!hash_is_none(source))
        digest_hash(d, source);
}

// Hashes the inputs and the settings. rule NULL: those that it shares with its peers.
static void write_identity(const struct loaded_experiment *o, struct cell cell, struct hash drafter,
                           const struct rule *rule, const struct settings *s, char to[HASH_TEXT])
{
    const struct settings *sampling = o->e->sampling.entry[cell.sampling].settings;
    char *text = settings_line(s);
    struct digest *d = digest_begin();
    digest_hash(d, o->identity);
    digest_hash(d, o->e->prompts.hash);
    digest_hash(d, drafter);
    digest_text(d, text);
    for (int i = 0; i < sampling->n; i++)
        hash_source(d, stage_named(sampling->key[i])->source);
    if (rule != NULL)
        hash_source(d, rule->source);
    hash_write(digest_end(d), to);
    free(text);
}

struct identity cell_identity(const struct loaded_experiment *o, struct cell cell, const struct drafter *d)
{
    struct identity id = { 0 };
    struct text own = { 0 };
    struct settings *s = cell_settings(o, cell, d), *shared = cell_settings(o, cell, NULL);
    const struct settings *rule = o->e->rule.entry[cell.rule].settings;
    write_identity(o, cell, d->identity, rule_named(settings_get(rule, "kind")->text), s, id.hash);
    write_identity(o, cell, (struct hash){ 0 }, NULL, shared, id.peers);
    hash_write(o->weights, id.target_hash);
    hash_write(model_identity(o->target->model), id.config_hash);
    if (o->target->tokenizer != NULL)
        hash_write(tokenizer_hash(o->target->tokenizer), id.tokenizer_hash);
    if (!hash_is_none(d->identity))
        hash_write(d->identity, id.drafter_hash);
    settings_write_json(s, &own);
    id.settings = own.s;
    settings_free(s);
    settings_free(shared);
    const bool separate = d->backend != NULL && d->backend != o->target->backend;
    const char *target = o->target->backend->describe(o->target->backend);
    id.arithmetic = separate ? xformat("%s; drafter on %s", target, d->backend->describe(d->backend)) : xstrdup(target);
    id.machine = xformat("%s, %s", o->processor, id.arithmetic);
    return id;
}

void identity_free(struct identity *i)
{
    free(i->settings);
    free(i->arithmetic);
    free(i->machine);
    i->settings = i->arithmetic = i->machine = NULL;
}

char *cell_prompts(const struct loaded_experiment *o)
{
    const char *slash = strrchr(o->e->prompts_file, '/');
    return xformat("%s %s", slash != NULL ? slash + 1 : o->e->prompts_file, hash_text(o->e->prompts.hash).s);
}

// ---- the cells that the lists multiply to, numbered

static const int by_speed[AXES] = { TARGET, SAMPLING, BATCH, RULE, DRAFTER }; // the last varies fastest

int cell_number(const struct experiment *e, struct cell c)
{
    int number = 0;
    for (int k = 0; k < AXES; k++)
        number = number * e->axis[by_speed[k]].n + c.axis[by_speed[k]];
    return number;
}

struct cell cell_numbered(const struct experiment *e, int number)
{
    struct cell c;
    for (int k = AXES - 1; k >= 0; number /= e->axis[by_speed[k--]].n)
        c.axis[by_speed[k]] = number % e->axis[by_speed[k]].n;
    return c;
}

static int pairings(const struct experiment *e)
{
    return e->rule.n * e->drafter.n;
}

int cell_numbers(const struct experiment *e)
{
    return groups(e) * pairings(e);
}

int groups(const struct experiment *e)
{
    return e->target.n * target_groups(e);
}

int target_groups(const struct experiment *e)
{
    return e->sampling.n * e->batch.n;
}

struct cell group_cell(const struct experiment *e, int number)
{
    return cell_numbered(e, number * pairings(e));
}

bool experiment_has(const struct experiment *e, struct cell c)
{
    return e->has[cell_number(e, c)];
}

int experiment_cells(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < cell_numbers(e); i++)
        n += e->has[i];
    return n;
}

// ---- the values of the lists under `cells`, and the targets: canonical settings (core/options.c) as they are shown

static bool same_settings(const struct settings *a, const struct settings *b)
{
    char *s = settings_line(a), *t = settings_line(b);
    const bool same = strcmp(s, t) == 0;
    free(s);
    free(t);
    return same;
}

// The options that differ from their defaults, each as a text.
static struct settings *shown_options(const struct settings *settings, const struct option *table)
{
    struct settings *defaults = entry_settings("", NULL, table), *shown = settings_map();
    for (int i = 0; i < settings->n; i++) {
        const struct settings *usual = settings_get(defaults, settings->key[i]);
        if (strcmp(settings->key[i], "kind") == 0 || (usual != NULL && same_settings(settings->item[i], usual)))
            continue;
        char *line = settings_line(settings->item[i]);
        struct settings *text = settings_scalar(line);
        text->quoted = true;
        settings_put(shown, settings->key[i], text);
        free(line);
    }
    settings_free(defaults);
    return shown;
}

char *entry_shown(const struct settings *settings, const struct option *table, char **options)
{
    struct settings *shown = shown_options(settings, table);
    struct text t = { 0 }, json = { 0 };
    text_puts(&t, settings_get(settings, "kind")->text);
    for (int i = 0; i < shown->n; i++)
        text_printf(&t, "%s%s=%s", i == 0 ? "(" : ", ", shown->key[i], shown->item[i]->text);
    if (shown->n > 0)
        text_puts(&t, ")");
    if (options != NULL) {
        settings_write_json(shown, &json);
        *options = json.s;
    }
    settings_free(shown);
    return t.s;
}

struct settings *sampling_settings(const struct settings *given)
{
    struct settings *to = settings_map();
    for (int i = 0; stages[i] != NULL; i++) {
        const struct settings *v = settings_get(given, stages[i]->name);
        if (v != NULL)
            settings_put(to, stages[i]->name, option_settings(v, stages[i]->option[0].type));
        else if (stages[i] == &temperature_stage)
            settings_put(to, stages[i]->name, settings_scalar("1"));
    }
    return to;
}

char *sampling_shown(const struct settings *settings)
{
    struct text t = { 0 };
    for (int i = 0; i < settings->n; i++) {
        text_printf(&t, "%s%s=", i > 0 ? ", " : "", settings->key[i]);
        settings_write(settings->item[i], &t);
    }
    return t.s;
}

// ---- how they are read

#define OF_TARGET(member) offsetof(struct chosen_target, member)
const struct option target_keys[] = {
    { "model", OPTION_PATH, OF_TARGET(model), NULL, "a file, a folder or a name", 0, 0, NULL },
    { "device", OPTION_PATH, OF_TARGET(device), "cpu", "where it computes", 0, 0, NULL },
    { "activations", OPTION_CHOICE, OF_TARGET(activations), "default", "what products round their input to", 0, 0,
      ACTIVATIONS_CHOICES },
    { "cache", OPTION_CHOICE, OF_TARGET(cache), "default", "element type of keys and values", 0, 0, KV_CHOICES },
    { 0 },
};

static bool read_target(const struct settings *given, struct entry *to, struct error *err)
{
    static const char *const keys[] = { "model", "device", "activations", "cache", NULL };
    struct chosen_target *t = &to->target;
    struct error why;
    if (!settings_is_map(given, "target", keys, err) || !options_take(given, "target", target_keys, t, err))
        return false;
    if (!device_name_check(t->device, "device", &why))
        return settings_fail(err, settings_get(given, "device"), "%s", why.text);
    struct text shown = { 0 };
    text_puts(&shown, t->model);
    to->settings = settings_map();
    for (const struct option *o = target_keys; o->name != NULL; o++) {
        const struct settings *one = settings_get(given, o->name);
        settings_put(to->settings, o->name, one != NULL ? settings_copy(one) : settings_scalar(o->default_value));
        if (o->default_value != NULL && one != NULL && strcmp(one->text, o->default_value) != 0)
            text_printf(&shown, ", %s %s", o->name, one->text);
    }
    to->shown = shown.s;
    return true;
}

static bool read_sampling(const struct settings *given, struct entry *to, struct error *err)
{
    struct sampling sampling;
    if (!sampling_read(given, &sampling, err))
        return false;
    sampling_free(&sampling);
    to->settings = sampling_settings(given);
    to->shown = sampling_shown(to->settings);
    return true;
}

static bool read_batch(const struct settings *given, struct entry *to, struct error *err)
{
    long long v;
    if (!settings_int(given, "batch", 1, MAX_SLOTS, &v, err))
        return false;
    to->shown = xformat("%lld", v);
    to->settings = settings_scalar(to->shown);
    return true;
}

static struct entry plugin_entry(const char *kind, const struct settings *given, const struct option *options)
{
    struct settings *s = entry_settings(kind, given, options);
    struct entry e = { .given = given, .settings = s };
    e.shown = entry_shown(s, options, &e.options);
    return e;
}

static bool read_rule(const struct settings *given, struct entry *to, struct error *err)
{
    struct speclab_decoder *d = decoder_read(NULL, given, NULL, err);
    if (d == NULL)
        return false;
    *to = plugin_entry(d->rule->name, given, d->rule->options);
    speclab_decoder_destroy(d);
    return true;
}

// Reads a drafter alone. The rules with which it is paired are known only when all lists are read.
static bool read_drafter(const struct settings *given, struct entry *to, struct error *err)
{
    struct speclab_decoder *d = decoder_read_drafter(given, err);
    if (d == NULL)
        return false;
    *to = plugin_entry(d->type->name, given, d->type->options);
    speclab_decoder_destroy(d);
    return true;
}

bool entry_read(int axis, const struct settings *given, struct entry *to, struct error *err)
{
    static bool (*const read[AXES])(const struct settings *given, struct entry *to,
                                    struct error *err) = { read_sampling, read_batch, read_rule, read_drafter,
                                                           read_target };
    *to = (struct entry){ .given = given };
    const bool ok = read[axis](given, to, err);
    if (ok)
        to->text = settings_line(to->settings);
    else
        entry_free(to);
    return ok;
}

void entry_free(struct entry *e)
{
    settings_free(e->settings);
    free(e->shown);
    free(e->options);
    free(e->text);
    options_free(target_keys, &e->target);
}

// ---- which partial settings match them

static bool partial_matches(const struct settings *part, const struct settings *whole);

static bool same_scalar(const struct settings *a, const struct settings *b)
{
    struct error ignored;
    double x, y;
    return strcmp(a->text, b->text) == 0 || (settings_real(a, "", -INFINITY, INFINITY, &x, &ignored) &&
                                             settings_real(b, "", -INFINITY, INFINITY, &y, &ignored) && x == y);
}

// Returns whether the scalar is any of a list's values, or the list as a text: an option that is a text takes it so
// (core/options.c).
static bool is_among(const struct settings *scalar, const struct settings *list)
{
    char *line = settings_line(list);
    bool found = strcmp(line, scalar->text) == 0;
    free(line);
    for (int i = 0; i < list->n && !found; i++)
        found = partial_matches(list->item[i], scalar);
    return found;
}

// Returns whether settings have all that partial settings specify: {kind: small, tokens: 4} matches a drafter with all
// its options. whole: canonical. A mapping matches one with its keys and more; a scalar for a mapping is its `kind`, or
// a target's `model`; a list for a scalar is any of its values; 04 is 4.
static bool partial_matches(const struct settings *part, const struct settings *whole)
{
    if (part->kind == SETTINGS_SCALAR && whole != NULL && whole->kind == SETTINGS_MAP)
        whole = settings_get(whole, settings_get(whole, "kind") != NULL ? "kind" : "model");
    if (whole == NULL)
        return false;
    if (part->kind == SETTINGS_LIST && whole->kind == SETTINGS_SCALAR)
        return is_among(whole, part);
    if (part->kind != whole->kind || (part->kind == SETTINGS_LIST && part->n != whole->n))
        return false;
    if (part->kind == SETTINGS_SCALAR)
        return same_scalar(part, whole);
    for (int i = 0; i < part->n; i++)
        if (!partial_matches(part->item[i],
                             part->kind == SETTINGS_LIST ? whole->item[i] : settings_get(whole, part->key[i])))
            return false;
    return true;
}

bool entry_matches(const struct entry *e, const struct settings *part)
{
    return partial_matches(part, e->settings);
}
