// exact_command.c - `speclab exact`: enumerates rules exactly, and tests the texts or logits of an experiment.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/registry.h"
#include "core/settings.h"
#include "verifier/exact/law.h"
#include "verifier/exact/verdict.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "engine/engine.h"
#include "engine/foreign.h"
#include "experiments/cells.h"
#include "experiments/machine.h"
#include "experiments/progress.h"
#include "commands/exact/exact_run.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "results/store.h"

enum { FOUND = 3, UNDECIDED = 4 }; // exit statuses besides 0, 1, 2

// ---- rules

static const double rounding = 1e-12;

// In Python an outcome takes 20 microseconds and more, a hundred times as long as in C.
enum { INSTANCES = 200, FOREIGN_INSTANCES = 6 };

// Prints a line on a terminal every ten seconds. Returns false after a signal.
static bool show_progress(int64_t done, int64_t all)
{
    static int64_t began, shown;
    const int64_t now = clock_ns();
    if (done == 1)
        began = shown = now;
    if (now - shown < 10000000000 || isatty(STDERR_FILENO) == 0)
        return !interrupt_requested();
    char left[32];
    progress_time((now - began) / done * (all - done), left, sizeof(left));
    fprintf(stderr, "speclab exact: %lld of %lld instances, about %s left\n", (long long)done, (long long)all, left);
    shown = now;
    return !interrupt_requested();
}

struct enumerated { // a rule with its options
    struct speclab_decoder *decoder;
    char *shown; // what reports show
};

static bool read_enumerated(struct enumerated *to, const char *words, struct error *err)
{
    struct settings *kind = settings_inline(words, "--rules", err);
    to->decoder = kind != NULL ? decoder_read(NULL, kind, NULL, err) : NULL;
    if (to->decoder != NULL) {
        const struct rule *rule = to->decoder->rule;
        struct settings *all = entry_settings(rule->name, kind, rule->options);
        to->shown = entry_shown(all, rule->options, NULL);
        settings_free(all);
    }
    settings_free(kind);
    return to->decoder != NULL;
}

static void print_row(const char *shown, int width, const struct law_result *f, bool declares, const char *verdict)
{
    printf("  %-*s %9lld  %10lld  %11.1e  %11.1e  ", width, shown, (long long)f->instances, (long long)f->runs,
           f->distance, f->mean);
    if (declares)
        printf("%11.1e", fmax(f->law_error, f->accepted_error));
    else
        printf("%11s", "-");
    printf("  %s\n", verdict);
    fflush(stdout);
}

static void print_failure(const char *shown, int width, const char *why)
{
    fprintf(stderr, "speclab exact: rule %s: %s\n", shown, why);
    printf("  %-*s %9s  %10s  %11s  %11s  %11s  failed\n", width, shown, "-", "-", "-", "-", "-");
    fflush(stdout);
}

// Why no distance was computed; NULL: one was.
static const char *failure_of(const struct law_result *f)
{
    return f->failed != NULL ? f->failed
           : f->own_random
               ? "it draws random numbers of its own, or remembers earlier drafts: it decided in another way "
                 "when a draft came again with the same outcomes of accept and pick"
           : !f->sound ? "its decision is no path of the draft from the root, with the token after each node"
                       : NULL;
}

static const char *verdict_of_rule(const struct rule *r, const struct law_result *f)
{
    const bool same = f->distance <= rounding && f->lost <= rounding,
               law = f->law_error <= rounding && f->accepted_error <= rounding;
    if (!law || f->repeated > 0 || !(f->lost <= rounding) || (r->exact && !(same && f->empty <= rounding)))
        return "wrong";
    return r->exact ? "exact" : same ? "exact, though it declares lossless: false" : "lossy, as declared";
}

enum outcome { AS_DECLARED, WRONG, FAILED };

