// fuzz_torch.c - arbitrary bytes as a file of torch.save; the tensors' bytes are read. Checksums are corrected first where
// they can be found, so that mutations of a pickle reach the pickle reader.
//
// seeds: tests/cases/torch
// reader: formats/pickle.c formats/pickle_opcodes.c formats/torch_archive.c formats/torch_state.c formats/zip.c formats/zip_end.c
// reader: formats/printable.c formats/tensor_list.c
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "fuzz/fuzz.h"
#include "formats/torch.h"
#include "formats/zip.h"

static void use(const struct mapping *file)
{
    struct error err = { "" };
    struct tensor_list tensors = { 0 };
    bool ok = torch_read("file", file, 0, &tensors, &err);
    insist(ok || strncmp(err.text, "file: ", 6) == 0);
    volatile uint8_t sum = 0;
    for (size_t i = 0; ok && i < tensors.n; i++) {
        const struct safetensor *t = &tensors.at[i];
        insist(i == 0 || strcmp(t[-1].name, t->name) < 0);
        for (size_t k = 0; k < t->bytes && k < 4096; k++) // bounded: many tensors may share a storage
            sum = sum ^ ((const uint8_t *)t->data)[k] ^ ((const uint8_t *)t->data)[t->bytes - 1 - k];
    }
    tensor_list_free(&tensors);
}

static uint32_t number(const uint8_t *at, size_t n)
{
    uint32_t v = 0;
    memcpy(&v, at, n);
    return v;
}

