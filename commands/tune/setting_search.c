#include "commands/tune/setting_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"
#include "engine/engine.h"
#include "results/query.h"

enum { RANKS = 10, PROBE_NODE_COUNT = 40, LARGEST_TREE = 63, MAX_ROWS = 256 };

#define CLOSE 0.8  // of the best prediction
#define ALIKE 0.08 // relative difference in tokens per step

static const int tree_sizes[] = { 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, LARGEST_TREE };
static const int probed_sizes[] = { 6, 12, 24, PROBE_NODE_COUNT };
enum { SIZES = sizeof(probed_sizes) / sizeof(*probed_sizes), BEST_FIRST_SIZES = SIZES - 1 };

// ---- settings

static bool has_option(const struct drafter_type *t, const char *name)
{
    for (const struct option *o = t->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

static void put_number(struct settings *s, const char *key, long long value)
{
    char *text = xformat("%lld", value);
    settings_put(s, key, settings_scalar(text));
    free(text);
}

// The drafter without what is searched.
static struct settings *without_shape(const struct settings *drafter)
{
    static const char *const searched[] = { "tokens", "widths", "nodes", "tree" };
    struct settings *s = settings_map();
    for (int i = 0; i < drafter->n; i++) {
        bool kept = true;
        for (int k = 0; k < 4; k++)
            kept = kept && strcmp(drafter->key[i], searched[k]) != 0;
        if (kept)
            settings_put(s, drafter->key[i], settings_copy(drafter->item[i]));
    }
    return s;
}

static struct settings *with_length(const struct settings *drafter, int tokens)
{
    struct settings *s = without_shape(drafter);
    put_number(s, "tokens", tokens);
    return s;
}

static struct settings *with_tree(const struct settings *drafter, const struct tree *t)
{
    struct settings *s = without_shape(drafter);
    struct error ignored;
    char *paths = tree_write(t);
    settings_put(s, "tree", settings_value(paths, "tree", &ignored)); // cannot fail
    free(paths);
    return s;
}

static struct settings *with_nodes(const struct settings *drafter, const struct drafter_type *type, int nodes,
                                   int tokens)
{
    struct settings *s = with_length(drafter, tokens);
    put_number(s, "nodes", nodes);
    if (has_option(type, "pick"))
        settings_put(s, "pick", settings_scalar("greedy")); // a best-first tree is of deterministic tokens
    return s;
}

// ---- probes

// Takes ownership of drafter.
static bool add_probe(struct setting_search *s, enum probe_form form, int family, struct settings *drafter,
                      const struct settings *rule, struct error *err)
{
    struct pairing p = { 0 };
    const bool ok = pairing_read(&p, drafter, rule, NULL, err);
    pairing_close(&p);
    if (!ok) {
        settings_free(drafter);
        return false;
    }
    s->probe = xrealloc(s->probe, ((size_t)s->n_probes + 1) * sizeof(*s->probe));
    s->probe[s->n_probes++] = (struct setting_probe){ form, family, drafter };
    return true;
}

// The best tree if acceptance falls by rank as it often does; what is measured on it does not depend on its shape.
static struct settings *wide_tree(const struct settings *drafter, int depth, int nodes)
{
    static struct tree tree;
    double share[TREE_DEPTH * RANKS];
    for (int d = 0; d < depth; d++)
        for (int r = 0; r < RANKS; r++)
            share[d * RANKS + r] = 0.6 * pow(0.5, r);
    tree_best(share, depth, RANKS, nodes, &tree);
    return with_tree(drafter, &tree);
}

bool setting_search_add(struct setting_search *s, const struct settings *drafter, const struct settings *rule,
                        int longest, struct error *err)
{
    struct pairing p = { 0 };
    struct error ignored;
    if (!pairing_read(&p, drafter, rule, NULL, err)) {
        pairing_close(&p);
        return false;
    }
    const struct drafter_type *type = p.type;
    const bool learns = drafter_remembers(type, p.drafter_options) != DRAFTS_OF_TEXT;
    const struct settings *tokens = settings_get(drafter, "tokens");
    pairing_close(&p);
    longest = tokens != NULL ? atoi(tokens->text) : longest; // read and checked by pairing_read
    const bool lengths = has_option(type, "tokens"), trees = has_option(type, "tree"),
               nodes = has_option(type, "nodes");
    const int before = s->n_probes, deepest = longest < TREE_DEPTH ? longest : TREE_DEPTH;
    if (lengths && (trees || !nodes) &&
        !add_probe(s, PROBE_LENGTH, s->n_families++, with_length(drafter, longest), rule, err))
        return false;
    if (trees && !learns)
        add_probe(s, PROBE_TREE, s->n_families, wide_tree(drafter, deepest, PROBE_NODE_COUNT), rule, &ignored);
    for (int i = 0; trees && learns && i < SIZES; i++)
        add_probe(s, PROBE_ITSELF, s->n_families, wide_tree(drafter, deepest, probed_sizes[i]), rule, &ignored);
    s->n_families++;
    for (int i = 0; nodes && lengths && i < BEST_FIRST_SIZES; i++)
        add_probe(s, PROBE_ITSELF, s->n_families, with_nodes(drafter, type, probed_sizes[i], longest), rule, &ignored);
    s->n_families++;
    return s->n_probes > before ||
           fail(err, "drafter %s has no option that tune searches: tokens, tree or nodes", type->name);
}

int setting_search_rows(const struct setting_search *s)
{
    int most = 0;
    for (int i = 0; i < s->n_probes; i++) {
        const struct settings *d = s->probe[i].drafter, *tree = settings_get(d, "tree"),
                              *nodes = settings_get(d, "nodes");
        const int rows = s->probe[i].form == PROBE_TREE ? LARGEST_TREE
                         : tree != NULL                 ? tree->n
                                        : atoi((nodes != NULL ? nodes : settings_get(d, "tokens"))->text);
        most = rows > most ? rows : most;
    }
    return most;
}

// ---- candidates

// Takes ownership of drafter. Of equal settings, which drafters given twice with other lengths have, the first is kept.
static void add_candidate(struct setting_search *s, const struct setting_probe *p, struct settings *drafter,
                          double tokens, double speedup)
{
    struct text shown = { 0 };
    bool known = false;
    settings_write(drafter, &shown);
    for (int i = 0; i < s->n; i++)
        known = known || strcmp(s->candidate[i].shown, shown.s) == 0;
    if (known) {
        settings_free(drafter);
        free(shown.s);
        return;
    }
    s->candidate = xrealloc(s->candidate, ((size_t)s->n + 1) * sizeof(*s->candidate));
    s->candidate[s->n++] = (struct candidate){ p->family, drafter, shown.s, tokens, speedup };
}

static bool read_lengths(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                         struct error *err)
{
    struct query *q = query_open(store, "SELECT length, tokens_per_step, speedup FROM prediction_by_length"
                                        " WHERE run = ? AND length > 0 AND source ="
                                        " (SELECT min(source) FROM predicted_time WHERE run = ?1) ORDER BY length");
    query_put_int(q, run);
    while (query_next(q))
        add_candidate(s, p, with_length(p->drafter, (int)query_int(q, 0)), query_real(q, 1), query_real(q, 2));
    return query_close(q, err);
}

static bool read_itself(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                        struct error *err)
{
    struct query *q =
        query_open(store, "SELECT t.tokens_per_step, n.replay FROM prediction AS n JOIN steps AS t ON t.run = n.run"
                          " WHERE n.run = ? ORDER BY n.source LIMIT 1");
    query_put_int(q, run);
    while (query_next(q))
        add_candidate(s, p, settings_copy(p->drafter), query_real(q, 0), query_real(q, 1));
    return query_close(q, err);
}

struct tree_costs {
    double step_ns[MAX_ROWS]; // by rows: of a step, the drafter's time excluded
    double level_ns;          // the drafter's, of a level
    double none_ns;           // of a token of none
};

static bool read_costs(struct tree_costs *to, struct store *store, int64_t run, struct error *err)
{
    struct query *q = query_open(
        store,
        "WITH RECURSIVE rows(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows WHERE n < 255), base AS MATERIALIZED ("
        "SELECT p.*, r.batch FROM predicted_time AS p JOIN run AS r ON r.id = p.run WHERE p.run = ?1 ORDER BY source LIMIT 1)"
        " SELECT n, b.overhead_ns + (k.a + k.d * b.context + (k.b + k.e * b.context) * n * b.batch) / b.batch,"
        " coalesce(b.draft_ns / nullif(b.depth, 0), 0), (b.none_pass_ns + b.overhead_ns * b.none_steps) / b.none_tokens"
        " FROM base AS b JOIN cost_piece AS k ON (k.run, k.source) = (b.run, b.source) JOIN rows"
        " ON n * b.batch > k.above_rows AND n * b.batch <= k.to_rows AND b.context > k.above_context AND b.context <= k.to_context");
    query_put_int(q, run);
    *to = (struct tree_costs){ 0 };
    while (query_next(q)) {
        to->step_ns[query_int(q, 0)] = query_real(q, 1);
        to->level_ns = query_real(q, 2);
        to->none_ns = query_real(q, 3);
    }
    return query_close(q, err);
}

// share (TREE_DEPTH, RANKS): of the tokens tested at a depth, those of a rank that are accepted. A rank is tested only where its elder siblings
// were rejected, so its rate is multiplied by how often that is. Returns the number of depths with tests.
static int read_shares(double *share, struct store *store, int64_t run, struct error *err)
{
    double left[TREE_DEPTH];
    int depths = 0, next[TREE_DEPTH] = { 0 };
    for (int d = 0; d < TREE_DEPTH; d++)
        left[d] = 1;
    struct query *q = query_open(
        store, "SELECT depth, rank, rate FROM acceptance_by_rank WHERE run = ? AND depth <= 16 ORDER BY depth, rank");
    query_put_int(q, run);
    memset(share, 0, TREE_DEPTH * RANKS * sizeof(*share));
    while (query_next(q)) {
        const int d = (int)query_int(q, 0) - 1, rank = (int)query_int(q, 1);
        if (d < 0 || rank >= RANKS || rank != next[d]) // after a rank without tests
            continue;
        share[d * RANKS + rank] = left[d] * query_real(q, 2);
        left[d] *= 1 - query_real(q, 2);
        next[d]++;
        depths = d + 1;
    }
    return query_close(q, err) ? depths : -1;
}

static bool read_trees(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                       struct error *err)
{
    static struct tree tree;
    double share[TREE_DEPTH * RANKS];
    struct tree_costs cost;
    const int depths = read_shares(share, store, run, err);
    if (depths < 0 || !read_costs(&cost, store, run, err))
        return false;
    for (int depth = 1; depth <= depths; depth++)
        for (size_t i = 0; i < sizeof(tree_sizes) / sizeof(*tree_sizes); i++) {
            const double tokens = 1 + tree_best(share, depth, RANKS, tree_sizes[i], &tree);
            const double ns = cost.step_ns[tree.n] + depth * cost.level_ns;
            if (tree.n == tree_sizes[i] + 1 && tree_sizes[i] > depth && tree_max_depth(&tree) == depth &&
                cost.step_ns[tree.n] > 0) // chains are lengths
                add_candidate(s, p, with_tree(p->drafter, &tree), tokens, tokens / ns * cost.none_ns);
        }
    return true;
}

bool setting_search_read(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                         struct error *err)
{
    return p->form == PROBE_LENGTH ? read_lengths(s, p, store, run, err)
           : p->form == PROBE_TREE ? read_trees(s, p, store, run, err)
                                   : read_itself(s, p, store, run, err);
}

static int by_speedup(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->speedup < y->speedup) - (x->speedup > y->speedup);
}

// Whether candidate i is like one of its family that is confirmed: a probe's candidates of nearly as many tokens differ in nothing that a
// measurement of a few prompts could tell.
static bool is_alike(const struct setting_search *s, const bool *chosen, int i)
{
    const struct candidate *c = s->candidate;
    for (int k = 0; k < s->n; k++)
        if (chosen[k] && c[k].family == c[i].family && fabs(c[k].tokens_per_step / c[i].tokens_per_step - 1) < ALIKE)
            return true;
    return false;
}

void setting_search_sort(struct setting_search *s, int confirmed)
{
    struct candidate *sorted = xcalloc((size_t)s->n + 1, sizeof(*sorted));
    bool *chosen = xcalloc((size_t)s->n + 1, sizeof(*chosen)),
         *seen = xcalloc((size_t)s->n_families + 1, sizeof(*seen));
    int left = confirmed, n = 0;
    if (s->n > 0)
        qsort(s->candidate, (size_t)s->n, sizeof(*s->candidate), by_speedup);
    for (int i = 0; i < s->n && left > 0; i++) { // the best of each family, unless it is far behind
        chosen[i] = !seen[s->candidate[i].family] && s->candidate[i].speedup >= CLOSE * s->candidate[0].speedup;
        seen[s->candidate[i].family] = true;
        left -= chosen[i];
    }
    for (int alike = 0; alike < 2; alike++) // the next best that are unlike these, then any
        for (int i = 0; i < s->n && left > 0; i++)
            if (!chosen[i] && (alike == 1 || !is_alike(s, chosen, i))) {
                chosen[i] = true;
                left--;
            }
    for (int later = 0; later < 2; later++)
        for (int i = 0; i < s->n; i++)
            if (chosen[i] == (later == 0))
                sorted[n++] = s->candidate[i];
    free(s->candidate);
    free(chosen);
    free(seen);
    s->candidate = sorted;
}

void setting_search_free(struct setting_search *s)
{
    for (int i = 0; i < s->n_probes; i++)
        settings_free(s->probe[i].drafter);
    for (int i = 0; i < s->n; i++) {
        settings_free(s->candidate[i].drafter);
        free(s->candidate[i].shown);
    }
    free(s->probe);
    free(s->candidate);
    *s = (struct setting_search){ 0 };
}
