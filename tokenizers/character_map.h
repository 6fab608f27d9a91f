// character_map.h - SentencePiece's precompiled map from characters to their normal forms (precompiled_charsmap).
//
// A double-array trie of source strings (darts-clone's units) and their targets: a 32-bit size of the trie in bytes, the trie, and
// texts that end with a zero byte.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct character_map;
struct error;
struct text;

// Copies data (n). Returns NULL and sets err if it is damaged. Strings that a damaged trie makes of parts of characters are ignored.
struct character_map *character_map_open(const void *data, size_t n, struct error *err);
void character_map_close(struct character_map *m); // NULL is allowed
// The longest source string that UTF-8 text (n) begins with: its length, and *to, which ends with a zero byte. 0: none.
size_t character_map_longest(const struct character_map *m, const char *s, size_t n, const char **to);
// Appends UTF-8 text (n) as Hugging Face's Precompiled maps it: grapheme clusters of up to 5 bytes, otherwise characters, each by the
// shortest source string that it begins with. Returns false once `to` is longer than `most` bytes.
bool character_map_clusters(const struct character_map *m, const char *s, size_t n, size_t most, struct text *to);
