// small_fp8.h - a directory of small_write_hf with the matrices of its layers in FP8, in the forms in which they are published.
#pragma once
#include <stdbool.h>

struct small_model;

struct fp8_form {
    const char *name, *config; // quantization_config as JSON
    const char *suffix;        // of scales: "_scale_inv"
    int rows, columns;         // of a block with one scale; columns 0: a whole row; rows 0: the whole matrix
    bool short_scales, flat;   // bfloat16; one dimension
};
extern const struct fp8_form fp8_forms[];  // ends with name NULL
extern const struct small_model fp8_shape; // k and v have 64 rows: half a block

// from: in F32. to: matrices of layers whose rows are a multiple of 128 in FP8; plain: the same numbers in F32.
void small_write_fp8(const char *from, const char *to, const char *plain, const struct fp8_form *form);
// A number of F8_E4M3, by its definition.
double fp8_number(int code);
