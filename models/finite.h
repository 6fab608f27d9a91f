// finite.h - checks that all numbers of a weight are finite.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

// The first row that holds an infinity or a NaN; -1: all numbers are finite.
int64_t tensor_not_finite(const struct tensor *t);
