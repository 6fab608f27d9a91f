// small_experiments.h - helpers for tests of experiments: small models and prompt files in the test's directory, an experiment from
// text, a database, and queries. A failure ends the test.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct experiment;
struct store;

int make_files(void **state); // a group's set-up: target.gguf, draft.gguf, conversations.jsonl, ...
void write_bytes(const char *name, const char *bytes, size_t n);
void write_file(const char *name, const char *text);
void write_blocks(const char *name); // a model with quantized weights and heads of 32, so that q8_0 caches fit
struct experiment *load(const char *text);
struct store *open_store(const char *name);
void run(const char *text, struct store *s);
void run_part(const char *text, struct store *s, int shard, int of); // shard 0 of 1: all
struct json *dry_run(const char *text, struct store *s);             // to be freed. s NULL: no database
int planned(const struct json *plan, const char *key, int cell);     // an integer of a dry run's cell; -1: of the whole
void perform(struct store *s, const char *sql, ...) __attribute__((format(printf, 2, 3))); // without a result
void expect_none(struct store *s, const char *what, const char *sql); // fails the test unless the SQL gives 0
void expect_count(struct store *s, int64_t n, const char *from);      // from: what follows SELECT count(*) FROM
int64_t query_first_int(struct store *s, const char *sql);            // the first column of the first row; -1: no row
// All that two databases have of runs, texts, steps and trials but times and ids. pairs: and what was decoded together.
void expect_same_results(struct store *s, const char *other, bool pairs);
// The message, without the test's directory, has the pattern's parts (printed_text.h). of: what it is about.
void expect_error(const struct error *err, const char *pattern, const char *of);
void expect_load_error(const char *text, const char *pattern); // text: an experiment's file

enum { TURNS = 8 }; // of all conversations in conversations.jsonl
