#include "experiments/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/hash_map.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"
#include "engine/engine.h"
#include "experiments/cells.h"
#include "experiments/replay/recorded_drafts.h"
#include "experiments/yaml.h"
#include "results/query.h"
#include "verifier/rules/rule.h"

const char *const gap_names[GAPS] = { "no draft was recorded", "the text differs", "entries of rows are missing",
                                      "an earlier turn is not covered", "the drafter remembers" };

struct replay {
    const struct replay_options *o;
    const char *path; // path of the database
    uint64_t seed;
    int64_t batch;
    struct speclab_decoder *recorded; // the run's drafter and rule
    struct speclab_decoder *decoder;  // decoder with the rule to evaluate, without a drafter
    bool parts;                       // only parts of the drafts are decided about
    bool continues;                   // the part of a draft below a node is the draft from there
    int limit, context;               // maximum new tokens of a text; maximum tokens with its prompt
    enum draft_memory memory;         // memory of the drafter
    bool deviated;                    // a step differed from the recorded one
    struct recorded_rows rows;        // rows of the current step
    struct draft draft;               // the draft that is decided about, in these arrays
    int32_t token[MAX_NODES], parent[MAX_NODES];
    uint8_t proposal[MAX_NODES];
    int node[MAX_NODES]; // numbers of its nodes in the recorded draft
    int capacity;        // maximum nodes of the decision
    struct verification decision;
    double end[MAX_NODES];
    struct replay_result *to;
    bool same_texts;            // the rule's texts equal the run's, whatever the drafts are
    struct hash_map incomplete; // conversations with an incomplete text
};

// ---- parts of a draft

// Returns the node of the tree for a child of tree node `parent` that has `rank` earlier siblings; -1: it is not in the
// tree.
static int tree_child(const struct tree *t, int parent, int rank)
{
    for (int i = 1; i < t->n; i++)
        if (t->node[i].parent == parent && t->node[i].rank == rank)
            return i;
    return -1;
}

static bool lacks_earlier_sibling(const struct draft *d, int node, const int *new)
{
    for (int s = draft_next_child(d, d->parent[node], 0); s < node; s = draft_next_child(d, d->parent[node], s))
        if (new[s] < 0)
            return true;
    return false;
}

// Copies to r->draft the part of the recorded draft below `root` that the options leave, with nodes in the same order.
static bool take_part(struct replay *r, const struct draft *from, int root, const char *what, struct error *err)
{
    const struct replay_options *o = r->o;
    struct draft *to = &r->draft;
    int new[MAX_NODES], in_tree[MAX_NODES] = { 0 };
    to->n = 0;
    for (int node = 0; node < root; node++)
        new[node] = -1;
    for (int node = root; node < from->n; node++) {
        const int parent = from->parent[node];
        bool kept = node == root || new[parent] >= 0;
        if (node > root && kept && o->tree != NULL) {
            in_tree[node] = tree_child(o->tree, in_tree[parent], draft_rank(from, node));
            kept = in_tree[node] >= 0;
        }
        kept = kept && (o->tokens == 0 || draft_depth(from, node) - draft_depth(from, root) <= o->tokens) &&
               (o->nodes == 0 || node <= o->nodes);
        new[node] = kept ? to->n : -1;
        if (!kept)
            continue;
        if (node > root && from->proposal[node] == SAMPLED_WITHOUT_REPLACEMENT &&
            lacks_earlier_sibling(from, node, new))
            return fail(err,
                        "%s: a draft token was sampled without replacement, after siblings that the tree leaves out",
                        what);
        r->node[to->n] = node;
        to->token[to->n] = from->token[node];
        to->parent[to->n] = node > root ? new[parent] : -1;
        to->proposal[to->n++] = from->proposal[node];
    }
    return true;
}

static unsigned kinds_of(const struct draft *d)
{
    static const unsigned kind[] = { TAKES_DETERMINISTIC, TAKES_SAMPLED, TAKES_WITHOUT_REPLACEMENT };
    const int deepest = draft_max_depth(d);
    unsigned made = 0;
    for (int node = 0; node < d->n; node++) {
        const int child = draft_next_child(d, node, node);
        const bool branches = child >= 0 && draft_next_child(d, node, child) >= 0;
        made |= node > 0 ? kind[d->proposal[node]] : 0;
        if (branches)
            made |= node == 0 ? TAKES_CHAINS : TAKES_TREES;
        if (child < 0 && draft_depth(d, node) < deepest)
            made |= TAKES_TREES; // its chains are not of equal depth
    }
    return made;
}

