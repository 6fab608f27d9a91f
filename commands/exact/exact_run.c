#include "commands/exact/exact_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "experiments/machine.h"
#include "experiments/observed_cell.h"
#include "core/interrupt.h"
#include "core/files/mapped.h"
#include "models/model.h"
#include "results/query.h"
#include "verifier/rules/rule.h"

enum { AHEAD = 4 }; // texts per slot that may finish before the next one in order

struct tested_cell { // a cell while it is decoded
    struct observed_cell *c;
    const struct exact_plan *plan;
    struct store *store;
    int capacity; // texts in done[]
    struct observer *observer;
    int64_t started;              // texts; the number of joined texts is sums.sequences
    int64_t at[MAX_SLOTS];        // number of the text in each slot
    struct observed *done, total; // done: (capacity) finished texts that wait for earlier ones
    bool *is_done;                // (capacity)
    struct exact_sums sums;       // sums of `total`
    int64_t id;
    double began, last_report; // times, seconds
    double given;              // tokens that the database had when it began
};

// ---- from texts to sums

static void decided(void *self, const struct speclab_step *s, struct speclab_rows *rows)
{
    (void)s;
    observer_verified(((struct tested_cell *)self)->observer, rows->of);
}

static void done(void *self, const struct speclab_end *e)
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

// Joins texts in the order of their numbers, not in the order in which they finish: the bet stops the test, and an
// order that depends on the texts would bias it.
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
    if (!observed_cell_start(w->c, w->started, &slot, NULL, err))
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
    const double made = (double)w->sums.tokens - w->given, left = (double)(w->plan->tokens - w->sums.tokens);
    fprintf(w->plan->progress, "  %lld of %lld tokens tested, bet at 10^%.1f", (long long)w->sums.tokens,
            (long long)w->plan->tokens, evidence_log_e(&w->total.of[STREAM_TEXT]) / log(10));
    if (made > 0)
        fprintf(w->plan->progress, "; about %.0f min left for this cell",
                ceil(left / made * (w->last_report - w->began) / 60));
    fputc('\n', w->plan->progress);
}

static bool decode_until_enough(struct tested_cell *w, struct error *err)
{
    bool ok = true;
    w->started = w->sums.sequences;
    w->began = w->last_report = clock_seconds();
    w->given = (double)w->sums.tokens;
    while (ok && !is_enough(w)) {
        const char *failed;
        while (ok && speclab_decoder_has_free_slot(w->c->decoder) && w->started < w->sums.sequences + w->capacity)
            ok = start_next(w, err);
        ok = ok && interrupt_check(w->plan->stop, err) && speclab_decoder_step(w->c->decoder, err);
        if (ok && (failed = observer_failed(w->observer)) != NULL)
            ok = fail_plugin(err, "%s (rule %s, as control)", failed, w->c->decoder->rule->name);
        ok = ok && join(w, err);
        report_progress(w);
    }
    return ok;
}

// ---- text output

static void print_stream(FILE *to, const struct verdict *v, int stream)
{
    const struct stream_verdict *s = &v->of[stream];
    fprintf(to, "  %-18s %9.0f  %11.1f  ", stream_name(stream), s->tokens, s->log_e / log(10));
    if (s->worst == NULL)
        fprintf(to, "%11s  %-44s", "", "");
    else {
        char test[64];
        if (!(s->worst->log10_adjusted < 0)) // every p is 1
            snprintf(test, sizeof(test), "-");
        else if (strcmp(s->worst->test.kind, "impossible") == 0)
            snprintf(test, sizeof(test), "tokens that the target gives p = 0");
        else
            snprintf(test, sizeof(test), "%s, %s (%s)", s->worst->test.kind, s->worst->test.of, s->worst->test.part);
        fprintf(to, "%11.1f  %-44s", s->worst->log10_adjusted, test);
    }
    fprintf(to, "  %s\n", s->alarm ? "BIASED" : "clean");
}

