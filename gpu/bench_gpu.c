// bench_gpu.c - times kernels and passes on a device, with random weights: for `./run gpu bench`.
//
//     bench_gpu kernels|passes [DEVICES [quick]]      DEVICES: cuda,cublas; quick: small shapes, to try it on the CPU
//     bench_gpu steps ...                              bench_steps.c
//
// Prints a line of JSON for each measurement (described in gpu/bench). Weights are random numbers of the right type and
// shape; every matrix has its own memory, and kernels cycle through more of them than a cache holds. Times are medians of the
// device's own clock (backend.stamp). Passes are models/block.c's, as in every run; Qwen3's norms of q and k, which read
// nothing, are left out.
//
// Each device is an engine: "cublas" is this program with cuBLAS for products, for bf16 weights only. Kernels of the engines
// are interleaved, so that all see the same clocks; passes are measured one engine after the other, model by model. An engine
// that fails is dropped from then on, and the exit status is 1.
#include "gpu/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/devices.h"

static const struct model_size sizes[] = {
    { "llama-1b",
      { .layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64, .hidden = 8192, .vocab = 128256 } },
    { "llama-8b",
      { .layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .hidden = 14336, .vocab = 128256 } },
    { "qwen3-8b",
      { .layers = 36, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .hidden = 12288, .vocab = 151936 } },
};
static const struct model_size quick = {
    "quick", { .layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .head_dim = 64, .hidden = 256, .vocab = 512 }
};
const int bench_rows[N_ROWS + 1] = { 1, 4, 8, 16, 32, 64, PROMPT };

// ---- numbers

uint8_t *random_blocks(enum type type, size_t bytes)
{
    uint8_t *to = xmalloc(bytes + 8);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(to + i, &state, 8);
    }
    const size_t step = (size_t)type_facts[type].bytes;
    for (size_t i = 0; i + step <= bytes; i += step) // exponents below 1: of numbers, or of a block's scale
        to[i + 1] = (uint8_t)((to[i + 1] & 0x80) | (type == BF16 ? 0x3C : type_is_quantized(type) ? 0x20 : 0x30));
    return to;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double median_seconds(int64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof(*ns), by_size);
    return (double)ns[n / 2] * 1e-9;
}

// ---- engines

static bool failed(struct engine *e, const struct error *err)
{
    fprintf(stderr, "bench_gpu: %s failed and is not measured any more: %s\n", e->name, err->text);
    e->failed = true;
    return false;
}

bool engine_sync(struct engine *e)
{
    struct error err;
    return e->b->sync(e->b, &err) || failed(e, &err);
}

struct tensor matrix(struct engine *e, const struct stock *s, int64_t m, int64_t k)
{
    struct error err;
    const struct tensor w = tensor_of(s->blocks, s->type, m, k);
    if (tensor_bytes(w) > s->bytes)
        abort();
    const struct tensor prepared = e->b->prepare(e->b, w, e->b->rounds_to(e->b, ACTIVATIONS_BF16, s->type), &err);
    if (prepared.data == NULL)
        failed(e, &err);
    return prepared;
}

struct stock stock_of(enum type type, const struct model_shape *s)
{
    const int64_t max_rows = s->vocab > s->hidden ? s->vocab : s->hidden;
    const size_t bytes = (size_t)max_rows * type_row_bytes(type, s->width);
    return (struct stock){ type, random_blocks(type, bytes), bytes };
}

// Opens the devices in `names`, separated by commas. Returns their number; those that cannot be opened are marked as failed.
static int open_engines(struct engine to[MAX_ENGINES], struct devices *d, char *names)
{
    int n = 0;
    char *rest;
    for (char *name = strtok_r(names, ",", &rest); name != NULL && n < MAX_ENGINES;
         name = strtok_r(NULL, ",", &rest), n++) {
        struct error err;
        to[n] = (struct engine){ .name = name, .b = devices_get(d, name, &err) };
        if (to[n].b == NULL)
            failed(&to[n], &err);
        else
            to[n].name = strcmp(to[n].b->name, "cublas") == 0 ? "cublas" : "speclab";
    }
    return n;
}

// cuBLAS takes bf16 weights only.
static bool takes(const struct engine *e, enum type type)
{
    return !e->failed && (strcmp(e->name, "cublas") != 0 || type == BF16);
}

// ---- kernels

enum { MAX_COPIES = 64 };
struct matrices { // of one shape, on one engine
    struct engine *e;
    struct tensor w[MAX_COPIES], x, out;
    int copies;
    int64_t ns[TIMES];
};

