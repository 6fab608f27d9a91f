// zip_end.c - the records at the end of a ZIP archive, which locate its directory.
//
//     ... | directory | ZIP64 end record | its locator | end record
//
// The end record must be the last bytes of the file, without a comment, so that its position is unambiguous.
#include <inttypes.h>

#include "core/error.h"
#include "formats/file.h"
#include "formats/zip_parts.h"

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46 }; // minimum bytes of each
enum { MAX_ENTRIES = 1 << 20 };                          // a sparse file can declare any number

// Reads the ZIP64 end record if a locator precedes the end record (at `end`). `to` holds the fields of the end record, of
// which a saturated one stands for a larger value.
static bool read_end64(const char *path, const struct mapping *file, size_t *end, struct zip_directory *to,
                       struct error *err)
{
    bool required = to->entries == UINT16_MAX || to->n == ZIP_SATURATED || to->at == ZIP_SATURATED;
    if (*end < LOCATOR || !zip_is(file->at + *end - LOCATOR, "PK\6\7"))
        return !required || fail(err, "%s: its ZIP end record requires ZIP64, but no ZIP64 locator precedes it", path);

    const uint8_t *locator = file->at + *end - LOCATOR;
    uint64_t at = zip_u64(locator + 8), capacity = *end - LOCATOR;
    if (zip_u32(locator + 4) != 0 || zip_u32(locator + 16) > 1)
        return fail(err, "%s: expected a ZIP archive in one file, found one that was split into several", path);
    if (capacity < END64 || at > capacity - END64 || !zip_is(file->at + at, "PK\6\6") ||
        zip_u64(file->at + at + 4) != capacity - at - 12)
        return fail(err,
                    "%s: expected its ZIP64 end record at byte %" PRIu64 ", up to byte %" PRIu64
                    ", as given by its locator",
                    path, at, capacity);

    const uint8_t *record = file->at + at;
    struct zip_directory large = { .entries = zip_u64(record + 32),
                                   .at = zip_u64(record + 48),
                                   .n = zip_u64(record + 40) };
    if (zip_u32(record + 16) != 0 || zip_u32(record + 20) != 0 || zip_u64(record + 24) != large.entries)
        return fail(err, "%s: expected a ZIP archive in one file, found one that was split into several", path);
    if ((to->entries != UINT16_MAX && to->entries != large.entries) || (to->n != ZIP_SATURATED && to->n != large.n) ||
        (to->at != ZIP_SATURATED && to->at != large.at))
        return fail(err, "%s: its ZIP end record and its ZIP64 end record disagree", path);
    *to = large;
    *end = (size_t)at;
    return true;
}

bool zip_find_directory(const char *path, const struct mapping *file, struct zip_directory *to, struct error *err)
{
    size_t end = file->n < END ? 0 : file->n - END;
    const uint8_t *record = file->at + end;
    if (file->n < END || !zip_is(record, "PK\5\6") || zip_u16(record + 20) != 0)
        return fail(
            err,
            "%s: expected a ZIP archive's end record in the last %d bytes: the file was cut short, or something was "
            "added to it",
            path, END);
    *to = (struct zip_directory){ .entries = zip_u16(record + 10),
                                  .at = zip_u32(record + 16),
                                  .n = zip_u32(record + 12) };
    if (zip_u16(record + 4) != 0 || zip_u16(record + 6) != 0 || zip_u16(record + 8) != to->entries)
        return fail(err, "%s: expected a ZIP archive in one file, found one that was split into several", path);
    if (!read_end64(path, file, &end, to, err))
        return false;
    if (to->at > end || to->n != end - to->at)
        return fail(
            err, "%s: expected the ZIP directory to end at byte %zu, found %" PRIu64 " bytes from byte %" PRIu64 " on",
            path, end, to->n, to->at);
    if (to->entries > MAX_ENTRIES)
        return fail(err, "%s: expected a ZIP archive of at most %d entries, found %" PRIu64, path, MAX_ENTRIES,
                    to->entries);
    if (to->entries > to->n / ENTRY)
        return fail(err, "%s: a ZIP directory of %" PRIu64 " bytes cannot have %" PRIu64 " entries", path, to->n,
                    to->entries);
    return true;
}