static bool rule_takes(const struct replay *r, const char *what, struct error *err)
{
    const unsigned missing = takes_missing(r->decoder->rule->takes, kinds_of(&r->draft));
    return missing == 0 || fail(err, "%s: rule %s does not take this draft%s", what, r->decoder->rule->name,
                                missing & (TAKES_TREES | TAKES_CHAINS) ? ", which branches"
                                : missing & TAKES_DETERMINISTIC        ? ", whose tokens have no q"
                                                                       : ", whose tokens are sampled");
}

// ---- one step

// Returns E[accepted | draft]; NAN: the rule does not give it.
static double expected_of(struct replay *r)
{
    double sum = 0;
    if (r->decoder->rule->end_probabilities == NULL)
        return NAN;
    r->decoder->rule->end_probabilities(r->decoder->rule, &r->draft, &r->rows.p.rows, r->decoder->rule_options, r->end);
    for (int v = 1; v < r->draft.n; v++)
        sum += r->end[v] * draft_depth(&r->draft, v);
    return sum;
}

// Decides about a recorded step's draft below `root`. *certain: the decision depends on nothing that was not recorded.
static bool decide(struct replay *r, const struct recorded_text *t, const struct recorded_draft *d, int root,
                   double *expected, bool *certain, struct error *err)
{
    char *what = xformat("%s: sequence %lld, step %d", r->path, (long long)t->sequence, d->step);
    bool ok = recorded_rows_open(&r->rows, d, what, err) && take_part(r, &d->draft, root, what, err) &&
              rule_takes(r, what, err);
    if (ok) {
        if (r->capacity < r->draft.n) {
            verification_destroy(&r->decision);
            r->capacity = r->draft.n;
            r->decision = verification_create(r->capacity, r->rows.vocab);
        }
        recorded_rows_point(&r->rows, r->node, r->seed, t->number, d->position + draft_depth(&d->draft, root));
        r->draft.q = &r->rows.q.rows;
        r->decoder->rule->verify(r->decoder->rule, &r->draft, &r->rows.p.rows, r->decoder->rule_options,
                                 &r->rows.source.philox.rng, &r->decision);
        if (r->decision.failed != NULL)
            ok = fail_plugin(err, "rule %s: %s", r->decoder->rule->name, r->decision.failed);
        *certain = r->decoder->rule->drafter_invariant ? !r->rows.uncertain : !r->rows.incomplete;
        *expected = expected_of(r);
    }
    free(what);
    return ok;
}

// left: number of the text's tokens from here on; negative after the beginning of a stop string.
static void count(struct replay *r, struct replay_sum *to, double expected, int left)
{
    left = left > 0 ? left : 0;
    const int n = r->decision.n < left ? r->decision.n : left, accepted = r->decision.n - 1 < n ? r->decision.n - 1 : n;
    const int depth = draft_max_depth(&r->draft);
    to->steps++;
    to->tokens += n;
    to->drafts += r->draft.n > 1;
    to->drafted += r->draft.n - 1;
    to->accepted += accepted;
    for (int i = 0; i < accepted; i++)
        to->deeper[i]++;
    if (!isnan(expected)) {
        to->expected += expected;
        to->expected_steps++;
    }
    r->to->depth = depth > r->to->depth ? depth : r->to->depth;
}

// ---- a text

// Returns the index of the first recorded root at `position` or later; t->n: none.
static int root_from(const struct recorded_text *t, int position)
{
    int i = 0;
    while (i < t->n && t->draft[i].position < position)
        i++;
    return i;
}

// Returns whether the recorded text, including tokens that its end cut, has these tokens from `position` on.
static bool text_has(const struct recorded_text *t, int position, const int32_t *token, int n)
{
    const int at = position - t->prompt_tokens;
    return n <= 0 || (at >= 0 && n <= t->n_out - at && memcmp(t->out + at, token, (size_t)n * sizeof(*token)) == 0);
}

// Returns the recorded draft whose rest is the draft at this position: as long as the limit, or as the text allows.
// NULL: there is none.
static const struct recorded_draft *continued_at(const struct replay *r, const struct recorded_text *t, int position,
                                                 int *root)
{
    const int whole = t->prompt_tokens + r->limit < r->context ? t->prompt_tokens + r->limit : r->context;
    for (int i = t->n - 1; i >= 0 && r->continues; i--) {
        const struct recorded_draft *d = &t->draft[i];
        const int last = d->position + d->draft.n - 1; // position of the last draft token
        *root = position - d->position;                // a chain's node is its depth
        if (*root > 0 && position <= last && text_has(t, d->position + 1, d->draft.token + 1, *root) &&
            (last - position >= r->o->tokens || last >= whole - 2))
            return d;
    }
    return NULL;
}