static void create_matrices(struct matrices *a, struct engine *e, const struct stock *s, int64_t m, int64_t k)
{
    const size_t bytes = tensor_bytes(tensor_of(NULL, s->type, m, k));
    const int copies = (int)(((size_t)512 << 20) / bytes) + 1;
    *a = (struct matrices){ .e = e };
    for (; a->copies < copies && a->copies < MAX_COPIES && !e->failed; a->copies += !e->failed)
        a->w[a->copies] = matrix(e, s, m, k);
    a->x = rows_on(e->b, PROMPT, k);
    a->out = rows_on(e->b, PROMPT, m);
    uint8_t *numbers = random_blocks(F32, tensor_bytes(a->x));
    for (size_t i = 0; i < tensor_bytes(a->x); i += 4)
        numbers[i + 3] = (uint8_t)((numbers[i + 3] & 0x80) | 0x3E);
    e->b->upload(e->b, a->x.data, numbers, tensor_bytes(a->x));
    free(numbers);
}

static void free_matrices(struct matrices *a)
{
    struct backend *b = a->e->b;
    for (int i = 0; i < a->copies; i++)
        b->unprepare(b, a->w[i]);
    b->release(b, a->x.data);
    b->release(b, a->out.data);
}

static void time_once(struct matrices *a, int rows, int t)
{
    struct backend *b = a->e->b;
    if (a->e->failed)
        return;
    b->stamp(b, 0);
    for (int i = 0; i < a->copies; i++)
        multiply(b, tensor_rows(a->out, 0, rows), tensor_rows(a->x, 0, rows), a->w[i]);
    b->stamp(b, 1);
    if (engine_sync(a->e) && t >= 0)
        a->ns[t] = b->between(b, 0, 1) / a->copies;
}

static void kernel(struct engine *engine, int n, const struct stock *s, const char *model, const char *name, int64_t m,
                   int64_t k)
{
    static struct matrices all[MAX_ENGINES];
    int count = 0;
    for (int i = 0; i < n; i++)
        if (takes(&engine[i], s->type))
            create_matrices(&all[count++], &engine[i], s, m, k);
    for (int r = 0; r <= N_ROWS; r++) {
        for (int t = -2; t < TIMES; t++)
            for (int i = 0; i < count; i++)
                time_once(&all[i], bench_rows[r], t);
        for (int i = 0; i < count; i++)
            if (!all[i].e->failed)
                printf("{\"engine\": \"%s\", \"what\": \"%s %s %s\", \"rows\": %d, \"seconds\": %.9g, "
                       "\"bytes\": %zu}\n",
                       all[i].e->name, model, name, type_facts[s->type].name, bench_rows[r],
                       median_seconds(all[i].ns, TIMES), tensor_bytes(tensor_of(NULL, s->type, m, k)));
        fflush(stdout);
    }
    for (int i = 0; i < count; i++)
        free_matrices(&all[i]);
}

static void kernels(struct engine *engine, int n, const struct model_size *of, enum type type)
{
    const struct model_shape *s = &of->shape;
    const struct stock stock = stock_of(type, s);
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    kernel(engine, n, &stock, of->name, "q", heads, s->width);
    kernel(engine, n, &stock, of->name, "k", kv, s->width);
    kernel(engine, n, &stock, of->name, "gate", s->hidden, s->width);
    kernel(engine, n, &stock, of->name, "down", s->width, s->hidden);
    kernel(engine, n, &stock, of->name, "head", s->vocab, s->width);
    free(stock.blocks);
}

int main(int argc, char **argv)
{
    static const enum type types[] = { BF16, Q8_0, Q4_0 };
    const bool few = argc > 3 && strcmp(argv[3], "quick") == 0,
               of_kernels = argc > 1 && strcmp(argv[1], "kernels") == 0;
    if (argc > 1 && strcmp(argv[1], "steps") == 0)
        return bench_steps(argc - 2, argv + 2);
    if (argc < 2 || argc > 4 || (argc > 3 && !few) || (!of_kernels && strcmp(argv[1], "passes") != 0)) {
        fprintf(stderr,
                "bench_gpu: expected kernels|passes [DEVICES [quick]], with devices as in cuda,cublas, or steps\n");
        return 2;
    }
    struct engine engine[MAX_ENGINES];
    struct devices *d = devices_create(0, NULL);
    char *names = xstrdup(argc > 2 ? argv[2] : "cuda,cublas");
    const int n = open_engines(engine, d, names);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
        for (size_t i = 0; i < (few ? 1 : sizeof(sizes) / sizeof(sizes[0])); i++) {
            const struct model_size *of = few ? &quick : &sizes[i];
            if (of_kernels && (few || i == 1)) // one shape is sufficient for kernels
                kernels(engine, n, of, types[t]);
            for (int e = 0; e < n && !of_kernels; e++)
                if (takes(&engine[e], types[t]))
                    passes(&engine[e], of, types[t], few);
        }
    bool ok = n > 0;
    for (int e = 0; e < n; e++)
        ok = ok && !engine[e].failed;
    devices_destroy(d);
    free(names);
    return ok ? 0 : 1;
}
