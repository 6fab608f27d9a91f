// torch_archive.h - checkpoints of PyTorch made byte by byte, whole or with a fault: pickles, and ZIP archives around them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

// Pickles: what is added to a text. Opcodes are added with text_add, as they are.
void pickled_text(struct text *t, const char *s);
void pickled_int(struct text *t, int64_t v);
void pickled_global(struct text *t, const char *module, const char *name);

struct pickled_tensor {
    const char *type; // "FloatStorage"; NULL: that
    const char *key;  // of the storage; NULL: "0"
    int64_t elements; // of the storage
    int64_t offset;
    int dims;
    int64_t dim[10];
    int strides; // how many; 0: as many as dimensions, and of rows in one piece
    int64_t stride[10];
};
void pickled_tensor(struct text *t, const struct pickled_tensor *v);
// PyTorch's storage of elements that safetensors calls F32, F16, BF16, I64 or BOOL, and the bytes of each.
const char *pickled_storage(const char *dtype, size_t *size);

// A ZIP archive as torch writes it: sizes stand behind an entry and in the directory, data at a multiple of 64.
struct archive {
    struct text bytes;
    int n;
    struct {
        char name[64];
        size_t n;
        uint32_t crc;
        size_t local, data, central; // where they are in `bytes`
    } entry[16];
    size_t directory, end64, locator, end; // the same; end64 and locator of archive_end64 alone
};
void archive_add(struct archive *a, const char *name, const void *bytes, size_t n);
void archive_end(struct archive *a);
void archive_end64(struct archive *a); // with every size and place where ZIP64 has it
void archive_free(struct archive *a);
// Overwrites a number of so many bytes.
void archive_put(struct archive *a, size_t at, uint64_t v, size_t bytes);

// archive/data.pkl with this pickle, archive/data/0 of so many bytes, version and byteorder; not ended.
struct archive archive_of(const struct text *pickle, size_t bytes);
