// options.h - the table of options that a plugin declares, and the reading of settings by it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct settings; // core/settings.h: a mapping of the experiment's file, with line numbers

enum option_type {
    OPTION_INT = 1, // int
    OPTION_REAL,    // double
    OPTION_BOOL,    // bool
    OPTION_TEXT,    // char *, owned by the options struct; NULL if neither given nor default; a list becomes one line
    OPTION_PATH,    // char *, owned by the options struct; not empty: the name of a model or
                    // file, resolved when it is opened
    OPTION_CHOICE,  // int, the index of the word in `choices`
    OPTION_INTS,    // struct ints: a list of integers
    OPTION_PAIRS,   // struct pairs: a mapping from token id to a number
    OPTION_ANY,     // struct settings *, a copy that the options struct owns; NULL if not given; the plugin reads it
};

struct ints { // the value of an OPTION_INTS: [8, 4, 2, 1]
    int n, v[16];
};

struct pairs { // the value of an OPTION_PAIRS: {11: -2.5, 198: 1}; owns its arrays
    int n;
    int32_t *key;
    double *value;
};

struct option {
    const char *name;
    enum option_type type;
    size_t at;                 // offsetof the field in the plugin's options struct
    const char *default_value; // spelled as in YAML; NULL: the option is required; "": an empty
                               // list or mapping, a NULL text, the number 0
    const char *help;          // one line, shown by `speclab list`
    double min, max;           // bounds of a number, or of each number of a list; both 0: no bounds
    const char *choices;       // the words of an OPTION_CHOICE: "sampled|greedy"
};                             // a table ends with { 0 }

// Reads the options of `table` from s into the options struct `into`. An unknown key, a missing required key or a value
// of another type is an error that names file and line. The key `kind` is skipped. The fields of `into` are zeroed
// first; free them with options_free, also after a failure. If table is NULL there are no options, and every key but
// `kind` is unknown. what: the plugin in messages, "drafter ngram".
bool options_read(const struct settings *s, const char *what, const struct option *table, void *into,
                  struct error *err);
// Reads as options_read does, from a mapping that may have other keys. If s is NULL every option has its default.
bool options_take(const struct settings *s, const char *what, const struct option *table, void *into,
                  struct error *err);
void options_free(const struct option *table, void *options);

// Adds the default of each option that the map lacks, in the table's order, so that the settings are complete.
void options_fill(struct settings *map, const struct option *table);

// Returns the canonical settings of a plugin: `kind`, then all its options in the table's order, defaults filled in,
// every number in one spelling, so that equal settings have equal text. given: a mapping that options_read has checked;
// anything else stands for the defaults.
struct settings *entry_settings(const char *kind, const struct settings *given, const struct option *table);
// the canonical form of one value
struct settings *option_settings(const struct settings *given, enum option_type type);
