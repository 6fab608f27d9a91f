// kept_views.h - views as tables, so that each is computed once.
//
// A view reads every step each time it is asked. A temporary table of its name, which SQLite looks for first, has its rows meanwhile. Those of the list
// are made in its order and see those before them; the views of the file still see each other only.
#pragma once
#include <stdbool.h>

struct error;
struct store;

struct kept_view {
    const char *name, *where; // where: selects the rows that are needed; NULL: all
    bool open;                // its rows are not stored: a temporary view, for questions that each need few of them
};
bool views_keep(struct store *s, const struct kept_view *v, int n, struct error *err); // again: nothing
void views_forget(struct store *s, const struct kept_view *v, int n);
