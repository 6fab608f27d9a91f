// group.c - the cells that are compared with one another, all open at once over one copy of the target's weights.
//
// Each has a cache of its own, so that going from one cell to the next costs nothing that would show in the times.
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

bool cell_open(struct pairing *p, struct opened *o, struct cell cell, struct error *err)
{
    const struct experiment *e = o->e;
    const struct settings *given = e->drafter.entry[cell.drafter].given;
    struct error why;
    if (!sampling_check(&p->sampling, o->target.live, &why))
        return settings_fail(err, e->sampling.entry[cell.sampling].given, "%s", why.text);
    if (pairing_open(p, &o->target, e->folder, experiment_batch(e, cell.batch), o->context, &why))
        return true;
    return given != NULL ? settings_fail(err, given, "%s", why.text) : fail(err, "%s", why.text);
}

static bool open_contender(struct contender *c, struct opened *o, int *rows, struct error *err)
{
    const struct experiment *e = o->e;
    int batch = experiment_batch(e, c->cell.batch);
    if (!cell_read(&c->pairing, e, c->cell, err))
        return false;
    c->recorder = recorder_create(batch, e->trials);
    const bool expected = e->expected && !c->none && !pairing_shares_chance(&c->pairing);
    if (expected)
        c->pairing.watch = recorder_watch(c->recorder);
    bool ok = cell_open(&c->pairing, o, c->cell, err);
    *rows = c->pairing.rows;
    if (!ok)
        return false;
    if (expected)
        recorder_expects(c->recorder,
                         expecter_create(c->pairing.rule, c->pairing.rule_options,
                                         drafter_makes(c->pairing.type, c->pairing.drafter_options),
                                         c->pairing.drafter->nodes, (int)model_shape(o->target.model)->vocab));
    c->decoder =
        decoder_create(c->pairing.verifier, c->pairing.drafter, batch, e->seed, recorder_listener(c->recorder), err);
    if (c->decoder == NULL)
        return false;
    c->identity = cell_identity(o, c->cell, c->pairing.drafter);
    return true;
}

// Entries that read differently may be one cell: `preset`, and what it settles to.
static bool is_new(const struct group *g, const struct contender *c, const struct experiment *e, struct error *err)
{
    for (const struct contender *other = g->contender; other < c; other++)
        if (strcmp(other->identity.hash, c->identity.hash) == 0) {
            const struct entry *d = e->drafter.entry;
            const struct settings *given = d[c->cell.drafter].given, *first = d[other->cell.drafter].given;
            return settings_fail(err, given,
                                 "cells.drafter: %s is the same as %s on line %d, whose presets come to that",
                                 d[c->cell.drafter].shown, d[other->cell.drafter].shown, first->line);
        }
    return true;
}

// false: *rows is what the cell that could not be opened needs of a pass.
static bool open_all(struct group *g, int number, struct opened *o, int *rows, struct error *err)
{
    const struct experiment *e = o->e;
    g->sampling = number / e->batch.n;
    g->batch = number % e->batch.n;
    g->contender = xcalloc((size_t)(e->rule.n * e->drafter.n), sizeof(*g->contender));
    for (int r = 0; r < e->rule.n; r++)
        for (int d = 0; d < e->drafter.n; d++) {
            struct contender *c = &g->contender[g->n++];
            c->cell = (struct cell){ g->sampling, g->batch, r, d };
            c->none = experiment_is_none(e, d);
            if (!open_contender(c, o, rows, err) || !is_new(g, c, e, err))
                return false;
        }
    return true;
}

bool group_open(struct group *g, int number, struct opened *o, struct error *err)
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
        opened_close(o);
        if (!opened_open(o, e, rows, err))
            return false;
    }
}

void group_close(struct group *g)
{
    for (int i = 0; i < g->n; i++) {
        struct contender *c = &g->contender[i];
        decoder_destroy(c->decoder);
        recorder_destroy(c->recorder);
        pairing_close(&c->pairing);
        identity_free(&c->identity);
    }
    free(g->contender);
    *g = (struct group){ 0 };
}
