// product.h - the cells that the lists of an experiment multiply to, numbered; which of them there are is experiment.has.
#pragma once
#include <stdbool.h>
#include "experiments/cells.h"

int product_size(const struct experiment *e);
struct cell product_cell(const struct experiment *e,
                         int number); // drafters vary fastest, then rules, batches, samplings
// Adds to `has` the cells of `none` that others of the same sampling, batch and rule are compared with.
void product_add_baselines(const struct experiment *e, bool *has);
