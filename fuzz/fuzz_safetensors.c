// fuzz_safetensors.c - any bytes at all as a safetensors file; every byte that a tensor claims is read.
//
//     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. fuzz/fuzz_safetensors.c \
//         models/{files,safetensors,tensor_list}.c core/{error,json,memory}.c -ljansson
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);

static void use(const struct mapping *file)
{
    struct error err = { "" };
    struct tensor_list list = { 0 };
    const bool ok = safetensors_read("file", file, 0, &list, &err);
    if (!ok && strncmp(err.text, "file:", 5) != 0)
        abort();
    tensor_list_sort(&list);
    volatile uint8_t sum = 0;
    for (size_t i = 0; ok && i < list.n; i++) {
        if (i > 0 && strcmp(list.at[i - 1].name, list.at[i].name) >= 0)
            abort();
        for (size_t k = 0; k < list.at[i].bytes; k++)
            sum ^= ((const uint8_t *)list.at[i].data)[k];
    }
    tensor_list_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    uint8_t *file = malloc(n != 0 ? n : 1);
    if (file == NULL)
        abort();
    memcpy(file, input, n);
    use(&(struct mapping){ .at = file, .n = n });
    free(file);
    return 0;
}
