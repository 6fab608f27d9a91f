// printable.h - text from outside on a terminal: names of files, models and databases may have signs that move the cursor, rename the window or
// turn the order of a line.
//
// C0, DEL, C1 and the controls of direction become "\u001B", as JSON writes them, so JSON stays the same value; a byte that is not UTF-8
// becomes "\xE4". All else stays.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct text;

// Appends s (n). keep: signs that stay as they are, as "\n\t"; "\r" stays before a "\n" that does.
void printable_put(struct text *to, const char *s, size_t n, const char *keep);
// Prints one line to a stream; "\n" and "\t" stay.
void printable_line(FILE *to, const char *format, va_list args);
// A stream onto this descriptor, which makes all that is written to it printable; "\n" and "\t" stay. NULL: could not be opened. Its descriptor
// (fileno) is unknown. A failed write sets errno and the stream's error.
FILE *printable_stream(int descriptor);
