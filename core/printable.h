// printable.h - prints text from outside safely on a terminal: names of files, models and databases may contain
// characters that move the cursor, rename the window or reverse the order of a line.
//
// Characters of C0, DEL, C1 and the controls of direction become "\u001B", as JSON writes them, so JSON keeps its
// value. A byte that is not UTF-8 becomes "\xE4". All other characters are kept.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct text;

// Appends s (n). keep: characters that are kept, such as "\n\t"; "\r" is kept before a "\n" that is kept.
void printable_put(struct text *to, const char *s, size_t n, const char *keep);
// Prints one line to a stream; "\n" and "\t" are kept.
void printable_line(FILE *to, const char *format, va_list args);
// Opens a stream onto this descriptor that makes everything written to it printable; "\n" and "\t" are kept. Returns
// NULL if it could not be opened. Its descriptor (fileno) is unknown. A failed write sets errno and the stream's error.
FILE *printable_stream(int descriptor);
