// child_process.h - the built program run as a person would run it: words in, status and what it said out.
#pragma once
#include <stdbool.h>

struct json;

struct said {
    int status;      // 256 + the signal, if one ended it
    char *out, *err; // owned
};

bool child_is_present(void); // the program was built: SPECLAB names it
// Another program than SPECLAB from here on, if there is one of that name: SPECLAB_EMULATED. NULL: SPECLAB again.
bool child_use(const char *program);
// words: one string, split at spaces; 'quotes' keep a word together, %s takes the next argument (as one word, or a part
// of one).
struct said child_run(const char *words, ...) __attribute__((format(printf, 1, 2)));
// NULL: no stdin
struct said child_run_with(const char *input, const char *words, ...) __attribute__((format(printf, 2, 3)));
// stdout is this file
struct said child_run_to(const char *out, const char *words, ...) __attribute__((format(printf, 2, 3)));
void said_free(struct said *s);
void said_insist(const struct said *s, const char *what); // that it did its work: status 0
// Runs words: the test fails unless that ends with this status, nothing on stdout, and one line on stderr that has
// `with`.
void child_refuses(int status, const char *with, const char *words);
struct json *said_json(const struct said *s); // stdout as one JSON value; the test fails if it is none

// Models for the program to run on, in tiny_directory(): made and removed by a group's set-up and tear-down.
struct models {
    char *hf, *gguf;      // the target, in both formats
    char *draft, *padded; // GGUF, Hugging Face: one layer of the target's shape; padded: to a larger vocabulary
    char *mute, *foreign; // no tokenizer; foreign: another vocabulary, too
};
extern struct models models;
int models_make(void **state);
int models_remove(void **state);
// words with the model's path in place of the first %s; free() it
char *words_with(const char *words, const char *model);
