#include "experiments/exact_run.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/conversation.h"
#include "experiments/exact_report.h"
#include "experiments/stop_strings.h"
#include "models/model.h"
#include "results/exact_rows.h"
#include "revision.h"
#include "verifier/rule.h"
#include "verifier/verifier.h"

enum { AHEAD = 4 }; // texts to a slot that may be done before the one whose turn it is

struct watched { // a cell while it is decoded
    const struct experiment *e;
    const struct exact_plan *plan;
    struct store *store;
    struct opened *opened;
    struct cell cell;
    int slots, room; // room: of done[]
    struct pairing pairing;
    struct observer *observer;
    struct decoder *decoder;
    struct stop_strings strings;
    struct stops stops;
    int64_t started; // texts that were begun; those joined: sums.sequences
    int64_t at[MAX_SLOTS];
    struct observed *done, total; // done: (room) texts that wait for one before them
    bool *is_done;                // (room)
    struct exact_sums sums;       // of total
    int64_t id;
    double told; // seconds
};

// ---- from text to sums

static void judged(void *self, const struct judged *j)
{
    observer_judged(((struct watched *)self)->observer, j);
}

static void done(void *self, const struct ending *e)
{
    struct watched *w = self;
    const int64_t place = e->sequence % w->room;
    int slot = 0;
    while (w->at[slot] != e->sequence)
        slot++;
    w->done[place] = (struct observed){ 0 };
    observer_take(w->observer, slot, &w->done[place]);
    w->is_done[place] = true;
}

static bool is_certain(const struct watched *w)
{
    return verdict_is_certain(w->sums.most_log_e, w->plan->level);
}

static bool is_enough(const struct watched *w)
{
    return w->sums.tokens >= w->plan->tokens || is_certain(w);
}

// Texts are joined in the order of their numbers, whichever was done first: the bet is watched, and an order that depended
// on how texts came out would not be fair.
static bool join(struct watched *w, struct error *err)
{
    bool ok = true;
    while (ok && !is_enough(w) && w->is_done[w->sums.sequences % w->room]) {
        const int64_t place = w->sums.sequences % w->room;
        observed_join(&w->total, &w->done[place]);
        w->is_done[place] = false;
        w->sums.sequences++;
        w->sums.tokens = (int64_t)evidence_tokens(&w->total.of[THE_TEXT]);
        w->sums.steps = (int64_t)w->total.steps;
        w->sums.most_log_e = fmax(w->sums.most_log_e, evidence_log_e(&w->total.of[THE_TEXT]));
        ok = store_exact_sums(w->store, w->id, &w->sums, err);
    }
    return ok;
}

