// killable.h - an experiment of some length that runs in a child process, which can be killed, and what its database must have then.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "experiments/division.h"

struct store;

// Texts end at letters and at the context: conversations differ in length, and at temperature 1 by drafter.
#define LONG_BODY \
    "name: long\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: long.jsonl, chat: none}\n" \
    "limits: {new_tokens: 40, context: 70, ignore_end: true, stop: [a, e, i, o, t, n, r, s]}\nseed: 11\nrepeat: 2\n" \
    "record: {trials: true, rows: 4}\ncells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  batch: [1, 2]\n" \
    "  drafter: [none, ngram, {kind: small, model: draft.gguf, tokens: 3}]\n"

extern const char long_conversations[];

// Starts long.yaml (LONG_BODY) into a database of the test's directory, in a child process with exit status 0 if it finished.
pid_t start_run(const char *db, struct shard shard);
// Kills the process after `us` microseconds unless it has ended; true: it was killed. Adds its run time to *took_us.
bool kill_after(pid_t pid, int64_t us, int64_t *took_us);

void check_sound(struct store *s); // the database has complete sequences and nothing else
// Views OF_texts, OF_sides and OF_runs on `main` or on an attached database: each text once, however often it was decoded, with its
// steps and their numbers of trials; each comparison with none's; and a run's numbers of texts.
void create_views(struct store *s, const char *of);
void check_same(struct store *s, const char *what); // of the views of `main` and `whole`
// A test program's arguments [KILLS [SEED]], where they are given.
void read_kills(int argc, char **argv, int *kills, uint64_t *random_state);