// Sets the CRC-32 of every small entry of the directory whose offset is valid to that of its data.
static void fix_sums(uint8_t *file, size_t n)
{
    for (size_t at = 0, sums = 0; at + 46 <= n && sums < 32; at++) {
        size_t begin = number(file + at + 42, 4), size = number(file + at + 20, 4);
        if (memcmp(file + at, "PK\1\2", 4) != 0 || begin > n || n - begin < 30)
            continue;
        size_t data = begin + 30 + number(file + begin + 26, 2) + number(file + begin + 28, 2);
        if (data > n || size > n - data)
            continue;
        uint32_t crc = zip_crc(file + data, size);
        memcpy(file + at + 16, &crc, sizeof(crc));
        memcpy(file + begin + 14, &crc, sizeof(crc));
        sums++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    uint8_t *file = malloc(n != 0 ? n : 1);
    insist(file != NULL);
    memcpy(file, input, n);
    fix_sums(file, n);
    use(&(struct mapping){ file, n });
    free(file);
    return 0;
}

// ---- mutations: an entry of the archive, mostly the pickle, is changed and the archive is serialized again

#define SNIPPET(literal) \
    { \
        literal, sizeof(literal) - 1 \
    }
static const struct snippet {
    const char *at;
    size_t n;
} snippets[] = { SNIPPET("("),
                 SNIPPET(")"),
                 SNIPPET("]"),
                 SNIPPET("}"),
                 SNIPPET("t"),
                 SNIPPET("R"),
                 SNIPPET("u"),
                 SNIPPET("e"),
                 SNIPPET("a"),
                 SNIPPET("s"),
                 SNIPPET("b"),
                 SNIPPET("Q"),
                 SNIPPET("0"),
                 SNIPPET("1"),
                 SNIPPET("2"),
                 SNIPPET("."),
                 SNIPPET("N"),
                 SNIPPET("\x88"),
                 SNIPPET("\x85"),
                 SNIPPET("\x86"),
                 SNIPPET("\x87"),
                 SNIPPET("\x93"),
                 SNIPPET("\x94"),
                 SNIPPET("K\x01"),
                 SNIPPET("K\xff"),
                 SNIPPET("M\x01\x01"),
                 SNIPPET("J\xff\xff\xff\xff"),
                 SNIPPET("J\xff\xff\xff\x7f"),
                 SNIPPET("\x8a\x01\x05"),
                 SNIPPET("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
                 SNIPPET("X\x01\0\0\0a"),
                 SNIPPET("X\x01\0\0\0000"),
                 SNIPPET("h\x00"),
                 SNIPPET("h\x05"),
                 SNIPPET("q\x00"),
                 SNIPPET("j\xff\0\0\0"),
                 SNIPPET("r\0\0\0\0"),
                 SNIPPET("ctorch\nFloatStorage\n"),
                 SNIPPET("ctorch\nHalfStorage\n"),
                 SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n"),
                 SNIPPET("ctorch._utils\n_rebuild_parameter\n"),
                 SNIPPET("ccollections\nOrderedDict\n"),
                 SNIPPET("cposix\nsystem\n") };

static void change_pickle(const uint8_t *at, size_t n, struct text *to)
{
    const size_t where = n > 0 ? fuzz_below(n) : 0, what = fuzz_below(6);
    const struct snippet *new = &snippets[fuzz_below(sizeof(snippets) / sizeof(*snippets))];
    if (what == 0 || n == 0) {
        uint8_t *capacity = xmalloc(n + 32);
        if (n > 0)
            memcpy(capacity, at, n);
        const size_t length = LLVMFuzzerMutate(capacity, n, n + 32);
        text_add(to, (const char *)capacity, length);
        free(capacity);
        return;
    }
    size_t n_removed = what == 1 ? 0 : what == 2 ? new->n : 1 + fuzz_below(8); // insert, overwrite, remove, duplicate
    n_removed = n_removed < n - where ? n_removed : n - where;
    text_add(to, (const char *)at, where);
    if (what < 3)
        text_add(to, new->at, new->n);
    if (what == 4)
        text_add(to, (const char *)at + where, n_removed);
    if (what == 5) { // a copy of another part
        const size_t from = fuzz_below(n), length = 1 + fuzz_below(n - from < 40 ? n - from : 40);
        text_add(to, (const char *)at + from, length);
    }
    text_add(to, (const char *)at + where + (what == 4 ? 0 : n_removed), n - where - (what == 4 ? 0 : n_removed));
}

static void put(struct text *t, size_t at, uint32_t v, size_t bytes)
{
    memcpy(t->s + at, &v, bytes);
}

enum { ENTRIES = 64 };
struct entry {
    const uint8_t *central;
    size_t central_n, begin, data, n;
};

// Returns the number of entries; 0 if it is not an archive or needs ZIP64.
static size_t find_entries(const uint8_t *file, size_t n, struct entry *e)
{
    size_t found = 0;
    for (size_t at = 0; at + 46 <= n && found < ENTRIES; at++) {
        struct entry *to = &e[found];
        if (memcmp(file + at, "PK\1\2", 4) != 0)
            continue;
        to->central = file + at;
        to->central_n = 46 + number(file + at + 28, 2) + number(file + at + 30, 2) + number(file + at + 32, 2);
        to->begin = number(file + at + 42, 4);
        to->n = number(file + at + 20, 4);
        if (to->central_n > n - at || to->begin > n || n - to->begin < 30)
            return 0;
        to->data = to->begin + 30 + number(file + to->begin + 26, 2) + number(file + to->begin + 28, 2);
        if (to->data > n || to->n > n - to->data)
            return 0;
        found++;
    }
    return found;
}

static bool change_archive(const uint8_t *file, size_t n, struct text *to)
{
    struct entry e[ENTRIES];
    size_t begin[ENTRIES], bytes[ENTRIES];
    const size_t entries = find_entries(file, n, e);
    if (entries == 0)
        return false;
    size_t which = fuzz_below(entries);
    for (size_t i = 0; i < entries && fuzz_below(4) > 0; i++) {
        const size_t name = number(e[i].central + 28, 2);
        if (name >= 8 && memcmp(e[i].central + 46 + name - 8, "data.pkl", 8) == 0)
            which = i;
    }
    for (size_t i = 0; i < entries; i++) {
        begin[i] = to->n;
        text_add(to, (const char *)file + e[i].begin, e[i].data - e[i].begin);
        const size_t data = to->n;
        if (i == which)
            change_pickle(file + e[i].data, e[i].n, to);
        else if (e[i].n > 0)
            text_add(to, (const char *)file + e[i].data, e[i].n);
        bytes[i] = to->n - data;
        if (i == which && fuzz_below(16) == 0) // in both headers
            bytes[i] += fuzz_below(2) == 0 ? fuzz_below(5000) : UINT32_MAX - fuzz_below(5000);
        put(to, begin[i] + 18, (uint32_t)bytes[i], 4);
        put(to, begin[i] + 22, (uint32_t)bytes[i], 4);
    }
    const size_t directory = to->n;
    for (size_t i = 0; i < entries; i++) {
        const size_t at = to->n;
        text_add(to, (const char *)e[i].central, e[i].central_n);
        put(to, at + 20, (uint32_t)bytes[i], 4);
        put(to, at + 24, (uint32_t)bytes[i], 4);
        put(to, at + 42, (uint32_t)begin[i], 4);
    }
    const size_t end = to->n;
    text_add(to, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    put(to, end + 8, (uint32_t)entries, 2);
    put(to, end + 10, (uint32_t)entries, 2);
    put(to, end + 12, (uint32_t)(end - directory), 4);
    put(to, end + 16, (uint32_t)directory, 4);
    return true;
}

// Checksums are corrected when the input is run: an entry's local header may defer them.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    struct text to = { 0 };
    fuzz_seed(seed);
    if (fuzz_below(5) == 0)
        return LLVMFuzzerMutate(data, n, max_size);
    if (!change_archive(data, n, &to)) {
        to.n = 0;
        change_pickle(data, n, &to); // the legacy format: concatenated pickles
    }
    const size_t length = to.n < max_size ? to.n : max_size;
    if (length > 0)
        memcpy(data, to.s, length);
    free(to.s);
    return length;
}
