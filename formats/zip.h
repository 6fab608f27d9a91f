// zip.h - locates the entries of a mapped ZIP archive; only stored (uncompressed) entries, as torch.save writes them.
//
// The central directory at the archive's end is authoritative; zip_open checks all of it: every entry has a name that
// stays inside the archive's folder, is neither compressed nor encrypted, agrees with its local header, and does not
// overlap another. The end record must be the last bytes of the file, so that a truncated file is an error. Entry data,
// possibly gigabytes, is read by zip_check_crc only. ZIP64 is supported.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (6.3.10, sections 4.3 to 4.5).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct mapping;

struct zip_entry {
    const char *name; // (name_n) as in the directory, not NUL-terminated
    size_t name_n;
    const uint8_t *at; // (n) data in the mapping, borrowed
    size_t n;
    size_t begin, end; // file offsets of its local header and of the end of its data
    uint32_t crc;
};

struct zip {
    size_t n;
    struct zip_entry *entry; // (n) sorted by name; owned
    struct zip_entry first;  // the first in the directory's order; { 0 } if there are none
};

// The file must outlive the archive. On failure sets err and leaves *to empty.
bool zip_open(const char *path, const struct mapping *file, struct zip *to, struct error *err);
void zip_close(struct zip *z);
const struct zip_entry *zip_find(const struct zip *z, const char *name);
// Reads all of an entry's data and compares its CRC-32 with the directory's.
bool zip_check_crc(const char *path, const struct zip_entry *e, struct error *err);
uint32_t zip_crc(const uint8_t *at, size_t n);
