// chat_template.h - renders a conversation in the text format that its model was trained on.
//
// Templates are Jinja programs. Only ChatML is supported, with the default system prompts of SmolLM2's and Qwen's
// templates, selected by what the model's own template contains. Any other template is an error that names `chat: none`.
#pragma once
#include <stdbool.h>

struct error;
struct text;

enum chat { CHAT_NONE, CHAT_CHATML };

#define CHAT_ROLES "system|user|assistant"

struct message {
    const char *role; // one of CHAT_ROLES
    const char *content;
};

struct chat_format {
    enum chat kind;
    const char *system; // default system prompt of a conversation without one; NULL: none
    const char *end;    // the token that ends an answer: "<|im_end|>"; NULL: none
};

#define CHAT_CHOICES "auto|none|chatml"
// format: one of CHAT_CHOICES. jinja: the checkpoint's template, NULL if it has none (then auto is an error).
bool chat_choose(const char *format, const char *jinja, struct chat_format *to, struct error *err);
// Appends the conversation and the opening of the assistant's turn. For CHAT_NONE: the concatenated contents.
void chat_render(const struct chat_format *f, const struct message *m, int n, struct text *to);
// Appends a conversation's beginning up to the opening of the user's first turn, so that the model writes that turn. Returns false
// if the format has none (CHAT_NONE).
bool chat_render_user(const struct chat_format *f, struct text *to);
