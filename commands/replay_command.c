// replay_command.c - `speclab replay`: what other rules, lengths and trees would have decided about the recorded drafts
// of a database.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/trees/tree.h"
#include "engine/engine.h"
#include "experiments/replay/replay.h"
#include "results/query.h"
#include "results/store.h"

struct replay_command {
    long long run, tokens, nodes; // run 0: all with recorded rows
    const char *rule, *tree;      // NULL: not given
    bool json;
    struct replay_options options;
    struct tree paths;
    struct settings *kind;
    struct json *all;
};

static double ratio(double a, int64_t b)
{
    return b > 0 ? a / (double)b : 0;
}

static double by_draft(const struct replay_sum *s, int64_t n)
{
    return ratio((double)n, s->drafts);
}

// ---- text

static void print_sum(const char *name, const struct replay_sum *s)
{
    printf("  %-14s %7lld %12.2f %10lld %9lld", name, (long long)s->steps, ratio((double)s->tokens, s->steps),
           (long long)s->drafted, (long long)s->accepted);
    if (s->expected_steps == s->steps && s->steps > 0)
        printf(" %12.1f\n", s->expected);
    else
        printf(" %12s\n", "-");
}

static void print_depths(const struct replay_result *r)
{
    printf("  accepted at depth");
    for (int i = 0; i < r->depth && i < 12; i++)
        printf(" %.2f", by_draft(&r->covered, r->covered.deeper[i]));
    printf("%s\n", r->depth > 12 ? " ..." : "");
}

static void print_gaps(const struct replay_result *r)
{
    printf("  %lld of %lld texts are covered to their end", (long long)r->complete, (long long)r->texts);
    bool any = false;
    for (int i = 0; i < GAPS; i++)
        if (r->gaps[i] > 0) {
            printf("%s %s (%lld)", any ? "," : "; gaps:", gap_names[i], (long long)r->gaps[i]);
            any = true;
        }
    printf("\n");
}

static void print_run(const struct replay_command *c, int64_t run, const struct replay_result *r)
{
    printf("run %lld: %s, %s, %s; rows: ", (long long)run, r->drafter, r->recorded_rule, r->sampling);
    if (r->entries > 0)
        printf("%lld entries\n", (long long)r->entries);
    else
        printf("full\n");
    printf("replay: %s", r->rule);
    if (c->tokens > 0)
        printf(", drafts at most %lld deep", c->tokens);
    if (c->nodes > 0)
        printf(", the first %lld draft tokens", c->nodes);
    if (c->tree != NULL)
        printf(", tree %s", c->tree);
    printf("\n  %-14s %7s %12s %10s %9s %12s\n", "", "steps", "tokens/step", "drafted", "accepted", "E[accepted]");
    print_sum("covered", &r->covered);
    if (r->beyond.steps > 0)
        print_sum("after gaps", &r->beyond);
    if (r->covered.drafts > 0)
        print_depths(r);
    print_gaps(r);
    if (r->continued > 0)
        printf(
            "  %lld steps are decided about the rest of an earlier draft, which the drafter would have drafted again\n",
            (long long)r->continued);
}

// ---- JSON

static struct json *sum_json(const struct replay_sum *s, int depth)
{
    struct json *at = json_new_array();
    for (int i = 0; i < depth; i++)
        json_push(at, json_new_number(s->drafts > 0 ? by_draft(s, s->deeper[i]) : NAN));
    return json_object_of(
        JSON("steps", s->steps), JSON("tokens", s->tokens), JSON("drafts", s->drafts), JSON("drafted", s->drafted),
        JSON("accepted", s->accepted), JSON("tokens_per_step", s->steps > 0 ? ratio((double)s->tokens, s->steps) : NAN),
        JSON("expected", s->expected_steps == s->steps ? s->expected : NAN), JSON("acceptance_by_depth", at));
}

static struct json *run_json(const struct replay_command *c, int64_t run, const struct replay_result *r)
{
    static const char *const gap_keys[GAPS] = { "root", "text", "rows", "turn", "drafter" };
    struct json *gaps = json_new_object();
    for (int i = 0; i < GAPS; i++)
        json_set(gaps, gap_keys[i], json_new_int(r->gaps[i]));
    return json_object_of(
        JSON("run", run), JSON("drafter", r->drafter), JSON("recorded_rule", r->recorded_rule),
        JSON("sampling", r->sampling), JSON("entries", r->entries > 0 ? json_new_int(r->entries) : json_new_null()),
        JSON("rule", r->rule), JSON("tokens", c->tokens > 0 ? json_new_int(c->tokens) : json_new_null()),
        JSON("nodes", c->nodes > 0 ? json_new_int(c->nodes) : json_new_null()), JSON("tree", c->tree),
        JSON("texts", r->texts), JSON("complete", r->complete), JSON("covered", sum_json(&r->covered, r->depth)),
        JSON("after_gaps", sum_json(&r->beyond, r->depth)), JSON("gaps", gaps), JSON("continued", r->continued));
}

