// tokenizer_json_parts.h - shared by tokenizer_json.c and tokenizer_json_text.c; private to them.
#pragma once
#include <stdbool.h>

struct error;
struct json;
struct tokenizer;

bool json_is_not(const struct tokenizer *t, const char *where, const char *wanted, struct error *err); // always false
const char *json_type(const struct json *j); // of a component: "ByteLevel"; "null", "without a type" if it has none
bool json_is_type(const struct json *j, const char *type);
bool json_unknown_type(const struct tokenizer *t, const char *what, const struct json *j, const char *known,
                       struct error *err); // always false
bool json_switch(const struct tokenizer *t, const struct json *j, const char *key, bool default_value, bool *to,
                 struct error *err); // an optional boolean

struct token_form { // how tokens are decoded, unless the tokenizer is byte-level
    bool pieces;    // U+2581 is a space
    bool bytes;     // "<0x0A>" is a byte
};
bool json_read_normalizer(struct tokenizer *t, const struct json *j, struct error *err);
// *bytes: whether the tokenizer is byte-level.
bool json_read_pre_tokenizer(struct tokenizer *t, const struct json *j, bool *bytes, struct error *err);
bool json_read_decoder(struct tokenizer *t, const struct json *j, struct token_form *form, struct error *err);
