// conversation.h - one prompt of `speclab generate --prompts` under way: its messages, and the tokens that the target saw and wrote.
//
//     begin -> { prompt -> decoded } for each turn -> line
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "core/memory.h"
#include "engine/engine.h"
#include "engine/prompts.h"
#include "tokenizers/chat_template.h"
#include "tokenizers/tokenizer.h"

struct conversation {
    struct prompt prompt;    // owned
    bool opening;            // the model writes the user's turn, from the chat template's beginning
    int64_t number;          // selects random numbers
    struct sampling *own;    // this prompt's alone; NULL: it has none
    int turn;                // which of the user's, from 0
    struct message *message; // (n) role: constant; content: owned
    int n, capacity;
    struct ids ids, mask;   // what the target saw and wrote; 1: written as an answer
    struct text shown;      // the rendered text of ids
    struct json *answers;   // a list: text, tokens, stop, special
    const char *unanswered; // why there is no answer to a turn: "empty", "long"; NULL: none is missing
};

// Takes over the prompt.
struct conversation *conversation_begin(struct prompt p, bool opening, int64_t number);
void conversation_free(struct conversation *c);
int64_t conversation_sequence(
    const struct conversation *c); // its next text's, below 2^32 if the number is below CONVERSATIONS

enum { CONVERSATIONS = 1 << 25 };

// What the target reads next: the conversation up to the answer, or for an opening up to the user's text.
bool conversation_prompt(struct conversation *c, const struct target *t, const struct chat_format *chat, struct ids *to,
                         struct error *err);
// Takes the tokens that followed. Returns whether another turn is to be answered.
bool conversation_take(struct conversation *c, const struct target *t, const struct chat_format *chat,
                       const struct stop_strings *stops, const int32_t *token, int n, enum stop_reason why);
// id, number, messages, answers, input_ids, loss_mask, unanswered.
struct json *conversation_line(const struct conversation *c);
