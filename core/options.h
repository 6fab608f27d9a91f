// options.h - a plugin says what it can be told; the experiment's file is checked against that.
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
    OPTION_TEXT,    // char *, owned by the options struct; NULL when neither given nor default; of a list its one line
    OPTION_PATH,    // char *, owned likewise; a model or file name, resolved by whoever opens it
    OPTION_CHOICE,  // int, the number of the word in `choices`
    OPTION_INTS,    // struct ints
    OPTION_PAIRS,   // struct pairs: a mapping from token id to a number
};

struct ints { // what an OPTION_INTS field is: [8, 4, 2, 1]
    int n, v[16];
};

struct pairs { // what an OPTION_PAIRS field is: {11: -2.5, 198: 1}; owned
    int n;
    int32_t *key;
    double *value;
};

struct option {
    const char *name;
    enum option_type type;
    size_t at;                 // offsetof the field in the plugin's options struct
    const char *default_value; // what it is when the file says nothing; NULL: the file must say; "": nothing
                               // (an empty list, a NULL text)
    const char *help;          // one line, shown by `speclab list`
    double least, most;        // of numbers (of every member of a list); both 0: any
    const char *choices;       // "drawn|likeliest", of OPTION_CHOICE
};                             // a table of them ends with { 0 }

// An unknown key, a missing one or a value of another type is an error that names file and line. The key `kind` is not
// looked at. `into` is zeroed first; what it owns is freed by options_free, also after a failure. table may be NULL
// (no options): then every key but `kind` is unknown. what: "drafter ngram", for messages.
bool options_read(const struct settings *s, const char *what, const struct option *table, void *into,
                  struct error *err);
void options_free(const struct option *table, void *options);

// Adds to the map every default that it does not mention, in the table's order: settings that say everything.
void options_fill(struct settings *map, const struct option *table);
