// head_edit.h - a speculator that tests/support/small_heads.h wrote, with other tensors and another configuration: forms that are
// published more rarely, and heads that do not fit.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct head_edit;
struct json;

struct head_edit *head_edit_open(const char *directory);
void head_edit_close(struct head_edit *e); // writes it again

struct json *head_edit_config(struct head_edit *e); // to be changed; borrowed
void head_edit_drop(struct head_edit *e, const char *form, ...) __attribute__((format(printf, 2, 3)));
// A tensor of numbers that small_heads.c would give to this name, in place of one that has it. rows 0: a vector; about: its
// mean.
void head_edit_floats(struct head_edit *e, int64_t rows, int64_t width, float about, const char *form, ...)
    __attribute__((format(printf, 5, 6)));
void head_edit_ids(struct head_edit *e, const char *name, const int64_t *id, int64_t n);
void *head_edit_data(struct head_edit *e, const char *name); // the numbers of a tensor, to be changed; borrowed

// Numbers from -1 to 1 that follow from a seed and a name: what tensors are made of, and tests/cases/make_heads.py has
// the same.
void head_numbers(float *to, size_t n, uint64_t seed, const char *name);
