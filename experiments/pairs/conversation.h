// conversation.h - the turns of one prompt in one cell: which are stored, and their answers, which later turns contain.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tokenizers/tokenizer.h"

struct error;
struct history;
struct loaded_experiment;
struct prompt;
struct store;

struct conversation { // initialize with { 0 }
    const struct prompt *prompt;
    char **answer;     // (n_turns) of the turns before `turn`
    int turn;          // the next turn
    bool full;         // the next turn does not fit the context; updated with `turn`
    bool under_way;    // the next turn is being decoded
    int prompt_tokens; // of that turn
};

// Reads the stored turns of the conversation in `run`; *to: its history, for plan_turns. run 0 or s NULL: nothing is stored.
// none: the baseline's run.
bool conversation_open(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                       int64_t none, const struct prompt *p, int repeat, struct history *to, struct error *err);
void conversation_close(struct conversation *t);
bool conversation_is_over(const struct conversation *t);
// Restarts at this turn, which must be answered already or the next one.
bool conversation_continue(struct conversation *t, const struct loaded_experiment *o, int turn, struct error *err);
// Appends the token ids of the next turn.
bool conversation_ids(const struct conversation *t, const struct loaded_experiment *o, struct ids *to,
                      struct error *err);
// Stores the answer of the next turn and moves to the turn after it. *text: the answer's text; borrowed from the
// conversation.
bool conversation_answered(struct conversation *t, const struct loaded_experiment *o, const int32_t *token, int n,
                           const char **text, struct error *err);