static void print_conclusion(FILE *to, const struct verdict *v)
{
    fprintf(to, "  Verdict: %s.", answer_names[v->answer]);
    if (v->answer == NO_VERDICT && v->of[STREAM_CONTROL].alarm)
        fprintf(to, " The control is not clean, so the test itself is in doubt.");
    else if (v->answer == NO_VERDICT) {
        const char *before = " Negative controls not detected: ";
        for (int k = STREAM_NEGATIVE_CONTROLS; k < STREAMS; k++)
            if (!v->of[k].alarm) {
                fprintf(to, "%s%s", before, stream_name(k));
                before = ", ";
            }
        if (isnan(v->needed))
            fprintf(to, ". More tokens are needed; of these controls too little shows to say how many.");
        else
            fprintf(to, ". More tokens are needed: about %.0f in all, if the controls go on as so far.",
                    ceil(v->needed / 100) * 100);
    }
    fprintf(to, "\n");
}

static const double confidence = 0.95;

static void print_size(FILE *to, struct bias_size size)
{
    if (size.least > 0)
        fprintf(
            to,
            "  Size: a total variation per token of at least %.4f on average, with %.0f %% confidence; %.4f as observed\n"
            "  along the order of q / p. There is no upper bound.\n",
            size.least, 100 * confidence, size.observed);
    else
        fprintf(
            to,
            "  Size: a total variation per token of %.4f as observed along the order of q / p; too few tokens for a\n"
            "  bound with %.0f %% confidence. With a smaller --level it takes more of them.\n",
            size.observed, 100 * confidence);
}

void exact_print(FILE *to, const struct verdict *v, const struct observed *seen, int64_t texts)
{
    fprintf(to, "  %.0f tokens of %lld texts, %.0f steps; probability of a false alarm at most %g\n", v->tokens,
            (long long)texts, seen->steps, v->level);
    fprintf(to, "  %-18s %9s  %11s  %11s  %-44s\n", "", "tokens", "bet, log10", "p, log10", "smallest p, after Holm");
    for (int stream = 0; stream < STREAMS; stream++)
        if (v->of[stream].tokens > 0)
            print_stream(to, v, stream);
    if (!isnan(v->z_accepted))
        fprintf(to, "  Accepted per step: %.4f; expected from drafts and rule: %.4f (%+.1f standard deviations)\n",
                seen->accepted / seen->steps, seen->expected / seen->steps, v->z_accepted);
    if (isinf(v->detectable_ks) || isinf(v->detectable_e))
        fprintf(to, "  Too few tokens to detect a bias of any size reliably\n");
    else
        fprintf(to,
                "  Detectable in 999 of 1,000 runs with this many tokens: a total variation per token of %.4f by the\n"
                "  Kolmogorov-Smirnov test, of %.4f by the bet, for the alternative that each tests directly\n",
                v->detectable_ks, v->detectable_e);
    print_conclusion(to, v);
    if (v->of[STREAM_TEXT].alarm)
        print_size(to, bias_size_of(&seen->of[STREAM_TEXT], 1 - confidence));
}

// ---- the database

static bool store_all(struct store *s, int64_t id, const struct verdict *v, const struct observed *seen,
                      struct error *err)
{
    static const char sql[] = "UPDATE exact SET level = ?, accepted = ?, expected = ?, z_accepted = ?, detectable = ?,"
                              " verdict = ?, finished = " SQL_NOW " WHERE id = ?";
    bool ok = query_perform(query_with(s, sql, SQL(v->level), SQL(seen->accepted / seen->steps),
                                       SQL(seen->expected / seen->steps), SQL(v->z_accepted), SQL(v->detectable_ks),
                                       SQL(answer_names[v->answer]), SQL(id)),
                            err) &&
              query_perform(query_with(s, "DELETE FROM exact_stream WHERE exact = ?", SQL(id)), err) &&
              query_perform(query_with(s, "DELETE FROM exact_test WHERE exact = ?", SQL(id)), err);
    for (int i = 0; i < STREAMS && ok; i++)
        ok = row_insert(s, "exact_stream", NULL, err, COLUMN("exact", id), COLUMN("stream", stream_name(i)),
                        COLUMN("tokens", (int64_t)v->of[i].tokens), COLUMN("log_e", v->of[i].log_e),
                        COLUMN("alarm", v->of[i].alarm));
    for (int i = 0; i < v->n && ok; i++) {
        const struct stream_test *r = &v->row[i];
        ok = row_insert(s, "exact_test", NULL, err, COLUMN("exact", id), COLUMN("stream", stream_name(r->stream)),
                        COLUMN("kind", r->test.kind), COLUMN("of", r->test.of), COLUMN("part", r->test.part),
                        COLUMN("tokens", (int64_t)r->test.tokens), COLUMN("statistic", r->test.statistic),
                        COLUMN("log10_p", r->test.log10_p), COLUMN("log10_adjusted", r->log10_adjusted));
    }
    return ok;
}

