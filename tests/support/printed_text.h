// printed_text.h - what a printed text contains.
#pragma once

void expect_contains(const char *text, const char *what); // fails the test with the text otherwise
int occurrences(const char *text, const char *what);
