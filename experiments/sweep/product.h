// product.h - the cells that the lists of an experiment multiply to, numbered; which of them there are is experiment.has.
#pragma once
#include <stdbool.h>
#include "experiments/cells.h"

int product_size(const struct experiment *e);
struct cell product_cell(const struct experiment *e,
                         int number); // drafters vary fastest, then rules, batches, samplings
// Whether the entry of a rule is of rules[0], which the baseline of all rules with `bonus_alone` has.
bool experiment_is_first_rule(const struct experiment *e, int rule);
// Whether no list has this cell: its `none` or its rule was added as a baseline.
bool product_was_added(const struct experiment *e, struct cell c);
// Cells that the lists make, `none` once for all rules that share a baseline; and how many of them zip or exclude left out.
int product_listed(const struct experiment *e);
int product_left_out(const struct experiment *e);
// Adds to `has` the cells of `none` that others of the same sampling and batch are compared with, whose rule is experiment_baseline_rule. A
// cell of `none` with another rule becomes that one.
void product_add_baselines(const struct experiment *e, bool *has);
