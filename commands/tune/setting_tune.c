#include "commands/tune/setting_tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/tune/tuning.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/length.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "formats/file.h"
#include "kernels/cpu/threads.h"
#include "models/paths.h"
#include "results/query.h"
#include "results/store.h"
#include "results/tally.h"
#include "tokenizers/chat_template.h"
#include "verifier/rules/rule.h"

enum { BENCH_ROUNDS = 3, SHOWN = 12 };

#define MOST_COST 3 // passes of one row: a larger draft takes more than it could give

// ---- runs

// The run of a drafter in an experiment that was run: by the name under which the recorder has stored it.
static int64_t run_of(const struct tuning *u, const struct experiment *e, int drafter)
{
    struct error ignored;
    struct query *q = query_open(u->store, "SELECT max(id) FROM run WHERE experiment = ? AND drafter = ?");
    query_put_text(q, e->name);
    query_put_text(q, e->drafter.entry[drafter].shown);
    const int64_t id = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, &ignored) ? id : 0;
}

// Runs none and these drafters, as an experiment whose name no other model, prompts or sampling of the database has. *to: the experiment, whose drafter i + 1 is the i-th of them.
static bool run_experiment(struct tuning *u, const char *name, const char *prompts, bool trials,
                           struct settings *drafters, struct experiment **to, struct error *err)
{
    char *path = xformat("%s/%s.yaml", u->folder, name), *full = xformat("%s-%s", name, u->digest);
    const bool ok = tuning_write(path, "", tuning_experiment(u, full, prompts, trials, drafters), err) &&
                    (*to = experiment_load(path, err)) != NULL && experiment_run(*to, u->store, stderr, u->stop, err);
    free(path);
    free(full);
    return ok;
}

// ---- the search

// The largest of the measured numbers of rows whose pass takes no more than MOST_COST passes of one row of each sequence.
static int affordable(const struct bench *b)
{
    enum placement placement = 0;
    for (int p = 0; p < PLACEMENTS; p++)
        placement = b->counted[p] > b->counted[placement] ? (enum placement)p : placement;
    int most = 0;
    for (int i = 0; i < b->n_measurements; i++)
        if (bench_ns(b, &b->measurement[i], placement).median <=
            MOST_COST * bench_ns(b, &b->measurement[0], placement).median)
            most = b->measurement[i].n > most ? b->measurement[i].n : most;
    return most;
}

// At one context: the probes' own steps say what passes take; the bench says how a pass's time grows between their numbers of rows.
static bool measure_passes(struct tuning *u, struct error *err)
{
    static const int rows[] = { 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48 };
    struct bench_plan p = { .model = u->model,
                            .precision = u->t->precision,
                            .threads = (int)u->t->threads,
                            .repeats = BENCH_ROUNDS,
                            .passes_only = true };
    const int most = 1 + setting_search_rows(&u->search),
              batch = (int)u->t->batch; // a pass has the rows of all its sequences
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && rows[i] < most && rows[i] * batch < MAX_PASS_ROWS; i++)
        p.rows[p.n_rows++] = rows[i] * batch;
    p.rows[p.n_rows++] = most * batch < MAX_PASS_ROWS ? most * batch : MAX_PASS_ROWS;
    p.context[p.n_contexts++] = u->t->context > 512 ? 256 : (int)u->t->context / 2;
    struct bench b = { 0 };
    const bool ok = bench_open(&b, &p, err) && bench_run(&b, err) && bench_store(&b, u->store, err);
    if (ok)
        u->most = affordable(&b) / batch - 1;
    bench_close(&b);
    return ok;
}

// Runs all probes beside none, but for those that the database has, and reads all anew: with more steps, the cost of passes is better known.
static bool probe(struct tuning *u, struct error *err)
{
    struct setting_search *s = &u->search;
    struct settings *list = tuning_drafters();
    struct experiment *e = NULL;
    const int64_t from = clock_ns();
    for (int i = 0; i < s->n_probes; i++)
        settings_append(list, settings_copy(s->probe[i].drafter));
    bool ok = run_experiment(u, "tune-probe", u->file[0], true, list, &e, err);
    u->probed_ns += clock_ns() - from;
    setting_search_forget(s);
    for (int i = 0; i < s->n_probes && ok; i++)
        ok = setting_search_read(s, &s->probe[i], u->store, run_of(u, e, i + 1), err);
    experiment_free(e);
    return ok;
}

static bool probe_all(struct tuning *u, struct error *err)
{
    const int chains = u->search.n_probes;
    if (chains > 0 && !probe(u, err))
        return false;
    setting_search_widen(&u->search, u->most);
    return (u->search.n_probes == chains || probe(u, err)) &&
           (u->search.n > 0 ||
            fail(err, "%s: nothing was drafted for its prompts, so there is nothing to choose from", u->prompts));
}

