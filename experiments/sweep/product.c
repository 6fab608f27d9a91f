#include "experiments/sweep/product.h"

#include <string.h>

#include "core/settings.h"
#include "drafters/drafter.h"

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
        has[first + none] = has[first + none] || others;
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
