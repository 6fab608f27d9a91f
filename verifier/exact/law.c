#include "verifier/exact/law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sampling/outcomes.h"

// ---- the law

double law_max(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

// Returns the probability of the outcomes of the trials, for rules that try children in order.
static double product_of_trials(const struct draft *d, const struct verification *out)
{
    bool accepted[LAW_NODES] = { false };
    double product = 1;
    for (int i = 1; i < out->n; i++)
        accepted[out->node[i]] = true;
    for (int c = 1; c < d->n; c++) {
        if (isnan(out->trial_p[c]))
            continue;
        double p = out->trial_p[c], q = out->trial_q[c], a = p <= 0 ? 0 : p >= q ? 1 : p / q;
        product *= accepted[c] ? a : 1 - a;
    }
    return product;
}

double law_distance(const struct instance *in, double *mass, double *own)
{
    int v = in->vocab;
    double distance = 0;
    own[0] = 1;
    for (int s = 0; s < in->prefixes; s++) {
        double sum = 0;
        for (int x = 0; x < v; x++)
            sum += in->p[s * v + x];
        for (int x = 0; x < v; x++) {
            double next = in->p[s * v + x] / sum;
            mass[s * v + 1 + x] += mass[s] * next;
            own[s * v + 1 + x] = own[s] * next;
            if (s * v + 1 + x >= in->prefixes) // a text of full length
                distance += fabs(mass[s * v + 1 + x] - own[s * v + 1 + x]) / 2;
        }
    }
    return distance;
}

static bool same_draft(const struct table_draft *a, const struct table_draft *b)
{
    size_t n = (size_t)a->draft.n;
    return a->draft.n == b->draft.n && memcmp(a->token, b->token, n * sizeof(a->token[0])) == 0 &&
           memcmp(a->from, b->from, n * sizeof(a->from[0])) == 0;
}

// Compares rule.end_probabilities with the outcomes of rule.verify.
struct comparison {
    const struct rule *rule;
    const void *options;
    struct table_draft seen;  // the draft that end[] is about
    double end[LAW_NODES];    // rule.end_probabilities
    double excess[LAW_NODES]; // probability that the path ended at each node, minus end
    double accepted;          // E[accepted] of verify minus that of rule.end_probabilities
};

// Called after all outcomes of a draft.
static void close_draft(struct comparison *w, struct law_result *f)
{
    for (int k = 0; k < LAW_NODES; k++) {
        f->law_error = law_max(f->law_error, fabs(w->excess[k]));
        w->excess[k] = 0;
    }
}

static void compare_outcome(struct comparison *w, struct law_result *f, struct table_draft *g,
                            const struct verification *out, double probability)
{
    if (w->rule->end_probabilities == NULL)
        return;
    if (!same_draft(g, &w->seen)) {
        close_draft(w, f); // outcomes of one draft are consecutive
        w->rule->end_probabilities(w->rule, &g->draft, &g->p.rows, w->options, w->end);
        w->seen = *g;
    }
    const int last = out->node[out->n - 1];
    w->excess[g->from[last]] += probability;
    w->accepted += probability * (out->n - 1);
    for (int v = 0; v < g->draft.n; v++) {
        w->excess[g->from[v]] -= probability * w->end[v];
        w->accepted -= probability * w->end[v] * draft_depth(&g->draft, v);
    }
    f->trial_error = law_max(f->trial_error, fabs(product_of_trials(&g->draft, out) - w->end[last]));
}

static size_t text_of(const struct verification *out, int vocab)
{
    size_t text = 0;
    for (int i = 0; i < out->n; i++)
        text = text * (size_t)vocab + 1 + (size_t)out->token[i];
    return text;
}

// Runs that are made again: the first ones, and one of sixteen after them.
static bool is_made_again(int64_t run)
{
    return run <= 8 || run % 16 == 0;
}

static bool same_decision(const struct verification *a, const struct verification *b)
{
    const size_t n = (size_t)a->n;
    return a->n == b->n && memcmp(a->token, b->token, n * sizeof(*a->token)) == 0 &&
           memcmp(a->node, b->node, n * sizeof(*a->node)) == 0;
}

// Returns whether the run that has just ended, made again with the same outcomes, gives the decision `out` once more.
// again: scratch. A failure of the rule is a difference.
static bool is_repeatable(struct outcomes *o, const struct instance *in, const struct rule *rule, const void *options,
                          const struct verification *out, struct verification *again)
{
    struct table_draft g;
    const int decisions = o->n, repeated = o->repeated;
    outcomes_again(o);
    instance_draft(in, &o->rng, 0, &g);
    rule->verify(rule, &g.draft, &g.p.rows, options, &o->rng, again);
    o->repeated = repeated;
    return outcomes_ended(o) && o->n == decisions && again->failed == NULL && same_decision(out, again);
}

struct law_result law_examine(const struct instance *in, const struct rule *rule, const void *options)
{
    struct law_result f = { .sound = true, .instances = 1 };
    const size_t texts = (size_t)in->prefixes * (size_t)in->vocab + 1;
    double *mass = xcalloc(2 * texts, sizeof(*mass)), total = 0;
    struct comparison *w = xcalloc(1, sizeof(*w));
    struct verification out = verification_create(LAW_NODES, in->vocab),
                        again = verification_create(LAW_NODES, in->vocab);
    struct table_draft g;
    struct outcomes o;

    *w = (struct comparison){ .rule = rule, .options = options };
    outcomes_begin(&o);
    o.may_stray = true;
    o.rng.root = 7;
    while (outcomes_next(&o)) {
        instance_draft(in, &o.rng, 0, &g);
        rule->verify(rule, &g.draft, &g.p.rows, options, &o.rng, &out);
        f.failed = out.failed;
        f.sound = out.failed == NULL && draft_is_path(&g.draft, out.node, out.token, out.n, in->vocab);
        if (!f.sound)
            break;
        f.own_random =
            !outcomes_ended(&o) || (is_made_again(o.runs) && !is_repeatable(&o, in, rule, options, &out, &again));
        if (f.own_random)
            break;
        const double probability = outcomes_probability(&o);
        total += probability;
        f.empty += out.empty > 0 ? probability : 0;
        f.accepted += probability * (out.n - 1);
        mass[text_of(&out, in->vocab)] += probability;
        compare_outcome(w, &f, &g, &out, probability);
    }
    close_draft(w, &f);
    f.lost = fabs(1 - total);
    f.mean = f.distance = law_distance(in, mass, mass + texts);
    f.accepted_error = fabs(w->accepted);
    f.repeated = o.repeated;
    f.runs = o.runs;
    outcomes_end(&o);
    verification_destroy(&out);
    verification_destroy(&again);
    free(w);
    free(mass);
    return f;
}

// ---- the sweep

static void worse_of(struct law_result *f, const struct law_result *g)
{
    const int64_t instances = f->instances + g->instances;
    f->mean = (f->mean * (double)f->instances + g->mean * (double)g->instances) / (double)instances;
    f->distance = law_max(f->distance, g->distance);
    f->lost = law_max(f->lost, g->lost);
    f->empty = law_max(f->empty, g->empty);
    f->law_error = law_max(f->law_error, g->law_error);
    f->accepted_error = law_max(f->accepted_error, g->accepted_error);
    f->trial_error = law_max(f->trial_error, g->trial_error);
    f->sound = f->sound && g->sound;
    f->own_random = f->own_random || g->own_random;
    f->failed = f->failed != NULL ? f->failed : g->failed;
    f->repeated += g->repeated;
    f->instances = instances;
    f->runs += g->runs;
}

struct shape {
    int levels, widths[LAW_DEPTH];
};

static const struct shape shapes[] = {
    { 1, { 1 } },       { 2, { 1, 1 } }, { 3, { 1, 1, 1 } }, { 4, { 1, 1, 1, 1 } }, // chains
    { 1, { 2 } },       { 1, { 3 } },    { 2, { 2, 1 } },    { 2, { 3, 1 } },       // several chains
    { 3, { 2, 1, 1 } }, { 2, { 1, 2 } }, { 2, { 2, 2 } },    { 3, { 1, 2, 1 } },    // trees
    { 0, { 0 } },                                                                   // random trees
};

static bool is_chain(const struct shape *s)
{
    bool chain = s->levels > 0;
    for (int l = 0; l < s->levels; l++)
        chain = chain && s->widths[l] == 1;
    return chain;
}

static unsigned kinds(const struct shape *s, enum proposal_mix mix)
{
    static const unsigned of[] = { [ALL_DETERMINISTIC] = TAKES_DETERMINISTIC,
                                   [ALL_SAMPLED] = TAKES_SAMPLED,
                                   [ALL_DISTINCT] = TAKES_WITHOUT_REPLACEMENT,
                                   [MIXED] = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT };
    bool chains = s->levels > 0;
    for (int l = 1; l < s->levels; l++)
        chains = chains && s->widths[l] == 1;
    return of[mix] | (is_chain(s) ? 0 : chains ? TAKES_CHAINS : TAKES_TREES);
}

// Returns the number of drafts to enumerate if every token is sampled.
static int64_t drafts_of(const struct shape *s, int vocab)
{
    enum { AT_RANDOM = 5 }; // average number of draft tokens of a random tree
    int64_t drafts = 1;
    int nodes = s->levels == 0 ? AT_RANDOM : 0;
    for (int l = 0, level = 1; l < s->levels; l++)
        nodes += level *= s->widths[l];
    for (int k = 0; k < nodes; k++)
        drafts *= vocab;
    return drafts;
}

struct configuration {
    int shape, mix, vocab, instances;
};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes), CONFIGURATIONS = SHAPES * PROPOSAL_MIXES * (LAW_VOCAB - 1) };

