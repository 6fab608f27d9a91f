// exclude.h - the texts of evaluation files, which no prompt of the training data may share 13 words in a row with: the overlap by
// which GPT-3's authors looked for their test sets in its training data (Brown et al. 2020, arXiv 2005.14165, appendix C).
#pragma once
#include <stdbool.h>
#include "core/hash_map.h"

struct error;
struct json;

enum { EXCLUDED_WORDS = 13 };

struct exclusions { // start with { 0 }
    struct hash_map run;
};
// Calls `visit` for every text within a value, whatever its key, except ids, roles and categories. key: of the nearest member; NULL: none.
// Ends with the first call that returns false, and returns whether none did.
typedef bool visit_text(void *self, const char *key, const struct json *text);
bool each_text(const struct json *j, visit_text *visit, void *self);

// Adds all texts of a file of JSON lines, whatever their keys, except ids and categories. Lines that are no objects are errors, and a
// file without any text is one. without: adds the number of lines that have no text (token ids).
bool exclusions_read(struct exclusions *e, const char *path, int *without, struct error *err);
// Whether the text shares 13 words in a row with one of them. A text of fewer words matches as a whole only.
bool exclusions_match(const struct exclusions *e, const char *text);
void exclusions_free(struct exclusions *e);