// instances: number for each chain configuration; each tree configuration, which has more drafts, gets a sixth as many.
static bool check_rule(const struct enumerated *e, int width, long long instances, struct store *s, enum outcome *worst,
                       struct error *err)
{
    const struct rule *r = e->decoder->rule;
    const long long n = instances > 0 ? instances : rule_is_foreign(r) ? FOREIGN_INSTANCES : INSTANCES;
    const struct sweep_size sweep_size = { (int)n, (int)(n + 5) / 6, .drafts = 700, .progress = show_progress };
    enum { ALL = 2 }; // above every distance: a wrong rule's maximum is that of all instances, too
    struct law_result f = law_sweep(r, e->decoder->rule_options, NULL, sweep_size, ALL);
    const char *why = failure_of(&f);
    if (interrupt_requested())
        return f.failed != NULL ? fail(err, "rule %s: %s", e->shown, why) : fail(err, "rule %s: interrupted", e->shown);
    if (why != NULL) {
        print_failure(e->shown, width, why);
        *worst = FAILED;
        return true;
    }
    const struct exact_rule_row row = { .rule = e->shown,
                                        .revision = speclab_revision(),
                                        .declared_exact = r->exact,
                                        .verdict = verdict_of_rule(r, &f),
                                        .instances = f.instances,
                                        .outcomes = f.runs,
                                        .distance = f.distance,
                                        .formula_error = fmax(f.law_error, f.accepted_error) };
    if (f.repeated > 0)
        fprintf(stderr, "speclab exact: rule %s: it uses a random number twice in a step\n", e->shown);
    if (*worst == AS_DECLARED && strcmp(row.verdict, "wrong") == 0)
        *worst = WRONG;
    print_row(e->shown, width, &f, r->end_probabilities != NULL, row.verdict);
    return s == NULL || store_exact_rule(s, &row, err);
}

static bool check_rules(const struct enumerated *e, int n, long long instances, const char *db, enum outcome *worst,
                        struct error *err)
{
    struct store *s = db != NULL ? store_open(db, err) : NULL;
    bool ok = db == NULL || s != NULL;
    int width = 10; // the column of rules has it
    for (int i = 0; i < n; i++)
        width = (int)strlen(e[i].shown) > width ? (int)strlen(e[i].shown) : width;
    if (ok)
        printf("  %-*s %9s  %10s  %11s  %11s  %11s\n", width, "rule", "instances", "outcomes", "distance", "mean",
               "law");
    for (int i = 0; i < n && ok; i++)
        ok = check_rule(&e[i], width, instances, s, worst, err);
    store_close(s);
    return ok;
}

// words: of rules, with options as in threshold:c=0.1; none: all of them.
static int exact_rules(const struct usage *u, char **words, int n_words, long long instances, const char *db)
{
    struct error err;
    struct enumerated chosen[MAX_REGISTERED] = { 0 };
    const char *all[MAX_REGISTERED + 1];
    enum outcome worst = AS_DECLARED;
    const int n = n_words > 0 ? n_words : rule_names(all);
    bool read = true, ok = false;
    for (int i = 0; i < n && read; i++)
        read = read_enumerated(&chosen[i], n_words > 0 ? words[i] : all[i], &err);
    interrupt_catch();
    if (read)
        ok = check_rules(chosen, n, instances, db, &worst, &err);
    for (int i = 0; i < n; i++) {
        speclab_decoder_destroy(chosen[i].decoder);
        free(chosen[i].shown);
    }
    if (!read)
        return n_words > 0 ? usage_fail(u, "%s", err.text)
                           : usage_fail(u, "%s; name the rules, with options as in RULE:OPTION=VALUE", err.text);
    if (!ok)
        return command_fail(u, &err);
    printf(
        "instances: small random pairs of p, q and a draft. outcomes: all that drafting and verification can do with them.\n"
        "distance: maximum over the instances of the total variation between the output and the target's distribution; mean:\n"
        "its mean over them. law: maximum difference from the probabilities that the rule itself declares; -: it declares\n"
        "none. exact: distance and law are at most 1e-12, rounding in float64.\n");
    const int status = command_done(u);
    return status != 0 ? status : worst == FAILED ? 1 : worst == WRONG ? FOUND : 0;
}

// ---- texts and logits

static int exact_cells(const struct usage *u, const char *file, const char *db, struct exact_plan *plan, bool bits)
{
    struct error err;
    struct experiment *e = experiment_load(file, &err);
    if (e == NULL)
        return usage_fail(u, "%s", err.text);
    struct store *s = store_open(db, &err);
    enum answer answer = NO_VERDICT;
    enum agreement agreement = DIFFER_BEYOND_ROUNDING;
    plan->stop = interrupt_catch();
    bool ok = s != NULL && (bits ? bits_run(e, s, plan, &agreement, &err) : exact_run(e, s, plan, &answer, &err));
    store_close(s);
    experiment_free(e);
    if (!ok && !bits && *plan->stop != 0) {
        fprintf(stderr, "speclab exact: interrupted; finished texts are in %s; the same command resumes from there\n",
                db);
        return interrupt_status();
    }
    if (!ok)
        return command_fail(u, &err);
    const bool found = bits ? agreement == DIFFER_BEYOND_ROUNDING : answer == BIAS_FOUND,
               undecided = bits ? agreement == DIFFER_AT_TIES : answer == NO_VERDICT;
    const int status = command_done(u);
    return status != 0 ? status : found ? FOUND : undecided ? UNDECIDED : 0;
}

// ---- the command

