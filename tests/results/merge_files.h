// merge_files.h - databases for tests of merging: one with rows in every table, copies of parts of it, and their contents as text.
#pragma once
#include <stdint.h>

struct store;

enum { MERGE_PAIRS = 8 };

// results.db in test_directory(), with rows in every table; six runs, pairs 1, 3, .. of two machines. Nothing in it is decoded twice.
struct store *merge_whole(void);
// Writes a copy as `name` and opens it, without the rows that `where` selects of `table` ("pair", "id > 3").
struct store *merge_copy(struct store *s, const char *name, const char *table, const char *where);
void merge_into(struct store *s, const char *name); // merges that file of test_directory(); fails the test on error

// The rows of all tables as sorted lines. merge_dump: with the ids of this file. merge_facts: with what they stand for, and without
// run.started, finished, machine and revision, which depend on which databases were merged.
char *merge_dump(struct store *s);
char *merge_facts(struct store *s);
