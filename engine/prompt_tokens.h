// prompt_tokens.h - converts a turn of a prompt to token ids.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct chat_format;
struct error;
struct ids;
struct prompt;
struct target;

// Token ids of a prompt up to and including a turn. answer: (turn) the answers to earlier turns. The messages are rendered
// with the chat template, unless the prompt is a completion or the chat is none. Errors (a text that cannot be tokenized,
// an id outside the vocabulary) name file and line.
bool prompt_token_ids(const struct target *t, const struct chat_format *chat, const struct prompt *p,
                      char *const *answer, int turn, struct ids *to, struct error *err);
