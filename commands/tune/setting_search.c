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

enum { RANKS = 10, PROBE_NODE_COUNT = 40, LARGEST_TREE = 63, MAX_ROWS = 256, FORMS = 3 };

#define CLOSE 0.8      // of the best prediction
#define CLOSE_TREE 0.9 // of the best chain of those with trees
#define ALIKE 0.08     // relative difference in tokens per step

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

static void pick_greedily(struct settings *drafter, const struct drafter_type *type)
{
    if (has_option(type, "pick"))
        settings_put(drafter, "pick", settings_scalar("greedy"));
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
    pick_greedily(s, type); // a best-first tree is of deterministic tokens
    return s;
}

// ---- probes

static bool takes(const struct setting_search *s, const struct settings *drafter, struct error *err)
{
    struct pairing p = { 0 };
    const bool ok = pairing_read(&p, drafter, s->rule, NULL, err);
    pairing_close(&p);
    return ok;
}

// Takes ownership of drafter.
static void add_probe(struct setting_search *s, enum probe_form form, int of, int family, struct settings *drafter)
{
    s->probe = xrealloc(s->probe, ((size_t)s->n_probes + 1) * sizeof(*s->probe));
    s->probe[s->n_probes++] = (struct setting_probe){ form, of, family, drafter };
}

// The same, if the rule takes it.
static void try_probe(struct setting_search *s, enum probe_form form, int of, int family, struct settings *drafter)
{
    struct error ignored;
    if (takes(s, drafter, &ignored))
        add_probe(s, form, of, family, drafter);
    else
        settings_free(drafter);
}

// The best tree if acceptance falls by rank as it often does; what is measured on it does not depend on its shape.
static struct settings *wide_tree(const struct setting_search *s, const struct searched_drafter *d, int nodes)
{
    static struct tree tree;
    double share[TREE_DEPTH * RANKS];
    const int depth = d->longest < TREE_DEPTH ? d->longest : TREE_DEPTH;
    for (int k = 0; k < depth; k++)
        for (int r = 0; r < RANKS; r++)
            share[k * RANKS + r] = 0.6 * pow(0.5, r);
    tree_best(share, depth, RANKS, nodes, &tree);
    struct settings *to = with_tree(d->drafter, &tree);
    if (s->greedy)
        pick_greedily(to, d->type);
    return to;
}

bool setting_search_add(struct setting_search *s, const struct settings *drafter, int longest, struct error *err)
{
    struct pairing p = { 0 };
    if (!pairing_read(&p, drafter, s->rule, NULL, err)) {
        pairing_close(&p);
        return false;
    }
    const struct drafter_type *type = p.type;
    const bool learns = drafter_remembers(type, p.drafter_options) != DRAFTS_OF_TEXT,
               lengths = has_option(type, "tokens");
    const struct settings *tokens = settings_get(drafter, "tokens");
    pairing_close(&p);
    struct searched_drafter d = { .type = type,
                                  .longest =
                                      tokens != NULL ? atoi(tokens->text) : longest, // read and checked by pairing_read
                                  .trees = has_option(type, "tree"),
                                  .nodes = has_option(type, "nodes") && lengths,
                                  .learns = learns };
    if (!d.trees && !d.nodes && !lengths)
        return fail(err, "drafter %s has no option that tune searches: tokens, tree or nodes", type->name);
    if (lengths && (d.trees || !d.nodes)) {
        struct settings *chain = with_length(drafter, d.longest);
        if (!takes(s, chain, err)) {
            settings_free(chain);
            return false;
        }
        add_probe(s, PROBE_LENGTH, s->n_drafters, s->n_families, chain);
    }
    d.drafter = settings_copy(drafter);
    s->drafters = xrealloc(s->drafters, ((size_t)s->n_drafters + 1) * sizeof(*s->drafters));
    s->drafters[s->n_drafters++] = d;
    s->n_families += FORMS;
    return true;
}

// The best prediction of drafter i; 0: it was not probed.
static double best_of(const struct setting_search *s, int i)
{
    double best = 0;
    for (int k = 0; k < s->n; k++)
        if (s->candidate[k].of == i)
            best = fmax(best, s->candidate[k].speedup);
    return best;
}

// A tree gives a drafter more than its chain does, but much the same to each.
static bool far_behind(const struct setting_search *s, int i)
{
    const double best = best_of(s, i);
    double chains = 0, trees = 0;
    for (int k = 0; k < s->n_drafters; k++) {
        chains = fmax(chains, best_of(s, k));
        trees = fmax(trees, s->drafters[k].trees || s->drafters[k].nodes ? best_of(s, k) : 0);
    }
    return best > 0 && (best < CLOSE * chains || best < CLOSE_TREE * trees);
}

void setting_search_widen(struct setting_search *s, int most)
{
    for (int i = 0; i < s->n_drafters; i++) {
        const struct searched_drafter *d = &s->drafters[i];
        const int tree = FORMS * i + 1, best_first = FORMS * i + 2; // families
        if (far_behind(s, i))
            continue;
        if (d->trees && !d->learns)
            try_probe(s, PROBE_TREE, i, tree, wide_tree(s, d, most < PROBE_NODE_COUNT ? most : PROBE_NODE_COUNT));
        for (int k = 0; k < SIZES && (k == 0 || probed_sizes[k] <= most); k++) {
            if (d->trees && d->learns)
                try_probe(s, PROBE_ITSELF, i, tree, wide_tree(s, d, probed_sizes[k]));
            if (d->nodes && k < BEST_FIRST_SIZES)
                try_probe(s, PROBE_ITSELF, i, best_first, with_nodes(d->drafter, d->type, probed_sizes[k], d->longest));
        }
    }
}

int setting_search_rows(const struct setting_search *s)
{
    int most = 0;
    for (int i = 0; i < s->n_drafters; i++) {
        const struct searched_drafter *d = &s->drafters[i];
        const int rows = d->trees && !d->learns ? LARGEST_TREE : d->trees || d->nodes ? PROBE_NODE_COUNT : d->longest;
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
    s->candidate[s->n++] = (struct candidate){ p->of, p->family, drafter, shown.s, tokens, speedup };
}

static bool read_lengths(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                         struct error *err)
{
    struct query *q = query_open(store, "SELECT length, tokens_per_step, speedup FROM prediction_by_length"
                                        " WHERE run = ? AND length > 0 AND source = 'steps' ORDER BY length");
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
                          " WHERE n.run = ? AND n.source = 'steps'");
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
        "SELECT * FROM predicted_time WHERE run = ?1 AND source = 'steps')"
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

void setting_search_forget(struct setting_search *s)
{
    for (int i = 0; i < s->n; i++) {
        settings_free(s->candidate[i].drafter);
        free(s->candidate[i].shown);
    }
    s->n = 0;
}

void setting_search_free(struct setting_search *s)
{
    setting_search_forget(s);
    for (int i = 0; i < s->n_probes; i++)
        settings_free(s->probe[i].drafter);
    for (int i = 0; i < s->n_drafters; i++)
        settings_free(s->drafters[i].drafter);
    free(s->drafters);
    free(s->probe);
    free(s->candidate);
    *s = (struct setting_search){ 0 };
}
