// prompt_tokens.h - a prompt's turn as the tokens that a target reads, and tokens as the text that they are.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct chat_format;
struct error;
struct ids;
struct prompt;
struct target;

// The tokens of a prompt's turn, given the answers to the turns before it: (turn) texts. They are put into the chat,
// unless the prompt is a completion or there is none. An error (a text that cannot be tokenized, an id that is none)
// names file and line.
bool prompt_token_ids(const struct target *t, const struct chat_format *chat, const struct prompt *p,
                      char *const *answer, int turn, struct ids *to, struct error *err);
// of an answer; NULL: no tokenizer; free() it
char *prompt_text_of(const struct target *t, const int32_t *token, int n);