// Reads a number between 0 and 1.
static bool read_share(const char *text, double *to)
{
    char *end;
    *to = strtod(text, &end);
    return end != text && *end == '\0' && *to > 0 && *to < 1;
}

static const char about[] =
    "Checks that speculation does not change the output distribution of the target. --rules computes\n"
    "the output distribution of rules, of all or of those named (with options, as for --rule), exactly. With an experiment's file, its cells are decoded\n"
    "and every token is tested against the target's distribution at its position. A second run of the\n"
    "same rule (the control) and three wrong rules (negative controls) are tested on the same drafts,\n"
    "to show that a bias would be detected. --bits computes every row of logits along the texts again,\n"
    "one token at a time. Tests resume from the database. Exit status: 0 no bias found, 3 bias found,\n"
    "4 no verdict, as a negative control was not detected: more tokens are needed.\n";

static const char examples[] = "  speclab exact --rules\n  speclab exact --rules block typical:epsilon=0.2\n"
                               "  speclab exact --bits experiments/exact.yaml\n"
                               "  speclab exact experiments/exact.yaml --tokens 200000\n"
                               "  speclab exact experiments/exact.yaml --until TV=0.01 --db exact.db\n";

struct exact_options { // options of the command line
    bool rules, bits;
    const char *db, *until, *level;
    long long tokens, instances;
};

// Fills in the plan from --tokens, --until and --level. Returns 0, or the exit status of a usage error.
static int make_plan(const struct usage *u, const struct exact_options *a, struct exact_plan *plan)
{
    enum { DEFAULT_TOKENS = 20000, DEFAULT_BITS = 2000, FAMILY = 2 * EVIDENCE_TESTS + 2 };
    double distance;
    *plan = (struct exact_plan){ .out = stdout,
                                 .progress = stderr,
                                 .tokens = a->tokens > 0 ? a->tokens
                                           : a->bits     ? DEFAULT_BITS
                                                         : DEFAULT_TOKENS };
    if (a->bits)
        return 0;
    if (a->tokens > 0 && a->until != NULL)
        return usage_fail(u, "--tokens and --until exclude each other");
    if (!read_share(a->level, &plan->level))
        return usage_fail(u, "--level %s: expected a number between 0 and 1", a->level);
    if (a->until == NULL)
        return 0;
    if (!read_share(a->until + (strncmp(a->until, "TV=", 3) == 0 ? 3 : 0), &distance))
        return usage_fail(u, "--until %s: expected a total variation between 0 and 1, as in TV=0.01", a->until);
    plan->tokens = (int64_t)ceil(power_tokens(POWER_KS, distance, (struct power){ plan->level / 2, 0.999, FAMILY }));
    return 0;
}

static const struct mode modes[] = {
    { "rules", "instances db" },
    { "bits", "tokens db" },
    { NULL, "tokens until level db" },
};

int command_exact(int argc, char **argv)
{
    struct exact_options a = { .level = "1e-6" };
    const struct flag flags[] = {
        { "rules", FLAG_ON, &a.rules, NULL, "enumerate every rule; no model is needed", 0, 0 },
        { "bits", FLAG_ON, &a.bits, NULL,
          "compare the logits of verification passes with those of\none token at a time, bit for bit", 0, 0 },
        { "instances", FLAG_INT, &a.instances, "N",
          "with --rules: random instances of each kind of chain, and\na sixth as many of each kind of tree; default: 200, and 6\nfor a rule in Python",
          1, 100000 },
        { "tokens", FLAG_INT, &a.tokens, "N", "tokens to test in each cell; default: 20000, with --bits\n2000", 1,
          1000000000 },
        { "until", FLAG_TEXT, &a.until, "TV=D",
          "as many tokens as detect a bias of total variation D per\ntoken in 999 of 1,000 runs, if tested directly", 0,
          0 },
        { "level", FLAG_TEXT, &a.level, "A", "allowed probability of a false alarm; default: 1e-6", 0, 0 },
        { "db", FLAG_TEXT, &a.db, "FILE", "database; default: exact.db, with --rules none", 0, 0 },
        { 0 },
    };
    const struct usage u = { "exact",       "--rules [RULE...] | [--bits] FILE.yaml", about, flags, examples, 0,
                             MAX_REGISTERED };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if (usage_mode(&u, modes) < 0)
        return 2;
    if (!a.rules && n != 1)
        return usage_fail(&u, "expected one experiment's file, or --rules");
    if (a.rules)
        return exact_rules(&u, operand, n, a.instances, a.db);
    struct exact_plan plan;
    status = make_plan(&u, &a, &plan);
    return status != 0 ? status : exact_cells(&u, operand[0], a.db != NULL ? a.db : "exact.db", &plan, a.bits);
}
