// normalizer.h - what is done to a text before it is split: Unicode normal forms, replacements, prefixes, SentencePiece's map.
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
    NORMAL_FORM,     // one of Unicode's
    NORMAL_REPLACE,  // every match of a pattern by `with`
    NORMAL_PREPEND,  // `with` before a text that is not empty
    NORMAL_STRIP,    // white space at the beginning (left), at the end (right)
    NORMAL_CLUSTERS, // a precompiled map as Hugging Face applies it
    NORMAL_PIECES,   // SentencePiece's own: its map, spaces as U+2581
};

struct normal_step {
    enum normal_kind kind;
    enum normal_form form; // of FORM
    struct pattern *pattern;
    char *with;
    size_t n;         // of `with`
    bool left, right; // of STRIP
    // Of PIECES: NULL map: none. prefix: a space before the text. collapse: one space for several, none at the ends.
    struct character_map *map;
    bool prefix, collapse;
};

// SentencePiece's precompiled map from characters to their normal forms (precompiled_charsmap): a double-array trie of source strings (darts-clone's
// units) and their targets: a 32-bit size of the trie in bytes, the trie, and texts that end with a zero byte.
//
// Copies data (n). Returns NULL and sets err if it is damaged. Strings that a damaged trie makes of parts of characters are ignored.
struct character_map *character_map_open(const void *data, size_t n, struct error *err);
void character_map_close(struct character_map *m); // NULL is allowed
// The longest source string that UTF-8 text (n) begins with: its length, and *to, which ends with a zero byte. 0: none.
size_t character_map_longest(const struct character_map *m, const char *s, size_t n, const char **to);

enum { MAX_NORMAL_STEPS = 12, NORMAL_MAX = INT32_MAX / 8 }; // NORMAL_MAX: bytes of a normalized text
struct normalizer {                                         // start with { 0 }
    int n;
    struct normal_step step[MAX_NORMAL_STEPS];
};

// Takes over what the step points to, also on failure: too many steps.
bool normalizer_add(struct normalizer *z, struct normal_step step, struct error *err);
void normalizer_free(struct normalizer *z);
// Appends the normal form of UTF-8 text. keep: tokens that PIECES copies unchanged; NULL: none. Returns false and sets err if a pattern
// gives up or the text becomes longer than NORMAL_MAX. *shifted: whether the text's beginning was deleted; NULL is allowed.
bool normalizer_run(const struct normalizer *z, const char *s, size_t n, const struct added *keep, struct text *to,
                    bool *shifted, struct error *err);