static bool start_next(struct watched *w, struct error *err)
{
    const struct prompt *p = &w->e->prompts.prompt[w->started % w->e->prompts.n];
    struct ids ids = { 0 };
    bool ok = conversation_ids(&w->opened->target, &w->opened->chat, p, NULL, 0, &ids, err);
    const struct assignment a = {
        .sequence = w->started, .prompt = ids.id, .n = (int)ids.n, .limit = w->e->new_tokens, .stops = &w->stops
    };
    ok = ok && decoder_start(w->decoder, &a, err);
    if (ok) {
        const int slot = decoder_slot(w->decoder, w->started);
        w->at[slot] = w->started;
        observer_start(w->observer, slot, w->started++);
    }
    free(ids.id);
    return ok;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void tell(struct watched *w)
{
    enum { SECONDS = 10 };
    if (w->plan->progress == NULL || now() - w->told < SECONDS)
        return;
    w->told = now();
    fprintf(w->plan->progress, "  %lld of %lld tokens judged, bet at 10^%.1f\n", (long long)w->sums.tokens,
            (long long)w->plan->tokens, evidence_log_e(&w->total.of[THE_TEXT]) / log(10));
}

static bool goes_on(const struct watched *w, struct error *err)
{
    return w->plan->stop == NULL || *w->plan->stop == 0 || fail(err, "interrupted");
}

static bool decode_until_enough(struct watched *w, struct error *err)
{
    bool ok = true;
    w->started = w->sums.sequences;
    w->told = now();
    while (ok && !is_enough(w)) {
        while (ok && decoder_has_room(w->decoder) && w->started < w->sums.sequences + w->room)
            ok = start_next(w, err);
        ok = ok && goes_on(w, err) && decoder_step(w->decoder, err) && join(w, err);
        tell(w);
    }
    return ok;
}

// ---- a cell

static bool fail_at_drafter(const struct watched *w, const struct error *why, struct error *err)
{
    const struct settings *given = w->e->drafter.entry[w->cell.drafter].given;
    return given != NULL ? settings_fail(err, given, "%s", why->text) : fail(err, "%s", why->text);
}

static bool open_pairing(struct watched *w, struct error *err)
{
    const struct experiment *e = w->e;
    struct error why;
    for (;;) {
        const int had = model_rows(w->opened->target.model);
        if (!pairing_read(&w->pairing, e->drafter.entry[w->cell.drafter].settings, e->rule.entry[w->cell.rule].settings,
                          e->sampling.entry[w->cell.sampling].settings, err))
            return false;
        w->pairing.watch = (struct watch){ .judged = judged, .self = w };
        if (pairing_open(&w->pairing, &w->opened->target, e->folder, w->slots, w->opened->context, &why))
            return true;
        const int rows = w->pairing.rows;
        pairing_close(&w->pairing);
        if (rows <= had)
            return fail_at_drafter(w, &why, err);
        opened_close(w->opened);
        if (!opened_open(w->opened, e, rows, err))
            return false;
    }
}

static bool find_row(struct watched *w, struct error *err)
{
    const struct experiment *e = w->e;
    struct identity identity = cell_identity(w->opened, w->cell, w->pairing.drafter);
    const struct exact_row row = {
        .experiment = e->name,
        .cell = identity.hash,
        .settings = identity.settings,
        .target = e->target,
        .drafter = e->drafter.entry[w->cell.drafter].shown,
        .rule = e->rule.entry[w->cell.rule].shown,
        .sampling = e->sampling.entry[w->cell.sampling].shown,
        .machine = w->opened->machine,
        .revision = SPECLAB_REVISION,
        .lossless = w->pairing.rule->exact,
        .batch = w->slots,
        .seed = e->seed,
    };
    w->sums = (struct exact_sums){ .sum = (double *)&w->total, .n = OBSERVED_DOUBLES };
    bool ok = store_exact(w->store, &row, &w->id, &w->sums, err);
    identity_free(&identity);
    return ok;
}

static bool open_cell(struct watched *w, struct error *err)
{
    if (!open_pairing(w, err) || !find_row(w, err))
        return false;
    const struct observer_setup setup = {
        .rule = w->pairing.rule,
        .rule_options = w->pairing.rule_options,
        .slots = w->slots,
        .nodes = w->pairing.drafter->nodes,
        .vocab = (int)model_shape(w->opened->target.model)->vocab,
        .end = w->opened->n_end > 0 ? w->opened->end[0] : -1,
        .seed = w->e->seed,
    };
    w->observer = observer_create(&setup);
    w->room = AHEAD * w->slots;
    w->done = xcalloc((size_t)w->room, sizeof(*w->done));
    w->is_done = xcalloc((size_t)w->room, sizeof(*w->is_done));
    w->strings = (struct stop_strings){ w->opened->target.tokenizer, w->e->n_stop, (const char *const *)w->e->stop };
    w->stops =
        (struct stops){ w->opened->n_end, w->opened->end, w->e->n_stop > 0 ? stop_strings_find : NULL, &w->strings };
    w->decoder = decoder_create(w->pairing.verifier, w->pairing.drafter, w->slots, w->e->seed,
                                (struct listener){ .done = done, .self = w }, err);
    return w->decoder != NULL;
}

static void close_cell(struct watched *w)
{
    decoder_destroy(w->decoder);
    observer_destroy(w->observer);
    pairing_close(&w->pairing);
    free(w->done);
    free(w->is_done);
    free(w);
}

static bool run_cell(struct watched *w, enum answer *answer, struct error *err)
{
    if (!open_cell(w, err))
        return false;
    fprintf(w->plan->out, "%s, %s, %s%s\n", w->e->drafter.entry[w->cell.drafter].shown,
            w->e->rule.entry[w->cell.rule].shown, w->e->sampling.entry[w->cell.sampling].shown,
            w->pairing.rule->exact ? "" : " (LOSSY: a bias is what it is made of)");
    fflush(w->plan->out);
    if (!decode_until_enough(w, err))
        return false;
    struct verdict *v = xcalloc(1, sizeof(*v));
    verdict_of(v, &w->total, w->sums.most_log_e, w->plan->level);
    exact_print(w->plan->out, v, &w->total, w->sums.sequences);
    *answer = v->answer;
    bool ok = exact_store(w->store, w->id, v, &w->total, err);
    free(v);
    return ok;
}

bool exact_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum answer *worst,
               struct error *err)
{
    struct opened opened;
    if (!opened_open(&opened, e, TARGET_ROWS, err))
        return false;
    bool ok = true;
    int cells = 0;
    *worst = NO_BIAS_FOUND;
    for (int g = 0; g < groups(e) && ok; g++)
        for (int k = 0; k < e->rule.n * e->drafter.n && ok; k++) {
            const struct cell cell = { g / e->batch.n, g % e->batch.n, k / e->drafter.n, k % e->drafter.n };
            if (experiment_is_none(e, cell.drafter))
                continue;
            struct watched *w = xcalloc(1, sizeof(*w));
            *w = (struct watched){ .e = e, .plan = plan, .store = s, .opened = &opened, .cell = cell };
            w->slots = experiment_batch(e, cell.batch);
            enum answer answer = NO_VERDICT;
            ok = run_cell(w, &answer, err);
            if (ok && *worst != BIAS_FOUND && answer != NO_BIAS_FOUND)
                *worst = answer;
            close_cell(w);
            cells++;
        }
    opened_close(&opened);
    return ok && (cells > 0 || fail(err, "%s: there is no drafter but `none`, and nothing to test", e->path));
}
