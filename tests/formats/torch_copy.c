// torch_copy.c - reads safetensors, writes PyTorch files.
#include "tests/formats/torch_copy.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/shards.h"
#include "tests/formats/torch_archive.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"

enum { MAX_TYPES = 4 };

struct storage {
    const char *dtype;
    struct text bytes;
    size_t described; // bytes that the pickle has described so far
};

static int storage_of(struct storage *s, const char *dtype)
{
    int i = 0;
    while (i < MAX_TYPES && s[i].dtype != NULL && strcmp(s[i].dtype, dtype) != 0)
        i++;
    assert_true(i < MAX_TYPES);
    s[i].dtype = dtype;
    return i;
}

static void describe(struct text *pickle, const struct safetensor *t, struct storage *s)
{
    size_t size;
    const int i = storage_of(s, t->dtype);
    const char *type = pickled_storage(t->dtype, &size);
    char key[16];
    snprintf(key, sizeof(key), "%d", i);
    struct pickled_tensor v = { .type = type,
                                .key = key,
                                .elements = (int64_t)(s[i].bytes.n / size),
                                .offset = (int64_t)(s[i].described / size),
                                .dims = t->dims };
    memcpy(v.dim, t->dim, sizeof(t->dim));
    pickled_text(pickle, t->name);
    pickled_tensor(pickle, &v);
    s[i].described += t->bytes;
}

static void write_archive(const char *to, const struct text *pickle, const struct storage *s)
{
    struct archive a = { 0 };
    archive_add(&a, "archive/data.pkl", pickle->s, pickle->n);
    archive_add(&a, "archive/byteorder", "little", 6);
    for (int i = 0; i < MAX_TYPES && s[i].dtype != NULL; i++) {
        char name[32];
        snprintf(name, sizeof(name), "archive/data/%d", i);
        archive_add(&a, name, s[i].bytes.s, s[i].bytes.n);
    }
    archive_add(&a, "archive/version", "3\n", 2);
    archive_end(&a);
    file_write_bytes(to, a.bytes.s, a.bytes.n);
    archive_free(&a);
}

void pickled_checkpoint(const char *from, const char *to)
{
    struct error err;
    struct shards *file = shards_open(from, &err);
    assert_ok(file != NULL, err);
    struct storage s[MAX_TYPES] = { { 0 } };
    for (size_t i = 0; i < shards_count(file); i++) {
        const struct safetensor *t = shards_at(file, i);
        text_add(&s[storage_of(s, t->dtype)].bytes, t->data, t->bytes);
    }
    struct text pickle = { 0 };
    text_add(&pickle, "\x80\x02}(", 4);
    for (size_t i = 0; i < shards_count(file); i++)
        describe(&pickle, shards_at(file, i), s);
    text_add(&pickle, "u.", 2);
    write_archive(to, &pickle, s);
    for (int i = 0; i < MAX_TYPES; i++)
        free(s[i].bytes.s);
    free(pickle.s);
    shards_close(file);
}

static void copy(const char *from, const char *to)
{
    struct text bytes = checkpoint_bytes(from);
    file_write_bytes(to, bytes.s, bytes.n);
    free(bytes.s);
}

// model-00001-of-00002.safetensors becomes pytorch_model-00001-of-00002.bin; free() it.
static char *renamed(const char *file)
{
    return xformat("pytorch_%.*s.bin", (int)(strlen(file) - strlen(".safetensors")), file);
}

static void rename_in_index(const char *from, const char *to)
{
    struct error err;
    struct json *j = json_read(from, &err), *index = json_new_object(), *map = json_new_object();
    const struct json *old = json_get(j, "weight_map");
    for (void *at = json_first(old); at != NULL; at = json_next(old, at)) {
        char *file = renamed(json_text(json_value(at)));
        json_set(map, json_key(at), json_new_text(file));
        free(file);
    }
    json_set(index, "weight_map", map);
    char *text = json_write(index);
    file_write(to, text);
    free(text);
    json_free(index);
    json_free(j);
}

static void copy_one(const char *from, const char *to, const char *name)
{
    const size_t n = strlen(name);
    const bool tensors = n > 12 && strcmp(name + n - 12, ".safetensors") == 0,
               index = strcmp(name, "model.safetensors.index.json") == 0;
    char *other = tensors ? renamed(name) : xstrdup(index ? "pytorch_model.bin.index.json" : name);
    char *in = xformat("%s/%s", from, name), *out = xformat("%s/%s", to, other);
    (tensors ? pickled_checkpoint : index ? rename_in_index : copy)(in, out);
    free(other);
    free(in);
    free(out);
}

void pickled_model(const char *from, const char *to)
{
    assert_true(mkdir(to, 0777) == 0 || errno == EEXIST);
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            copy_one(from, to, e->d_name);
    closedir(d);
}
