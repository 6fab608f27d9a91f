// weights_hash.c - which weights these are: a hash of every byte of them.
//
// Reading gigabytes takes seconds from memory and minutes from a disk, so the answer is remembered, in a file of its own under
// ~/.cache/speclab/weights. The file's name is a hash of all that says that nothing has changed: of each of the checkpoint's files
// device, number, size, time of change and of writing, of each tensor its name, type, shape and a sample of its data. So
// whatever changes is looked up under another name. What was written to shortly before its hash was taken may have changed since
// and its times not: the tick of a clock is coarse, and a page that is mapped and dirty is written to unseen until it has gone
// to the disk. Such a hash is taken again. Nothing depends on the folder: without it the hash is taken anew.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/file.h"
#include "models/paths.h"
#include "models/weights.h"
#include "models/weights_parts.h"

enum {
    SMALL = 64 << 20, // bytes that are read sooner than looked up
    SETTLED = 60,     // seconds: dirty pages are on the disk after 30, and 5
};

static void add_stat(struct digest *d, const char *file, bool where)
{
    struct stat st = { 0 };
    if (stat(file, &st) != 0)
        st.st_size = -1;
    digest_int(d, st.st_size);
    digest_int(d, st.st_mtim.tv_sec);
    digest_int(d, st.st_mtim.tv_nsec);
    if (!where)
        return;
    digest_int(d, (int64_t)st.st_dev);
    digest_int(d, (int64_t)st.st_ino);
    digest_int(d, st.st_ctim.tv_sec);
    digest_int(d, st.st_ctim.tv_nsec);
}

// Which tensor lies in which file, too: an index may name another of two files that have it.
static void add_files(struct digest *d, const struct weights *w, bool where)
{
    const char *before = NULL;
    for (size_t i = 0; i < w->n; i++) {
        if (w->weight[i].file != before) {
            digest_int(d, (int64_t)i);
            add_stat(d, w->weight[i].file, where);
        }
        before = w->weight[i].file;
    }
}

struct hash weights_stamp(const struct weights *w)
{
    struct digest *d = digest_begin();
    add_files(d, w, false);
    return digest_end(d);
}

// The ends of a tensor and places between them.
static void add_sample(struct digest *d, const uint8_t *at, size_t n)
{
    enum { END = 4096, PLACES = 64, PLACE = 256 };
    if (n <= 2 * END + PLACES * PLACE) {
        digest_bytes(d, at, n);
        return;
    }
    digest_bytes(d, at, END);
    for (size_t i = 0; i < PLACES; i++)
        digest_bytes(d, at + (n - PLACE) / PLACES * i, PLACE);
    digest_bytes(d, at + n - END, END);
}

static struct hash hash_tensors(const struct weights *w, void (*add)(struct digest *, const uint8_t *, size_t))
{
    struct digest *d = digest_begin();
    for (size_t i = 0; i < w->n; i++) {
        const struct weight *t = &w->weight[i];
        digest_text(d, t->name);
        digest_text(d, t->type_name);
        digest_int(d, t->tensor.rows);
        digest_int(d, t->tensor.width);
        digest_int(d, t->in_file != NULL ? (int64_t)t->bytes : -1);
        if (t->in_file != NULL)
            add(d, t->in_file, t->bytes);
    }
    return digest_end(d);
}

static void add_all(struct digest *d, const uint8_t *at, size_t n)
{
    digest_bytes(d, at, n);
}

// ---- what is remembered

static char *place_of(const struct weights *w)
{
    struct digest *d = digest_begin();
    char name[HASH_TEXT];
    add_files(d, w, true);
    digest_hash(d, hash_tensors(w, add_sample));
    hash_write(digest_end(d), name);
    char *folder = weights_cache(), *path = xformat("%s/%s", folder, name);
    free(folder);
    return path;
}

static int64_t last_change(const struct weights *w)
{
    int64_t last = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct stat st;
        if (i > 0 && w->weight[i].file == w->weight[i - 1].file)
            continue;
        if (stat(w->weight[i].file, &st) == 0 && st.st_ctim.tv_sec > last)
            last = st.st_ctim.tv_sec;
    }
    return last;
}

// The time of the file is when its hash began to be taken.
static bool recall(const char *path, int64_t changed, struct hash *to)
{
    struct error ignored;
    struct stat st;
    size_t n;
    bool resolved = stat(path, &st) == 0 && st.st_mtim.tv_sec - changed >= SETTLED;
    char *text = resolved ? file_text(path, &n, &ignored) : NULL;
    bool ok = text != NULL && hash_read(text, n, to);
    free(text);
    return ok;
}

static void remember(const char *path, struct timespec begun, struct hash h)
{
    const struct timespec times[2] = { begun, begun };
    struct error ignored;
    char text[HASH_TEXT];
    struct part *p = file_make_folders(path) ? part_begin(path, &ignored) : NULL;
    if (p == NULL)
        return;
    hash_write(h, text);
    part_write(p, text, HASH_TEXT - 1);
    if (part_end(p, &ignored) && utimensat(AT_FDCWD, path, times, 0) != 0)
        unlink(path);
}

static struct hash find_hash(const struct weights *w)
{
    if (weights_bytes(w) < SMALL)
        return hash_tensors(w, add_all);
    struct hash h;
    struct timespec begun;
    clock_gettime(CLOCK_REALTIME, &begun);
    char *path = place_of(w);
    if (!recall(path, last_change(w), &h)) {
        h = hash_tensors(w, add_all);
        remember(path, begun, h);
    }
    free(path);
    return h;
}

struct hash weights_hash(struct weights *w)
{
    if (!w->hashed)
        w->hash = find_hash(w);
    w->hashed = true;
    return w->hash;
}