// Lists what the rule takes, and sets *all to the number of instances. Returns the number of configurations.
static int list_configurations(const struct rule *rule, const struct sweep_size *e,
                               struct configuration to[CONFIGURATIONS], int64_t *all)
{
    int n = 0;
    *all = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int mix = 0; mix < PROPOSAL_MIXES; mix++)
            for (int vocab = 2; vocab <= LAW_VOCAB; vocab++) {
                if (takes_missing(rule->takes, kinds(&shapes[s], (enum proposal_mix)mix)) != 0 ||
                    drafts_of(&shapes[s], vocab) > e->drafts)
                    continue;
                to[n] = (struct configuration){ s, mix, vocab, is_chain(&shapes[s]) ? e->chains : e->trees };
                *all += to[n++].instances;
            }
    return n;
}

struct law_result law_sweep(const struct rule *rule, const void *options, const struct drafter_flaw *flaw,
                            struct sweep_size e, double enough)
{
    struct law_result worst = { .sound = true };
    struct configuration configuration[CONFIGURATIONS];
    int64_t all;
    const int n = list_configurations(rule, &e, configuration, &all);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < configuration[k].instances; i++) {
            const struct configuration c = configuration[k];
            const struct shape *shape = &shapes[c.shape];
            uint64_t seed = (((uint64_t)c.shape * 16 + (uint64_t)c.mix) * 16 + (uint64_t)c.vocab) * 65536 + (uint64_t)i;
            struct instance in = instance_create(shape->widths, shape->levels, c.vocab, (enum proposal_mix)c.mix,
                                                 (enum family)(i % (FAMILIES + 1)), seed);
            in.flaw = flaw;
            struct law_result f = law_examine(&in, rule, options);
            worse_of(&worst, &f);
            instance_free(&in);
            if (worst.distance > enough || worst.failed != NULL || worst.own_random)
                return worst;
            if (e.progress != NULL && !e.progress(worst.instances, all))
                return worst;
        }
    return worst;
}

