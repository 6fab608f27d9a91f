// conversation.h - one contender's way through one prompt: which turns the database has, and the answers that they brought.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tokenizers/tokenizer.h"

struct error;
struct history;
struct opened;
struct prompt;
struct store;

struct talk { // start with { 0 }
    const struct prompt *prompt;
    char **answer;     // (n_turns) of the turns up to `turn`
    int turn;          // the next one
    bool full;         // it does not fit the context: asked anew wherever `turn` changes
    bool under_way;    // that turn is being decoded
    int prompt_tokens; // of it
};

// Takes up what `run` has of the conversation, and notes it down for the plan. run 0: nothing is stored. s NULL
// likewise. none: the run by which this one is measured.
bool talk_open(struct talk *t, const struct opened *o, struct store *s, int64_t run, int64_t none,
               const struct prompt *p, int repeat, struct history *to, struct error *err);
void talk_close(struct talk *t);
bool talk_is_over(const struct talk *t);
// Goes on from this turn, of those that have been answered or the next.
bool talk_go_on(struct talk *t, const struct opened *o, int turn, struct error *err);
// The tokens of its next turn, appended.
bool talk_ids(const struct talk *t, const struct opened *o, struct ids *to, struct error *err);
// The next turn's answer is these tokens: goes on to the turn after, if that fits the context. The text is the talk's
// own.
bool talk_answered(struct talk *t, const struct opened *o, const int32_t *token, int n, const char **text,
                   struct error *err);
