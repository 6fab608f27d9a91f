// bench_gpu.c - times the products of a layer and of the head on a device, one shape at a time: for `./run gpu first` and `bench`.
// Whole passes are measured by `speclab bench shape:llama-8b,type=bf16 --device cuda`.
//
//     bench_gpu [DEVICES [TYPES [ROWS [PRODUCTS [MODEL]]]]]     as in: bench_gpu cuda,cublas bf16,q4_0 1,16,64 q,k,gate,down,head llama-8b
//
// Prints a line of JSON for each measurement: engine ("speclab", or "cublas": this program with cuBLAS for products, of bf16 weights
// only), what ("llama-8b gate bf16"), rows, seconds, bytes (of the weight, which must be read). The model `quick` is a small one, to try it on
// the CPU.
//
// Weights are random numbers of the right type and shape. The input of a product is what a norm has made, in the form that products
// read, as in a model. A norm and some products by different matrices, more than a cache holds, are one CUDA graph; a product's time
// is that of the graph over their number. So the time from one kernel to the next counts, as in a pass, and the host's does not. cuBLAS
// converts its input once per graph. Times are medians of the device's own clock (backend.stamp), of work that is queued while the
// device is busy with the same work, untimed. Engines are interleaved, so that all see the same clocks.
//
// An engine that fails is dropped from then on. One that gives up CUDA graphs says so, and is named "one by one" from then on. In both
// cases the exit status is 1.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/devices.h"

enum { MAX_ENGINES = 4, MAX_COPIES = 64, MIN_PRODUCTS = 16, TIMES = 15, MAX_ROWS = 512, MAX_LIST = 16 };
enum { CACHE_BYTES = 512 << 20 };

struct product_shape {
    const char *model, *name;
    int64_t m, k;
};

static const struct product_shape shapes[] = {
    { "llama-1b", "q", 2048, 2048 },      { "llama-1b", "k", 512, 2048 },       { "llama-1b", "gate", 8192, 2048 },
    { "llama-1b", "down", 2048, 8192 },   { "llama-1b", "head", 128256, 2048 }, { "llama-8b", "q", 4096, 4096 },
    { "llama-8b", "k", 1024, 4096 },      { "llama-8b", "gate", 14336, 4096 },  { "llama-8b", "down", 4096, 14336 },
    { "llama-8b", "head", 128256, 4096 }, { "quick", "q", 256, 256 },           { "quick", "down", 128, 256 },
};

struct engine { // on a device; beside its name only the products differ
    const char *name;
    struct backend *b;
    bool failed; // the error was printed
    bool graphs; // not given up so far
    // The shape that is measured has:
    struct tensor w[MAX_COPIES], x, h, ones, out;
    int copies, products; // products: of a graph
    int64_t ns[TIMES];
};

static int row[MAX_LIST], n_rows;

static bool failed(struct engine *e, const struct error *err)
{
    fprintf(stderr, "bench_gpu: %s failed and is not measured any more: %s\n", e->name, err->text);
    e->failed = true;
    return false;
}

// For backend.log.
static void note(void *self, const char *sentence)
{
    struct engine *e = self;
    fprintf(stderr, "bench_gpu: %s: ERROR: %s\n", e->name, sentence);
    e->graphs = false;
}

static void open_engine(struct engine *e, struct devices *d, const char *device)
{
    struct error err;
    *e = (struct engine){ .name = device, .b = devices_get(d, device, &err) };
    if (e->b == NULL) {
        failed(e, &err);
        return;
    }
    e->name = strcmp(e->b->name, "cublas") == 0 ? "cublas" : "speclab";
    e->b->log = note;
    e->b->log_self = e;
    e->graphs = e->b->graph_launch != NULL;
}

static bool measured(const struct engine *e, enum type type)
{
    return !e->failed && (strcmp(e->name, "cublas") != 0 || type == BF16);
}

