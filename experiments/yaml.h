// yaml.h - YAML text to settings (core/settings.h). yaml.c is the only file that includes yaml.h of libyaml. Aliases
// (*name) and merge keys (<<) are resolved: an alias is a copy with the alias's own position, in which everything keeps
// the position where it is written. Duplicate keys and anchors, tags, several documents and bytes that are not text are
// errors with file, line and column. Columns count characters.
#pragma once
#include <stddef.h>
struct error;
struct settings;
// Return NULL and set err on failure. path, file (for messages): borrowed as long as the settings exist.
struct settings *yaml_read(const char *path, struct error *err);
struct settings *yaml_parse(const char *text, size_t n, const char *file, struct error *err);
