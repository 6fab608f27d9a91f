// finite.h - checks that all numbers of a tensor are finite: floats, and the floats of blocks.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

// Returns the first row with a number that is not finite, or that in a block is too large for a float; -1: none.
int64_t first_row_not_finite(const struct tensor *t);
