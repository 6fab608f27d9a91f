#include "experiments/expectation.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

struct expecter {
    const struct rule *rule;
    const void *options;
    unsigned made;
    void *default_value[MAX_EXPECTATIONS]; // options by rules[i]; owned
    double *end;                           // (nodes)
    double *p, *q;                         // (vocab)
    int *order;                            // (vocab)
};

struct expecter *expecter_create(const struct rule *rule, const void *options, unsigned made, int nodes, int vocab)
{
    struct expecter *e = xcalloc(1, sizeof(*e));
    *e = (struct expecter){ .rule = rule, .options = options, .made = made };
    for (int i = 0; rules[i] != NULL; i++) {
        assert(i + 1 < MAX_EXPECTATIONS);
        e->default_value[i] = xcalloc(1, rules[i]->options_size + 1);
        if (rules[i]->options != NULL)
            // Defaults are always valid.
            options_read(NULL, rules[i]->name, rules[i]->options, e->default_value[i], NULL);
    }
    e->end = xcalloc((size_t)nodes, sizeof(*e->end));
    e->p = xcalloc((size_t)vocab, sizeof(*e->p));
    e->q = xcalloc((size_t)vocab, sizeof(*e->q));
    e->order = xcalloc((size_t)vocab, sizeof(*e->order));
    return e;
}

void expecter_destroy(struct expecter *e)
{
    if (e == NULL)
        return;
    for (int i = 0; rules[i] != NULL; i++) {
        options_free(rules[i]->options, e->default_value[i]);
        free(e->default_value[i]);
    }
    free(e->end);
    free(e->p);
    free(e->q);
    free(e->order);
    free(e);
}

static struct expected_row by_rule(struct expecter *e, const struct rule *rule, const void *options,
                                   const struct verified *j, double *square)
{
    const struct draft *d = j->request->draft;
    struct expected_row by = { rule->name, rule->exact, 0, 0 };
    rule->end_probabilities(rule, d, j->p, options, e->end);
    *square = 0;
    for (int v = 1; v < d->n; v++) {
        const double depth = draft_depth(d, v);
        by.accepted += e->end[v] * depth;
        by.first += e->end[v];
        *square += e->end[v] * depth * depth;
    }
    return by;
}

// Returns an upper bound of P(accepted >= 1) for exact rules. It is known if the root's children are all deterministic,
// or all sampled independently from one row; otherwise NAN.
static double bound(struct expecter *e, const struct verified *j)
{
    const struct draft *d = j->request->draft;
    const int vocab = j->p->vocab;
    int token[MAX_NODES], k = 0, sampled = 0;
    bool without_replacement = false;
    for (int c = draft_next_child(d, 0, 0); c >= 0; c = draft_next_child(d, 0, c)) {
        without_replacement = without_replacement || (k > 0 && d->proposal[c] == SAMPLED_WITHOUT_REPLACEMENT);
        sampled += d->proposal[c] != DETERMINISTIC;
        token[k++] = d->token[c];
    }
    if (k == 0)
        return 0;
    if (without_replacement || (sampled != 0 && sampled != k))
        return NAN;
    dist_from_row(e->p, j->p->row(j->p, 0), vocab);
    if (sampled == 0)
        return transport_deterministic(e->p, token, k);
    dist_from_row(e->q, d->q->row(d->q, 0), vocab);
    return transport_sampled(e->p, e->q, vocab, k, e->order);
}

void expect(struct expecter *e, const struct verified *j, struct expectation *to)
{
    double square;
    *to = (struct expectation){ .accepted = NAN, .variance = NAN, .accepted_uncut = j->verification->n - 1 };
    if (j->request->draft->n == 1) { // no draft tokens
        to->accepted = to->variance = 0;
        return;
    }
    for (int i = 0; rules[i] != NULL; i++) {
        const bool own = rules[i] == e->rule;
        if (rules[i]->end_probabilities == NULL || takes_missing(rules[i]->takes, e->made) != 0)
            continue;
        to->by[to->n] = by_rule(e, rules[i], own ? e->options : e->default_value[i], j, &square);
        if (own) {
            to->accepted = to->by[to->n].accepted;
            to->variance = fmax(square - to->accepted * to->accepted, 0);
        }
        to->n++;
    }
    to->by[to->n++] = (struct expected_row){ "(bound)", true, NAN, bound(e, j) };
}
