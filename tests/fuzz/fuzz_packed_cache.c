// fuzz_packed_cache.c - arbitrary bytes as the packed-weight cache of a model.
//
// Input: a byte of flags that select which checksums and header fields are corrected first, so that mutations get past
// the first checks; then the file. With no flag set only the genuine file passes.
// reader: models/packed_cache.c
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"
#include "models/config.h"
#include "models/packed_cache.h"
#include "models/weights.h"

enum { LAYOUT = 7, MATRICES = 4 };
enum { MARKS = 1, LENGTH = 2, DATA = 4, LIST = 8, MISSING = 16 }; // flags

static struct model_config config;
static struct weights *weights;
static struct packed_matrix packed[MATRICES];
static uint8_t *genuine;
static size_t genuine_bytes;

// ---- the file format of models/packed_cache.c; checked against a genuine file at startup

struct header {
    char magic[8];
    uint32_t order, version, layout, entries;
    uint64_t hash[2], stamp[2], bytes, sum;
};

struct entry {
    uint64_t type;
    int64_t rows, width;
    uint64_t at, bytes, sum;
};

static void fix_sums(uint8_t *file, size_t n, int flags)
{
    struct header h;
    if (n < sizeof(h))
        return;
    memcpy(&h, file, sizeof(h));
    if (flags & MARKS)
        memcpy(&h, genuine, offsetof(struct header, bytes)),
            memcpy(&h.entries, file + offsetof(struct header, entries), 4);
    if (flags & LENGTH)
        h.bytes = n;
    const size_t fit = (n - sizeof(h)) / sizeof(struct entry), entries = h.entries < fit ? h.entries : fit;
    for (size_t i = 0; i < entries && (flags & DATA) != 0; i++) {
        struct entry e;
        memcpy(&e, file + sizeof(h) + i * sizeof(e), sizeof(e));
        if (e.at > n || e.bytes > n - e.at)
            continue;
        e.sum = hash_of(file + e.at, e.bytes).low;
        memcpy(file + sizeof(h) + i * sizeof(e), &e, sizeof(e));
    }
    if (flags & LIST) {
        struct digest *d = digest_begin();
        h.sum = 0;
        digest_bytes(d, &h, sizeof(h));
        digest_bytes(d, file + sizeof(h), entries * sizeof(struct entry));
        h.sum = digest_end(d).low;
    }
    memcpy(file, &h, sizeof(h));
}

// ---- the model, and its genuine cache file

static void find_matrices(void)
{
    struct error err;
    int n = 0;
    for (size_t i = 0; n < MATRICES && i < weights->n; i++) {
        const struct weight *w = &weights->weight[i];
        struct tensor t;
        if (w->tensor.rows > 1 &&
            weights_get(weights, w->name, w->tensor.rows, w->tensor.width, &t, &err)) // any bytes will do
            packed[n++] = (struct packed_matrix){ t, t.data, w->bytes < 300 ? w->bytes : 300 };
    }
    insist(n == MATRICES);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    struct error err = { "" };
    size_t n;
    char *from = fuzz_seed_path((*argv)[0], "tiny.gguf"), *path = fuzz_path("tiny.gguf"),
         *beside = fuzz_path("tiny.gguf.packed");
    uint8_t *model = fuzz_read(from, &n);
    fuzz_write("tiny.gguf", model, n);
    insist(utimensat(AT_FDCWD, path, FUZZ_MODEL_TIME, 0) == 0); // so that inputs of earlier processes stay valid
    insist(config_read(path, &config, &err));
    insist((weights = weights_open(&config, &err)) != NULL);
    find_matrices();
    struct packed_cache *k = packed_cache_open(&config, weights, LAYOUT);
    packed_cache_write(k, packed, MATRICES);
    packed_cache_close(k);
    genuine = fuzz_read(beside, &genuine_bytes);
    uint8_t *same = xmalloc(genuine_bytes);
    memcpy(same, genuine, genuine_bytes);
    fix_sums(same, genuine_bytes, MARKS | LENGTH | DATA | LIST);
    insist(memcmp(same, genuine, genuine_bytes) == 0); // otherwise the format has changed and this file must follow
    free(same);
    free(model);
    free(from);
    free(path);
    free(beside);
    return 0;
}

static void use(int flags)
{
    struct packed_cache *k = packed_cache_open(&config, weights, LAYOUT);
    char *sentence;
    int read = 0;
    for (; read < MATRICES; read++) {
        uint8_t *to = malloc(packed[read].bytes); // exact size, so that ASan sees overruns
        const bool ok = packed_cache_read(k, packed[read].w, to, packed[read].bytes);
        insist(!ok || (flags & (DATA | LIST)) != 0 || memcmp(to, packed[read].data, packed[read].bytes) == 0);
        free(to);
        if (!ok)
            break;
    }
    insist(packed_cache_is_usable(k) || !packed_cache_is_complete(k));
    sentence = packed_cache_message(k);
    insist(*sentence != '\0');
    free(sentence);
    if (!packed_cache_is_complete(k)) {
        packed_cache_write(k, packed, MATRICES);
        sentence = packed_cache_message(k);
        free(sentence);
        packed_cache_close(k);
        k = packed_cache_open(&config, weights, LAYOUT); // the rewritten one is complete
        for (int i = 0; i < MATRICES; i++) {
            uint8_t to[300];
            insist(packed_cache_read(k, packed[i].w, to, packed[i].bytes));
        }
        insist(packed_cache_is_complete(k));
    }
    packed_cache_close(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    const int flags = n > 0 ? input[0] : MISSING;
    uint8_t *file = xmalloc(n + 1);
    if (n > 1) {
        memcpy(file, input + 1, n - 1);
        fix_sums(file, n - 1, flags);
    }
    fuzz_write("tiny.gguf.packed", file, (flags & MISSING) != 0 || n <= 1 ? 0 : n - 1);
    use(flags);
    free(file);
    return 0;
}

// Mutates a number of the header or of the list, a byte of a tensor, the file's length, or the flags.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    const size_t list = 1 + sizeof(struct header), tensors = list + MATRICES * sizeof(struct entry);
    fuzz_seed(seed);
    const size_t what = fuzz_below(8);
    if (n < tensors || what == 0)
        return LLVMFuzzerMutate(data, n, max_size);
    if (what == 1)
        data[0] = (uint8_t)fuzz_below(32);
    else if (what == 2)
        return fuzz_below(2) == 0 ? fuzz_below(n) : n - fuzz_below(200);
    else if (what < 6)
        LLVMFuzzerMutate(data + 1 + fuzz_below((tensors - 1) / 8) * 8, 8, 8);
    else {
        struct entry e;
        memcpy(&e, data + list + fuzz_below(MATRICES) * sizeof(e), sizeof(e));
        const size_t at = 1 + (size_t)(e.at < n ? e.at : 0) + fuzz_below(300);
        if (at < n)
            data[at] ^= (uint8_t)(1 << fuzz_below(8));
    }
    return n;
}
