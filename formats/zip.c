// zip.c - reads the central directory of a ZIP archive and the local header of each entry.
//
//     header, name, extra, data | ... | directory: header, name, extra, comment | ... | the end (zip_end.c)
//
// torch writes entries before their sizes are known: the local header then has 0, and flag DEFERRED is set.
#include "formats/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/printable.h"
#include "formats/zip_parts.h"

enum { LOCAL = 30, CENTRAL = 46 }; // bytes of a local and of a directory header, without name and extra
enum { ENCRYPTED = 1, DEFERRED = 1 << 3, PATCH = 1 << 5, STRONGLY_ENCRYPTED = 1 << 6, MASKED = 1 << 13 }; // flags

struct walk { // an iteration over the directory
    const char *path;
    const struct mapping *file;
    struct zip_directory directory;
    const uint8_t *at, *end;
    struct error *err;
};

// Replaces saturated fields by their ZIP64 values from a header's extra fields. Returns false if those are missing.
static bool widen(const uint8_t *extra, size_t n, uint64_t *const field[], int fields)
{
    int wanted = 0;
    for (int i = 0; i < fields; i++)
        wanted += *field[i] == ZIP_SATURATED;
    if (wanted == 0)
        return true;
    while (n >= 4 && zip_u16(extra) != 1) {
        size_t skipped = 4 + (size_t)zip_u16(extra + 2);
        if (skipped > n)
            return false;
        extra += skipped;
        n -= skipped;
    }
    if (n < 4 || zip_u16(extra + 2) > n - 4 || zip_u16(extra + 2) < 8 * wanted)
        return false;
    extra += 4;
    for (int i = 0; i < fields; i++)
        if (*field[i] == ZIP_SATURATED) {
            *field[i] = zip_u64(extra);
            extra += 8;
        }
    return true;
}

// Whether a name stays inside the folder into which the archive is unpacked.
static bool stays_inside(const char *name, size_t n)
{
    if (n == 0 || name[0] == '/' || memchr(name, '\0', n) != NULL || memchr(name, '\\', n) != NULL)
        return false;
    for (size_t i = 0; i + 1 < n; i++) {
        bool begins = i == 0 || name[i - 1] == '/', ends = i + 2 == n || name[i + 2] == '/';
        if (begins && ends && name[i] == '.' && name[i + 1] == '.')
            return false;
    }
    return true;
}

// A number of a local header must equal the directory's, or be 0 if it is deferred.
static bool agrees(uint64_t own, uint64_t directory, bool deferred)
{
    return own == directory || (deferred && own == 0);
}

// Finds an entry's data behind its local header, which must agree with the directory's.
static bool find_data(const struct walk *w, const uint8_t *central, struct zip_entry *e)
{
    struct shown name = shown(e->name, e->name_n);
    size_t capacity = (size_t)w->directory.at; // entries end where the directory begins
    if (e->begin > capacity || capacity - e->begin < LOCAL || !zip_is(w->file->at + e->begin, "PK\3\4"))
        return fail(w->err, "%s: ZIP entry %s: expected its local header at byte %zu, found none", w->path, name.s,
                    e->begin);

    const uint8_t *own = w->file->at + e->begin;
    uint64_t packed = zip_u32(own + 18), size = zip_u32(own + 22);
    size_t extra = zip_u16(own + 28), left = capacity - e->begin - LOCAL;
    bool deferred = zip_u16(own + 6) & DEFERRED;
    if (zip_u16(own + 26) != e->name_n || left < e->name_n + extra || memcmp(own + LOCAL, e->name, e->name_n) != 0)
        return fail(w->err, "%s: ZIP entry %s: its local header, at byte %zu, has another name", w->path, name.s,
                    e->begin);
    if (!widen(own + LOCAL + e->name_n, extra, (uint64_t *const[]){ &size, &packed }, 2) ||
        memcmp(own + 6, central + 8, 4) != 0 || !agrees(zip_u32(own + 14), e->crc, deferred) ||
        !agrees(packed, e->n, deferred) || !agrees(size, e->n, deferred))
        return fail(w->err, "%s: ZIP entry %s: its local header, at byte %zu, and the directory disagree", w->path,
                    name.s, e->begin);
    e->at = own + LOCAL + e->name_n + extra;
    left -= e->name_n + extra;
    if (e->n > left)
        return fail(w->err, "%s: ZIP entry %s: it has %zu bytes, and there are %zu up to the directory", w->path,
                    name.s, e->n, left);
    e->end = capacity - left + e->n;
    return true;
}

// Why an entry's bytes cannot be used from the mapping; NULL if they can.
static const char *obstacle(const uint8_t *central, const struct zip_entry *e)
{
    uint16_t flags = zip_u16(central + 8), method = zip_u16(central + 10);
    if (!stays_inside(e->name, e->name_n))
        return "expected the name of a file inside the archive";
    if (flags & (ENCRYPTED | STRONGLY_ENCRYPTED | MASKED))
        return "it is encrypted";
    if (flags & PATCH || (method != 0 && method != 8))
        return "it is compressed with a method that is not supported";
    if (method == 8)
        return "it is compressed (deflated), and torch.save stores what it writes; unpack it, and pack it with zip -0";
    return zip_u16(central + 34) != 0 ? "it lies in another file of a split archive" : NULL;
}

