#include "exact/law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sampling/outcomes.h"

// ---- the law

double law_greater(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

// Of rules that try one child after another: how likely it was that these trials fell out as they did.
static double product_of_trials(const struct draft *d, const struct verification *j)
{
    bool accepted[LAW_NODES] = { false };
    double product = 1;
    for (int i = 1; i < j->n; i++)
        accepted[j->node[i]] = true;
    for (int c = 1; c < d->n; c++) {
        if (isnan(j->trial_p[c]))
            continue;
        double p = j->trial_p[c], q = j->trial_q[c], a = p <= 0 ? 0 : p >= q ? 1 : p / q;
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

static bool same_draft(const struct draft_batch *a, const struct draft_batch *b)
{
    size_t n = (size_t)a->draft.n;
    return a->draft.n == b->draft.n && memcmp(a->token, b->token, n * sizeof(a->token[0])) == 0 &&
           memcmp(a->from, b->from, n * sizeof(a->from[0])) == 0;
}

// What a rule says of itself, beside what it did.
struct word {
    const struct rule *rule;
    const void *options;
    struct draft_batch seen;                 // the draft that end[] is the law of
    double end[LAW_NODES], ended[LAW_NODES]; // ended: how often it ended at each node, less what the law says of that
    double accepted;                         // likewise
};

// All outcomes of a draft are in.
static void close_draft(struct word *w, struct finding *f)
{
    for (int k = 0; k < LAW_NODES; k++) {
        f->law_error = law_greater(f->law_error, fabs(w->ended[k]));
        w->ended[k] = 0;
    }
}

static void hear(struct word *w, struct finding *f, struct draft_batch *g, const struct verification *j,
                 double probability)
{
    if (w->rule->law == NULL)
        return;
    if (!same_draft(g, &w->seen)) {
        close_draft(w, f); // outcomes of one draft come one after the other
        w->rule->law(&g->draft, &g->p.rows, w->options, w->end);
        w->seen = *g;
    }
    const int last = j->node[j->n - 1];
    w->ended[g->from[last]] += probability;
    w->accepted += probability * (j->n - 1);
    for (int v = 0; v < g->draft.n; v++) {
        w->ended[g->from[v]] -= probability * w->end[v];
        w->accepted -= probability * w->end[v] * draft_depth(&g->draft, v);
    }
    f->trial_error = law_greater(f->trial_error, fabs(product_of_trials(&g->draft, j) - w->end[last]));
}

static size_t text_of(const struct verification *j, int vocab)
{
    size_t text = 0;
    for (int i = 0; i < j->n; i++)
        text = text * (size_t)vocab + 1 + (size_t)j->token[i];
    return text;
}

struct finding law_examine(const struct instance *in, const struct rule *rule, const void *options)
{
    struct finding f = { .sound = true, .instances = 1 };
    const size_t texts = (size_t)in->prefixes * (size_t)in->vocab + 1;
    double *mass = xcalloc(2 * texts, sizeof(*mass)), total = 0;
    struct word *w = xcalloc(1, sizeof(*w));
    struct verification j = verification_create(LAW_NODES, in->vocab);
    struct draft_batch g;
    struct outcomes o;

    *w = (struct word){ .rule = rule, .options = options };
    outcomes_begin(&o);
    o.rng.root = 7;
    while (outcomes_next(&o)) {
        instance_draft(in, &o.rng, 0, &g);
        rule->verify(&g.draft, &g.p.rows, options, &o.rng, &j);
        f.sound = draft_is_path(&g.draft, j.node, j.token, j.n, in->vocab);
        if (!f.sound)
            break;
        const double probability = outcomes_probability(&o);
        total += probability;
        f.empty += j.empty > 0 ? probability : 0;
        f.accepted += probability * (j.n - 1);
        mass[text_of(&j, in->vocab)] += probability;
        hear(w, &f, &g, &j, probability);
    }
    close_draft(w, &f);
    f.lost = fabs(1 - total);
    f.distance = law_distance(in, mass, mass + texts);
    f.accepted_error = fabs(w->accepted);
    f.repeated = o.repeated;
    f.runs = o.runs;
    outcomes_end(&o);
    verification_destroy(&j);
    free(w);
    free(mass);
    return f;
}

// ---- the sweep

static void worse_of(struct finding *f, const struct finding *g)
{
    f->distance = law_greater(f->distance, g->distance);
    f->lost = law_greater(f->lost, g->lost);
    f->empty = law_greater(f->empty, g->empty);
    f->law_error = law_greater(f->law_error, g->law_error);
    f->accepted_error = law_greater(f->accepted_error, g->accepted_error);
    f->trial_error = law_greater(f->trial_error, g->trial_error);
    f->sound = f->sound && g->sound;
    f->repeated += g->repeated;
    f->instances += g->instances;
    f->runs += g->runs;
}

struct shape {
    int levels, widths[LAW_DEPTH];
};

static const struct shape shapes[] = {
    { 1, { 1 } },       { 2, { 1, 1 } }, { 3, { 1, 1, 1 } }, { 4, { 1, 1, 1, 1 } }, // chains
    { 1, { 2 } },       { 1, { 3 } },    { 2, { 2, 1 } },    { 2, { 3, 1 } },       // several of them
    { 3, { 2, 1, 1 } }, { 2, { 1, 2 } }, { 2, { 2, 2 } },    { 3, { 1, 2, 1 } },    // trees
    { 0, { 0 } },                                                                   // by chance
};

static bool is_chain(const struct shape *s)
{
    bool chain = s->levels > 0;
    for (int l = 0; l < s->levels; l++)
        chain = chain && s->widths[l] == 1;
    return chain;
}

static unsigned kinds(const struct shape *s, enum way way)
{
    static const unsigned of[] = { [ALL_DETERMINISTIC] = TAKES_DETERMINISTIC,
                                   [ALL_SAMPLED] = TAKES_SAMPLED,
                                   [ALL_DISTINCT] = TAKES_DISTINCT,
                                   [MIXED] = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_DISTINCT };
    bool chains = s->levels > 0;
    for (int l = 1; l < s->levels; l++)
        chains = chains && s->widths[l] == 1;
    return of[way] | (is_chain(s) ? 0 : chains ? TAKES_CHAINS : TAKES_TREES);
}

// How many drafts there are to be walked through, if every token is drawn.
static int64_t drafts_of(const struct shape *s, int vocab)
{
    enum { AT_RANDOM = 5 }; // guesses, on average
    int64_t drafts = 1;
    int nodes = s->levels == 0 ? AT_RANDOM : 0;
    for (int l = 0, level = 1; l < s->levels; l++)
        nodes += level *= s->widths[l];
    for (int k = 0; k < nodes; k++)
        drafts *= vocab;
    return drafts;
}

struct finding law_sweep(const struct rule *rule, const void *options, enum lie lie, struct effort e, double enough)
{
    struct finding worst = { .sound = true };
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
        for (int way = 0; way < WAYS; way++)
            for (int vocab = 2; vocab <= LAW_VOCAB; vocab++) {
                const struct shape *shape = &shapes[s];
                if (takes_beyond(rule->takes, kinds(shape, (enum way)way)) != 0 || drafts_of(shape, vocab) > e.drafts)
                    continue;
                for (int i = 0; i < (is_chain(shape) ? e.chains : e.trees); i++) {
                    uint64_t seed = (((uint64_t)s * 16 + (uint64_t)way) * 16 + (uint64_t)vocab) * 65536 + (uint64_t)i;
                    struct instance in = instance_create(shape->widths, shape->levels, vocab, (enum way)way,
                                                         (enum family)(i % (FAMILIES + 1)), seed);
                    in.lie = lie;
                    struct finding f = law_examine(&in, rule, options);
                    worse_of(&worst, &f);
                    instance_free(&in);
                    if (worst.distance > enough)
                        return worst;
                }
            }
    return worst;
}
