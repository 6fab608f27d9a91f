// exact_command.c - `speclab exact`: rules walked through, and an experiment's texts put to the test.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "exact/law.h"
#include "exact/power.h"
#include "commands/exact/bits_run.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/environment.h"
#include "commands/exact/exact_run.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "results/exact_rows.h"
#include "results/store.h"

enum { FOUND = 3, UNDECIDED = 4 }; // exit statuses beside 0, 1, 2

// ---- rules

static const double rounding = 1e-12;

// worlds: of each chain configuration; of each tree, which has more drafts, a sixth.
static bool walk_through(const struct rule *r, long long instances, struct store *s, bool *wrong, struct error *err)
{
    const struct effort effort = { .chains = (int)instances, .trees = (int)(instances + 5) / 6, .drafts = 700 };
    void *options = r->options != NULL ? xcalloc(1, r->options_size) : NULL;
    struct exact_rule_row row = { .rule = r->name, .revision = speclab_revision(), .claimed = r->exact };
    if (options != NULL && !options_read(NULL, r->name, r->options, options, err)) {
        free(options);
        return false;
    }
    struct finding f = law_sweep(r, options, HONEST, effort, r->exact ? rounding : 2); // lossy ones to the end
    const bool exact =
                   f.sound && f.distance <= rounding && f.lost <= rounding && f.empty <= rounding && f.repeated == 0,
               law = f.law_error <= rounding && f.accepted_error <= rounding;
    row.found = !law || !f.sound || r->exact != exact ? "wrong" : exact ? "exact" : "lossy, as it says";
    row.instances = f.instances;
    row.outcomes = f.runs;
    row.distance = f.distance;
    row.law_error = fmax(f.law_error, f.accepted_error);
    *wrong = *wrong || strcmp(row.found, "wrong") == 0;
    printf("  %-10s %9lld  %10lld  %11.1e  %11.1e  %s\n", r->name, (long long)f.instances, (long long)f.runs,
           f.distance, row.law_error, row.found);
    fflush(stdout);
    options_free(r->options, options);
    free(options);
    return s == NULL || store_exact_rule(s, &row, err);
}

static int exact_rules(const struct usage *u, long long instances, const char *db)
{
    struct error err;
    struct store *s = NULL;
    bool wrong = false;
    if (db != NULL && (s = store_open(db, &err)) == NULL)
        return command_fail(u, &err);
    printf(
        "Every rule, over every outcome of drafting and judging in small worlds. Distance: worst total variation between\n"
        "what comes out and what the target alone would say; law: worst difference from what the rule says of itself\n"
        "  %-10s %9s  %10s  %11s  %11s\n",
        "rule", "worlds", "outcomes", "distance", "law");
    for (int i = 0; rules[i] != NULL; i++)
        if (!walk_through(rules[i], instances, s, &wrong, &err)) {
            store_close(s);
            return command_fail(u, &err);
        }
    store_close(s);
    int status = command_done(u);
    return status != 0 ? status : wrong ? FOUND : 0;
}

// ---- texts

static int exact_texts(const struct usage *u, const char *file, const char *db, struct exact_plan *plan)
{
    struct error err;
    struct experiment *e = experiment_load(file, &err);
    if (e == NULL)
        return usage_fail(u, "%s", err.text);
    struct store *s = store_open(db, &err);
    enum answer worst = NO_VERDICT;
    plan->stop = interrupt_catch();
    bool ok = s != NULL && exact_run(e, s, plan, &worst, &err);
    store_close(s);
    experiment_free(e);
    if (!ok && *plan->stop != 0) {
        fprintf(stderr,
                "speclab exact: interrupted; what was judged is in %s, and the same command goes on from there\n", db);
        return 1;
    }
    if (!ok)
        return command_fail(u, &err);
    int status = command_done(u);
    return status != 0 ? status : worst == BIAS_FOUND ? FOUND : worst == NO_VERDICT ? UNDECIDED : 0;
}

static int exact_bits(const struct usage *u, const char *file, const char *db, int64_t tokens)
{
    struct error err;
    struct experiment *e = experiment_load(file, &err);
    if (e == NULL)
        return usage_fail(u, "%s", err.text);
    struct store *s = store_open(db, &err);
    enum same worst = OTHERWISE;
    const struct bits_plan plan = { .tokens = tokens, .out = stdout, .stop = interrupt_catch() };
    bool ok = s != NULL && bits_run(e, s, &plan, &worst, &err);
    store_close(s);
    experiment_free(e);
    if (!ok)
        return command_fail(u, &err);
    int status = command_done(u);
    return status != 0 ? status : worst == OTHERWISE ? FOUND : worst == NEAR_TIES ? UNDECIDED : 0;
}

// ---- the command

