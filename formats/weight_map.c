#include "formats/weight_map.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/safetensors.h"

struct member { // names are borrowed from the JSON
    const char *name, *file;
    size_t file_index;
};

struct weight_map {
    struct json *json;
    size_t n, files;
    struct member *tensor; // (n) sorted by name
    const char **file;     // (files) sorted
};

static bool names_a_file(const struct json *j)
{
    const char *s = json_text(j);
    return json_is_text(j) && *s != '\0' && strlen(s) == json_text_length(j) && strchr(s, '/') == NULL &&
           strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

static int by_file(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->file, ((const struct member *)b)->file);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void number_files(struct weight_map *m)
{
    qsort(m->tensor, m->n, sizeof(*m->tensor), by_file);
    for (size_t i = 0; i < m->n; i++) {
        if (i == 0 || by_file(&m->tensor[i - 1], &m->tensor[i]) != 0)
            m->file[m->files++] = m->tensor[i].file;
        m->tensor[i].file_index = m->files - 1;
    }
    qsort(m->tensor, m->n, sizeof(*m->tensor), by_name);
}

static bool read_members(struct weight_map *m, const char *path, struct error *err)
{
    const struct json *map = json_get(m->json, "weight_map");
    if (!json_is_object(map) || json_count(map) == 0)
        return fail(err, "%s: expected an object \"weight_map\" with the names of tensors", path);
    m->tensor = xcalloc(json_count(map), sizeof(*m->tensor));
    m->file = xcalloc(json_count(map), sizeof(*m->file));
    for (void *at = json_first(map); at != NULL; at = json_next(map, at)) {
        if (!names_a_file(json_value(at)))
            return fail(err, "%s: weight_map: expected the name of a file beside the index, found \"%s\"", path,
                        json_text(json_value(at)));
        m->tensor[m->n++] = (struct member){ .name = json_key(at), .file = json_text(json_value(at)) };
    }
    number_files(m);
    return true;
}

struct weight_map *weight_map_read(const char *path, struct error *err)
{
    struct weight_map *m = xcalloc(1, sizeof(*m));
    m->json = json_read(path, err);
    if (m->json != NULL && read_members(m, path, err))
        return m;
    weight_map_close(m);
    return NULL;
}

void weight_map_close(struct weight_map *m)
{
    if (m == NULL)
        return;
    json_free(m->json);
    free(m->tensor);
    free(m->file);
    free(m);
}

size_t weight_map_files(const struct weight_map *m)
{
    return m->files;
}

const char *weight_map_file(const struct weight_map *m, size_t file)
{
    return m->file[file];
}

// Both lists are sorted.
static bool find_listed(const struct weight_map *m, const char *directory, const char *index,
                        const struct safetensor *tensor, size_t n, bool *listed, struct error *err)
{
    size_t i = 0;
    for (size_t k = 0; k < m->n; k++) {
        const char *name = m->tensor[k].name;
        bool found = false;
        while (i < n && strcmp(tensor[i].name, name) < 0)
            i++;
        for (; i < n && strcmp(tensor[i].name, name) == 0; i++) {
            listed[i] = (size_t)tensor[i].file == m->tensor[k].file_index;
            found = found || listed[i];
        }
        if (!found)
            return fail(err, "%s: tensor %s should be in %s/%s, and is not", index, name, directory, m->tensor[k].file);
    }
    return true;
}

bool weight_map_filter(const struct weight_map *m, const char *directory, const char *index, struct safetensor *tensor,
                       size_t *n, struct error *err)
{
    bool *listed = xcalloc(*n, sizeof(*listed));
    const bool ok = find_listed(m, directory, index, tensor, *n, listed, err);
    size_t n_listed = 0;
    for (size_t i = 0; i < *n; i++)
        if (listed[i])
            tensor[n_listed++] = tensor[i];
        else
            free((void *)(uintptr_t)tensor[i].name);
    *n = n_listed;
    free(listed);
    return ok;
}
