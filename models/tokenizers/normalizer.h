// normalizer.h - the steps that a text goes through before it is split: Unicode normal forms, replacements, prefixes,
// SentencePiece's map.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "models/tokenizers/normal_form.h"

struct added;
struct character_map;
struct error;
struct pattern;
struct text;

enum normal_kind {
    NORMAL_FORM,     // one of Unicode's normal forms
    NORMAL_REPLACE,  // replaces every match of a pattern by `with`
    NORMAL_PREPEND,  // puts `with` before a text that is not empty
    NORMAL_STRIP,    // removes white space at the beginning (left), at the end (right)
    NORMAL_CLUSTERS, // a precompiled map as Hugging Face applies it
    NORMAL_PIECES,   // SentencePiece's own steps: its map, spaces as U+2581
};

struct normal_step {
    enum normal_kind kind;
    enum normal_form form; // form of NORMAL_FORM
    struct pattern *pattern;
    char *with;
    size_t n;         // bytes of `with`
    bool left, right; // sides of NORMAL_STRIP
    // The following belong to NORMAL_PIECES. map: NULL: none. prefix: a space before the text. collapse: one space for
    // several, none at the ends.
    struct character_map *map;
    bool prefix, collapse;
};

// SentencePiece's precompiled map from characters to their normal forms (precompiled_charsmap): a double-array trie of
// source strings (darts-clone's units) and their targets: a 32-bit size of the trie in bytes, the trie, and texts that
// end with a zero byte.
//
// Copies data (n). Returns NULL and sets err if it is damaged. Strings that a damaged trie makes of parts of characters
// are ignored.
struct character_map *character_map_open(const void *data, size_t n, struct error *err);
void character_map_close(struct character_map *m); // NULL is allowed
// Finds the longest source string with which UTF-8 text (n) begins, and returns its length. *to ends with a zero byte.
// 0: none.
size_t character_map_longest(const struct character_map *m, const char *s, size_t n, const char **to);

enum { MAX_NORMAL_STEPS = 12, NORMAL_MAX = INT32_MAX / 8 }; // NORMAL_MAX: maximum bytes of a normalized text
struct normalizer {                                         // start with { 0 }
    int n;
    struct normal_step step[MAX_NORMAL_STEPS];
};

// Takes over what the step points to, also on failure: too many steps.
bool normalizer_add(struct normalizer *z, struct normal_step step, struct error *err);
void normalizer_free(struct normalizer *z);
// Appends the normal form of UTF-8 text. keep: tokens that NORMAL_PIECES copies unchanged; NULL: none. Returns false
// and sets err if a pattern exceeds its steps or the text becomes longer than NORMAL_MAX. *shifted: whether the text's
// beginning was deleted; NULL is allowed.
bool normalizer_run(const struct normalizer *z, const char *s, size_t n, const struct added *keep, struct text *to,
                    bool *shifted, struct error *err);
