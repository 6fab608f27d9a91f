// group.c - opens the cells that are compared with each other over one copy of the target's weights.
//
// Each cell has its own KV cache, so that switching cells takes no measurable time.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/expectation.h"
#include "experiments/recorder.h"
#include "models/model.h"

int groups(const struct experiment *e)
{
    return e->sampling.n * e->batch.n;
}

bool cell_read(struct pairing *p, const struct experiment *e, struct cell cell, struct error *err)
{
    return pairing_read(p, e->drafter.entry[cell.drafter].settings, e->rule.entry[cell.rule].settings,
                        e->sampling.entry[cell.sampling].settings, err);
}

bool cell_open(struct pairing *p, struct loaded_experiment *o, struct cell cell, struct error *err)
{
    const struct experiment *e = o->e;
    const struct settings *given = e->drafter.entry[cell.drafter].given;
    struct error why;
    if (!sampling_check(&p->sampling, o->target.used_vocab, &why))
        return settings_fail(err, e->sampling.entry[cell.sampling].given, "%s", why.text);
    if (pairing_open(p, &o->target, e->folder, experiment_batch(e, cell.batch), o->context, &why))
        return true;
    return given != NULL ? settings_fail(err, given, "%s", why.text) : fail(err, "%s", why.text);
}

static bool open_cell_runner(struct cell_runner *c, struct loaded_experiment *o, int *rows, struct error *err)
{
    const struct experiment *e = o->e;
    int batch = experiment_batch(e, c->cell.batch);
    if (!cell_read(&c->pairing, e, c->cell, err))
        return false;
    c->recorder = recorder_create(batch, e->trials);
    const bool expected = e->expected && !c->none && !pairing_shares_randomness(&c->pairing);
    if (expected)
        c->pairing.observer = recorder_observer(c->recorder);
    bool ok = cell_open(&c->pairing, o, c->cell, err);
    *rows = c->pairing.rows;
    if (!ok)
        return false;
    if (expected)
        recorder_set_expecter(c->recorder,
                              expecter_create(c->pairing.rule, c->pairing.rule_options,
                                              drafter_makes(c->pairing.type, c->pairing.drafter_options),
                                              c->pairing.drafter->nodes, (int)model_shape(o->target.model)->vocab));
    recorder_set_drafter(c->recorder, c->pairing.drafter);
    c->decoder =
        decoder_create(c->pairing.verifier, c->pairing.drafter, batch, e->seed, recorder_listener(c->recorder), err);
    if (c->decoder == NULL)
        return false;
    c->identity = cell_identity(o, c->cell, c->pairing.drafter);
    return true;
}

// Different entries may be one cell: `default` and the value that it resolves to.
static bool is_new(const struct group *g, const struct cell_runner *c, const struct experiment *e, struct error *err)
{
    for (const struct cell_runner *other = g->cell_runner; other < c; other++)
        if (strcmp(other->identity.hash, c->identity.hash) == 0) {
            const struct entry *d = e->drafter.entry;
            const struct settings *given = d[c->cell.drafter].given, *first = d[other->cell.drafter].given;
            return settings_fail(err, given,
                                 "cells.drafter: %s is the same cell as %s on line %d, once its defaults are resolved",
                                 d[c->cell.drafter].shown, d[other->cell.drafter].shown, first->line);
        }
    return true;
}

// On failure *rows: rows of a pass that the failing cell needs.
static bool open_all(struct group *g, int number, struct loaded_experiment *o, int *rows, struct error *err)
{
    const struct experiment *e = o->e;
    g->sampling = number / e->batch.n;
    g->batch = number % e->batch.n;
    g->cell_runner = xcalloc((size_t)(e->rule.n * e->drafter.n), sizeof(*g->cell_runner));
    for (int r = 0; r < e->rule.n; r++)
        for (int d = 0; d < e->drafter.n; d++) {
            struct cell_runner *c = &g->cell_runner[g->n++];
            c->cell = (struct cell){ g->sampling, g->batch, r, d };
            c->none = experiment_is_none(e, d);
            if (!open_cell_runner(c, o, rows, err) || !is_new(g, c, e, err))
                return false;
        }
    return true;
}

bool group_open(struct group *g, int number, struct loaded_experiment *o, struct error *err)
{
    for (;;) {
        int rows = 0, had = model_rows(o->target.model);
        *g = (struct group){ 0 };
        if (open_all(g, number, o, &rows, err))
            return true;
        group_close(g);
        if (rows <= had)
            return false;
        const struct experiment *e = o->e;
        loaded_experiment_close(o);
        if (!loaded_experiment_open(o, e, rows, err))
            return false;
    }
}

void group_close(struct group *g)
{
    for (int i = 0; i < g->n; i++) {
        struct cell_runner *c = &g->cell_runner[i];
        decoder_destroy(c->decoder);
        recorder_destroy(c->recorder);
        pairing_close(&c->pairing);
        identity_free(&c->identity);
        free(c->environment_stored);
    }
    free(g->cell_runner);
    *g = (struct group){ 0 };
}
