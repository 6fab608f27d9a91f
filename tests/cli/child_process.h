// child_process.h - runs the built program as a user would: arguments in, exit status, stdout and stderr out.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct json;

struct child_result {
    int status;      // exit status, or 256 + the signal that ended it
    char *out, *err; // owned
};

bool child_is_present(void); // the program (SPECLAB) was built
// Switches to another program, as SPECLAB_EMULATED; NULL: back to SPECLAB. False if it was not built.
bool child_use(const char *program);
// words: the command line as one string, split at spaces; 'quotes' keep a word together; printf formats are filled in
// before splitting.
struct child_result child_run(const char *words, ...) __attribute__((format(printf, 1, 2)));
// input: text on stdin; NULL: empty
struct child_result child_run_with(const char *input, const char *words, ...) __attribute__((format(printf, 2, 3)));
// stdout goes to the file `out`
struct child_result child_run_to(const char *out, const char *words, ...) __attribute__((format(printf, 2, 3)));
void child_result_free(struct child_result *s);
void child_expect_success(const struct child_result *s, const char *what); // fails the test unless status is 0
// Fails the test unless the program exited with this status, printed nothing on stdout, and on stderr one line that begins
// with its name and contains `with`.
void child_result_is_error(const struct child_result *s, int status, const char *with, const char *what);
void child_expect_error(int status, const char *with, const char *words);
struct mistake {
    int status;
    const char *words, *with; // %s: the model
};
void child_expect_errors(const struct mistake *m, size_t n, const char *model); // each of them
struct json *child_result_json(
    const struct child_result *s); // stdout parsed as JSON; fails the test if it is not valid

// Small models for the program, in test_directory(): created and removed by a group's set-up and tear-down.
struct models {
    char *hf, *gguf;    // the target, in both formats
    char *draft;        // GGUF: one layer of the target's shape
    char *padded;       // Hugging Face: the same, padded to a larger vocabulary
    char *no_tokenizer; // Hugging Face: as padded, without a tokenizer
    char *foreign;      // GGUF: another vocabulary, without a tokenizer
};
extern struct models models;
int models_make(void **state);
int models_remove(void **state);
// The exit status of a program whose tests use them; 77, skipped: SPECLAB was not built.
#define run_with_models(tests) \
    (child_is_present() ? cmocka_run_group_tests(tests, models_make, models_remove) : child_is_missing())
int child_is_missing(void); // prints that, and returns 77
// words with the first %s replaced by the model's path; to be freed
char *words_with(const char *words, const char *model);
// words with every HERE replaced by test_directory(); to be freed
char *words_here(const char *words);
