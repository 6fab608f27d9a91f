// datastore.h - the words by which `speclab datastore --exclude` compares texts.
#pragma once

struct text;

// Appends the words of a text, separated by single spaces: runs of letters and digits, ASCII in lower case. Punctuation, ASCII's and that of
// U+2000 to U+207F, only separates words; every other character is a letter.
void words_read(struct text *to, const char *text);
