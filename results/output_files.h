// output_files.h - the files that a report writes beside its text.
#pragma once
#include <stdbool.h>

struct error;
struct text;

// A folder: created if missing, but for its parents. Both return false and set err, with the path, on failure.
bool output_folder(const char *path, struct error *err);
// A file of this content, whose name goes to *out as a line. An older one stays until the new one is whole; a database is not replaced.
bool output_file(const char *path, const struct text *content, struct text *out, struct error *err);