// As many settings as --confirm says and as the remaining time is enough for, if they take as long as the probes.
static int confirmable(const struct tuning *u)
{
    long long n = u->t->confirm < u->search.n ? u->t->confirm : u->search.n;
    if (u->t->seconds > 0) {
        const double cell = (double)u->probed_ns / (1 + u->search.n_probes),
                     left = 1e9 * (double)u->t->seconds - (double)(clock_ns() - u->began);
        const long long fits = (long long)(left / cell) - 1; // and none
        n = fits < n ? fits : n;
    }
    return n > 0 ? (int)n : 0;
}

static bool read_measured(struct tuning *u, int64_t run, struct measured *to, struct error *err)
{
    struct query *q = query_open(u->store, "SELECT tokens_per_step FROM steps WHERE run = ?");
    query_put_int(q, run);
    to->tokens_per_step = query_next(q) ? query_real(q, 0) : NAN;
    return query_close(q, err) && speedup_read(u->store, run, &to->speedup, err);
}

// The probes' prompts and those of the confirmation are different ones, and all say something of the setting.
static double speedup_of_both(const struct tuning *u, double predicted, double measured)
{
    const double share = u->n_prompts[1] / (double)(u->n_prompts[0] + u->n_prompts[1]);
    return u->n_prompts[1] == 0 ? measured : pow(predicted, 1 - share) * pow(measured, share);
}

static bool confirm(struct tuning *u, struct error *err)
{
    struct settings *list = tuning_drafters();
    struct experiment *e = NULL;
    u->confirmed = confirmable(u);
    setting_search_sort(&u->search, u->confirmed);
    u->measured = xcalloc((size_t)u->confirmed + 1, sizeof(*u->measured));
    for (int i = 0; i < u->confirmed; i++)
        settings_append(list, settings_copy(u->search.candidate[i].drafter));
    bool ok = u->confirmed == 0;
    if (ok)
        settings_free(list);
    else
        ok = run_experiment(u, "tune-confirm", u->file[1], false, list, &e, err);
    for (int i = 0; i < u->confirmed && ok; i++)
        ok = read_measured(u, run_of(u, e, i + 1), &u->measured[i], err);
    for (int i = 0; i < u->confirmed && ok; i++)
        u->measured[i].both = speedup_of_both(u, u->search.candidate[i].speedup, u->measured[i].speedup.value);
    experiment_free(e);
    return ok;
}

// ---- output

static int best_of(const struct tuning *u)
{
    int best = 0;
    for (int i = 1; i < u->confirmed; i++)
        if (u->measured[i].both > u->measured[best].both)
            best = i;
    return best;
}

// Of one prompt there is no interval.
static void print_measured(const struct measured *m)
{
    char interval[32] = "-";
    if (!isnan(m->speedup.low))
        snprintf(interval, sizeof(interval), "%.2f to %.2f", m->speedup.low, m->speedup.high);
    printf(" %8.2f %15s %13.2f %7.2f", m->speedup.value, interval, m->tokens_per_step, m->both);
}

static void print_results(const struct tuning *u)
{
    const struct setting_search *s = &u->search;
    printf("%d setting%s predicted from %d probe%s on %d prompt%s of %s", s->n, s->n == 1 ? "" : "s", s->n_probes,
           s->n_probes == 1 ? "" : "s", u->n_prompts[0], u->n_prompts[0] == 1 ? "" : "s", u->prompts);
    if (u->confirmed > 0 && u->n_prompts[1] > 0)
        printf(", %d confirmed on %d other%s", u->confirmed, u->n_prompts[1], u->n_prompts[1] == 1 ? "" : "s");
    else if (u->confirmed > 0)
        printf(", %d confirmed on the same one", u->confirmed);
    printf(".\nDo not evaluate with these prompts what was tuned on them.\n%s\n"
           "   predicted              measured                     of both\n"
           "speedup  tokens/step  speedup   95 %% interval  tokens/step speedup  setting\n",
           u->t->batch > 1 ? "Speedups are of all steps, not those in steady state as in `speclab report`.\n" : "");
    for (int i = 0; i < s->n && (i < SHOWN || i < u->confirmed); i++) {
        printf("%7.2f %12.2f", s->candidate[i].speedup, s->candidate[i].tokens_per_step);
        if (i < u->confirmed)
            print_measured(&u->measured[i]);
        else
            printf("%47s", "");
        printf("  %s\n", s->candidate[i].shown);
    }
    const int best = best_of(u);
    printf("\n%s\n", s->candidate[best].shown);
    if ((u->confirmed > 0 ? u->measured[best].both : s->candidate[best].speedup) < 1)
        printf("It does not gain: none is faster.\n");
    if (u->confirmed == 0)
        printf("It is predicted only: nothing was measured.\n");
    if (u->lossy)
        printf("LOSSY: the rule %s changes the target's distribution, so these speedups are for another task.\n",
               u->t->rule);
}