// ---- the transport bound

struct rows_of {
    const double *p, *q;
};

// Compares p / q without a division, so that q = 0 comes last.
static int compare(const void *a, const void *b, void *rows)
{
    const struct rows_of *r = rows;
    const int x = *(const int *)a, y = *(const int *)b;
    const double left = r->p[x] * r->q[y], right = r->p[y] * r->q[x];
    return left < right ? -1 : left > right ? 1 : (x > y) - (x < y);
}

double transport_sampled(const double *p, const double *q, int vocab, int k, int *order)
{
    struct rows_of rows = { p, q };
    int n = 0;
    for (int i = 0; i < vocab; i++)
        if (q[i] > 0)
            order[n++] = i;
    qsort_r(order, (size_t)n, sizeof(*order), compare, &rows);
    double bound = 1, of_p = 0, of_q = 0;
    for (int i = 0; i < n; i++) {
        of_p += p[order[i]];
        of_q += q[order[i]];
        bound = fmin(bound, of_p + 1 - pow(fmin(of_q, 1), k));
    }
    return bound;
}

double transport_deterministic(const double *p, const int *token, int k)
{
    double sum = 0;
    for (int i = 0; i < k; i++) {
        int before = 0;
        while (before < i && token[before] != token[i])
            before++;
        sum += before == i ? p[token[i]] : 0;
    }
    return sum;
}
