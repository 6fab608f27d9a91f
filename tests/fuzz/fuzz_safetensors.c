// fuzz_safetensors.c - arbitrary bytes as a safetensors file, alone and with another one in a directory with an index;
// every byte of every tensor is read.
//
// Input: the index, then the file.
// reader: models/formats/safetensors.c models/formats/shards.c models/fused_experts.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/tensor.h"
#include "tests/fuzz/fuzz.h"
#include "models/formats/safetensors.h"
#include "models/architectures.h"
#include "models/fused_experts.h"
#include "models/weights.h"

static const struct fuzz_file files[] = { { "model.safetensors.index.json", FUZZ_JSON },
                                          { "one.safetensors", FUZZ_SAFETENSORS },
                                          { NULL, FUZZ_TEXT } };
static const char words[] =
    "weight_map  __metadata__  dtype  shape  data_offsets  one.safetensors  two.safetensors  three.safetensors  "
    "../one.safetensors  .  a  b  c  d  F64  F32  F16  BF16  I64  I32  U8  BOOL  F4  F6_E2M3  F8_E5M2  C64";

// Any tensor as the experts of a layer: their matrices lie one after the other in it.
static void use_as_experts(struct safetensor t)
{
    const struct architecture *a = architecture_of_model_type("mixtral");
    t.name = "model.layers.0.mlp.experts.gate_up_proj";
    const size_t parts = fused_experts_parts(a, &t);
    const uint8_t *at = t.data;
    for (size_t i = 0; i < parts; i++) {
        const struct safetensor part = fused_experts_part(a, &t, i);
        insist(part.data == at && part.dims == (parts > 1 ? 2 : t.dims));
        at += part.bytes;
        free((void *)(uintptr_t)part.name);
    }
    insist(at == (const uint8_t *)t.data + t.bytes);
}

static void use(const struct mapping *file)
{
    struct error err = { "" };
    struct tensor_list list = { 0 };
    const bool ok = safetensors_read("file", file, 0, &list, &err);
    insist(ok || strncmp(err.text, "file:", 5) == 0);
    tensor_list_sort(&list);
    volatile uint8_t sum = 0;
    for (size_t i = 0; ok && i < list.n; i++) {
        insist(i == 0 || strcmp(list.at[i - 1].name, list.at[i].name) < 0);
        for (size_t k = 0; k < list.at[i].bytes; k++)
            sum = sum ^ ((const uint8_t *)list.at[i].data)[k];
        use_as_experts(list.at[i]);
    }
    tensor_list_free(&list);
}

static char *own_name(const char *stored)
{
    return *stored == '-' ? NULL : strdup(stored);
}

static void use_directory(void)
{
    struct error err = { "" };
    struct weights *w = weights_open_files(fuzz_folder(), own_name, &err);
    int64_t whole[64];
    insist(w != NULL || *err.text != '\0');
    for (size_t i = 0; w != NULL && i < w->n; i++) {
        const char *name = w->weight[i].name;
        const int64_t rows = w->weight[i].tensor.rows, width = w->weight[i].tensor.width;
        struct tensor t;
        insist(weights_has(w, name));
        weights_get(w, name, rows, width, &t, &err);
        if (rows * width <= 64)
            weights_integers(w, name, rows * width, 0, 100, whole, &err);
    }
    weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct fuzz_slice part[2];
    fuzz_split(input, n, part, 2);
    uint8_t *file = malloc(part[1].n != 0 ? part[1].n : 1); // exact size, so that ASan sees overreads
    insist(file != NULL);
    if (part[1].n > 0)
        memcpy(file, part[1].at, part[1].n);
    use(&(struct mapping){ .at = file, .n = part[1].n });
    free(file);

    static const char two[] =
        "\x40\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}         "
        "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0";
    if (part[0].n > 0) {
        fuzz_write_files(input, n, files);
        fuzz_write("two.safetensors", two, sizeof(two));
        use_directory();
    }
    return 0;
}

FUZZ_MUTATOR(files, words)
