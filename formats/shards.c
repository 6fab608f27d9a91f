// shards.c - the files of a checkpoint and one sorted list of their tensors.
#include "formats/shards.h"

#include <stdlib.h>
#include <string.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "formats/weight_map.h"

struct shard {
    char *path;
    struct mapping file;
};

struct shards {
    int files;
    struct shard *file;      // (files)
    struct tensor_list list; // sorted by name
};

// A ZIP archive, as torch.save writes it, or a file with a name of its.
static bool is_torch(const char *path, const struct mapping *file)
{
    return ends_with(path, ".pt") || ends_with(path, ".bin") || (file->n > 4 && memcmp(file->at, "PK\3\4", 4) == 0);
}

static bool refuse_torch(const char *file, const char *convert, struct error *err)
{
    return fail(
        err, "%s: expected safetensors, found a file of PyTorch: ./run convert %s --out FOLDER makes safetensors of it",
        file, convert);
}

// Adds a file and its tensors. Takes ownership of the path.
static bool read_file(struct shards *s, char *path, struct error *err)
{
    s->file = xrealloc(s->file, (size_t)(s->files + 1) * sizeof(*s->file));
    struct shard *f = &s->file[s->files];
    *f = (struct shard){ .path = path };
    const int number = s->files++;
    if (!file_map(path, &f->file, err))
        return false;
    if (is_torch(path, &f->file))
        return refuse_torch(path, path, err);
    return safetensors_read(path, &f->file, number, &s->list, err);
}

static bool read_indexed(struct shards *s, const char *directory, const char *index, struct error *err)
{
    struct weight_map *map = weight_map_read(index, err);
    bool ok = map != NULL;
    for (size_t i = 0; ok && i < weight_map_files(map); i++)
        ok = read_file(s, xformat("%s/%s", directory, weight_map_file(map, i)), err);
    if (ok) {
        tensor_list_sort(&s->list);
        ok = weight_map_filter(map, directory, index, s->list.at, &s->list.n, err);
    }
    weight_map_close(map);
    return ok;
}

static bool read_directory(struct shards *s, const char *directory, struct error *err)
{
    static const char *const names[] = { "model.safetensors.index.json", "model.safetensors",
                                         "pytorch_model.bin.index.json", "pytorch_model.bin" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *path = xformat("%s/%s", directory, names[i]);
        if (file_exists(path)) {
            const bool ok = i == 0   ? read_indexed(s, directory, path, err)
                            : i == 1 ? read_file(s, xstrdup(path), err)
                                     : refuse_torch(path, directory, err);
            free(path);
            return ok;
        }
        free(path);
    }
    return fail(err, "%s: expected model.safetensors or model.safetensors.index.json, found none", directory);
}

struct shards *shards_open(const char *path, struct error *err)
{
    struct shards *s = xcalloc(1, sizeof(*s));
    if (!(file_is_directory(path) ? read_directory(s, path, err) : read_file(s, xstrdup(path), err))) {
        shards_close(s);
        return NULL;
    }
    tensor_list_sort(&s->list);
    return s;
}

void shards_close(struct shards *s)
{
    if (s == NULL)
        return;
    tensor_list_free(&s->list);
    for (int i = 0; i < s->files; i++) {
        file_unmap(&s->file[i].file);
        free(s->file[i].path);
    }
    free(s->file);
    free(s);
}

size_t shards_count(const struct shards *s)
{
    return s->list.n;
}

const struct safetensor *shards_at(const struct shards *s, size_t i)
{
    return i < s->list.n ? &s->list.at[i] : NULL;
}

const char *shards_file(const struct shards *s, int file)
{
    return file >= 0 && file < s->files ? s->file[file].path : NULL;
}
