// small_experiments.h - helpers for tests of experiments: small models and prompt files in the test's directory, an experiment from
// text, a database, and queries. A failure ends the test.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct experiment;
struct store;

int make_files(void **state); // a group's set-up: target.gguf, draft.gguf, conversations.jsonl, ...
void write_bytes(const char *name, const char *bytes, size_t n);
void write_file(const char *name, const char *text);
void write_blocks(const char *name); // a model with quantized weights and heads of 32, so that q8_0 caches fit
struct experiment *load(const char *text);
struct store *open_store(const char *name);
void run(const char *text, struct store *s);
struct json *dry_run(const char *text, struct store *s);         // to be freed. s NULL: no database
int planned(const struct json *plan, const char *key, int cell); // an integer of a dry run's cell; -1: of the whole
void perform(struct store *s, const char *sql, ...) __attribute__((format(printf, 2, 3))); // without a result
void expect_none(struct store *s, const char *what, const char *sql); // fails the test unless the SQL gives 0
int64_t query_first_int(struct store *s, const char *sql);            // the first column of the first row; -1: no row

enum { TURNS = 8 }; // of all conversations in conversations.jsonl
