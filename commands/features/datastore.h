// datastore.h - `speclab features --datastore`: texts as tokens with their suffix array, for the drafter `rest`.
#pragma once
#include <stdbool.h>

struct error;
struct text;

// file[0]: the model, whose tokenizer is used; file[1 .. n - 1]: texts; exclude: n_exclude files of lines. Prints what
// was written on stderr.
bool datastore_make(char **file, int n, const char *const *exclude, int n_exclude, const char *out, struct error *err);

// Appends the words by which --exclude compares texts, separated by single spaces: runs of letters and digits, ASCII in
// lower case. Punctuation, ASCII's and that of U+2000 to U+207F, only separates words; every other character is a
// letter.
void words_read(struct text *to, const char *text);
