// exact_command.c - `speclab exact`: enumerates rules exactly, and tests the texts or logits of an experiment.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/registry.h"
#include "verifier/exact/law.h"
#include "verifier/exact/verdict.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "engine/foreign.h"
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

// Prints a line every ten seconds.
static void show_progress(int64_t done, int64_t all)
{
    static int64_t began, shown;
    const int64_t now = clock_ns();
    if (done == 1)
        began = shown = now;
    if (now - shown < 10000000000)
        return;
    char left[32];
    progress_time((now - began) / done * (all - done), left, sizeof(left));
    fprintf(stderr, "speclab exact: %lld of %lld instances, about %s left\n", (long long)done, (long long)all, left);
    shown = now;
}

// instances: number for each chain configuration; each tree configuration, which has more drafts, gets a sixth as many.
static bool check_rule(const struct rule *r, long long instances, struct store *s, bool *wrong, struct error *err)
{
    const long long n = instances > 0 ? instances : rule_is_foreign(r) ? FOREIGN_INSTANCES : INSTANCES;
    const struct sweep_size sweep_size = { (int)n, (int)(n + 5) / 6, .drafts = 700, .progress = show_progress };
    void *options = r->options != NULL ? xcalloc(1, r->options_size) : NULL;
    struct exact_rule_row row = { .rule = r->name, .revision = speclab_revision(), .declared_exact = r->exact };
    if (options != NULL && !options_read(NULL, r->name, r->options, options, err)) {
        free(options);
        return false;
    }
    enum { ALL = 2 }; // above every distance: a wrong rule's maximum is that of all instances, too
    struct law_result f = law_sweep(r, options, NULL, sweep_size, ALL);
    const bool exact =
                   f.sound && f.distance <= rounding && f.lost <= rounding && f.empty <= rounding && f.repeated == 0,
               law = f.law_error <= rounding && f.accepted_error <= rounding;
    row.verdict = !law || !f.sound || r->exact != exact ? "wrong" : exact ? "exact" : "lossy, as declared";
    row.instances = f.instances;
    row.outcomes = f.runs;
    row.distance = f.distance;
    row.formula_error = fmax(f.law_error, f.accepted_error);
    *wrong = *wrong || strcmp(row.verdict, "wrong") == 0;
    if (f.failed != NULL)
        fprintf(stderr, "speclab exact: rule %s: %s\n", r->name, f.failed);
    char *declared = r->end_probabilities != NULL ? xformat("%.1e", row.formula_error) : xstrdup("-");
    printf("  %-10s %9lld  %10lld  %11.1e  %11s  %s\n", r->name, (long long)f.instances, (long long)f.runs, f.distance,
           declared, row.verdict);
    free(declared);
    fflush(stdout);
    options_free(r->options, options);
    free(options);
    return s == NULL || store_exact_rule(s, &row, err);
}

// names: of rules; none: all of them.
static int exact_rules(const struct usage *u, char **names, int n_names, long long instances, const char *db)
{
    struct error err;
    struct store *s = NULL;
    bool wrong = false;
    const struct rule *chosen[MAX_REGISTERED];
    int n = 0;
    for (int i = 0; i < n_names; i++)
        if ((chosen[n++] = rule_named(names[i])) == NULL) {
            struct text hint = { 0 };
            const char *all[MAX_REGISTERED + 1];
            rule_names(all);
            name_hint(&hint, NAME_KIND, names[i], all);
            usage_fail(u, "unknown rule \"%s\"%s", names[i], hint.n > 0 ? hint.s : "; speclab list names all rules");
            free(hint.s);
            return 2;
        }
    for (; n_names == 0 && rules[n] != NULL; n++)
        chosen[n] = rules[n];
    if (db != NULL && (s = store_open(db, &err)) == NULL)
        return command_fail(u, &err);
    printf("  %-10s %9s  %10s  %11s  %11s\n", "rule", "instances", "outcomes", "distance", "law");
    for (int i = 0; i < n; i++)
        if (!check_rule(chosen[i], instances, s, &wrong, &err)) {
            store_close(s);
            return command_fail(u, &err);
        }
    store_close(s);
    printf(
        "instances: small random pairs of p, q and a draft. outcomes: all that drafting and verification can do with them.\n"
        "distance: maximum total variation between the output and the target's distribution. law: maximum difference from the\n"
        "probabilities that the rule itself declares; -: it declares none. exact: both are at most 1e-12, rounding in float64.\n");
    int status = command_done(u);
    return status != 0 ? status : wrong ? FOUND : 0;
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
    "the output distribution of rules, of all or of those named, exactly. With an experiment's file, its cells are decoded\n"
    "and every token is tested against the target's distribution at its position. A second run of the\n"
    "same rule (the control) and three wrong rules (negative controls) are tested on the same drafts,\n"
    "to show that a bias would be detected. --bits computes every row of logits along the texts again,\n"
    "one token at a time. Tests resume from the database. Exit status: 0 no bias found, 3 bias found,\n"
    "4 no verdict, as a negative control was not detected: more tokens are needed.\n";

static const char examples[] = "  speclab exact --rules\n  speclab exact --rules block traversal\n"
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
