#include "experiments/environment.h"
#include "commands/exact/exact_run.h"

#include <math.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "experiments/observed_cell.h"
#include "commands/exact/exact_report.h"
#include "core/interrupt.h"
#include "core/files/mapped.h"
#include "models/model.h"
#include "results/exact_rows.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

enum { AHEAD = 4 }; // texts per slot that may finish before the next one in order

struct tested_cell { // a cell while it is decoded
    struct observed_cell c;
    const struct exact_plan *plan;
    struct store *store;
    int capacity; // of done[]
    struct observer *observer;
    struct decoder *decoder;
    int64_t started;              // texts; the number of joined texts is sums.sequences
    int64_t at[MAX_SLOTS];        // number of the text in each slot
    struct observed *done, total; // done: (capacity) finished texts that wait for earlier ones
    bool *is_done;                // (capacity)
    struct exact_sums sums;       // of total
    int64_t id;
    double last_report; // time, seconds
};

// ---- from texts to sums

static void verified(void *self, const struct verified *j)
{
    observer_verified(((struct tested_cell *)self)->observer, j);
}

static void done(void *self, const struct ending *e)
{
    struct tested_cell *w = self;
    const int64_t place = e->sequence % w->capacity;
    int slot = 0;
    while (w->at[slot] != e->sequence)
        slot++;
    w->done[place] = (struct observed){ 0 };
    observer_take(w->observer, slot, &w->done[place]);
    w->is_done[place] = true;
}

static bool is_certain(const struct tested_cell *w)
{
    return verdict_is_certain(w->sums.max_log_e, w->plan->level);
}

static bool is_enough(const struct tested_cell *w)
{
    return w->sums.tokens >= w->plan->tokens || is_certain(w);
}

// Joins texts in the order of their numbers, not in the order in which they finish: the bet stops the test, and an order
// that depends on the texts would bias it.
static bool join(struct tested_cell *w, struct error *err)
{
    bool ok = true;
    while (ok && !is_enough(w) && w->is_done[w->sums.sequences % w->capacity]) {
        const int64_t place = w->sums.sequences % w->capacity;
        observed_join(&w->total, &w->done[place]);
        w->is_done[place] = false;
        w->sums.sequences++;
        w->sums.tokens = (int64_t)evidence_tokens(&w->total.of[STREAM_TEXT]);
        w->sums.steps = (int64_t)w->total.steps;
        w->sums.max_log_e = fmax(w->sums.max_log_e, evidence_log_e(&w->total.of[STREAM_TEXT]));
        ok = mapped_unchanged(err) && store_exact_sums(w->store, w->id, &w->sums, err);
    }
    return ok;
}

static bool start_next(struct tested_cell *w, struct error *err)
{
    int slot;
    if (!observed_cell_start(&w->c, w->decoder, w->started, &slot, NULL, err))
        return false;
    w->at[slot] = w->started;
    observer_start(w->observer, slot, w->started++);
    return true;
}

static void report_progress(struct tested_cell *w)
{
    enum { SECONDS = 10 };
    if (w->plan->progress == NULL || clock_seconds() - w->last_report < SECONDS)
        return;
    w->last_report = clock_seconds();
    fprintf(w->plan->progress, "  %lld of %lld tokens tested, bet at 10^%.1f\n", (long long)w->sums.tokens,
            (long long)w->plan->tokens, evidence_log_e(&w->total.of[STREAM_TEXT]) / log(10));
}

static bool decode_until_enough(struct tested_cell *w, struct error *err)
{
    bool ok = true;
    w->started = w->sums.sequences;
    w->last_report = clock_seconds();
    while (ok && !is_enough(w)) {
        while (ok && decoder_has_free_slot(w->decoder) && w->started < w->sums.sequences + w->capacity)
            ok = start_next(w, err);
        ok = ok && interrupt_check(w->plan->stop, err) && decoder_step(w->decoder, err) && join(w, err);
        report_progress(w);
    }
    return ok;
}

// ---- a cell

