// cell_lists.h - the key `cells` of an experiment: its lists, which multiply, and the effect of `zip` and `exclude` on
// the product.
//
//     sampling, batch, rule, drafter   a value or a list; values may stand for several (variants.h)
//     target                           a mapping or a list, here or beside `cells`
//     zip                              a mapping of lists of equal length, or a list of such: its lists vary together
//     exclude                          a list of partial settings; a cell that has all of one is left out
//
// Every cell is compared with `none` under its sampling, batch and rule, so that cell of `none` always exists: it is
// added if it is not listed, and cannot be excluded.
#pragma once
#include <stdbool.h>

struct error;
struct experiment;

// Sets e's lists and the cells that exist.
bool cell_lists_read(struct experiment *e, struct error *err);
void cell_lists_free(struct experiment *e);
