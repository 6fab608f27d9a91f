// torch.c - a checkpoint of PyTorch: its file or files, and one sorted list of their tensors.
#include "models/torch.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/files.h"
#include "models/torch_parts.h"
#include "models/weight_map.h"

struct source {
    char *path;
    struct mapping file;
};

struct torch {
    int files;
    struct source *file;          // (files)
    struct torch_tensors tensors; // sorted by name
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

// Adds a file and its tensors. Takes the path.
static bool read_file(struct torch *t, char *path, struct error *err)
{
    t->file = xrealloc(t->file, (size_t)(t->files + 1) * sizeof(*t->file));
    struct source *f = &t->file[t->files];
    *f = (struct source){ .path = path };
    t->files++;
    return file_map(path, &f->file, err) && torch_read(path, &f->file, t->files - 1, &t->tensors, err);
}

static void sort(struct torch *t)
{
    if (t->tensors.n != 0)
        qsort(t->tensors.at, t->tensors.n, sizeof(*t->tensors.at), by_name);
}

static bool read_files(struct torch *t, const char *directory, const char *index, struct error *err)
{
    struct weight_map *map = weight_map_read(index, err);
    bool ok = map != NULL;
    for (size_t i = 0; ok && i < weight_map_files(map); i++)
        ok = read_file(t, xformat("%s/%s", directory, weight_map_file(map, i)), err);
    if (ok) {
        sort(t);
        ok = weight_map_keep(map, directory, index, t->tensors.at, &t->tensors.n, err);
    }
    weight_map_close(map);
    return ok;
}

static bool open_directory(struct torch *t, const char *directory, struct error *err)
{
    char *index = xformat("%s/pytorch_model.bin.index.json", directory);
    char *single = xformat("%s/pytorch_model.bin", directory);
    bool ok;
    if (file_exists(index))
        ok = read_files(t, directory, index, err);
    else if (file_exists(single))
        ok = read_file(t, xstrdup(single), err);
    else
        ok = fail(err, "%s: there is neither pytorch_model.bin nor pytorch_model.bin.index.json", directory);
    free(single);
    free(index);
    return ok;
}

struct torch *torch_open(const char *path, struct error *err)
{
    struct torch *t = xcalloc(1, sizeof(*t));
    bool ok = file_is_directory(path) ? open_directory(t, path, err) : read_file(t, xstrdup(path), err);
    if (!ok) {
        torch_close(t);
        return NULL;
    }
    sort(t);
    return t;
}

void torch_close(struct torch *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->tensors.n; i++)
        free((void *)(uintptr_t)t->tensors.at[i].name);
    for (int i = 0; i < t->files; i++) {
        file_unmap(&t->file[i].file);
        free(t->file[i].path);
    }
    free(t->tensors.at);
    free(t->file);
    free(t);
}

size_t torch_count(const struct torch *t)
{
    return t->tensors.n;
}

const struct safetensor *torch_at(const struct torch *t, size_t i)
{
    return i < t->tensors.n ? &t->tensors.at[i] : NULL;
}

const struct safetensor *torch_find(const struct torch *t, const char *name)
{
    struct safetensor wanted = { .name = name };
    return t->tensors.n == 0 ? NULL : bsearch(&wanted, t->tensors.at, t->tensors.n, sizeof(wanted), by_name);
}

int torch_files(const struct torch *t)
{
    return t->files;
}

const char *torch_file(const struct torch *t, int file)
{
    return file >= 0 && file < t->files ? t->file[file].path : NULL;
}
