#include "models/packed_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "core/files/part.h"
#include "models/weights.h"

enum { VERSION = 3, PAGE = 4096, CHUNK = 1 << 18 };

struct head { // the head of the file, in this machine's byte order
    char magic[8];
    uint32_t order, version, layout, entries;
    struct hash hash, stamp; // hash of the weights; stamp of the checkpoint's files
    uint64_t bytes;          // size of the whole file
    uint64_t sum;            // checksum of the head, with 0 here, and of the entries, which follow it
};

struct entry {
    uint64_t type;
    int64_t rows, width;
    uint64_t at, bytes, sum;
};

struct packed_cache {
    char *path;
    char *reason; // why the file is not used, or could not be written; NULL: none
    int fd;       // -1: there is no file that fits
    bool existed, written;
    struct head head; // the expected one
    size_t n, next;
    struct entry *entry; // (n)
};

// Returns half of XXH3-128: damage passes unnoticed once in 2^64.
static uint64_t head_sum(struct head h, const struct entry *e)
{
    struct digest *d = digest_begin();
    h.sum = 0;
    digest_bytes(d, &h, sizeof(h));
    digest_bytes(d, e, h.entries * sizeof(*e));
    return digest_end(d).low;
}

static size_t page_up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

// ---- reading

static bool read_at(int fd, void *to, size_t n, uint64_t at)
{
    for (uint8_t *b = to; n > 0;) {
        ssize_t some = pread(fd, b, n, (off_t)at);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return false;
        b += some;
        n -= (size_t)some;
        at += (size_t)some;
    }
    return true;
}

static bool refuse(struct packed_cache *k, const char *why)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
    if (k->reason == NULL)
        k->reason = xstrdup(why);
    return false;
}

static bool read_head(struct packed_cache *k)
{
    const struct head *expected = &k->head;
    struct head h;
    struct stat st;
    if (fstat(k->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(k, "it is not a file");
    if (!read_at(k->fd, &h, sizeof(h), 0) || memcmp(h.magic, expected->magic, sizeof(h.magic)) != 0)
        return refuse(k, "it is not a file of packed weights");
    if (h.order != expected->order || h.version != expected->version || h.layout != expected->layout)
        return refuse(k, "it was made by another version of speclab");
    if (!hash_equal(h.hash, expected->hash) || !hash_equal(h.stamp, expected->stamp))
        return refuse(k, "the model's files have changed since");
    if (h.bytes != (uint64_t)st.st_size || h.entries > (h.bytes - sizeof(h)) / sizeof(struct entry))
        return refuse(k, "it is damaged: its size is not the one in its head");
    k->n = h.entries;
    k->entry = xcalloc(k->n, sizeof(*k->entry));
    if (!read_at(k->fd, k->entry, k->n * sizeof(*k->entry), sizeof(h)) || h.sum != head_sum(h, k->entry))
        return refuse(k, "it is damaged: the checksum of its list of tensors does not match");
    return true;
}

struct packed_cache *packed_cache_open(const struct model_config *c, struct weights *w, int layout)
{
    struct packed_cache *k = xcalloc(1, sizeof(*k));
    k->path = xformat(c->gguf ? "%s.packed" : "%s/model.packed", c->path);
    memcpy(k->head.magic, "speclabP", 8);
    k->head.order = 0x01020304;
    k->head.version = VERSION;
    k->head.layout = (uint32_t)layout;
    k->head.hash = weights_hash(w);
    k->head.stamp = weights_stamp(w);
    k->fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    k->existed = k->fd >= 0 || errno != ENOENT;
    if (k->fd < 0 && errno != ENOENT)
        k->reason = xstrdup(strerror(errno));
    if (k->fd >= 0)
        read_head(k);
    return k;
}

void packed_cache_close(struct packed_cache *k)
{
    if (k == NULL)
        return;
    if (k->fd >= 0)
        close(k->fd);
    free(k->path);
    free(k->reason);
    free(k->entry);
    free(k);
}

bool packed_cache_is_usable(const struct packed_cache *k)
{
    return k->fd >= 0;
}

bool packed_cache_is_complete(const struct packed_cache *k)
{
    return k->fd >= 0 && k->next == k->n;
}

// The checksum is computed chunk by chunk, while the chunk is in the CPU cache.
bool packed_cache_read(struct packed_cache *k, struct tensor w, void *to, size_t bytes)
{
    if (k->fd < 0)
        return false;
    const struct entry *e = &k->entry[k->next];
    if (k->next++ == k->n || e->type != (uint64_t)w.type || e->rows != w.rows || e->width != w.width ||
        e->bytes != bytes)
        return refuse(k, "it holds other tensors");
    struct digest *d = digest_begin();
    bool ok = true;
    for (size_t done = 0, some; ok && done < e->bytes; done += some) {
        some = e->bytes - done < CHUNK ? e->bytes - done : CHUNK;
        ok = read_at(k->fd, (uint8_t *)to + done, some, e->at + done);
        if (ok)
            digest_bytes(d, (uint8_t *)to + done, some);
    }
    const uint64_t sum = digest_end(d).low;
    if (!ok)
        return refuse(k, "it is damaged: it cannot be read to the end");
    return sum == e->sum || refuse(k, "it is damaged: the checksum of a tensor does not match");
}

// ---- writing

static bool write_all(const struct packed_cache *k, const struct packed_matrix *p, size_t n, struct error *err)
{
    struct head h = k->head;
    struct entry *e = xcalloc(n, sizeof(*e));
    uint64_t at = page_up(sizeof(h) + n * sizeof(*e));
    for (size_t i = 0; i < n; i++) {
        e[i] = (struct entry){ (uint64_t)p[i].w.type, p[i].w.rows, p[i].w.width, at, p[i].bytes, 0 };
        e[i].sum = hash_of(p[i].data, p[i].bytes).low;
        at += page_up(p[i].bytes);
    }
    h.entries = (uint32_t)n;
    h.bytes = at;
    h.sum = head_sum(h, e);
    struct part *part = part_begin_own(k->path, err);
    if (part != NULL) {
        part_write(part, &h, sizeof(h));
        part_write(part, e, n * sizeof(*e));
        for (size_t i = 0; i < n; i++) {
            part_pad(part, PAGE);
            part_write(part, p[i].data, p[i].bytes);
        }
        part_pad(part, PAGE);
    }
    free(e);
    return part != NULL && part_end(part, err);
}

void packed_cache_write(struct packed_cache *k, const struct packed_matrix *p, size_t n)
{
    struct error err;
    k->written = write_all(k, p, n, &err);
    if (!k->written) {
        free(k->reason);
        k->reason = xstrdup(err.text);
    }
}

char *packed_cache_message(const struct packed_cache *k)
{
    if (k->fd >= 0)
        return xformat("packed weights read from %s", k->path);
    if (!k->written)
        return xformat("packed weights not cached: %s", k->reason != NULL ? k->reason : "nothing was written");
    if (k->existed)
        return xformat("packed weights written anew to %s; the previous file was not used: %s", k->path, k->reason);
    return xformat("packed weights written to %s", k->path);
}
