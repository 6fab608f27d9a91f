// exclude.h - partial settings of cells that are left out: [{batch: 4, drafter: small}, {rule: [match, typical], sampling: {temperature: 0}}].
//
// A cell is left out if it has all settings of an item; a list means any of its values. An item that matches no cell is an error, as is
// one that leaves out `none` where other drafters are compared with it.
#pragma once
#include <stdbool.h>

struct error;
struct experiment;
struct settings;

bool exclude_read(struct experiment *e, const struct settings *exclude, struct error *err); // takes cells from e->has
