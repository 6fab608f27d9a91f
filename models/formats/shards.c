// shards.c - the files of a checkpoint and one sorted list of their tensors.
#include "models/formats/shards.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "models/formats/safetensors.h"

struct shard {
    char *path;
    struct mapping file;
};

struct shards {
    int files;
    struct shard *file;      // (files)
    struct tensor_list list; // sorted by name
};

// Returns whether the file is a ZIP archive, as torch.save writes it, or has a name of PyTorch's files.
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

// ---- the index of a checkpoint in several files: {"weight_map": {"name of a tensor": "file", ...}}

struct member {
    const char *name, *file; // borrowed from the JSON
    int number;              // number of the file among the shards
};

static int by_file(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->file, ((const struct member *)b)->file);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

// File names have no folder: the files are next to the index.
static bool names_a_file(const struct json *j)
{
    const char *s = json_text(j);
    return json_is_text(j) && *s != '\0' && strlen(s) == json_text_length(j) && strchr(s, '/') == NULL &&
           strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

static bool read_members(const struct json *map, const char *index, struct member *to, size_t *n, struct error *err)
{
    for (void *at = json_first(map); at != NULL; at = json_next(map, at)) {
        if (!names_a_file(json_value(at)))
            return fail(err, "%s: weight_map: expected the name of a file beside the index, found \"%s\"", index,
                        json_text(json_value(at)));
        to[(*n)++] = (struct member){ .name = json_key(at), .file = json_text(json_value(at)) };
    }
    return true;
}

// Sets which tensors the index lists, each in the file that it names. Both lists are sorted by name.
static bool find_listed(const struct shards *s, const char *directory, const char *index, const struct member *member,
                        size_t n, bool *listed, struct error *err)
{
    const struct safetensor *tensor = s->list.at;
    size_t i = 0;
    for (const struct member *m = member; m < member + n; m++) {
        bool found = false;
        while (i < s->list.n && strcmp(tensor[i].name, m->name) < 0)
            i++;
        for (; i < s->list.n && strcmp(tensor[i].name, m->name) == 0; i++) {
            listed[i] = tensor[i].file == m->number;
            found = found || listed[i];
        }
        if (!found)
            return fail(err, "%s: tensor %s should be in %s/%s, and is not", index, m->name, directory, m->file);
    }
    return true;
}

// Keeps the tensors that the index lists.
static bool keep_listed(struct shards *s, const char *directory, const char *index, const struct member *member,
                        size_t n, struct error *err)
{
    bool *listed = xcalloc(s->list.n, sizeof(*listed));
    const bool ok = find_listed(s, directory, index, member, n, listed, err);
    size_t kept = 0;
    for (size_t i = 0; i < s->list.n; i++)
        if (listed[i])
            s->list.at[kept++] = s->list.at[i];
        else
            free((void *)(uintptr_t)s->list.at[i].name);
    s->list.n = kept;
    free(listed);
    return ok;
}

static bool read_listed(struct shards *s, const char *directory, const char *index, const struct json *map,
                        struct error *err)
{
    if (!json_is_object(map) || json_count(map) == 0)
        return fail(err, "%s: expected an object \"weight_map\" with the names of tensors", index);
    struct member *member = xcalloc(json_count(map), sizeof(*member));
    size_t n = 0;
    bool ok = read_members(map, index, member, &n, err);
    qsort(member, n, sizeof(*member), by_file);
    for (size_t i = 0; ok && i < n; i++) {
        if (i == 0 || by_file(&member[i - 1], &member[i]) != 0)
            ok = read_file(s, xformat("%s/%s", directory, member[i].file), err);
        member[i].number = s->files - 1;
    }
    qsort(member, n, sizeof(*member), by_name);
    tensor_list_sort(&s->list);
    ok = ok && keep_listed(s, directory, index, member, n, err);
    free(member);
    return ok;
}

static bool read_indexed(struct shards *s, const char *directory, const char *index, struct error *err)
{
    struct json *j = json_read(index, err);
    const bool ok = j != NULL && read_listed(s, directory, index, json_get(j, "weight_map"), err);
    json_free(j);
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
