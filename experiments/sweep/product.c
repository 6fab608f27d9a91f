#include "experiments/sweep/product.h"

#include <string.h>

#include "core/settings.h"
#include "drafters/drafter.h"
#include "verifier/rules/rule.h"

int product_size(const struct experiment *e)
{
    return groups(e) * e->rule.n * e->drafter.n;
}

struct cell product_cell(const struct experiment *e, int number)
{
    const int pairings = e->rule.n * e->drafter.n, group = number / pairings;
    return (struct cell){ group / e->batch.n, group % e->batch.n, number % pairings / e->drafter.n,
                          number % e->drafter.n };
}

static const struct rule *rule_of(const struct experiment *e, int rule)
{
    return rule_named(settings_get(e->rule.entry[rule].settings, "kind")->text);
}

bool experiment_is_first_rule(const struct experiment *e, int rule)
{
    return rule_of(e, rule) == rules[0];
}

int experiment_baseline_rule(const struct experiment *e, int rule)
{
    for (int r = 0; r < e->rule.n && rule_of(e, rule)->bonus_alone; r++)
        if (experiment_is_first_rule(e, r))
            return r;
    return rule;
}

bool product_was_added(const struct experiment *e, struct cell c)
{
    return (e->none_added && experiment_is_none(e, c.drafter)) || (e->rule_added && c.rule == e->rule.n - 1);
}

static bool is_listed(const struct experiment *e, struct cell c)
{
    return !product_was_added(e, c) &&
           (!experiment_is_none(e, c.drafter) || experiment_baseline_rule(e, c.rule) == c.rule);
}

int product_listed(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < product_size(e); i++)
        n += is_listed(e, product_cell(e, i));
    return n;
}

int product_left_out(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < product_size(e); i++)
        n += !e->has[i] && is_listed(e, product_cell(e, i));
    return n;
}

void product_add_baselines(const struct experiment *e, bool *has)
{
    for (int first = 0; first < product_size(e); first += e->drafter.n) {
        bool others = false;
        int none = 0;
        for (int d = 0; d < e->drafter.n; d++)
            if (experiment_is_none(e, d))
                none = d;
            else
                others = others || has[first + d];
        const int rule = product_cell(e, first).rule, by = experiment_baseline_rule(e, rule);
        others = others || has[first + none];
        has[first + none] = has[first + none] && by == rule;
        has[first + (by - rule) * e->drafter.n + none] |= others;
    }
}

bool experiment_is_none(const struct experiment *e, int drafter)
{
    return strcmp(settings_get(e->drafter.entry[drafter].settings, "kind")->text, drafter_types[0]->name) == 0;
}

bool experiment_has(const struct experiment *e, struct cell c)
{
    return e->has[((c.sampling * e->batch.n + c.batch) * e->rule.n + c.rule) * e->drafter.n + c.drafter];
}

int experiment_cells(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < product_size(e); i++)
        n += e->has[i];
    return n;
}
