// declared_tokens.h - tokens that other files of a directory add to those of tokenizer.json, as transformers'
// AutoTokenizer adds them.
//
// tokenizer_config.json has added_tokens_decoder, special tokens by name (bos_token, image_token, ..) and
// extra_special_tokens, formerly additional_special_tokens. Directories without added_tokens_decoder may have
// special_tokens_map.json, which overrides tokenizer_config.json, and added_tokens.json. A new token gets the next id;
// a file that gives it another id is refused.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct digest;
struct error;
struct json;

struct declared_token {
    char *text;
    int64_t id;     // -1: the file gives none
    char *key;      // the path of the file, the key in it and the text, for messages
    bool overrides; // the flags replace those of tokenizer.json
    bool marks;     // the token becomes special in tokenizer.json
    bool special, normalized, lstrip, rstrip, single_word;
};

struct declared_tokens {
    int n;
    struct declared_token *token; // (n), ordered as they are added
};

// Adds the content of special_tokens_map.json to *config, the content of tokenizer_config.json (NULL: there is no such
// file). d: gets what was added; NULL: not wanted. Returns false and sets err on failure.
bool declared_tokens_merge(const char *directory, struct json **config, struct digest *d, struct error *err);
// Adds the tokens of a directory to added_tokens of `tokens`, the content of its tokenizer.json. d: as above. Returns
// false and sets err on failure.
bool declared_tokens_complete(const char *directory, struct json *tokens, struct digest *d, struct error *err);
// Reads the tokens alone, for a directory without tokenizer.json. Returns false and sets err on failure. *to needs
// declared_tokens_free in any case.
bool declared_tokens_of(const char *directory, struct declared_tokens *to, struct error *err);
void declared_tokens_free(struct declared_tokens *t);
