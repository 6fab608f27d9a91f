// fp8.h - weights of floats of eight bits in safetensors, with their scales in a tensor beside them: NAME.weight (rows, width) of
// F8_E4M3 and NAME.weight_scale_inv or NAME.weight_scale, one scale for a block, a row or the whole matrix. A number is its float
// times its scale.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/config.h"

struct error;
struct fields;
struct weight;
struct weights;

// Reads quantization_config of config.json; without it, to->fp8 stays unset. What is not FP8 with scales of weights alone is refused.
bool config_read_fp8(const struct fields *f, struct model_config *to);

struct fp8_matrix {
    const uint8_t *numbers; // (rows, width) in the file
    int64_t rows, width;
    struct tensor scale;               // (rows of blocks, blocks of a row)
    int64_t block_rows, block_columns; // that a scale is for
};

// The matrix t and its scales, which count as requested. Returns false and sets err if they do not fit.
bool fp8_find(struct weights *w, struct weight *t, struct fp8_matrix *to, struct error *err);
// to (n, bytes of a row) = rows first .. first + n as blocks of F8_E4M3.
void fp8_rows(const struct fp8_matrix *m, int64_t first, int64_t n, uint8_t *to);
