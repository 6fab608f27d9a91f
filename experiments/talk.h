// talk.h - one contender's way through one prompt: which turns the database has, and the answers that they brought.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "models/tokenizer.h"

struct error;
struct opened;
struct prompt;
struct store;

struct talk { // start with { 0 }
    const struct prompt *prompt;
    char **answer;     // (n_turns) of the turns up to `turn`
    int turn;          // the next one; n_turns: the conversation is over
    bool cut;          // it ended because its next turn did not fit the context
    bool under_way;    // that turn is being decoded
    int prompt_tokens; // of it
};

// run 0: nothing is stored. s NULL likewise.
bool talk_open(struct talk *t, const struct opened *o, struct store *s, int64_t run, const struct prompt *p, int repeat,
               struct error *err);
void talk_close(struct talk *t);
bool talk_is_over(const struct talk *t);
// Has turns from this one on decoded again; no later than its next.
void talk_rewind(struct talk *t, int turn);
// The tokens of its next turn, appended.
bool talk_ids(const struct talk *t, const struct opened *o, struct ids *to, struct error *err);
// The next turn's answer is these tokens: goes on to the turn after, if that fits the context. The text is the talk's
// own.
bool talk_answered(struct talk *t, const struct opened *o, const int32_t *token, int n, const char **text,
                   struct error *err);
