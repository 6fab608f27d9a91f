// head_folder.h - writes a head as a folder: model.safetensors and config.json.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "formats/file.h"

struct error;
struct safetensor;

// Writes to TO.part and renames it when complete; on failure nothing is left. config: the text of config.json.
bool head_folder_write(const char *to, const struct safetensor *tensor, size_t n, part_put *put, void *context,
                       const char *config, struct error *err);
