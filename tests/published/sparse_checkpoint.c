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
#include "formats/zip.h"
#include "tests/formats/torch_archive.h"
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
    size_t size;
    pickled_storage(t->dtype, &size);
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

// ---- PyTorch

struct zip_out {
    int fd;
    size_t at;
    int n;
    struct text directory;
};

static void number(struct text *t, uint64_t v, size_t bytes)
{
    text_add(t, (const char *)&v, bytes);
}

static void add_to_directory(struct zip_out *z, const char *name, uint32_t crc, size_t n, size_t local)
{
    enum { FULL = 0xffffffff };
    struct text *t = &z->directory, extra = { 0 };
    if (n >= FULL) {
        number(&extra, n, 8);
        number(&extra, n, 8);
    }
    if (local >= FULL)
        number(&extra, local, 8);
    text_add(t, "PK\1\2\0\0\0\0\x08\x08\0\0\0\0\0\0", 16);
    number(t, crc, 4);
    number(t, n >= FULL ? FULL : n, 4);
    number(t, n >= FULL ? FULL : n, 4);
    number(t, strlen(name), 2);
    number(t, extra.n != 0 ? 4 + extra.n : 0, 2);
    text_add(t, "\0\0\0\0\0\0\0\0\0\0", 10);
    number(t, local >= FULL ? FULL : local, 4);
    text_puts(t, name);
    if (extra.n != 0) {
        number(t, 1, 2);
        number(t, extra.n, 2);
        text_add(t, extra.s, extra.n);
    }
    free(extra.s);
    z->n++;
}

// Adds an entry of n bytes, of which the first `known` are written. Returns the offset of its data.
static size_t add_entry(struct zip_out *z, const char *name, const void *bytes, size_t known, size_t n)
{
    struct text t = { 0 };
    const size_t local = z->at, pad = 64 - (local + 30 + strlen(name) + 4) % 64;
    const uint32_t crc = known == n ? zip_crc(bytes, n) : 0;
    text_add(&t, "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26);
    number(&t, strlen(name), 2);
    number(&t, 4 + pad, 2);
    text_puts(&t, name);
    text_add(&t, "FB", 2);
    number(&t, pad, 2);
    for (size_t i = 0; i < pad; i++)
        text_add(&t, "Z", 1);
    put_at(z->fd, local, t.s, t.n);
    const size_t data = local + t.n;
    put_at(z->fd, data, bytes, known);
    t.n = 0;
    text_add(&t, "PK\7\x08", 4);
    number(&t, crc, 4);
    number(&t, n, 8);
    number(&t, n, 8);
    put_at(z->fd, data + n, t.s, t.n);
    z->at = data + n + t.n;
    add_to_directory(z, name, crc, n, local);
    free(t.s);
    return data;
}

static void end_zip(struct zip_out *z)
{
    const size_t directory = z->at, bytes = z->directory.n;
    put_at(z->fd, directory, z->directory.s, bytes);
    struct text t = { 0 };
    text_add(&t, "PK\6\6\x2c\0\0\0\0\0\0\0\x1e\3\x2d\0\0\0\0\0\0\0\0\0", 24);
    number(&t, (uint64_t)z->n, 8);
    number(&t, (uint64_t)z->n, 8);
    number(&t, bytes, 8);
    number(&t, directory, 8);
    text_add(&t, "PK\6\7\0\0\0\0", 8);
    number(&t, directory + bytes, 8);
    number(&t, 1, 4);
    text_add(&t, "PK\5\6\0\0\0\0", 8);
    number(&t, (uint64_t)z->n, 2);
    number(&t, (uint64_t)z->n, 2);
    number(&t, bytes, 4);
    number(&t, 0xffffffff, 4);
    number(&t, 0, 2);
    put_at(z->fd, directory + bytes, t.s, t.n);
    close(z->fd);
    free(t.s);
    free(z->directory.s);
}

// Every tensor has a storage of its own, as torch.save writes it.
static void write_torch(const char *path, const struct sparse_tensor *tensor, int n)
{
    struct text pickle = { 0 };
    char key[32];
    text_add(&pickle, "\x80\x02}(", 4);
    for (int i = 0; i < n; i++) {
        const struct sparse_tensor *t = &tensor[i];
        snprintf(key, sizeof(key), "%d", i);
        size_t size;
        struct pickled_tensor v = { .type = pickled_storage(t->dtype, &size),
                                    .key = key,
                                    .elements = elements_of(t),
                                    .dims = t->rows > 0 ? 2 : 1,
                                    .dim = { t->rows > 0 ? t->rows : t->width, t->width } };
        pickled_text(&pickle, t->name);
        pickled_tensor(&pickle, &v);
    }
    text_add(&pickle, "u.", 2);
    struct zip_out z = { .fd = file_new(path) };
    add_entry(&z, "pytorch_model/data.pkl", pickle.s, pickle.n, pickle.n);
    add_entry(&z, "pytorch_model/byteorder", "little", 6, 6);
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "pytorch_model/data/%d", i);
        put_ones(z.fd, add_entry(&z, key, "", 0, bytes_of(&tensor[i])), &tensor[i]);
    }
    add_entry(&z, "pytorch_model/version", "3\n", 2, 2);
    end_zip(&z);
    free(pickle.s);
}

// ---- a directory

static const char *const stems[] = { "model", "pytorch_model" }, *const ends[] = { "safetensors", "bin" };

static void write_index(const char *directory, const struct sparse *s, enum sparse_form form, int files)
{
    struct json *index = json_new_object(), *map = json_new_object(), *metadata = json_new_object();
    for (int i = 0; i < s->n; i++) {
        char *name =
            xformat("%s-%05d-of-%05d.%s", stems[form], (int)((int64_t)i * files / s->n) + 1, files, ends[form]);
        json_set(map, s->tensor[i].name, json_new_text(name));
        free(name);
    }
    json_set(metadata, "total_size", json_new_int((int64_t)sparse_bytes(s)));
    json_set(index, "metadata", metadata);
    json_set(index, "weight_map", map);
    char *path = xformat("%s/%s.%s.index.json", directory, stems[form], ends[form]), *text = json_write(index);
    file_write(path, text);
    free(text);
    free(path);
    json_free(index);
}

void sparse_write(const char *directory, const struct sparse *s, enum sparse_form form, int files, const char *config)
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
        path = files == 1 ? xformat("%s/%s.%s", directory, stems[form], ends[form])
                          : xformat("%s/%s-%05d-of-%05d.%s", directory, stems[form], file + 1, files, ends[form]);
        (form == SPARSE_TORCH ? write_torch : write_safetensors)(path, s->tensor + first, n);
        free(path);
        first += n;
    }
    if (files > 1)
        write_index(directory, s, form, files);
}
