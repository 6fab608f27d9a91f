// zip.h - where the entries of a mapped ZIP archive lie: stored ones alone, as torch.save writes them.
//
// The directory at the archive's end is the authority, and is checked whole before an entry is handed out: every entry
// has a name that stays inside, is neither compressed nor encrypted, says the same in its own header, and lies in the
// file clear of the others. The end record must be the file's last bytes, so that a file cut anywhere is refused. What
// entries hold is not read (it can be gigabytes), except by zip_sound. ZIP64 is understood.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (6.3.10, sections 4.3 to 4.5).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct mapping;

struct zip_entry {
    const char *name; // (name_n) as in the directory, without a NUL at its end
    size_t name_n;
    const uint8_t *at; // (n) mapped, borrowed
    size_t n;
    size_t begin, end; // where in the file its own header begins, and its data end
    uint32_t crc;
};

struct zip {
    size_t n;
    struct zip_entry *entry; // (n) sorted by name; owned
    struct zip_entry first;  // the directory's first; { 0 }: there are none
};

// The file must outlive the archive. false: the archive is empty, and err says what was expected and what was found.
bool zip_open(const char *path, const struct mapping *file, struct zip *to, struct error *err);
void zip_close(struct zip *z);
const struct zip_entry *zip_find(const struct zip *z, const char *name);
// Reads all of an entry and compares its CRC-32 with the directory's.
bool zip_sound(const char *path, const struct zip_entry *e, struct error *err);
uint32_t zip_crc(const uint8_t *at, size_t n);
