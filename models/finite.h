// finite.h - whether every number of a weight is one.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

int64_t tensor_not_finite(
    const struct tensor *t); // the first row that holds a number that is not finite; -1: none does
