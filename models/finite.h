// finite.h - whether all numbers of a tensor are finite: floats, and the floats of blocks.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

// The first row with a number that is not finite, or in a block too large for a float; -1: none.
int64_t first_row_not_finite(const struct tensor *t);
