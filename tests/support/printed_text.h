// printed_text.h - what a printed text contains.
#pragma once

void expect_contains(const char *text, const char *what); // fails the test with the text otherwise
int occurrences(const char *text, const char *what);
// The parts of a pattern, which ".." separates, occur in the text in this order, the first at its beginning; `of` is printed otherwise.
void expect_pattern(const char *text, const char *pattern, const char *of);
