// cells.c - by what a cell is known.
//
// The hash that makes a cell a cell is taken over everything that text or timing depend on: the resolved settings
// (threads, device and precision among them: a preset of precision is settled once its model is open), the weights of
// target and drafter, what the checkpoint says of chats and ends, the bytes of the prompt file. So a changed model or
// prompt file is another cell and runs anew. Not in it:
//
//     repeat, limit, per_category   more of the same: raised, they add sequences to the cell. A prompt is known by its
//                                   place in the file, which they do not change
//     machine, revision             a run may be gone on with elsewhere; its row then lists both. What is compared is
//                                   compared within pairs, which never span two processes
//
// The settings are themselves an experiment's file of this one cell: `speclab run` reads them back.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/hash.h"
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

static struct settings *target_settings(const struct opened *o)
{
    struct settings *s = settings_map();
    put_text(s, "model", o->e->target);
    put_text(s, "device", o->e->device);
    put_text(s, "activations", activations_names[model_activations(o->target.model)]);
    put_text(s, "cache", type_facts[o->target.cache].name);
    return s;
}

static struct settings *prompts_settings(const struct opened *o)
{
    struct settings *s = settings_map();
    put_text(s, "file", o->e->prompts_file);
    put_text(s, "chat", o->chat.kind == CHAT_CHATML ? "chatml" : "none");
    return s;
}

static struct settings *limits_settings(const struct opened *o)
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

// d NULL: what it has in common with its peers.
static struct settings *cell_settings(const struct opened *o, struct cell cell, const struct drafter *d)
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
    if (e->expected) // a key that came later: cells without it are known by the hash they had
        put_text(record, "expected", "true");
    settings_put(s, "record", record);
    settings_put(cells, "sampling", settings_copy(e->sampling.entry[cell.sampling].settings));
    settings_put(cells, "batch", settings_copy(e->batch.entry[cell.batch].settings));
    if (d != NULL) {
        struct settings *drafter = settings_copy(e->drafter.entry[cell.drafter].settings);
        drafter_settle(d, drafter);
        settings_put(cells, "rule", settings_copy(e->rule.entry[cell.rule].settings));
        settings_put(cells, "drafter", drafter);
    }
    settings_put(s, "cells", cells);
    return s;
}

// What the settings name and the hash has to see. The chat's system prompt and the ends of a text come with the
// checkpoint.
static uint64_t contents(const struct opened *o, uint64_t drafter_weights)
{
    uint64_t in[3] = { model_hash(o->target.model), o->e->prompts.hash, drafter_weights };
    uint64_t h = hash_more(HASH_START, in, sizeof(in));
    h = hash_more(h, o->end, (size_t)o->n_end * sizeof(*o->end));
    return o->chat.system != NULL ? hash_more(h, o->chat.system, strlen(o->chat.system)) : h;
}

static void write_hash(uint64_t h, char to[17])
{
    snprintf(to, 17, "%016llx", (unsigned long long)h);
}

struct identity cell_identity(const struct opened *o, struct cell cell, const struct drafter *d)
{
    struct identity id = { 0 };
    struct text own = { 0 }, shared = { 0 };
    struct settings *s = cell_settings(o, cell, d), *t = cell_settings(o, cell, NULL);
    settings_write(s, &own);
    settings_write(t, &shared);
    settings_free(s);
    settings_free(t);
    write_hash(hash_more(contents(o, d->weights), own.s, own.n), id.hash);
    write_hash(hash_more(contents(o, 0), shared.s, shared.n), id.peers);
    write_hash(model_hash(o->target.model), id.target_hash);
    if (d->weights != 0)
        write_hash(d->weights, id.drafter_hash);
    id.settings = own.s;
    const bool apart = d->backend != NULL && d->backend != o->target.backend;
    id.machine =
        apart ? xformat("%s; drafter on %s", o->machine, d->backend->describe(d->backend)) : xstrdup(o->machine);
    free(shared.s);
    return id;
}

void identity_free(struct identity *i)
{
    free(i->settings);
    free(i->machine);
    i->settings = i->machine = NULL;
}

char *cell_prompts(const struct opened *o)
{
    const char *slash = strrchr(o->e->prompts_file, '/');
    return xformat("%s %016llx", slash != NULL ? slash + 1 : o->e->prompts_file,
                   (unsigned long long)o->e->prompts.hash);
}
