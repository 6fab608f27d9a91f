// float_rows.h - rows of a stored matrix as floats on the host: the backend reads every type.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;

// to (n, w.width) = rows first .. first + n - 1 of w, whose numbers are in the host's memory. Returns false and sets err on failure.
bool float_rows(struct backend *b, struct tensor w, int64_t first, int64_t n, float *to, struct error *err);
