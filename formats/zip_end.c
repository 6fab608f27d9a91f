// zip_end.c - the records at the end of a ZIP archive, which say where its directory is.
//
//     ... | directory | ZIP64 end record | its locator | end record
//
// The end record must be the file's last bytes, without a comment behind it, so that there is one place to look.
#include <inttypes.h>

#include "core/error.h"
#include "formats/file.h"
#include "formats/zip_parts.h"

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46 }; // bytes of each, at least
enum { MOST_ENTRIES = 1 << 20 };                         // a sparse file can claim any number

// The ZIP64 end record, if a locator in front of the end record (at `end`) points to it. `to` has what the end record
// says, in which a saturated field stands for a larger one.
static bool read_end64(const char *path, const struct mapping *file, size_t *end, struct zip_directory *to,
                       struct error *err)
{
    bool wanted = to->entries == UINT16_MAX || to->n == ZIP_WIDER || to->at == ZIP_WIDER;
    if (*end < LOCATOR || !zip_is(file->at + *end - LOCATOR, "PK\6\7"))
        return !wanted ||
               fail(err, "%s: its ZIP end record speaks of ZIP64, and no ZIP64 locator stands before it", path);

    const uint8_t *locator = file->at + *end - LOCATOR;
    uint64_t at = zip_u64(locator + 8), capacity = *end - LOCATOR;
    if (zip_u32(locator + 4) != 0 || zip_u32(locator + 16) > 1)
        return fail(err, "%s: expected a ZIP archive in one file, found one that was split into several", path);
    if (capacity < END64 || at > capacity - END64 || !zip_is(file->at + at, "PK\6\6") ||
        zip_u64(file->at + at + 4) != capacity - at - 12)
        return fail(
            err, "%s: expected its ZIP64 end record at byte %" PRIu64 ", up to byte %" PRIu64 ", as its locator says",
            path, at, capacity);

    const uint8_t *record = file->at + at;
    struct zip_directory large = { .entries = zip_u64(record + 32),
                                   .at = zip_u64(record + 48),
                                   .n = zip_u64(record + 40) };
    if (zip_u32(record + 16) != 0 || zip_u32(record + 20) != 0 || zip_u64(record + 24) != large.entries)
        return fail(err, "%s: expected a ZIP archive in one file, found one that was split into several", path);
    if ((to->entries != UINT16_MAX && to->entries != large.entries) || (to->n != ZIP_WIDER && to->n != large.n) ||
        (to->at != ZIP_WIDER && to->at != large.at))
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
    if (to->entries > MOST_ENTRIES)
        return fail(err, "%s: expected a ZIP archive of at most %d entries, found %" PRIu64, path, MOST_ENTRIES,
                    to->entries);
    if (to->entries > to->n / ENTRY)
        return fail(err, "%s: a ZIP directory of %" PRIu64 " bytes cannot have %" PRIu64 " entries", path, to->n,
                    to->entries);
    return true;
}
