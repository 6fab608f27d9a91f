// conversation.h - one contender's way through one prompt: which turns the database has, and the answers that they brought.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tokenizers/tokenizer.h"

struct error;
struct history;
struct loaded_experiment;
struct prompt;
struct store;

struct conversation { // start with { 0 }
    const struct prompt *prompt;
    char **answer;     // (n_turns) of the turns up to `turn`
    int turn;          // the next one
    bool full;         // it does not fit the context: asked anew wherever `turn` changes
    bool under_way;    // that turn is being decoded
    int prompt_tokens; // of it
};

// Takes up what `run` has of the conversation, and notes it down for the plan. run 0: nothing is stored. s NULL
// likewise. none: the run by which this one is measured.
bool conversation_open(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                       int64_t none, const struct prompt *p, int repeat, struct history *to, struct error *err);
void conversation_close(struct conversation *t);
bool conversation_is_over(const struct conversation *t);
// Goes on from this turn, of those that have been answered or the next.
bool conversation_continue(struct conversation *t, const struct loaded_experiment *o, int turn, struct error *err);
// The tokens of its next turn, appended.
bool conversation_ids(const struct conversation *t, const struct loaded_experiment *o, struct ids *to,
                      struct error *err);
// The next turn's answer is these tokens: goes on to the turn after, if that fits the context. The text is the talk's
// own.
bool conversation_answered(struct conversation *t, const struct loaded_experiment *o, const int32_t *token, int n,
                           const char **text, struct error *err);
