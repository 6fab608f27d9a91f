// foreign_rules.c - makes a struct rule of the flat struct of a foreign rule (engine/foreign.h), and checks all that
// the plugin hands over.
#include <math.h>
#include <string.h>

#include "engine/foreign_options.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct foreign_verifying { // what foreign_decision.self points to
    const struct draft *draft;
    struct rows *p;
    struct rng *rng;
    struct verification *out;
    struct foreign_report *report;
    bool picked[MAX_NODES]; // a token was drawn after the node
};

void speclab_foreign_p(void *self, int32_t node, double *to)
{
    const struct foreign_verifying *v = self;
    dist_from_row(to, v->p->row(v->p, node), v->p->vocab);
}

void speclab_foreign_q(void *self, int32_t node, double *to)
{
    const struct foreign_verifying *v = self;
    const struct draft *d = v->draft;
    if (d->proposal[node] != DETERMINISTIC) {
        proposal_row(d, d->parent[node], node, to, v->p->vocab);
        return;
    }
    memset(to, 0, (size_t)v->p->vocab * sizeof(*to));
    to[d->token[node]] = 1;
}

int32_t speclab_foreign_accept(void *self, int32_t node, double num, double den)
{
    const struct foreign_verifying *v = self;
    if (!isnan(v->out->trial_p[node]))
        return foreign_refuse(v->report, "accept: expected one call for a node, found two for node %d", (int)node), -1;
    v->out->trial_p[node] = num;
    v->out->trial_q[node] = den;
    return v->rng->accept(v->rng, num, den, (struct address){ FOR_ACCEPT, v->rng->root, node });
}

int32_t speclab_foreign_pick(void *self, int32_t node, const double *weight)
{
    struct foreign_verifying *v = self;
    double sum = 0;
    if (v->picked[node])
        return foreign_refuse(v->report, "pick: expected one call for a node, found two for node %d", (int)node), -1;
    v->picked[node] = true;
    for (int x = 0; x < v->p->vocab; x++) {
        if (!(weight[x] >= 0 && weight[x] < INFINITY))
            return foreign_refuse(v->report, "pick: expected weights of at least 0, found %g for token %d", weight[x],
                                  x),
                   -1;
        sum += weight[x];
    }
    if (!(sum > 0 && sum < INFINITY))
        return foreign_refuse(v->report, "pick: expected weights with a positive sum, found %g", sum), -1;
    const bool leaf = draft_next_child(v->draft, node, node) < 0;
    return v->rng->pick(v->rng, weight, v->p->vocab,
                        (struct address){ leaf ? FOR_BONUS : FOR_RESIDUAL, v->rng->root, node });
}

// Where the plugin fails, the result is the most probable token alone, with v->failed set: a caller that goes on has a
// path.
static void fall_back(const struct draft *d, struct rows *p, struct verification *out, const char *why)
{
    verification_clear(out, d->n);
    verification_path(out, d, 0, dist_row_argmax(p->row(p, 0), p->vocab));
    out->failed = why;
}

static void foreign_verify(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                           struct rng *rng, struct verification *out)
{
    const struct foreign_type *type = rule->self;
    const struct foreign_rule *of = type->of;
    struct foreign_verifying v = { .draft = d, .p = p, .rng = rng, .out = out, .report = of->report };
    struct foreign_decision decision = { d->n, p->vocab, d->token, d->parent, d->proposal, &v, -1, -1 };
    struct foreign_value value[FOREIGN_OPTIONS];
    foreign_values(type->option, of->options, options, value);
    of->report->why[0] = '\0';
    verification_clear(out, d->n);
    out->failed = NULL;
    if (of->verify(&decision, value) == 0)
        fall_back(d, p, out, of->report->why);
    else if (decision.last < 0 || decision.last >= d->n || decision.chosen < 0 || decision.chosen >= p->vocab) {
        foreign_refuse(of->report, "expected a node below %d and a token below %d, found node %d and token %d", d->n,
                       p->vocab, (int)decision.last, (int)decision.chosen);
        fall_back(d, p, out, of->report->why);
    } else
        verification_path(out, d, decision.last, decision.chosen);
}

bool rule_is_foreign(const struct rule *r)
{
    return r->verify == foreign_verify;
}

static bool add_rule(const struct foreign_type *type, struct error *err)
{
    const struct foreign_rule *of = type->of;
    const struct rule rule = { .name = of->name,
                               .summary = of->summary,
                               .exact = of->lossless != 0,
                               .takes = of->takes,
                               .options = of->options > 0 ? type->option : NULL,
                               .options_size = of->options > 0 ? type->size : 0,
                               .verify = of->verify != NULL ? foreign_verify : NULL,
                               .self = type };
    return speclab_register_rule(&rule, err);
}

int32_t speclab_register_foreign_rule(const struct foreign_rule *of)
{
    return foreign_register(of, of->version, of->option, of->options, NULL, 0, add_rule, of->report);
}
