// chat_template.h - renders a conversation in the text format that its model was trained on.
//
// Templates are Jinja programs, and Jinja renders a model's own template (chat_process.h). This file renders, without
// Python, ChatML's simple forms, with the default system prompts of SmolLM2 and Qwen2, and two formats that have no
// template.
#pragma once
#include <stdbool.h>
#include "core/digest.h"

struct chat_process;
struct error;
struct json;
struct text;

enum chat { CHAT_NONE, CHAT_CHATML, CHAT_VICUNA, CHAT_ZEPHYR, CHAT_JINJA };

#define CHAT_ROLES "system|user|assistant"

struct message {
    const char *role; // one of CHAT_ROLES
    const char *content;
};

struct chat_request {
    const char *name;             // one of CHAT_NAMES, or a file with a template
    const char *jinja;            // the checkpoint's template; NULL: it has none, then "auto" is an error
    const struct json *variables; // variables of the template: {"enable_thinking": false}; NULL: none
    const struct json *tokens;    // special tokens of the checkpoint: {"bos_token": "<s>"}; NULL: none
    const char *now;              // the date that the template gets: "2025-01-31"; NULL: none
};

struct chat_format {
    enum chat kind;
    const char *system;           // default system prompt of a conversation without one; NULL: none
    const char *end;              // the token that ends an answer: "<|im_end|>"; NULL: none beyond the checkpoint's
    char label[16 + HASH_TEXT];   // "chatml"; for JINJA "jinja" and a hash of all that its texts depend on
    struct chat_process *process; // renders JINJA
};

#define CHAT_NAMES "auto|none|chatml|vicuna|zephyr"
#define CHAT_CHOICES CHAT_NAMES "|FILE"
// Returns whether a name is one of CHAT_NAMES or an existing file. err: lists the names.
bool chat_name_known(const char *name, struct error *err);
// Reads the variables of a template from a JSON object; text NULL: *to is NULL. json_free() them.
bool chat_variables_read(const char *text, struct json **to, struct error *err);
// Returns false and sets err if there is no such format, or the template fails. On success chat_close() it.
bool chat_choose(const struct chat_request *r, struct chat_format *to, struct error *err);
void chat_close(struct chat_format *f); // { CHAT_NONE }: no effect
// Returns whether the tokenizer's BOS comes before the text: a template writes BOS itself.
bool chat_lacks_bos(const struct chat_format *f);
// Appends the conversation and the opening of the assistant's turn. CHAT_NONE appends the concatenated contents.
// Returns false and sets err if a template fails; err names its line.
bool chat_render(const struct chat_format *f, const struct message *m, int n, struct text *to, struct error *err);
// Returns whether the format writes a space between the opening of an answer and the answer. The model then writes it,
// and it is not part of the message (Vicuna).
bool chat_opens_with_space(const struct chat_format *f);
// Appends a conversation's beginning up to the opening of the user's first turn, so that the model writes that turn.
// Fails if the format has none (CHAT_NONE).
bool chat_render_user(const struct chat_format *f, struct text *to, struct error *err);
