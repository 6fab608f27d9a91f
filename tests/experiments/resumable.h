// resumable.h - an experiment that is run whole, loses sequences, is resumed, and is compared with the whole run.
//
// A small model on two prompts of three turns. Texts end at letters, so they differ in length, and a small context cuts conversations:
// at temperature 1 at other places for each drafter.
#pragma once
#include <stdint.h>

struct store;

enum { PROMPTS = 2, ALL_TURNS = 3, CELLS = 3 };
enum { NONE, NGRAM, SMALL };

struct resumable { // of the experiment
    int temperature;
    const char *rule, *drafters;
    int batch, context, seed;
};
#define THREE "none, ngram, {kind: small, model: draft.gguf, tokens: 3}"

int resumable_make(void **state); // a group's set-up

char *resumable_text(const struct resumable *w); // as YAML; free() it
// Runs it in a new database. turns: of each cell on each prompt
struct store *resumable_run(const struct resumable *w, int turns[PROMPTS][CELLS]);
void copy_results(struct store *s); // of the whole run, to temporary tables: `whole`, `saved_sequence`, ...
void restore_results(struct store *s);
void delete_turns(struct store *s, int run, int prompt, int turn); // from `turn` on
void resume(const struct resumable *w, struct store *s);
void resume_and_compare(const struct resumable *w,
                        struct store *s); // with the whole run: the same sequences, texts, steps and pairs
int64_t decoded_again(struct store *s);   // sequences that the whole run did not decode
void expect_nothing_due(const struct resumable *w, struct store *s);
