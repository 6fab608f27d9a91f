// added_tokens.h - added tokens such as "<|im_end|>", which are matched in the text before pre-tokenization and merges.
//
// Of two matches that begin at one position the longer wins, of two that overlap the first.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct pattern;

struct added_token {
    char *text; // (n) owned
    size_t n;
    int32_t id;
    bool special;
    bool single_word;    // matches only where no word character is adjacent
    bool lstrip, rstrip; // the match includes the white space before or after it
    size_t order;        // number in the order of insertion
};

struct added {                 // start with { 0 }
    struct added_token *token; // (n) sorted by text after added_finish
    size_t n, capacity;
    bool begins[256];     // whether a token begins with this byte
    struct pattern *word; // matches a word character; NULL if no token has single_word
};

// Copies the text; ignores flags.text, flags.n and flags.order.
void added_add(struct added *a, const char *text, size_t n, struct added_token flags);
// Sorts the tokens; call it after the last added_add. Of two tokens with the same text the later is used. It is an
// error if their ids differ, or a text is not UTF-8.
bool added_finish(struct added *a, struct error *err);
void added_free(struct added *a);

// Returns the longest token that is a prefix of the text (n), whatever its flags; NULL: none.
const struct added_token *added_longest(const struct added *a, const char *text, size_t n);

// Iterates over UTF-8 text in parts: chunks without added tokens, and the tokens between them.
struct added_walk { // start with { a, special, text, n }
    const struct added *a;
    bool special; // whether special tokens match; otherwise they are ordinary text
    const char *text;
    size_t n;
    size_t at, from;                // bytes searched and bytes returned so far
    const struct added_token *next; // already found; returned after the text before it
    size_t next_stop;
};
struct added_part {
    const struct added_token *token; // NULL if the part is text
    const char *text;
    size_t n;
};
bool added_next(struct added_walk *w, struct added_part *to);