// "TV=0.01", or "0.01".
static bool read_distance(const char *text, double *to)
{
    const char *digits = strncmp(text, "TV=", 3) == 0 ? text + 3 : text;
    char *end;
    *to = strtod(digits, &end);
    return end != digits && *end == '\0' && *to > 0 && *to < 1;
}

static bool read_level(const char *text, double *to)
{
    char *end;
    *to = strtod(text, &end);
    return end != text && *end == '\0' && *to > 0 && *to < 1;
}

static const char about[] =
    "Shows that speculation does not change what the target says. --rules computes the law of what\n"
    "every rule lets through, exactly. With an experiment's file the texts of its cells are decoded\n"
    "and every token is put beside the distribution that it must have come from; the same rule once\n"
    "more, and three wrong ones, are judged on the same drafts, to show what would have been seen.\n"
    "With --bits every row of logits that a text went by is computed once more, one token at a time.\n"
    "Texts go on where the database has them. Exit status: 0 no bias found, 3 bias found, 4 no\n"
    "verdict, as something wrong was not seen either: more tokens are needed.\n";

static const char examples[] = "  speclab exact --rules\n  speclab exact --bits experiments/exact.yaml\n"
                               "  speclab exact experiments/exact.yaml --tokens 200000\n"
                               "  speclab exact experiments/exact.yaml --until TV=0.01 --db exact.db\n";

struct asked { // on the command line
    bool rules, bits;
    const char *db, *until, *level;
    long long tokens, instances;
};

// What a plan needs of --tokens, --until and --level. Answers 0, or the exit status.
static int plan_of(const struct usage *u, const struct asked *a, struct exact_plan *plan)
{
    enum { DEFAULT_TOKENS = 20000, FAMILY = 2 * EVIDENCE_TESTS + 2 };
    double distance;
    *plan = (struct exact_plan){ .out = stdout, .progress = stderr, .tokens = DEFAULT_TOKENS };
    if (a->tokens > 0 && a->until != NULL)
        return usage_fail(u, "--tokens and --until both say how long; give one of them");
    if (!read_level(a->level, &plan->level))
        return usage_fail(u, "--level %s: expected a number between 0 and 1", a->level);
    if (a->until != NULL && !read_distance(a->until, &distance))
        return usage_fail(u, "--until %s: expected a total variation between 0 and 1, as in TV=0.01", a->until);
    if (a->tokens > 0)
        plan->tokens = a->tokens;
    if (a->until != NULL)
        plan->tokens =
            (int64_t)ceil(power_tokens(POWER_KS, distance, (struct power){ plan->level / 2, 0.999, FAMILY }));
    return 0;
}

int command_exact(int argc, char **argv)
{
    enum { DEFAULT_BITS = 2000 };
    struct asked a = { .level = "1e-6", .instances = 200 };
    const struct flag flags[] = {
        { "rules", FLAG_ON, &a.rules, NULL, "walk through every rule; no model is needed", 0, 0 },
        { "bits", FLAG_ON, &a.bits, NULL,
          "compare the logits of verifying passes with those of one\ntoken at a time, bit for bit", 0, 0 },
        { "instances", FLAG_INT, &a.instances, "N",
          "with --rules: small worlds of each kind of chain, a sixth\nof each kind of tree (200)", 1, 100000 },
        { "tokens", FLAG_INT, &a.tokens, "N", "tokens to be judged of each cell (20000; --bits: 2000)", 1, 1000000000 },
        { "until", FLAG_TEXT, &a.until, "TV=D",
          "as many as show a bias of total variation D a token,\nmet head on, in 999 of 1,000 runs", 0, 0 },
        { "level", FLAG_TEXT, &a.level, "A", "chance of a false alarm that is allowed for (1e-6)", 0, 0 },
        { "db", FLAG_TEXT, &a.db, "FILE", "database (exact.db; with --rules: none)", 0, 0 },
        { 0 },
    };
    const struct usage u = { "exact", "--rules | [--bits] FILE.yaml", about, flags, examples, 0, 1 };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != GO_ON)
        return status;
    if (a.rules == (n == 1) || (a.rules && a.bits))
        return usage_fail(&u, a.rules ? "--rules needs no file, and goes alone"
                                      : "expected an experiment's file, or --rules");
    if (a.rules)
        return exact_rules(&u, a.instances, a.db);
    if (a.bits && a.until != NULL)
        return usage_fail(&u, "--until is a bias's size; --bits has none to find");
    const char *db = a.db != NULL ? a.db : "exact.db";
    if (a.bits)
        return exact_bits(&u, operand[0], db, a.tokens > 0 ? a.tokens : DEFAULT_BITS);
    struct exact_plan plan;
    status = plan_of(&u, &a, &plan);
    return status != 0 ? status : exact_texts(&u, operand[0], db, &plan);
}
