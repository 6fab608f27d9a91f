// weights_hash.c - identifies weights by a hash of all their bytes.
//
// Reading gigabytes takes seconds from memory and minutes from a disk, so the hash of a large checkpoint is cached in a
// file under ~/.cache/speclab/weights. The name of the file is a hash of everything that shows a change: device, inode,
// size, ctime and mtime of each file of the checkpoint; name, type, shape and a sample of the data of each tensor. A
// changed checkpoint is therefore looked up under another name. A file written shortly before its hash was computed may
// have changed again without new times: clock ticks are coarse, and writes to a dirty mapped page do not show until it
// reaches the disk. Such a hash is computed again. Without the directory the hash is computed every time.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "core/files/part.h"
#include "models/paths.h"
#include "models/weights.h"

enum {
    SMALL = 64 << 20, // bytes: smaller checkpoints are hashed without the cache
    STABLE = 60,      // seconds after the last change: dirty pages reach the disk within 30 + 5
};

// Also hashes in which file each tensor is: an index may switch between two files that both have it. location: include
// device, inode and ctime. Returns the time of the last change.
static int64_t add_files(struct digest *d, const struct weights *w, bool location)
{
    const char *before = NULL;
    int64_t last = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct stat st = { 0 };
        if (w->weight[i].file == before)
            continue;
        before = w->weight[i].file;
        if (stat(before, &st) != 0)
            st.st_size = -1;
        const int64_t fact[] = { (int64_t)i,         st.st_size,         st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                                 (int64_t)st.st_dev, (int64_t)st.st_ino, st.st_ctim.tv_sec, st.st_ctim.tv_nsec };
        for (int k = 0; k < (location ? 8 : 4); k++)
            digest_int(d, fact[k]);
        last = st.st_ctim.tv_sec > last ? st.st_ctim.tv_sec : last;
    }
    return last;
}

struct hash weights_stamp(const struct weights *w)
{
    struct digest *d = digest_begin();
    add_files(d, w, false);
    return digest_end(d);
}

// Adds both ends of a tensor and places between them.
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

// ---- the cache

static char *cache_path(const struct weights *w, int64_t *changed)
{
    struct digest *d = digest_begin();
    *changed = add_files(d, w, true);
    digest_hash(d, hash_tensors(w, add_sample));
    char *folder = weights_cache(), *path = xformat("%s/%s", folder, hash_text(digest_end(d)).s);
    free(folder);
    return path;
}

// The mtime of a cache file is the time at which its hash was begun.
static bool read_cached(const char *path, int64_t changed, struct hash *to)
{
    struct error ignored;
    struct stat st;
    size_t n;
    bool stable = stat(path, &st) == 0 && st.st_mtim.tv_sec - changed >= STABLE;
    char *text = stable ? file_text(path, &n, &ignored) : NULL;
    bool ok = text != NULL && hash_read(text, n, to);
    free(text);
    return ok;
}

static void write_cached(const char *path, struct timespec begun, struct hash h)
{
    const struct timespec times[2] = { begun, begun };
    struct error ignored;
    struct part *p = file_make_folders(path) ? part_begin_own(path, &ignored) : NULL;
    if (p == NULL)
        return;
    part_write(p, hash_text(h).s, HASH_TEXT - 1);
    if (part_end(p, &ignored) && utimensat(AT_FDCWD, path, times, 0) != 0)
        unlink(path);
}

static struct hash find_hash(const struct weights *w)
{
    if (weights_bytes(w) < SMALL)
        return hash_tensors(w, add_all);
    if (w->made)
        return hash_tensors(w, add_sample);
    struct hash h;
    struct timespec begun;
    clock_gettime(CLOCK_REALTIME, &begun);
    int64_t changed;
    char *path = cache_path(w, &changed);
    if (!read_cached(path, changed, &h)) {
        h = hash_tensors(w, add_all);
        write_cached(path, begun, h);
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
