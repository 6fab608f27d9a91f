// zip_parts.h - shared by the two files of the ZIP reader; private to zip.c and zip_end.c.
#pragma once
#include <string.h>

#include "formats/zip.h"

#define ZIP_SATURATED UINT32_MAX // in a field that is too small for its value; the value is in a ZIP64 field

struct zip_directory { // its number of entries, offset in the file, and bytes
    uint64_t entries, at, n;
};

// Finds the directory from the records at the archive's end. It ends where they begin and can hold its entries.
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
