// fuzz_gguf.c - any bytes at all as a GGUF model: configuration, weights, hash.
//
//     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. fuzz/fuzz_gguf.c \
//         models/{files,gguf,gguf_cursor,gguf_value,safetensors,config,config_gguf,config_hf,weights}.c \
//         core/{error,json,memory,tensor}.c -ljansson -lm
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/tensor.h"
#include "models/config.h"
#include "models/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);

static void use(const char *path)
{
    struct error err;
    struct model_config c;
    if (!config_read(path, &c, &err))
        return;
    float *frequency = calloc((size_t)c.head_dim, sizeof(*frequency));
    if (c.rope_scaling != ROPE_TABLE)
        config_rope(&c, NULL, frequency);
    free(frequency);
    struct weights *w = weights_open(&c, &err);
    const char *name, *type;
    int64_t rows, width;
    size_t bytes;
    for (size_t i = 0; w != NULL && weights_list(w, i, &name, &type, &rows, &width, &bytes); i++) {
        struct tensor t;
        weights_get(w, name, rows, width, &t, &err);
    }
    if (w != NULL)
        weights_hash(w);
    weights_close(w);
    config_free(&c);
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
