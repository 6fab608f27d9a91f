// head_edit.h - edits tensors and configuration of a head or model in a directory: for rarer published forms, and for those that do not fit.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct head_edit;
struct json;

struct head_edit *head_edit_open(const char *directory);
void head_edit_close(struct head_edit *e); // writes the edited head

// Makes changes, separated by semicolons:
//     -NAME                     a tensor is removed
//     +NAME ROWS WIDTH MEAN     a tensor is added or replaced, as by head_edit_floats
//     @NAME COUNT FACTOR BELOW  integers i * FACTOR % BELOW are added
//     ~NAME DTYPE ROWS WIDTH    the same bytes are another matrix
//     NAME[I]=N                 integer I of a tensor, or byte I if it is not of I64, is another
//     KEY=JSON                  a key of config.json is set, to a value as of json_of()
// A star in one of them makes four: for 0, 1, 2 and 3.
void head_change(const char *directory, const char *changes);

struct json *head_edit_config(struct head_edit *e); // may be changed; borrowed
void head_edit_drop(struct head_edit *e, const char *name);
// Adds or replaces a tensor, with the numbers that small_heads.c derives from its name. rows 0: a vector. mean: of the
// numbers.
void head_edit_floats(struct head_edit *e, int64_t rows, int64_t width, float mean, const char *form, ...)
    __attribute__((format(printf, 5, 6)));
void *head_edit_data(struct head_edit *e, const char *name); // data of a tensor, may be changed; borrowed

// Numbers from -1 to 1, derived from a seed and a name. tests/cases/make_heads.py derives the same.
void head_numbers(float *to, size_t n, uint64_t seed, const char *name);
