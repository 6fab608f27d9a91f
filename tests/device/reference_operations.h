// reference_operations.h - the operations of kernels/backend.h as plain loops in double: slow, simple, and independent of the
// kernels.
#pragma once
#include <stdint.h>
#include "kernels/backend.h"

// All matrices row-major, shapes as in kernels/backend.h.
void reference_matmul(double *out, const float *x, const float *w, int n, int m, int k);
void reference_rmsnorm(double *out, const float *x, const float *w, int n, int width, double eps);
void reference_glu(double *out, const float *gate, const float *up, int n, enum gate_function f);
// One row, in place.
void reference_rope(double *x, const float *inverse_frequency, int position, int heads, int head_dim, int rotated);
void reference_attend(double *out, const float *q, const float *keys, const float *values, const struct layout *s,
                      int heads, int kv_heads, struct attention a);
// max |a - b| / max |b|
double reference_distance(const float *a, const double *b, int64_t n);
