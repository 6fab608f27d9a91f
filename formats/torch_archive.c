// torch_archive.c - detects the format of a file of torch.save, opens its archive and reads the pickle.
//
//     archive/data.pkl     the pickle
//     archive/data/0       the elements of storage "0"
//     archive/version      3
//     archive/byteorder    little; since PyTorch 2.1
//
// The folder's name is found as torch's reader does: the first entry's name up to its first '/'.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/pickle.h"
#include "formats/printable.h"
#include "formats/torch_parts.h"

enum { MAX_VERSION = 10 }; // the newest that torch's reader accepts

static bool starts_with(const struct mapping *file, size_t at, const void *with, size_t n)
{
    return file->n >= at + n && memcmp(file->at + at, with, n) == 0;
}

// Detects older and other formats, so that the message can give fitting advice.
static bool check_kind(const char *path, const struct mapping *file, struct error *err)
{
    static const char expected[] = "expected the ZIP archive that torch.save writes since PyTorch 1.6";
    static const uint8_t legacy[] = { 0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                      0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e };
    if (starts_with(file, 0, "PK\3\4", 4))
        return true;
    if (starts_with(file, 0, legacy, sizeof(legacy)))
        return fail(err, "%s: %s, found the format before it; %s", path, expected, TORCH_ADVICE);
    if (starts_with(file, 257, "ustar", 5))
        return fail(err, "%s: %s, found a tar archive, as its first versions wrote; %s", path, expected, TORCH_ADVICE);
    if (starts_with(file, 0, "\x80", 1))
        return fail(err, "%s: %s, found a bare pickle; %s", path, expected, TORCH_ADVICE);
    return fail(err, "%s: %s, found a file that begins with \"%s\"", path, expected,
                shown(file->at, file->n < 8 ? file->n : 8).s);
}

const struct zip_entry *torch_archive_find(const struct torch_archive *a, const char *name)
{
    char *full = xformat("%s/%s", a->folder, name);
    const struct zip_entry *e = zip_find(&a->zip, full);
    free(full);
    return e;
}

struct word { // the content of a small entry, without its newline
    const char *s;
    size_t n;
};

static bool read_word(const struct torch_archive *a, const struct zip_entry *e, struct word *to, struct error *err)
{
    enum { MAX_BYTES = 64 };
    if (e->n > MAX_BYTES)
        return fail(err, "%s: %s: expected a word, found %zu bytes", a->path, shown(e->name, e->name_n).s, e->n);
    *to = (struct word){ (const char *)e->at, e->n > 0 && e->at[e->n - 1] == '\n' ? e->n - 1 : e->n };
    return zip_check_crc(a->path, e, err);
}

static bool check_version(const struct torch_archive *a, struct error *err)
{
    const struct zip_entry *e = torch_archive_find(a, "version");
    struct word word = { 0 };
    if (e == NULL)
        e = torch_archive_find(a, ".data/version");
    if (e == NULL)
        return fail(err, "%s: expected an archive of torch.save, found no entry \"version\"", a->path);
    if (!read_word(a, e, &word, err))
        return false;
    int version = 0;
    for (size_t i = 0; i < word.n; i++) {
        bool digit = word.s[i] >= '0' && word.s[i] <= '9';
        version = digit && version <= MAX_VERSION ? version * 10 + word.s[i] - '0' : MAX_VERSION + 1;
    }
    if (version < 1 || version > MAX_VERSION)
        return fail(err, "%s: expected version 1 to %d of torch.save's format, found \"%s\"", a->path, MAX_VERSION,
                    shown(word.s, word.n).s);
    return true;
}

static bool check_order(const struct torch_archive *a, struct error *err)
{
    const struct zip_entry *e = torch_archive_find(a, "byteorder");
    struct word word = { 0 };
    if (e == NULL) // a file of PyTorch before 2.1; assumed to be little-endian
        return true;
    if (!read_word(a, e, &word, err))
        return false;
    if (word.n != 6 || memcmp(word.s, "little", 6) != 0)
        return fail(err, "%s: expected numbers in little-endian order, found byteorder \"%s\"; %s", a->path,
                    shown(word.s, word.n).s, TORCH_ADVICE);
    return true;
}

static bool find_folder(struct torch_archive *a, struct error *err)
{
    const struct zip_entry *first = &a->zip.first;
    const char *slash = memchr(first->name, '/', first->name_n);
    if (slash == NULL)
        return fail(err, "%s: expected an archive of torch.save, all of it in a folder, found %s outside", a->path,
                    shown(first->name, first->name_n).s);
    a->folder = xstrndup(first->name, (size_t)(slash - first->name));
    return true;
}

static bool read_pickle(struct torch_archive *a, struct error *err)
{
    const struct zip_entry *e = torch_archive_find(a, "data.pkl");
    if (e == NULL)
        return fail(err, "%s: expected an archive of torch.save, found no data.pkl in its folder %s", a->path,
                    shown(a->folder, strlen(a->folder)).s);
    if (torch_archive_find(a, "constants.pkl") != NULL)
        return fail(err, "%s: expected an archive of torch.save, found one of torch.jit.save, which is a program; %s",
                    a->path, TORCH_ADVICE);
    if (!check_version(a, err) || !check_order(a, err) || !zip_check_crc(a->path, e, err))
        return false;
    char *name = xformat("%s: %s", a->path, shown(e->name, e->name_n).s);
    a->pickle = pickle_read(name, e->at, e->n, err);
    free(name);
    return a->pickle != NULL;
}

bool torch_archive_open(const char *path, const struct mapping *file, struct torch_archive *to, struct error *err)
{
    *to = (struct torch_archive){ .path = path };
    if (check_kind(path, file, err) && zip_open(path, file, &to->zip, err) && find_folder(to, err) &&
        read_pickle(to, err))
        return true;
    torch_archive_close(to);
    return false;
}

void torch_archive_close(struct torch_archive *a)
{
    pickle_close(a->pickle);
    free(a->folder);
    zip_close(&a->zip);
}
