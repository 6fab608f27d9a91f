// small_experiments.h - what tests of experiments share: little models and prompt files in the test's directory, an
// experiment from text, a database, and a number out of it. Failures end the test.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct experiment;
struct store;

int make_files(void **state); // target.gguf, draft.gguf, talks.jsonl, ...: a group's set-up
int remove_files(void **state);
void write_bytes(const char *name, const char *bytes, size_t n);
void write_file(const char *name, const char *text);
void write_blocks(const char *name); // a model whose weights are quantised and whose heads are whole blocks
struct experiment *load(const char *text);
struct store *open_store(const char *name);
void run(const char *text, struct store *s);
int64_t ask(struct store *s, const char *sql); // the first column of the first row; -1: no row

enum { TURNS = 8 }; // of all conversations in talks.jsonl