// Returns where the walk ends: the root is the text's last token. A stop string takes back tokens, so there it is the
// last token known.
static int end_of(const struct recorded_text *t)
{
    const struct recorded_draft *last = &t->draft[t->n - 1];
    return t->string ? last->position + last->n_out : t->prompt_tokens + t->new_tokens - 1;
}

static void add_gap(struct replay *r, enum gap why, bool *covered)
{
    r->to->gaps[why]++;
    *covered = false;
}

// Returns whether the drafter would have made this draft, given the steps before it. With several slots, texts that are
// walked later may have been decoded earlier.
static bool draft_is_certain(const struct replay *r)
{
    if (r->memory == DRAFTS_OF_OTHERS && r->batch > 1 && strcmp(r->to->rule, r->to->recorded_rule) != 0)
        return false;
    return r->memory == DRAFTS_OF_TEXT || !(r->parts || r->deviated);
}

// Walks one step, and advances *position.
static bool replay_step(struct replay *r, const struct recorded_text *t, int *position, int end, bool *covered,
                        struct error *err)
{
    const int root = *position, at = root_from(t, root), next = root_from(t, root + 1);
    const struct recorded_draft *d = at < next ? &t->draft[at] : NULL;
    int node = 0;
    double expected;
    bool certain;
    *position = next < t->n ? t->draft[next].position : end;
    if (d == NULL && (d = continued_at(r, t, root, &node)) != NULL)
        r->to->continued++;
    if (d == NULL) {
        add_gap(r, GAP_ROOT, covered);
        return true;
    }
    if (!decide(r, t, d, node, &expected, &certain, err))
        return false;
    if (!certain)
        add_gap(r, GAP_ROWS, covered);
    else if (!draft_is_certain(r))
        add_gap(r, GAP_DRAFTER, covered);
    count(r, *covered ? &r->to->covered : &r->to->beyond, expected, t->prompt_tokens + t->new_tokens - root - 1);
    if (r->o->step != NULL)
        r->o->step(r->o->self,
                   &(struct replay_step){ t->sequence, root, *covered, &r->draft, r->decision.n, r->decision.token });
    const bool follows =
        text_has(t, root + 1, r->decision.token, r->decision.n < end - root ? r->decision.n : end - root);
    r->deviated = r->deviated || !follows || node > 0 || r->decision.n != d->n_out;
    if (follows)
        *position = root + r->decision.n;
    else if (certain)
        add_gap(r, GAP_TEXT, covered);
    return true;
}

static bool replay_text(struct replay *r, const struct recorded_text *t, struct error *err)
{
    const int end = end_of(t);
    const struct hash conversation = hash_of(&t->conversation, sizeof(t->conversation));
    int position = t->prompt_tokens - 1;
    bool covered = true;
    if (r->memory != DRAFTS_OF_OTHERS)
        r->deviated = false;
    if (!r->same_texts && hash_map_find(&r->incomplete, conversation) != NULL)
        add_gap(r, GAP_TURN, &covered);
    while (position < end)
        if (!replay_step(r, t, &position, end, &covered, err))
            return false;
    r->to->texts++;
    r->to->complete += covered;
    if (!covered)
        hash_map_add(&r->incomplete, conversation, 1);
    return true;
}

// ---- a run

static bool replay_texts(struct replay *r, struct store *s, int64_t run, struct error *err)
{
    struct query *q = query_open(s, "SELECT " RECORDED_COLUMNS ", coalesce(entries, 0) FROM sequence JOIN draft ON"
                                    " draft.sequence = sequence.id WHERE run = ? ORDER BY sequence.id, draft.step");
    struct recorded_text t = { 0 };
    bool ok = true;
    query_put(q, SQL(run));
    while (ok && query_next(q)) {
        if (t.n > 0 && t.sequence != query_int(q, 0)) {
            ok = replay_text(r, &t, err);
            recorded_text_free(&t);
        }
        r->to->entries = query_int(q, 14);
        ok = ok && recorded_text_add(&t, q, store_path(s), err);
    }
    ok = ok && (t.n == 0 || replay_text(r, &t, err));
    recorded_text_free(&t);
    return query_close(q, ok ? err : &(struct error){ "" }) && ok;
}

// Returns whether a draft limited in depth is recorded wherever a longer one passes through.
static bool drafts_continue(const struct replay *r)
{
    const unsigned makes = drafter_makes(r->recorded->type, r->recorded->drafter_options);
    return (makes & CONTINUES) != 0 && (makes & (TAKES_CHAINS | TAKES_TREES)) == 0 && r->memory == DRAFTS_OF_TEXT &&
           r->o->tokens > 0 && r->o->nodes == 0 && r->o->tree == NULL &&
           ((makes & TAKES_SAMPLED) == 0 ||
            (sampling_is_greedy(&r->recorded->sampling) && (makes & OWN_TEMPERATURE) == 0));
}