// ---- the command

static bool replay_run(struct replay_command *c, struct store *s, int64_t run, bool first, struct error *err)
{
    struct replay_result r;
    const bool ok = replay(s, run, &c->options, &r, err);
    if (ok && c->json)
        json_push(c->all, run_json(c, run, &r));
    else if (ok) {
        printf("%s", first ? "" : "\n");
        print_run(c, run, &r);
    }
    replay_result_free(&r);
    return ok;
}

static bool replay_runs(struct replay_command *c, struct store *s, struct error *err)
{
    if (c->run > 0)
        return replay_run(c, s, c->run, true, err);
    struct query *q =
        query_open(s, "SELECT DISTINCT run FROM sequence JOIN draft ON draft.sequence = sequence.id ORDER BY run");
    bool ok = true;
    int n = 0;
    while (ok && query_next(q))
        ok = replay_run(c, s, query_int(q, 0), n++ == 0, err);
    ok = query_close(q, ok ? err : &(struct error){ "" }) && ok;
    return ok && (n > 0 || fail(err, "%s: no run has recorded rows: run an experiment with `record: {rows: full}`",
                                store_path(s)));
}

static bool read_options(struct replay_command *c, struct error *err)
{
    if (c->rule != NULL && (c->kind = settings_inline(c->rule, "--rule", err)) == NULL)
        return false;
    struct speclab_decoder *known = c->kind != NULL ? decoder_read(NULL, c->kind, NULL, err) : NULL;
    if (c->kind != NULL && known == NULL)
        return false;
    speclab_decoder_destroy(known);
    if (c->tree != NULL && !tree_read(c->tree, NULL, &c->paths, err))
        return false;
    c->options = (struct replay_options){
        .rule = c->kind, .tokens = (int)c->tokens, .nodes = (int)c->nodes, .tree = c->tree != NULL ? &c->paths : NULL
    };
    return true;
}

static const char about[] =
    "Evaluates the recorded drafts of a run (`record: {rows: full}`, or a number of entries) without a model: under\n"
    "another rule, cut to fewer tokens, or to the nodes of a tree. Steps that a run would have made just so are\n"
    "covered; where the rule leaves what was recorded there is a gap, with its reason, and the replay goes on at\n"
    "the next recorded draft. Random numbers are the run's. Default: every run with recorded rows, as it ran.\n";

static const char examples[] = "  speclab replay results.db --rule match\n"
                               "  speclab replay results.db --run 2 --tokens 3 --json\n";

int command_replay(int argc, char **argv)
{
    struct replay_command c = { .run = 0 };
    const struct flag flags[] = {
        { "run", FLAG_INT, &c.run, "ID", "run to replay, of table run; default: all with recorded rows", 1, 1LL << 62 },
        { "rule", FLAG_TEXT, &c.rule, "KIND[:KEY=VALUE,...]", "rule; default: the run's", 0, 0 },
        { "tokens", FLAG_INT, &c.tokens, "N", "cut drafts below depth N", 1, MAX_NODES },
        { "nodes", FLAG_INT, &c.nodes, "N", "keep the first N draft tokens of each draft", 1, MAX_NODES },
        { "tree", FLAG_TEXT, &c.tree, "PATHS",
          "keep the nodes of this tree, as in '[[0], [1], [0, 0]]': a\npath of places among siblings each, or a file with them",
          0, 0 },
        { "json", FLAG_ON, &c.json, NULL, "a JSON list with an object for each run", 0, 0 },
        { 0 },
    };
    const struct usage u = { "replay", "FILE.db", about, flags, examples, 1, 1 };
    char **operand;
    struct error err;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (!read_options(&c, &err)) {
        settings_free(c.kind);
        return usage_fail(&u, "%s", err.text);
    }
    struct store *s = store_open_existing(operand[0], &err);
    c.all = json_new_array();
    const bool ok = s != NULL && replay_runs(&c, s, &err);
    if (ok && c.json)
        json_print(c.all, stdout);
    else
        json_free(c.all);
    settings_free(c.kind);
    store_close(s);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
