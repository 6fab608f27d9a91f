// fuzz_safetensors.c - any bytes at all as a safetensors file; every byte that a tensor claims is read.
//
//     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. fuzz/fuzz_safetensors.c \
//         models/{files,safetensors}.c core/{error,json,memory}.c -ljansson
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);

static void use(const char *path)
{
    struct error err;
    struct safetensors *s = safetensors_open(path, &err);
    if (s == NULL)
        return;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct safetensor *t = safetensors_at(s, i);
        if (safetensors_find(s, t->name) != t)
            abort();
        for (size_t k = 0; k < t->bytes; k++)
            sum ^= ((const uint8_t *)t->data)[k];
    }
    safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        abort();
    if (write(fd, input, n) == (ssize_t)n) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        use(path);
    }
    close(fd);
    return 0;
}