// Random blocks with small scales; to be freed.
static uint8_t *random_blocks(enum type type, size_t bytes)
{
    uint8_t *to = xmalloc(bytes + 8);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(to + i, &state, 8);
    }
    const size_t step = (size_t)type_facts[type].bytes;
    const bool two = type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K; // scales
    const size_t first = type == MXFP4 ? 0 : type == Q6_K ? step - 1 : type == F32 ? 3 : 1;
    const int exponent = type == MXFP4                 ? 0x78
                         : type == BF16 || type == F32 ? 0x3C
                         : type_is_quantized(type)     ? 0x20
                                                       : 0x30;
    for (size_t i = 0; i + step <= bytes; i += step) // exponents below 1: of numbers, or scales
        for (size_t at = i + first; at <= i + (two ? 3 : first); at += 2)
            to[at] = (uint8_t)((type == MXFP4 ? 0 : to[at] & 0x80) | exponent);
    return to;
}

static struct tensor uploaded(struct engine *e, int64_t rows, int64_t width)
{
    const struct tensor t = rows_on(e->b, rows, width);
    uint8_t *numbers = random_blocks(F32, tensor_bytes(t));
    e->b->upload(e->b, t.data, numbers, tensor_bytes(t));
    free(numbers);
    return t;
}

static void create_matrices(struct engine *e, struct tensor w)
{
    const int copies = (int)((size_t)CACHE_BYTES / tensor_bytes(w)) + 1;
    for (e->copies = 0; e->copies < copies && e->copies < MAX_COPIES && !e->failed; e->copies += !e->failed) {
        struct error err;
        e->w[e->copies] = e->b->prepare(e->b, w, e->b->rounds_to(e->b, ACTIVATIONS_BF16, w.type), &err);
        if (e->w[e->copies].data == NULL)
            failed(e, &err);
    }
    e->products = e->copies < MIN_PRODUCTS ? MIN_PRODUCTS : e->copies;
    e->x = uploaded(e, MAX_ROWS, w.width);
    e->ones = uploaded(e, 1, w.width);
    e->h = rows_on(e->b, MAX_ROWS, w.width);
    e->out = rows_on(e->b, MAX_ROWS, w.rows);
}

