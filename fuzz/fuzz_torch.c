// fuzz_torch.c - any bytes at all as a file of torch.save; bytes that tensors claim are read. Sums are put right
// first, where they can be found, so that what was changed in a pickle gets as far as the pickle's reader.
//
// seeds: tests/cases/torch
// reader: models/pickle.c models/pickle_opcodes.c models/torch_archive.c models/torch_state.c models/zip.c models/zip_end.c
// reader: models/shown.c models/tensor_list.c
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "fuzz/fuzz.h"
#include "models/torch.h"
#include "models/zip.h"

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
        for (size_t k = 0; k < t->bytes && k < 4096; k++) // of a storage that many may share
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

// Gives every small entry that the directory has in a place that makes sense the CRC-32 of what stands there.
static void put_sums_right(uint8_t *file, size_t n)
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
        sums++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    uint8_t *file = malloc(n != 0 ? n : 1);
    insist(file != NULL);
    memcpy(file, input, n);
    put_sums_right(file, n);
    use(&(struct mapping){ file, n });
    free(file);
    return 0;
}