static bool write_best(const struct tuning *u, struct error *err)
{
    const int best = best_of(u);
    struct settings *list = tuning_drafters();
    settings_append(list, settings_copy(u->search.candidate[best].drafter));
    struct text comment = { 0 };
    text_printf(&comment, "# Written by `speclab tune`: predicted speedup %.2f", u->search.candidate[best].speedup);
    if (u->confirmed > 0)
        text_printf(&comment, ", measured %.2f", u->measured[best].speedup.value);
    text_printf(&comment, ".%s Its prompts are those it was tuned on: evaluate with others.\n",
                u->lossy ? " LOSSY: the rule changes the target's distribution." : "");
    const bool ok = tuning_write(u->t->out, comment.s, tuning_experiment(u, "tuned", u->prompts, false, list), err);
    free(comment.s);
    return ok;
}

// ---- all of it

static bool open_store(struct tuning *u, struct error *err)
{
    char *path = u->t->db != NULL ? xstrdup(u->t->db) : xformat("%s/tune.db", u->folder);
    u->store = store_open(path, err);
    const bool ok =
        u->store != NULL && (!store_read_only(u->store) || fail(err, "%s: the file or its folder is read-only", path));
    free(path);
    return ok;
}

static bool read_drafters(struct tuning *u, struct error *err)
{
    for (int i = 0; i < u->t->drafters.n; i++) {
        struct settings *drafter = settings_inline(u->t->drafters.text[i], "--drafter", err);
        if (drafter == NULL)
            return false;
        tuning_make_absolute(drafter);
        for (int k = 0; k < i; k++)
            if (strcmp(u->t->drafters.text[k], u->t->drafters.text[i]) == 0) {
                settings_free(drafter);
                return fail(err, "--drafter %s: given twice", u->t->drafters.text[i]);
            }
        const bool ok =
            drafter_length(drafter, err) && setting_search_add(&u->search, drafter, (int)u->t->longest, err);
        settings_free(drafter);
        if (!ok)
            return false;
    }
    return true;
}

// Before anything is measured.
static bool check_out(const struct tuning *u, struct error *err)
{
    if (u->t->out == NULL)
        return true;
    char *out = realpath(u->t->out, NULL);
    const bool same = out != NULL && strcmp(out, u->prompts) == 0;
    free(out);
    if (same)
        return fail_usage(err, "--out %s: expected another file than --prompts", u->t->out);
    struct part *p = part_begin(u->t->out, err);
    part_abandon(p);
    return p != NULL;
}

static bool tune(struct tuning *u, struct error *err)
{
    const struct setting_tune *t = u->t;
    u->sampling = settings_pairs(t->sampling, "--sampling", err);
    u->rule = u->sampling != NULL ? settings_inline(t->rule, "--rule", err) : NULL;
    struct pairing known = { 0 };
    if (u->rule == NULL || !chat_name_known(t->chat, err) || !pairing_read(&known, NULL, u->rule, u->sampling, err))
        return error_of_usage(err);
    u->search.rule = u->rule;
    u->search.greedy = sampling_is_greedy(&known.sampling);
    u->lossy = !known.rule->exact;
    pairing_close(&known);
    if (!read_drafters(u, err))
        return error_of_usage(err);
    char *model = model_path(t->model, NULL, err);
    u->model = model != NULL ? realpath(model, NULL) : NULL;
    free(model);
    if (u->model == NULL)
        return false;
    u->prompts = realpath(t->prompts, NULL);
    u->chat = choice_index(CHAT_NAMES, t->chat) < 0 ? realpath(t->chat, NULL) : NULL;
    u->chat = u->chat != NULL ? u->chat : xstrdup(t->chat);
    if (u->prompts == NULL)
        return fail(err, "--prompts: %s: %s", t->prompts, strerror(errno));
    if (!check_out(u, err))
        return false;
    if (!tuning_open_folder(u, err) || !tuning_divide_prompts(u, err) || !open_store(u, err))
        return false;
    return measure_passes(u, err) && probe_all(u, err) && confirm(u, err);
}

bool setting_tune(const struct setting_tune *t, struct error *err)
{
    struct tuning u = { .t = t, .began = clock_ns(), .stop = interrupt_catch() };
    bool ok = tune(&u, err);
    if (ok)
        print_results(&u);
    ok = ok && (t->out == NULL || write_best(&u, err));
    store_close(u.store);
    tuning_remove_folder(&u);
    setting_search_free(&u.search);
    settings_free(u.sampling);
    settings_free(u.rule);
    free(u.model);
    free(u.prompts);
    free(u.chat);
    free(u.file[0]);
    free(u.file[1]);
    free(u.measured);
    return ok;
}