static void free_matrices(struct engine *e)
{
    const struct tensor all[] = { e->x, e->ones, e->h, e->out };
    for (int i = 0; i < e->copies; i++)
        e->b->unprepare(e->b, e->w[i]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        e->b->release(e->b, all[i].data);
    e->copies = 0;
}

static void queue_products(const struct engine *e, const struct graph_key *key)
{
    struct backend *b = e->b;
    const int rows = key->see->n;
    const struct tensor out = tensor_rows(e->out, 0, rows);
    struct tensor unused;
    for (bool done = graph_launched(b, key, &unused); !done; done = graph_ended(b, out)) {
        const struct tensor h = b->rmsnorm(b, tensor_rows(e->h, 0, rows), tensor_rows(e->x, 0, rows), e->ones, 1e-5f);
        for (int i = 0; i < e->products; i++)
            multiply(b, out, h, e->w[i % e->copies]);
    }
}

// The first time untimed work is queued one by one, the second time it is captured.
static void time_once(struct engine *e, int rows, int t)
{
    static const int32_t zero[MAX_ROWS];
    static const uint64_t nothing[MAX_ROWS * (MAX_ROWS / 64)];
    struct backend *b = e->b;
    struct error err;
    struct layout see = { .n = rows,
                          .words = (rows + 63) / 64,
                          .length = MAX_ROWS,
                          .slot = zero,
                          .prefix = zero,
                          .place = zero,
                          .position = zero,
                          .ancestors = nothing }; // rows that see nothing
    if (e->failed)
        return;
    if (b->upload_layout != NULL)
        see.uploaded = b->upload_layout(b, &see);
    const struct graph_key key = { .see = &see,
                                   .whose = e,
                                   .fact = { (int)e->w[0].rows, (int)e->w[0].width, (int)e->w[0].type } };
    queue_products(e, &key);
    b->stamp(b, 0);
    queue_products(e, &key);
    b->stamp(b, 1);
    if (!b->sync(b, &err))
        failed(e, &err);
    else if (t >= 0)
        e->ns[t] = b->between(b, 0, 1) / e->products;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void measure(struct engine *engine, int n, const struct product_shape *s, enum type type)
{
    const size_t bytes = (size_t)s->m * type_row_bytes(type, s->k);
    uint8_t *blocks = random_blocks(type, bytes);
    for (int i = 0; i < n; i++)
        if (measured(&engine[i], type))
            create_matrices(&engine[i], tensor_of(blocks, type, s->m, s->k));
    for (int r = 0; r < n_rows; r++) {
        for (int t = -2; t < TIMES; t++)
            for (int i = 0; i < n; i++)
                if (measured(&engine[i], type))
                    time_once(&engine[i], row[r], t);
        for (int i = 0; i < n; i++) {
            struct engine *e = &engine[i];
            if (!measured(e, type))
                continue;
            qsort(e->ns, TIMES, sizeof(e->ns[0]), by_size);
            printf("{\"engine\": \"%s%s\", \"what\": \"%s %s %s\", \"rows\": %d, \"seconds\": %.9g, \"bytes\": %zu}\n",
                   e->name, e->graphs || e->b->graph_launch == NULL ? "" : " one by one", s->model, s->name,
                   type_facts[type].name, row[r], (double)e->ns[TIMES / 2] * 1e-9, bytes);
        }
        fflush(stdout);
    }
    for (int i = 0; i < n; i++)
        if (engine[i].b != NULL && engine[i].copies > 0)
            free_matrices(&engine[i]);
    free(blocks);
}

static bool in_list(const char *name, const char *list)
{
    const size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

// Returns false if the text is something else than integers from 1 to MAX_ROWS, separated by commas.
static bool read_rows(const char *text)
{
    for (const char *at = text; n_rows < MAX_LIST; at++) {
        char *end;
        const long v = strtol(at, &end, 10);
        if (end == at || v < 1 || v > MAX_ROWS || (*end != '\0' && *end != ','))
            return false;
        row[n_rows++] = (int)v;
        at = end;
        if (*end == '\0')
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    enum { DEVICES, PRODUCT_TYPES, ROWS, PRODUCTS, MODEL, WORDS };
    static struct engine engine[MAX_ENGINES];
    const char *word[WORDS] = { "cuda,cublas", "bf16,q8_0,q4_0", "1,4,8,16,32,64,512", "q,k,gate,down,head",
                                "llama-8b" };
    for (int i = 1; i < argc && i <= WORDS; i++)
        word[i - 1] = argv[i];
    if (argc > WORDS + 1 || !read_rows(word[ROWS])) {
        fprintf(stderr, "bench_gpu: expected [DEVICES [TYPES [ROWS [PRODUCTS [MODEL]]]]], with lists as in 1,16,64\n");
        return 2;
    }
    struct devices *d = devices_create(0);
    char *names = xstrdup(word[DEVICES]), *rest;
    int n = 0, shapes_measured = 0;
    for (char *name = strtok_r(names, ",", &rest); name != NULL && n < MAX_ENGINES; name = strtok_r(NULL, ",", &rest))
        open_engine(&engine[n++], d, name);
    for (int t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            if (in_list(type_facts[t].name, word[PRODUCT_TYPES]) && in_list(shapes[i].name, word[PRODUCTS]) &&
                strcmp(shapes[i].model, word[MODEL]) == 0) {
                measure(engine, n, &shapes[i], (enum type)t);
                shapes_measured++;
            }
    bool ok = n > 0 && shapes_measured > 0;
    if (shapes_measured == 0)
        fprintf(stderr,
                "bench_gpu: expected names of types, products and a model (llama-1b, llama-8b, quick), found others\n");
    for (int e = 0; e < n; e++)
        ok = ok && !engine[e].failed && engine[e].graphs == (engine[e].b->graph_launch != NULL);
    devices_destroy(d);
    free(names);
    return ok ? 0 : 1;
}