bool exact_store(struct store *s, int64_t id, const struct verdict *v, const struct observed *seen, struct error *err)
{
    return mapped_unchanged(err) && transaction_begin(s, err) &&
           transaction_end(s, store_all(s, id, v, seen, err), err);
}

struct exact_row exact_row_of(const struct observed_cell *c, const struct identity *identity)
{
    return (struct exact_row){ .experiment = c->e->name,
                               .cell = identity->hash,
                               .settings = identity->settings,
                               .target = c->loaded->chosen->model,
                               .drafter = c->e->drafter.entry[c->cell.drafter].shown,
                               .rule = c->e->rule.entry[c->cell.rule].shown,
                               .sampling = c->e->sampling.entry[c->cell.sampling].shown,
                               .machine = identity->machine,
                               .revision = speclab_revision(),
                               .lossless = c->decoder->rule->exact,
                               .batch = c->slots,
                               .seed = c->e->seed };
}

static bool find_row(struct tested_cell *w, struct error *err)
{
    struct identity identity = cell_identity(w->c->loaded, w->c->cell, w->c->decoder->drafter);
    const struct exact_row row = exact_row_of(w->c, &identity);
    w->sums = (struct exact_sums){ .sum = (double *)&w->total, .n = OBSERVED_DOUBLES };
    bool ok = store_exact(w->store, &row, &w->id, &w->sums, err);
    identity_free(&identity);
    return ok;
}

// ---- a cell

static bool open_cell(struct tested_cell *w, struct error *err)
{
    if (!find_row(w, err))
        return false;
    const struct observer_setup setup = {
        .rule = w->c->decoder->rule,
        .rule_options = w->c->decoder->rule_options,
        .slots = w->c->slots,
        .nodes = w->c->decoder->drafter->nodes,
        .vocab = (int)model_shape(w->c->loaded->target->model)->vocab,
        .end = !w->c->e->ignore_end && w->c->decoder->n_end > 0 ? w->c->decoder->end[0] : -1,
        .seed = w->c->e->seed,
    };
    w->observer = observer_create(&setup);
    w->capacity = AHEAD * w->c->slots;
    w->done = xcalloc((size_t)w->capacity, sizeof(*w->done));
    w->is_done = xcalloc((size_t)w->capacity, sizeof(*w->is_done));
    return true;
}

static void close_cell(struct tested_cell *w)
{
    observer_destroy(w->observer);
    free(w->done);
    free(w->is_done);
    free(w);
}

static void print_head(const struct tested_cell *w, const char *more)
{
    char *label = observed_cell_label(w->c);
    fprintf(w->plan->out, "%s%s\n", label, more);
    fflush(w->plan->out);
    free(label);
}

static bool run_cell(struct tested_cell *w, enum answer *answer, struct error *err)
{
    if (!observed_cell_open(w->c, (struct speclab_listener){ .end = done, .self = w, .decided = decided }, err))
        return false;
    if (sampling_is_greedy(&w->c->decoder->sampling)) {
        print_head(w, ": greedy, there is no distribution to test; see --bits");
        return true;
    }
    if (!open_cell(w, err))
        return false;
    print_head(w, w->c->decoder->rule->exact ? "" : " (LOSSY: a bias is expected)");
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
    struct store *store;
    const struct exact_plan *plan;
    enum answer worst;
    int tested; // cells
};

static bool one_of_all(void *self, struct observed_cell *c, struct error *err)
{
    struct all *all = self;
    struct tested_cell *w = xcalloc(1, sizeof(*w));
    w->c = c;
    w->plan = all->plan;
    w->store = all->store;
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
    struct all all = { .store = s, .plan = plan, .worst = NO_BIAS_FOUND };
    const struct observed_cells cells = { e, "exact", store_path(s), plan->out, plan->stop };
    bool ok = each_observed_cell(&cells, one_of_all, &all, err);
    *worst = all.worst;
    return ok &&
           (all.tested > 0 ||
            fail(err, "%s: at temperature 0 there is no distribution to test; --bits compares the logits", e->path));
}