static bool read_limit(const struct settings *limits, const char *key, int *to, struct error *err)
{
    const struct settings *s = settings_get(limits, key);
    long long v;
    if (s == NULL)
        return fail(err, "run.settings: expected limits.%s, found none", key);
    if (!settings_int(s, key, 1, 1 << 24, &v, err))
        return false;
    *to = (int)v;
    return true;
}

// Returns whether the text does not depend on the drafts: at temperature 0 under exact rules, and under one rule whose
// draws depend on nothing else.
static bool has_same_texts(const struct replay *r)
{
    const struct rule *was = r->recorded->rule, *is = r->decoder->rule;
    return (sampling_is_greedy(&r->recorded->sampling) && was->exact && is->exact) ||
           (was == is && is->drafter_invariant);
}

// Reads the run's drafter and rule, and the rule to evaluate.
static bool read_pairings(struct replay *r, const char *settings, struct error *err)
{
    struct settings *s = yaml_parse(settings, strlen(settings), r->path, err);
    const struct settings *cells = settings_get(s, "cells"), *was = settings_get(cells, "rule"),
                          *rule = r->o->rule != NULL ? r->o->rule : was;
    bool ok = s != NULL &&
              (r->recorded = decoder_read(settings_get(cells, "drafter"), was, settings_get(cells, "sampling"), err)) !=
                  NULL &&
              (r->decoder = decoder_read(NULL, rule, NULL, err)) != NULL;
    if (ok) {
        struct settings *shown = entry_settings(r->decoder->rule->name, rule, r->decoder->rule->options);
        r->to->rule = entry_shown(shown, r->decoder->rule->options, NULL);
        r->same_texts = has_same_texts(r);
        r->memory = drafter_remembers(r->recorded->type, r->recorded->drafter_options);
        r->continues = drafts_continue(r);
        settings_free(shown);
        ok = read_limit(settings_get(s, "limits"), "new_tokens", &r->limit, err) &&
             read_limit(settings_get(s, "limits"), "context", &r->context, err);
    }
    settings_free(s);
    return ok;
}

static bool read_run(struct replay *r, struct store *s, int64_t run, struct error *err)
{
    struct query *q =
        query_open(s, "SELECT drafter, rule, sampling, seed, settings, batch, EXISTS (SELECT 1 FROM draft JOIN"
                      " sequence ON sequence.id = draft.sequence WHERE run = ?1) FROM run WHERE id = ?1");
    query_put(q, SQL(run));
    const bool found = query_next(q);
    bool ok = true;
    if (found) {
        r->to->drafter = xstrdup(query_text(q, 0));
        r->to->recorded_rule = xstrdup(query_text(q, 1));
        r->to->sampling = xstrdup(query_text(q, 2));
        r->seed = (uint64_t)query_int(q, 3);
        r->batch = query_int(q, 5);
        ok = query_int(q, 6) != 0 ||
             fail(err, "%s: run %lld (%s, %s) has no recorded rows: run its experiment with `record: {rows: full}`",
                  r->path, (long long)run, r->to->drafter, r->to->recorded_rule);
        ok = ok && read_pairings(r, query_text(q, 4), err);
    }
    if (!query_close(q, ok ? err : &(struct error){ "" }) || !ok)
        return false;
    return found || fail_usage(err, "%s: there is no run %lld in it", r->path, (long long)run);
}

bool replay(struct store *s, int64_t run, const struct replay_options *o, struct replay_result *to, struct error *err)
{
    *to = (struct replay_result){ 0 };
    struct replay r = { .o = o, .path = store_path(s), .to = to };
    r.parts = o->tokens > 0 || o->nodes > 0 || o->tree != NULL;
    r.draft = (struct draft){ .capacity = MAX_NODES, .token = r.token, .parent = r.parent, .proposal = r.proposal };
    const bool ok = read_run(&r, s, run, err) && replay_texts(&r, s, run, err);
    recorded_rows_destroy(&r.rows);
    verification_destroy(&r.decision);
    hash_map_free(&r.incomplete);
    speclab_decoder_destroy(r.recorded);
    speclab_decoder_destroy(r.decoder);
    return ok;
}

void replay_result_free(struct replay_result *r)
{
    free(r->drafter);
    free(r->recorded_rule);
    free(r->rule);
    free(r->sampling);
    *r = (struct replay_result){ 0 };
}
