// options.h - the table of options that a plugin declares, and reading settings by it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct settings; // core/settings.h: one mapping of the experiment's file, with line numbers

enum option_type {
    OPTION_INT = 1, // int
    OPTION_REAL,    // double
    OPTION_BOOL,    // bool
    OPTION_TEXT,    // char *, owned by the options struct; NULL if neither given nor default; a list as one line
    OPTION_PATH, // char *, owned likewise; a text that is not empty, as the name of a model or file, resolved when it is opened
    OPTION_CHOICE, // int, the index of the word in `choices`
    OPTION_INTS,   // struct ints: a list of integers
    OPTION_PAIRS,  // struct pairs: a mapping from token id to a number
    OPTION_ANY,    // struct settings *, a copy owned by the options struct, NULL if not given: the plugin reads it
};

struct ints { // value of an OPTION_INTS: [8, 4, 2, 1]
    int n, v[16];
};

struct pairs { // value of an OPTION_PAIRS: {11: -2.5, 198: 1}; owns its arrays
    int n;
    int32_t *key;
    double *value;
};

struct option {
    const char *name;
    enum option_type type;
    size_t at;                 // offsetof the field in the plugin's options struct
    const char *default_value; // as written in YAML; NULL: the option is required; "": an empty list or mapping, a
                               // NULL text
    const char *help;          // one line, shown by `speclab list`
    double min, max;           // bounds of a number, or of each number of a list; both 0: no bounds
    const char *choices;       // "sampled|greedy", for OPTION_CHOICE
};                             // a table ends with { 0 }

// Reads the options of `table` from s into the options struct `into`. An unknown key, a missing required key or a value of
// another type is an error that names file and line. The key `kind` is skipped. The fields of `into` are zeroed first; free
// them with options_free, also after a failure. table NULL: no options, and every key but `kind` is unknown. what: "drafter
// ngram", for messages.
bool options_read(const struct settings *s, const char *what, const struct option *table, void *into,
                  struct error *err);
// Reads as options_read does, from a mapping that has other keys, too, or is NULL: then every option has its default.
bool options_take(const struct settings *s, const char *what, const struct option *table, void *into,
                  struct error *err);
void options_free(const struct option *table, void *options);

// Adds the default of each option that the map lacks, in the table's order, so that the settings are complete.
void options_fill(struct settings *map, const struct option *table);

// The canonical settings of a plugin: `kind`, then all its options in the table's order, defaults filled in, every number in one
// spelling, so that equal settings have equal text. given: checked by options_read; a mapping, or anything else for defaults.
struct settings *entry_settings(const char *kind, const struct settings *given, const struct option *table);
struct settings *option_settings(const struct settings *given, enum option_type type); // of one value
