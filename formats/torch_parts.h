// torch_parts.h - a file of torch.save as an archive; for torch_archive.c and torch_state.c alone.
#pragma once
#include "formats/file.h"
#include "formats/zip.h"

struct pickle;

#define TORCH_ADVICE \
    "load it with PyTorch where it is trusted, and save its state_dict as safetensors or with torch.save again"

struct torch_archive {
    const char *path;
    struct zip zip;
    char *folder; // in which all of it lies
    struct pickle *pickle;
};

// Path and file are borrowed until the archive is closed. false: it is closed.
bool torch_archive_open(const char *path, const struct mapping *file, struct torch_archive *to, struct error *err);
void torch_archive_close(struct torch_archive *a);
const struct zip_entry *torch_archive_find(const struct torch_archive *a,
                                           const char *name); // in its folder; NULL: none
