// temporary_folder.h - a folder of a command's own, in $TMPDIR or /tmp.
#pragma once

struct error;

// Creates speclab-KIND-XXXXXX. The caller removes it, and frees the path. NULL: it failed, err is set.
char *temporary_folder(const char *kind, struct error *err);
// The folder of this kind that a path is below, by its name; free() it. NULL: none.
char *temporary_folder_of(const char *path);
