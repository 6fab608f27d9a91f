// conversation.h - one conversation under way: its messages, and the tokens that the target saw and wrote.
//
//     invented:   begin -> { opening -> invented } -> { prompt -> answered } -> line
//     given:      begin -> { prompt -> answered } for each turn -> line
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "commands/distill/output.h"
#include "commands/distill/plan.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "tokenizers/chat_template.h"
#include "tokenizers/tokenizer.h"

struct conversation {
    struct planned planned;
    enum { INVENTING, ANSWERING, WAITING } phase; // WAITING: complete, until lower numbers are known
    int turn;                                     // of the user's, from 0
    struct message *message;                      // (n) role: constant; content: owned
    int n, capacity;
    struct ids ids, mask; // what the target saw and wrote; 1: written as an answer
    struct text shown;    // the rendered text of ids
    int answer_tokens;
    bool cut;       // an answer reached the limit
    bool shortened; // turns of the prompt were left out: none can follow the answer
};

struct conversation *conversation_begin(const struct planned *p);
void conversation_free(struct conversation *c);

// What the target reads next: for INVENTING the text up to the user's turn, otherwise the conversation up to the answer.
bool conversation_prompt(struct conversation *c, const struct target *t, const struct chat_format *chat, struct ids *to,
                         struct error *err);
// Takes the tokens that followed, which ended for this reason. Returns why the conversation is dropped, or DROP_NOT. Afterwards
// phase is ANSWERING, with a prompt to come, or WAITING.
enum drop conversation_take(struct conversation *c, const struct target *t, const struct chat_format *chat,
                            const int32_t *token, int n, enum stop_reason why);
const char *conversation_user(const struct conversation *c); // the user's first message; "": none yet
struct json *conversation_line(const struct conversation *c, double temperature, int64_t seed);