static bool find_row(struct tested_cell *w, struct error *err)
{
    const struct experiment *e = w->c.e;
    const struct cell cell = w->c.cell;
    struct identity identity = cell_identity(w->c.loaded, cell, w->c.pairing.drafter);
    const struct exact_row row = {
        .experiment = e->name,
        .cell = identity.hash,
        .settings = identity.settings,
        .target = e->target,
        .drafter = e->drafter.entry[cell.drafter].shown,
        .rule = e->rule.entry[cell.rule].shown,
        .sampling = e->sampling.entry[cell.sampling].shown,
        .machine = identity.machine,
        .revision = speclab_revision(),
        .lossless = w->c.pairing.rule->exact,
        .batch = w->c.slots,
        .seed = e->seed,
    };
    w->sums = (struct exact_sums){ .sum = (double *)&w->total, .n = OBSERVED_DOUBLES };
    bool ok = store_exact(w->store, &row, &w->id, &w->sums, err);
    identity_free(&identity);
    return ok;
}

static bool open_cell(struct tested_cell *w, struct error *err)
{
    if (!find_row(w, err))
        return false;
    const struct observer_setup setup = {
        .rule = w->c.pairing.rule,
        .rule_options = w->c.pairing.rule_options,
        .slots = w->c.slots,
        .nodes = w->c.pairing.drafter->nodes,
        .vocab = (int)model_shape(w->c.loaded->target.model)->vocab,
        .end = w->c.loaded->ends.stops.n > 0 ? w->c.loaded->ends.end[0] : -1,
        .seed = w->c.e->seed,
    };
    w->observer = observer_create(&setup);
    w->capacity = AHEAD * w->c.slots;
    w->done = xcalloc((size_t)w->capacity, sizeof(*w->done));
    w->is_done = xcalloc((size_t)w->capacity, sizeof(*w->is_done));
    w->decoder = decoder_create(w->c.pairing.verifier, w->c.pairing.drafter, w->c.slots, w->c.e->seed,
                                (struct listener){ .done = done, .self = w }, err);
    return w->decoder != NULL;
}

static void close_cell(struct tested_cell *w)
{
    decoder_destroy(w->decoder);
    observer_destroy(w->observer);
    observed_cell_close(&w->c);
    free(w->done);
    free(w->is_done);
    free(w);
}

static void print_head(const struct tested_cell *w, const char *more)
{
    fprintf(w->plan->out, "%s, %s, %s%s\n", w->c.e->drafter.entry[w->c.cell.drafter].shown,
            w->c.e->rule.entry[w->c.cell.rule].shown, w->c.e->sampling.entry[w->c.cell.sampling].shown, more);
    fflush(w->plan->out);
}

static bool run_cell(struct tested_cell *w, enum answer *answer, struct error *err)
{
    if (!observed_cell_open(&w->c, (struct step_observer){ .verified = verified, .self = w }, err))
        return false;
    if (sampling_is_greedy(&w->c.pairing.sampling)) {
        print_head(w, ": greedy, there is no distribution to test; see --bits");
        return true;
    }
    if (!open_cell(w, err))
        return false;
    print_head(w, w->c.pairing.rule->exact ? "" : " (LOSSY: a bias is expected)");
    if (!decode_until_enough(w, err))
        return false;
    struct verdict *v = xcalloc(1, sizeof(*v));
    verdict_of(v, &w->total, w->sums.max_log_e, w->plan->level);
    exact_print(w->plan->out, v, &w->total, w->sums.sequences);
    *answer = v->answer;
    bool ok = exact_store(w->store, w->id, v, &w->total, err);
    free(v);
    return ok;
}

struct all {
    const struct experiment *e;
    struct store *store;
    const struct exact_plan *plan;
    enum answer worst;
    int tested; // cells
};

static bool one_of_all(void *self, struct loaded_experiment *opened, struct cell cell, struct error *err)
{
    struct all *all = self;
    struct tested_cell *w = xcalloc(1, sizeof(*w));
    *w = (struct tested_cell){ .c = { .e = all->e, .loaded = opened, .cell = cell },
                               .plan = all->plan,
                               .store = all->store };
    enum answer answer = NO_BIAS_FOUND;
    bool ok = run_cell(w, &answer, err);
    all->tested += w->id != 0;
    if (ok && all->worst != BIAS_FOUND && answer != NO_BIAS_FOUND)
        all->worst = answer;
    close_cell(w);
    return ok;
}

bool exact_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum answer *worst,
               struct error *err)
{
    struct all all = { e, s, plan, NO_BIAS_FOUND, 0 };
    bool ok = each_observed_cell(e, one_of_all, &all, err);
    *worst = all.worst;
    return ok &&
           (all.tested > 0 ||
            fail(err, "%s: at temperature 0 there is no distribution to test; --bits compares the logits", e->path));
}
