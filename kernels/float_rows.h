// float_rows.h - rows as floats on the host: of a stored matrix, whose type the backend reads, and of what it computed.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;

// to (n, w.width) = rows first .. first + n - 1 of w, whose numbers are in the host's memory. Returns false and sets err on failure.
bool float_rows(struct backend *b, struct tensor w, int64_t first, int64_t n, float *to, struct error *err);
// The rows of floats that queued operations compute, valid until the next ones: in the backend's memory if that is the host's, otherwise in
// *copy, which is made large enough and which the caller frees. Waits. Returns NULL and sets err on failure.
float *rows_read(struct backend *b, struct tensor rows, float **copy, struct error *err);