// Reads the next entry of the directory.
static bool read_entry(struct walk *w, uint64_t i, struct zip_entry *e)
{
    const uint8_t *central = w->at;
    size_t left = (size_t)(w->end - central);
    if (left < CENTRAL || !zip_is(central, "PK\1\2"))
        return fail(w->err, "%s: entry %" PRIu64 " of the ZIP directory is not where it should begin", w->path, i);
    size_t extra = zip_u16(central + 30), comment = zip_u16(central + 32);
    e->name_n = zip_u16(central + 28);
    e->name = (const char *)central + CENTRAL;
    if (left - CENTRAL < e->name_n + extra + comment)
        return fail(w->err, "%s: entry %" PRIu64 " of the ZIP directory does not end within it", w->path, i);
    w->at += CENTRAL + e->name_n + extra + comment;

    struct shown name = shown(e->name, e->name_n);
    const char *why = obstacle(central, e);
    if (why != NULL)
        return fail(w->err, "%s: ZIP entry %s: %s", w->path, name.s, why);
    uint64_t packed = zip_u32(central + 20), size = zip_u32(central + 24), begin = zip_u32(central + 42);
    if (!widen((const uint8_t *)e->name + e->name_n, extra, (uint64_t *const[]){ &size, &packed, &begin }, 3))
        return fail(w->err, "%s: ZIP entry %s: its ZIP64 fields are missing", w->path, name.s);
    if (size != packed)
        return fail(w->err, "%s: ZIP entry %s: it is stored, but has %" PRIu64 " bytes in %" PRIu64, w->path, name.s,
                    size, packed);
    e->crc = zip_u32(central + 16);
    e->n = (size_t)size;
    e->begin = (size_t)begin;
    return find_data(w, central, e);
}

static int by_place(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    int order = memcmp(x->name, y->name, x->name_n < y->name_n ? x->name_n : y->name_n);
    return order != 0 ? order : (x->name_n > y->name_n) - (x->name_n < y->name_n);
}

// Checks that no two entries overlap or have the same name. Sorts them by name.
static bool check_disjoint(const char *path, struct zip *z, struct error *err)
{
    qsort(z->entry, z->n, sizeof(*z->entry), by_place);
    for (size_t i = 1; i < z->n; i++) {
        const struct zip_entry *a = &z->entry[i - 1], *b = &z->entry[i];
        if (b->begin < a->end)
            return fail(err, "%s: ZIP entries %s and %s overlap", path, shown(a->name, a->name_n).s,
                        shown(b->name, b->name_n).s);
    }
    qsort(z->entry, z->n, sizeof(*z->entry), by_name);
    for (size_t i = 1; i < z->n; i++)
        if (by_name(&z->entry[i - 1], &z->entry[i]) == 0)
            return fail(err, "%s: two ZIP entries are named %s", path, shown(z->entry[i].name, z->entry[i].name_n).s);
    return true;
}

static bool read_directory(struct walk *w, struct zip *to)
{
    if (!zip_find_directory(w->path, w->file, &w->directory, w->err))
        return false;
    w->at = w->file->at + w->directory.at;
    w->end = w->at + w->directory.n;
    if (w->directory.entries == 0)
        return fail(w->err, "%s: the ZIP archive is empty", w->path);
    to->entry = xcalloc((size_t)w->directory.entries, sizeof(*to->entry));
    for (; to->n < w->directory.entries; to->n++)
        if (!read_entry(w, to->n, &to->entry[to->n]))
            return false;
    if (w->at != w->end)
        return fail(w->err, "%s: the ZIP directory has %zu bytes more than its entries", w->path,
                    (size_t)(w->end - w->at));
    to->first = to->entry[0];
    return check_disjoint(w->path, to, w->err);
}

bool zip_open(const char *path, const struct mapping *file, struct zip *to, struct error *err)
{
    struct walk w = { .path = path, .file = file, .err = err };
    *to = (struct zip){ 0 };
    if (read_directory(&w, to))
        return true;
    zip_close(to);
    return false;
}

void zip_close(struct zip *z)
{
    free(z->entry);
    *z = (struct zip){ 0 };
}

const struct zip_entry *zip_find(const struct zip *z, const char *name)
{
    struct zip_entry wanted = { .name = name, .name_n = strlen(name) };
    return z->n == 0 ? NULL : bsearch(&wanted, z->entry, z->n, sizeof(wanted), by_name);
}

uint32_t zip_crc(const uint8_t *at, size_t n)
{
    static const uint32_t table[16] = {
        // remainders of half a byte, polynomial 0xedb88320
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = ~0U;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

bool zip_check_crc(const char *path, const struct zip_entry *e, struct error *err)
{
    uint32_t crc = zip_crc(e->at, e->n);
    return crc == e->crc ||
           fail(err, "%s: ZIP entry %s is damaged: expected the CRC-32 %08" PRIx32 ", found %08" PRIx32, path,
                shown(e->name, e->name_n).s, e->crc, crc);
}
