// files.h - whole files, written at once.
#pragma once
#include <stddef.h>

void file_write(const char *path, const char *text);
void file_write_bytes(const char *path, const void *bytes, size_t n);
