// command_line.h - what every command does alike: flags from a table, help made from the same table, strict numbers,
// one sentence for every mistake, and a look at whether stdout took what was written.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct text;

enum flag_kind {
    FLAG_ON = 1, // bool: given or not
    FLAG_INT,    // long long, from least to most
    FLAG_TEXT,   // const char *, into argv; the last one given counts
    FLAG_TEXTS,  // struct flag_texts: may be given several times
    FLAG_DEVICE, // const char *, into argv: cpu, cuda or cuda:1
    FLAG_CHOICE, // int: the number of the word among those of `argument`, which | parts
};

struct flag_texts {
    int n;
    const char *text[16]; // into argv
};

struct flag {         // a table of them ends with { 0 }
    const char *name; // without its dashes
    enum flag_kind kind;
    void *to;
    const char *argument;  // what stands for its value in the help: "N"; NULL for FLAG_ON
    const char *help;      // lines parted by \n
    long long least, most; // of FLAG_INT; both 0: any
};

struct usage {
    const char *name;     // "generate"
    const char *operands; // "MODEL PROMPT"
    const char *about;    // what it does; ends with a newline
    const struct flag *flags;
    const char *examples; // each on a line of its own, ended by a newline
    int least, most;      // operands
};

enum { GO_ON = -1 };

// Reads the flags; *operand is the first of what is left, *n (NULL: not wanted) how many. GO_ON, or the status to exit
// with: 0 after --help, 2 after a sentence on stderr.
int usage_read(const struct usage *u, int argc, char **argv, char ***operand, int *n);
// "speclab NAME: sentence" on stderr; the status to exit with, 2 and 1.
int usage_fail(const struct usage *u, const char *format, ...) __attribute__((format(printf, 2, 3)));
int command_fail(const struct usage *u, const struct error *err);
// The status to exit with once all results are written: 1, after a sentence, if stdout did not take them. A reader that
// went away (`| head`) is no news to anyone: then nothing is said.
int command_done(const struct usage *u);
bool stdout_is_gone(void); // flushed, and something went wrong: no use in going on

const char *program_version(void);                                                // "0.1.0 (89366a9b8ce3)"
bool parse_int(const char *text, long long least, long long most, long long *to); // strict: all of it, in range
// The word of a NULL-ended list that was probably meant; NULL: none is near. Distance by Damerau and Levenshtein.
const char *nearest(const char *word, const char *const *list);
bool read_all(const char *path, struct text *to, struct error *err); // NULL or "-": stdin
