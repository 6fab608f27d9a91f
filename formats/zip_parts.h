// zip_parts.h - what the two halves of the ZIP reader share; for zip.c and zip_end.c alone.
#pragma once
#include <string.h>

#include "formats/zip.h"

#define ZIP_WIDER UINT32_MAX // in a field that is too small for its value, which stands among the ZIP64 fields

struct zip_directory { // where in the file it lies, and how many entries it has
    uint64_t entries, at, n;
};

// From the records at the archive's end: a directory that ends where they begin, with room for its entries.
bool zip_find_directory(const char *path, const struct mapping *file, struct zip_directory *to, struct error *err);

static inline uint16_t zip_u16(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static inline uint32_t zip_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static inline uint64_t zip_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static inline bool zip_is(const uint8_t *at, const char *signature)
{
    return memcmp(at, signature, 4) == 0;
}
