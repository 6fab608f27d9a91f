// cells.c - identity of a cell.
//
// The hash of a cell covers everything that its texts or times depend on: the resolved settings (threads, device and precision
// included; default precision is resolved when the model opens), everything read of the checkpoints of target and drafter (all
// weight bytes, and the input of the readers of configuration, tokenizer and chat template: formats/identity.h), and the bytes
// of the prompt file. A draft tree from a file is in the settings, node by node. So a changed model or prompt file makes
// another cell, which runs from the start. The hash excludes:
//
//     repeat, limit, per_category   larger values add sequences to the cell; a prompt is identified by its position in the
//                                   file, which they do not change
//     machine, revision             columns of the row; environment.h decides whether a run may resume under others
//
// The settings are a valid experiment file of this one cell: `speclab run` reads them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/replay/packed_rows.h"
#include "kernels/backend.h"
#include "models/model.h"

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

static struct settings *target_settings(const struct loaded_experiment *o)
{
    struct settings *s = settings_map();
    put_text(s, "model", o->e->target);
    put_text(s, "device", o->e->device);
    put_text(s, "activations", activations_names[model_activations(o->target.model)]);
    put_text(s, "cache", type_facts[o->target.cache].name);
    return s;
}

static struct settings *prompts_settings(const struct loaded_experiment *o)
{
    struct settings *s = settings_map();
    put_text(s, "file", o->e->prompts_file);
    put_text(s, "chat", o->chat.label);
    return s;
}

static struct settings *limits_settings(const struct loaded_experiment *o)
{
    const struct experiment *e = o->e;
    struct settings *s = settings_map(), *stop = settings_list();
    put_int(s, "new_tokens", e->new_tokens);
    put_int(s, "context", o->context);
    put_text(s, "ignore_end", e->ignore_end ? "true" : "false");
    for (int i = 0; i < e->n_stop; i++)
        settings_append(stop, settings_scalar(e->stop[i]));
    settings_put(s, "stop", stop);
    return s;
}

// d NULL: the settings that it shares with its peers.
static struct settings *cell_settings(const struct loaded_experiment *o, struct cell cell, const struct drafter *d)
{
    const struct experiment *e = o->e;
    struct settings *s = settings_map(), *record = settings_map(), *cells = settings_map();
    put_text(s, "name", e->name);
    settings_put(s, "target", target_settings(o));
    put_int(s, "threads", e->threads);
    settings_put(s, "prompts", prompts_settings(o));
    settings_put(s, "limits", limits_settings(o));
    put_int(s, "seed", (long long)e->seed);
    put_text(record, "trials", e->trials ? "true" : "false");
    if (e->expected) // this and the next only if set, so that cells without it keep their hash
        put_text(record, "expected", "true");
    if (e->rows == ROWS_FULL)
        put_text(record, "rows", "full");
    else if (e->rows != ROWS_NONE)
        put_int(record, "rows", e->rows);
    settings_put(s, "record", record);
    settings_put(cells, "sampling", settings_copy(e->sampling.entry[cell.sampling].settings));
    settings_put(cells, "batch", settings_copy(e->batch.entry[cell.batch].settings));
    if (d != NULL) {
        struct settings *drafter = settings_copy(e->drafter.entry[cell.drafter].settings);
        drafter_resolve(d, drafter);
        settings_put(cells, "rule", settings_copy(e->rule.entry[cell.rule].settings));
        settings_put(cells, "drafter", drafter);
    }
    settings_put(s, "cells", cells);
    return s;
}

// Hashes the inputs and the settings.
static void write_identity(const struct loaded_experiment *o, struct hash drafter, const struct settings *s,
                           char to[HASH_TEXT])
{
    char *text = settings_line(s);
    struct digest *d = digest_begin();
    digest_hash(d, o->identity);
    digest_hash(d, o->e->prompts.hash);
    digest_hash(d, drafter);
    digest_text(d, text);
    hash_write(digest_end(d), to);
    free(text);
}

struct identity cell_identity(const struct loaded_experiment *o, struct cell cell, const struct drafter *d)
{
    struct identity id = { 0 };
    struct text own = { 0 };
    struct settings *s = cell_settings(o, cell, d), *shared = cell_settings(o, cell, NULL);
    write_identity(o, d->identity, s, id.hash);
    write_identity(o, (struct hash){ 0 }, shared, id.peers);
    hash_write(o->weights, id.target_hash);
    hash_write(model_identity(o->target.model), id.config_hash);
    if (o->target.tokenizer != NULL)
        hash_write(tokenizer_hash(o->target.tokenizer), id.tokenizer_hash);
    if (!hash_is_none(d->identity))
        hash_write(d->identity, id.drafter_hash);
    settings_write_json(s, &own);
    id.settings = own.s;
    settings_free(s);
    settings_free(shared);
    const bool separate = d->backend != NULL && d->backend != o->target.backend;
    const char *target = o->target.backend->describe(o->target.backend);
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
