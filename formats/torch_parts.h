// torch_parts.h - the archive of a file of torch.save; private to torch_archive.c and torch_state.c.
#pragma once
#include "formats/file.h"
#include "formats/zip.h"

struct pickle;

#define TORCH_ADVICE \
    "load it with PyTorch where it is trusted, and save its state_dict as safetensors or with torch.save again"

struct torch_archive {
    const char *path;
    struct zip zip;
    char *folder; // the folder of all entries
    struct pickle *pickle;
};

// Borrows path and file until the archive is closed. On failure the archive is already closed.
bool torch_archive_open(const char *path, const struct mapping *file, struct torch_archive *to, struct error *err);
void torch_archive_close(struct torch_archive *a);
const struct zip_entry *torch_archive_find(const struct torch_archive *a,
                                           const char *name); // in its folder; NULL if there is none
