// settings.h - the parsed settings of an experiment's file or of the command line: mappings, lists and scalars with
// their positions, so that every error message can name file, line and column. experiments/yaml.c makes them from YAML,
// settings_inline() from "small:model=PATH,widths=[4,2]".
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "core/hash_map.h"
#include "core/memory.h"
#include "core/names.h"

struct json;

enum settings_kind { SETTINGS_SCALAR, SETTINGS_LIST, SETTINGS_MAP };

struct settings {
    enum settings_kind kind;
    const char *file; // name in messages; borrowed from the owner of the root
    int line, column; // counted from 1; line 0: not from a file (command line, default)
    char *text;       // the text of a scalar
    bool quoted;      // a quoted scalar is always text, never a number or bool
    int n, capacity;
    struct settings **item;     // (n) items of a list or values of a map; owned
    char **key;                 // (n) keys of a map; owned
    int *key_line, *key_column; // (n) positions of the keys of a map
    struct hash_map places;     // the index of each key in a large map
};

struct settings *settings_scalar(const char *text);
struct settings *settings_list(void);
struct settings *settings_map(void);
void settings_append(struct settings *list, struct settings *item); // takes ownership of item
// takes ownership of item; replaces an older one
void settings_put(struct settings *map, const char *key, struct settings *item);
struct settings *settings_get(const struct settings *map, const char *key); // NULL: no such key
int settings_find(const struct settings *map, const char *key);             // its index; -1: no such key, or no map
struct settings *settings_copy(const struct settings *s);
int64_t settings_size(const struct settings *s); // number of values, including s
// settings_at gives s the position of `place` and returns it. settings_put_key puts an item under the i-th key of
// `from`, with that key's position.
struct settings *settings_at(struct settings *s, const struct settings *place);
void settings_put_key(struct settings *map, const struct settings *from, int i, struct settings *item);
void settings_free(struct settings *s);

// The inline form of the command line. A value is a scalar, a list in brackets or a map in braces; pairs are
// "key=value,key=[a,b]". settings_inline reads "kind" or "kind:key=value,..", as given to --drafter and --rule, into a
// map with the key `kind`. what: the option, for messages. All return NULL and set err on failure: text that is no
// pair, or a key given twice.
struct settings *settings_value(const char *text, const char *what, struct error *err);
struct settings *settings_pairs(const char *text, const char *what, struct error *err);
struct settings *settings_inline(const char *text, const char *what, struct error *err);

// Appends one line of YAML in flow style, keys in their order: {kind: ngram, longest: 3}. The line parses back to the
// same settings.
void settings_write(const struct settings *s, struct text *out);
char *settings_line(const struct settings *s); // this line as a new string; free() it
// Appends JSON, which is YAML as well: {"kind": "ngram", "longest": 3}. Numbers, true and false are written as such
// unless they are quoted.
void settings_write_json(const struct settings *s, struct text *out);

// Sets err to "file:line:column: " and the message, and returns false. If at is NULL err is the message alone.
// settings_fail_key reports the position of the i-th key of a map.
struct in_file settings_place(const struct settings *s);
#define settings_fail(err, at, ...) fail_in(err, settings_place(at), __VA_ARGS__)
#define settings_fail_key(err, map, i, ...) \
    fail_in(err, (struct in_file){ (map)->file, (map)->key_line[i], (map)->key_column[i] }, __VA_ARGS__)

// Fails because of a name that is none of `names`, which ends with NULL: "drafter ngram has no option "lenght" (it has:
// longest, ..); did you mean longest?" (core/names.h). i: the key of `at` with the name; -1: `at` itself has it.
// said: "drafter ngram has no option". name NULL: `said` is complete, and only the names follow.
bool settings_fail_name(struct error *err, const struct settings *at, int i, enum name_place place, const char *said,
                        const char *name, const char *const *names);

// Convert a scalar. They return false and set err (position, expected, found) if
// it has another type or is out of bounds.
bool settings_int(const struct settings *s, const char *key, long long min, long long max, long long *to,
                  struct error *err);
bool settings_real(const struct settings *s, const char *key, double min, double max, double *to, struct error *err);
bool settings_bool(const struct settings *s, const char *key, bool *to, struct error *err);
bool settings_text(const struct settings *s, const char *key, const char **to, struct error *err); // borrowed

// Checks that s is a mapping with only these keys. keys ends with NULL; "x-*" stands for all keys that begin with "x-".
// what: the mapping's name in messages ("limits").
bool settings_is_map(const struct settings *s, const char *what, const char *const *keys, struct error *err);
// Describes s for messages: "a list", "nothing", or its text.
const char *settings_described(const struct settings *s);

int choice_index(const char *choices, const char *word); // the index of a word in "a|b|c"; -1: none
// Returns the settings as JSON, with integers, numbers, true and false where the text is one. json_free() it.
struct json *settings_json(const struct settings *s);
