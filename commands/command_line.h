// command_line.h - shared by all commands: flags and help text from one table, strict number parsing, one-sentence
// error messages, and a check that stdout accepted all output.
#pragma once
#include <stdbool.h>

struct error;

enum flag_kind {
    FLAG_ON = 1, // bool: true if the flag is given
    FLAG_INT,    // long long, from min to max
    FLAG_TEXT,   // const char *, into argv
    FLAG_TEXTS,  // struct flag_texts: the only kind that can be given several times
    FLAG_DEVICE, // const char *, into argv: cpu, cuda or cuda:1
    FLAG_CHOICE, // int: index of the value in `argument`, a list separated by |
    FLAG_WORD,   // const char *, into argv: one of such a list
};

struct flag_texts {
    int n;
    const char *text[16]; // pointers into argv
};

struct flag {         // a table of flags ends with { 0 }
    const char *name; // the name, without dashes
    enum flag_kind kind;
    void *to;
    const char *argument; // placeholder of the value in the help text: "N"; NULL for FLAG_ON
    const char *help;     // lines separated by \n
    long long min, max;   // limits of FLAG_INT; both 0: none
};

// The flags of every command that opens a model, from a struct speclab_target_options (engine/speclab.h).
// clang-format off
#define PRECISION_FLAGS(o) \
    { "device", FLAG_DEVICE, &(o).device, "NAME", DEVICE_NAMES "; default: cpu", 0, 0 }, \
    { "activations", FLAG_WORD, &(o).activations, ACTIVATIONS_CHOICES, \
      "what products round their input to; default: as the weights allow", 0, 0 }, \
    { "cache", FLAG_WORD, &(o).cache, KV_CHOICES, "element type of keys and values", 0, 0 }
#define PACKED_FLAG(to) /* int: 1 for keep */ \
    { "packed", FLAG_CHOICE, &(to), "no|keep", \
      "keep: packed weights are read from a file beside the model,\nand written there if none fits; default: no", 0, 0 }
#define CHAT_VARIABLES_FLAG(to) \
    { "chat-template-kwargs", FLAG_TEXT, &(to), "JSON", \
      "variables of the chat template: '{\"enable_thinking\": false}'", 0, 0 }
// clang-format on

struct usage {
    const char *name;     // "generate"
    const char *operands; // "MODEL PROMPT"
    const char *about;    // description; ends with a newline
    const struct flag *flags;
    const char *examples;           // one a line, each ended by a newline
    int min_operands, max_operands; // number of operands accepted
};

enum { USAGE_OK = -1 };

// Parses the flags. Sets *operand to the operands and *n (may be NULL) to their number. Returns USAGE_OK, or the exit
// status: 0 after --help, 2 after an error message on stderr.
int usage_read(const struct usage *u, int argc, char **argv, char ***operand, int *n);

// From now on usage_read hands the usage to `seen` and returns 0 without reading anything, so that a command can be
// asked for its options. seen NULL: no more.
void usage_observe(void (*seen)(const struct usage *u, void *self), void *self);

// What one command does in several ways: with the flag `name`, only it and the flags of `also` (names separated by
// spaces) can be given. A table of modes ends with the one without a flag, whose name is NULL.
struct mode {
    const char *name, *also;
};
// Finds the mode of the call that usage_read has read last: the first of the table whose flag was given. Returns its
// index, or -1 after an error message on stderr (exit status 2) if a flag that is not of this mode was given.
int usage_mode(const struct usage *u, const struct mode *modes);

// Both print "speclab NAME: MESSAGE" on stderr. They return the exit status: 2 for wrong usage, or if
// error_is_usage(err); interrupt_status() if a signal was caught (130 after Ctrl-C); 1 for any other failure.
int usage_fail(const struct usage *u, const char *format, ...) __attribute__((format(printf, 2, 3)));
int command_fail(const struct usage *u, const struct error *err);
void command_log(void *unused, const char *sentence); // a line on stderr; for struct speclab_target_options
// Returns the exit status after all results are written: 0, or 1 with an error message if stdout did not accept them,
// or if a mapped file has changed while it was in use. A closed pipe (`| head`) returns 1 without a message.
int command_done(const struct usage *u);

bool parse_int(const char *text, long long min, long long max, long long *to); // strict: the whole text, in range
