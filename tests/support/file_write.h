// files.h - whole files, written at once.
#pragma once
#include <stdbool.h>
#include <stddef.h>

void file_write(const char *path, const char *text);
void file_write_bytes(const char *path, const void *bytes, size_t n);
// Holds a text against tests/cases/NAME, which a person has read; says the first line that is another. write: NAME is written
// anew first, to be read again.
void file_hold_golden(const char *name, const char *text, bool write);
