// bench_gpu.c - times kernels and passes on a device, with random weights: for `./run gpu bench`.
//
//     bench_gpu kernels|passes [KEY=LIST...] [quick]          quick: a small shape, to try it on the CPU
//         devices=cuda,cublas   models=llama-1b,llama-8b,qwen3-8b,smollm2-135m   types=bf16,q8_0,q4_0,..
//         rows=1,16,64   contexts=1024 (of passes)
//     bench_gpu once matmul|attend [devices=cuda]             bench_kernels.c: a few launches, for a profiler
//     bench_gpu steps ...                                     bench_steps.c
//
// Prints a line of JSON for each measurement (described in gpu/bench). Weights are random numbers of the right type and
// shape; every matrix has its own memory. Times are medians of the device's own clock (backend.stamp), of work that is queued
// while the device is busy with the same work, untimed. Passes are models/block.c's, as in every run; Qwen3's norms of q and k,
// which read nothing, are left out.
//
// Each device is an engine: "cublas" is this program with cuBLAS for products, for weights in floats only. Kernels of the
// engines are interleaved, so that all see the same clocks; passes are measured one engine after the other, model by model. An
// engine that fails is dropped from then on. One that gives up CUDA graphs says so, and what would have been a graph is named "one
// by one". In both cases the exit status is 1.
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
    { "smollm2-135m",
      { .layers = 30, .width = 576, .heads = 9, .kv_heads = 3, .head_dim = 64, .hidden = 1536, .vocab = 49152 } },
    { "quick", { .layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .head_dim = 64, .hidden = 256, .vocab = 512 } },
};

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
    const bool two = type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K; // scales
    for (size_t i = 0; i + step <= bytes && type == MXFP4; i += step)
        to[i] = 0x78;
    for (size_t i = 0; i + step <= bytes && type != MXFP4; i += step) // exponents below 1: of numbers, or scales
        for (size_t at = i + (type == Q6_K  ? step - 1
                              : type == F32 ? 3
                                            : 1);
             at <= i + (two ? 3 : step); at += two ? 2 : step)
            to[at] = (uint8_t)((to[at] & 0x80) | (type == BF16 || type == F32 ? 0x3C
                                                  : type_is_quantized(type)   ? 0x20
                                                                              : 0x30));
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

// For backend.log.
static void note(void *self, const char *sentence)
{
    struct engine *e = self;
    fprintf(stderr, "bench_gpu: %s: ERROR: %s\n", e->name, sentence);
    e->graphs = false;
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
        if (to[n].b != NULL) {
            to[n].b->log = note;
            to[n].b->log_self = &to[n];
            to[n].graphs = to[n].b->graph_launch != NULL;
        }
    }
    return n;
}

bool takes(const struct engine *e, enum type type)
{
    return !e->failed && (strcmp(e->name, "cublas") != 0 || type == BF16);
}

const char *manner(const struct engine *e, bool graph)
{
    return (graph && e->graphs) || e->b->graph_launch == NULL ? "" : " one by one";
}

// ---- what to measure

static bool in_list(const char *name, const char *list)
{
    const size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

// Integers from 1 to max, separated by commas. Returns their number; 0: the text is something else.
static int read_list(const char *text, int max, int to[MAX_LIST])
{
    for (int n = 0; n < MAX_LIST; text++) {
        char *end;
        const long v = strtol(text, &end, 10);
        if (end == text || v < 1 || v > max || (*end != '\0' && *end != ','))
            return 0;
        to[n++] = (int)v;
        text = end;
        if (*end == '\0')
            return n;
    }
    return 0;
}

static bool read_word(const char *word, struct plan *p)
{
    const char *value = strchr(word, '=');
    if (value == NULL)
        return p->quick = strcmp(word, "quick") == 0;
    const size_t n = (size_t)(value++ - word);
    if (n == 7 && strncmp(word, "devices", n) == 0)
        p->devices = value;
    else if (n == 6 && strncmp(word, "models", n) == 0)
        p->models = value;
    else if (n == 5 && strncmp(word, "types", n) == 0)
        p->types = value;
    else if (n == 4 && strncmp(word, "rows", n) == 0)
        return (p->n_rows = read_list(value, PROMPT, p->rows)) > 0;
    else if (n == 8 && strncmp(word, "contexts", n) == 0)
        return (p->n_contexts = read_list(value, 1 << 20, p->contexts)) > 0;
    else
        return false;
    return true;
}

static void measure(struct engine *engine, int n, const struct plan *p, bool of_kernels)
{
    for (int t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const struct model_size *of = &sizes[i];
            if (!in_list(type_facts[t].name, p->types) || !in_list(of->name, p->quick ? "quick" : p->models))
                continue;
            if (of_kernels)
                kernels(engine, n, of, (enum type)t, p);
            for (int e = 0; e < n && !of_kernels; e++)
                if (takes(&engine[e], (enum type)t))
                    passes(&engine[e], of, (enum type)t, p);
        }
}

int main(int argc, char **argv)
{
    struct plan plan = { .devices = "cuda,cublas",
                         .models = "llama-1b,llama-8b,qwen3-8b",
                         .types = "bf16,q8_0,q4_0",
                         .n_rows = 6,
                         .rows = { 1, 4, 8, 16, 32, 64 },
                         .n_contexts = 3,
                         .contexts = { 1024, 8192, 32768 } };
    const char *what = argc > 1 ? argv[1] : "";
    bool ok = argc > 1;
    if (strcmp(what, "steps") == 0)
        return bench_steps(argc - 2, argv + 2);
    const bool of_kernels = strcmp(what, "kernels") == 0, once = strcmp(what, "once") == 0;
    if (of_kernels) { // one shape is sufficient
        plan.models = "llama-8b";
        plan.rows[plan.n_rows++] = PROMPT;
    }
    if (once)
        plan.devices = "cuda";
    for (int i = once ? 3 : 2; i < argc && ok; i++)
        ok = read_word(argv[i], &plan);
    for (int i = 0; i < plan.n_rows; i++)
        ok = ok && (of_kernels || plan.rows[i] <= MAX_PASS_ROWS);
    if (!ok || (once && argc < 3) || (!of_kernels && !once && strcmp(what, "passes") != 0)) {
        fprintf(
            stderr,
            "bench_gpu: expected kernels|passes [KEY=LIST...] [quick], once matmul|attend [devices=NAME], or steps; "
            "keys: devices, models, types, rows, contexts\n");
        return 2;
    }
    struct engine engine[MAX_ENGINES] = { 0 };
    struct devices *d = devices_create(0);
    char *names = xstrdup(plan.devices);
    const int n = open_engines(engine, d, names);
    if (once)
        ok = n > 0 && !engine[0].failed && run_once(&engine[0], argv[2]);
    else
        measure(engine, n, &plan, of_kernels);
    for (int e = 0; e < n; e++)
        ok = ok && !engine[e].failed && engine[e].graphs == (engine[e].b->graph_launch != NULL);
    devices_destroy(d);
    free(names);
    return ok ? 0 : 1;
}
