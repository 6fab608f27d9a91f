// torch_archive.h - builds PyTorch checkpoints byte by byte, valid or with a fault: pickles, and ZIP archives of them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

// Pickles: these append to a text. Opcodes are appended with text_add.
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
    int strides; // their number; 0: contiguous, one per dimension
    int64_t stride[10];
};
void pickled_tensor(struct text *t, const struct pickled_tensor *v);
// PyTorch's storage class for safetensors' F32, F16, BF16, I64 or BOOL, and the bytes of an element.
const char *pickled_storage(const char *dtype, size_t *size);

// A ZIP archive as torch writes it: sizes follow the entry's data and are in the directory; data is aligned to 64 bytes.
struct archive {
    struct text bytes;
    int n;
    struct {
        char name[64];
        size_t n;
        uint32_t crc;
        size_t local, data, central; // offsets in `bytes`
    } entry[16];
    size_t directory, end64, locator, end; // likewise; end64 and locator are set by archive_end64 only
};
void archive_add(struct archive *a, const char *name, const void *bytes, size_t n);
void archive_end(struct archive *a);
void archive_end64(struct archive *a); // with every size and offset in ZIP64 fields
void archive_free(struct archive *a);
// Overwrites a number of `bytes` bytes.
void archive_put(struct archive *a, size_t at, uint64_t v, size_t bytes);

// archive/data.pkl with this pickle, archive/data/0 of `bytes` bytes, version and byteorder; without the directory.
struct archive archive_of(const struct text *pickle, size_t bytes);
