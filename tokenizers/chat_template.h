// chat_template.h - a conversation as the text its model was trained on.
//
// Templates are Jinja programs; we know ChatML, with the default system prompts that SmolLM2's and Qwen's templates
// carry, chosen by what the model's own template contains. A template that we do not know is an error that names `chat:
// none`.
#pragma once
#include <stdbool.h>

struct error;
struct text;

enum chat { CHAT_NONE, CHAT_CHATML };

struct message {
    const char *role; // "system", "user", "assistant"
    const char *content;
};

struct chat_format {
    enum chat kind;
    const char *system; // put first when the conversation brings no system message; NULL: nothing
    const char *end;    // the token that ends an answer: "<|im_end|>"; NULL: none
};

// wanted: "auto", "none" or "chatml". template: the checkpoint's, NULL if it has none (auto is then an error).
bool chat_choose(const char *wanted, const char *jinja, struct chat_format *to, struct error *err);
// Appends the conversation, and then what opens the assistant's turn. For CHAT_NONE: the contents, one after another.
void chat_render(const struct chat_format *f, const struct message *m, int n, struct text *to);
