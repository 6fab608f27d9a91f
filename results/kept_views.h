// kept_views.h - views as tables, so that each is computed once.
//
// A view reads every step each time it is asked. A temporary table of the same name, which SQLite looks for first, has its rows meanwhile; the
// views of the database still see each other.
#pragma once
#include <stdbool.h>

struct error;
struct store;

struct kept_view {
    const char *name, *where; // where: of the rows that are needed; NULL: all
};
bool views_keep(struct store *s, const struct kept_view *v, int n, struct error *err); // again: nothing
void views_forget(struct store *s, const struct kept_view *v, int n);
