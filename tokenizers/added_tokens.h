// added_tokens.h - tokens that are looked for in the text itself, before anything cuts or merges it: "<|im_end|>".
//
// Of two that begin at the same place the longer is taken, of two that overlap the first.
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
    bool single_word;    // only where no word character touches it
    bool lstrip, rstrip; // takes the white space before, behind it along
    size_t order;        // of being put
};

struct added {                 // start with { 0 }
    struct added_token *token; // (n) sorted by text once added_ready
    size_t n, capacity;
    bool begins[256];     // whether a token begins with this byte
    struct pattern *word; // a word character; NULL: no token asks for it
};

// Copies the text; of flags, text, n and order are not looked at.
void added_put(struct added *a, const char *text, size_t n, struct added_token flags);
// After the last one. Of two with the same text the later counts; if their ids differ, it is an error.
bool added_ready(struct added *a, struct error *err);
void added_free(struct added *a);

// Walks a text, which is UTF-8, part by part: stretches that hold none of them, and the tokens in between.
struct added_walk { // start with { a, special, text, n }
    const struct added *a;
    bool special; // otherwise special tokens are ordinary text
    const char *text;
    size_t n;
    size_t at, from;                // looked at, and given out, so far
    const struct added_token *next; // found already, to be given out after the text before it
    size_t next_stop;
};
struct added_part {
    const struct added_token *token; // NULL: text
    const char *text;
    size_t n;
};
bool added_next(struct added_walk *w, struct added_part *to);
