// sparse_checkpoint.c - writes files that consist of headers and holes.
#include "tests/published/sparse_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"

struct sparse_tensor *sparse_add(struct sparse *s, const char *dtype, int64_t rows, int64_t width, const char *name)
{
    if (s->n == s->capacity) {
        s->capacity = (int)next_capacity((size_t)s->capacity, (size_t)s->n + 1);
        s->tensor = xrealloc(s->tensor, (size_t)s->capacity * sizeof(*s->tensor));
    }
    struct sparse_tensor *t = &s->tensor[s->n++];
    *t = (struct sparse_tensor){ .dtype = dtype, .rows = rows, .width = width };
    assert_true(strlen(name) < sizeof(t->name));
    strcpy(t->name, name);
    return t;
}

void sparse_free(struct sparse *s)
{
    free(s->tensor);
    *s = (struct sparse){ 0 };
}

static int64_t elements_of(const struct sparse_tensor *t)
{
    return (t->rows > 0 ? t->rows : 1) * t->width;
}

static size_t bytes_of(const struct sparse_tensor *t)
{
    const size_t size = strchr(t->dtype, '3') != NULL   ? 4
                        : strcmp(t->dtype, "I64") == 0  ? 8
                        : strcmp(t->dtype, "BOOL") == 0 ? 1
                                                        : 2;
    return (size_t)elements_of(t) * size;
}

size_t sparse_bytes(const struct sparse *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->n; i++)
        bytes += bytes_of(&s->tensor[i]);
    return bytes;
}

// ---- a file with holes

static int file_new(const char *path)
{
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    return fd;
}

static void put_at(int fd, size_t at, const void *bytes, size_t n)
{
    if (pwrite(fd, bytes, n, (off_t)at) != (ssize_t)n)
        fail_msg("%s", strerror(errno));
}

static void put_ones(int fd, size_t at, const struct sparse_tensor *t)
{
    char *ones = xmalloc((size_t)t->ones + 1);
    memset(ones, 1, (size_t)t->ones);
    put_at(fd, at, ones, (size_t)t->ones);
    free(ones);
}

// ---- safetensors

static void write_safetensors(const char *path, const struct sparse_tensor *tensor, int n)
{
    struct json *header = json_new_object();
    size_t end = 0;
    for (int i = 0; i < n; i++) {
        const struct sparse_tensor *t = &tensor[i];
        struct json *j = json_new_object(), *shape = json_new_array(), *offsets = json_new_array();
        if (t->rows > 0)
            json_push(shape, json_new_int(t->rows));
        json_push(shape, json_new_int(t->width));
        json_push(offsets, json_new_int((int64_t)end));
        end += bytes_of(t);
        json_push(offsets, json_new_int((int64_t)end));
        json_set(j, "dtype", json_new_text(t->dtype));
        json_set(j, "shape", shape);
        json_set(j, "data_offsets", offsets);
        json_set(header, t->name, j);
    }
    char *text = json_write(header);
    const uint64_t length = (strlen(text) + 7) / 8 * 8;
    char *padded = xmalloc(length);
    memset(padded, ' ', length);
    memcpy(padded, text, strlen(text));
    const int fd = file_new(path);
    put_at(fd, 0, &length, 8);
    put_at(fd, 8, padded, length);
    assert_int_equal(ftruncate(fd, (off_t)(8 + length + end)), 0);
    size_t at = 8 + length;
    for (int i = 0; i < n; at += bytes_of(&tensor[i++]))
        put_ones(fd, at, &tensor[i]);
    close(fd);
    json_free(header);
    free(padded);
    free(text);
}

// ---- a directory

static void write_index(const char *directory, const struct sparse *s, int files)
{
    struct json *index = json_new_object(), *map = json_new_object(), *metadata = json_new_object();
    for (int i = 0; i < s->n; i++) {
        char *name = xformat("model-%05d-of-%05d.safetensors", (int)((int64_t)i * files / s->n) + 1, files);
        json_set(map, s->tensor[i].name, json_new_text(name));
        free(name);
    }
    json_set(metadata, "total_size", json_new_int((int64_t)sparse_bytes(s)));
    json_set(index, "metadata", metadata);
    json_set(index, "weight_map", map);
    char *path = xformat("%s/model.safetensors.index.json", directory), *text = json_write(index);
    file_write(path, text);
    free(text);
    free(path);
    json_free(index);
}

void sparse_write(const char *directory, const struct sparse *s, int files, const char *config)
{
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fail_msg("%s: %s", directory, strerror(errno));
    char *path = xformat("%s/config.json", directory);
    file_write(path, config);
    free(path);
    for (int file = 0, first = 0; file < files; file++) {
        int n = 0;
        while (first + n < s->n && (int)((int64_t)(first + n) * files / s->n) == file)
            n++;
        path = files == 1 ? xformat("%s/model.safetensors", directory)
                          : xformat("%s/model-%05d-of-%05d.safetensors", directory, file + 1, files);
        write_safetensors(path, s->tensor + first, n);
        free(path);
        first += n;
    }
    if (files > 1)
        write_index(directory, s, files);
}
