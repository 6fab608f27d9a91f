#include "tests/formats/torch_archive.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"

static void number(struct text *t, uint64_t v, size_t bytes)
{
    text_add(t, (const char *)&v, bytes);
}

void pickled_text(struct text *t, const char *s)
{
    text_add(t, "X", 1);
    number(t, strlen(s), 4);
    text_puts(t, s);
}

void pickled_int(struct text *t, int64_t v)
{
    text_add(t, "\x8a\x08", 2);
    number(t, (uint64_t)v, 8);
}

void pickled_global(struct text *t, const char *module, const char *name)
{
    text_printf(t, "c%s\n%s\n", module, name);
}

static void integers(struct text *t, const int64_t *v, int n)
{
    text_add(t, "(", 1);
    for (int i = 0; i < n; i++)
        pickled_int(t, v[i]);
    text_add(t, "t", 1);
}

void pickled_tensor(struct text *t, const struct pickled_tensor *v)
{
    int64_t stride[10];
    uint64_t step = 1; // unsigned: shapes of some tests overflow
    for (int d = v->dims - 1; d >= 0; d--) {
        stride[d] = (int64_t)step;
        step *= (uint64_t)v->dim[d];
    }
    pickled_global(t, "torch._utils", "_rebuild_tensor_v2");
    text_add(t, "((", 2);
    pickled_text(t, "storage");
    pickled_global(t, "torch", v->type != NULL ? v->type : "FloatStorage");
    pickled_text(t, v->key != NULL ? v->key : "0");
    pickled_text(t, "cpu");
    pickled_int(t, v->elements);
    text_add(t, "tQ", 2);
    pickled_int(t, v->offset);
    integers(t, v->dim, v->dims);
    integers(t, v->strides != 0 ? v->stride : stride, v->strides != 0 ? v->strides : v->dims);
    text_add(t, "\x89", 1);
    pickled_global(t, "collections", "OrderedDict");
    text_add(t, ")RtR", 4);
}

const char *pickled_storage(const char *dtype, size_t *size)
{
    static const struct {
        const char *dtype, *storage;
        size_t size;
    } types[] = { { "F32", "FloatStorage", 4 },
                  { "F16", "HalfStorage", 2 },
                  { "BF16", "BFloat16Storage", 2 },
                  { "I64", "LongStorage", 8 },
                  { "BOOL", "BoolStorage", 1 } };
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(types[i].dtype, dtype) == 0) {
            *size = types[i].size;
            return types[i].storage;
        }
    fail_msg("torch_archive.c does not support %s", dtype);
    return NULL;
}

// Bit by bit, by polynomial division; formats/zip.c processes four bits at a time.
static uint32_t crc32(const uint8_t *at, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

void archive_add(struct archive *a, const char *name, const void *bytes, size_t n)
{
    struct text *t = &a->bytes;
    size_t length = strlen(name), i = (size_t)a->n++;
    assert_true(i < sizeof(a->entry) / sizeof(*a->entry) && length < sizeof(a->entry->name));
    a->entry[i].local = t->n;
    a->entry[i].n = n;
    a->entry[i].crc = crc32(bytes, n);
    strcpy(a->entry[i].name, name);

    size_t pad = 64 - (t->n + 30 + length + 4) % 64;
    text_add(t, "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26);
    number(t, length, 2);
    number(t, 4 + pad, 2);
    text_puts(t, name);
    text_add(t, "FB", 2);
    number(t, pad, 2);
    while (pad-- != 0)
        text_add(t, "Z", 1);
    a->entry[i].data = t->n;
    text_add(t, bytes, n);
    text_add(t, "PK\7\x08", 4);
    number(t, a->entry[i].crc, 4);
    number(t, n, 4);
    number(t, n, 4);
}

static void directory(struct archive *a, bool zip64)
{
    struct text *t = &a->bytes;
    a->directory = t->n;
    for (int i = 0; i < a->n; i++) {
        a->entry[i].central = t->n;
        text_add(t, "PK\1\2\0\0\0\0\x08\x08\0\0\0\0\0\0", 16);
        number(t, a->entry[i].crc, 4);
        number(t, zip64 ? 0xffffffff : a->entry[i].n, 4);
        number(t, zip64 ? 0xffffffff : a->entry[i].n, 4);
        number(t, strlen(a->entry[i].name), 2);
        number(t, zip64 ? 6 + 28 : 0, 2);
        text_add(t, "\0\0\0\0\0\0\0\0\0\0", 10);
        number(t, zip64 ? 0xffffffff : a->entry[i].local, 4);
        text_puts(t, a->entry[i].name);
        if (!zip64)
            continue;
        text_add(t, "UT\2\0ab\1\0\x18\0", 10); // another extra field first
        number(t, a->entry[i].n, 8);
        number(t, a->entry[i].n, 8);
        number(t, a->entry[i].local, 8);
    }
}

static void end(struct archive *a, uint64_t n, uint64_t bytes, uint64_t at)
{
    a->end = a->bytes.n;
    text_add(&a->bytes, "PK\5\6\0\0\0\0", 8);
    number(&a->bytes, n, 2);
    number(&a->bytes, n, 2);
    number(&a->bytes, bytes, 4);
    number(&a->bytes, at, 4);
    number(&a->bytes, 0, 2);
}

void archive_end(struct archive *a)
{
    directory(a, false);
    end(a, (uint64_t)a->n, a->bytes.n - a->directory, a->directory);
}

void archive_end64(struct archive *a)
{
    struct text *t = &a->bytes;
    directory(a, true);
    a->end64 = t->n;
    text_add(t, "PK\6\6\x2c\0\0\0\0\0\0\0\x1e\3\x2d\0\0\0\0\0\0\0\0\0", 24);
    number(t, (uint64_t)a->n, 8);
    number(t, (uint64_t)a->n, 8);
    number(t, a->end64 - a->directory, 8);
    number(t, a->directory, 8);
    a->locator = t->n;
    text_add(t, "PK\6\7\0\0\0\0", 8);
    number(t, a->end64, 8);
    number(t, 1, 4);
    end(a, 0xffff, 0xffffffff, 0xffffffff);
}

void archive_free(struct archive *a)
{
    free(a->bytes.s);
}

void archive_put(struct archive *a, size_t at, uint64_t v, size_t bytes)
{
    assert_true(at + bytes <= a->bytes.n);
    memcpy(a->bytes.s + at, &v, bytes);
}

struct archive archive_of(const struct text *pickle, size_t bytes)
{
    struct archive a = { 0 };
    uint8_t *zeros = xcalloc(bytes, 1);
    archive_add(&a, "archive/data.pkl", pickle->s, pickle->n);
    archive_add(&a, "archive/byteorder", "little", 6);
    archive_add(&a, "archive/data/0", zeros, bytes);
    archive_add(&a, "archive/version", "3\n", 2);
    free(zeros);
    return a;
}
