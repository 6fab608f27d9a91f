// bench_gpu.c - what kernels and passes cost on a device, with weights that nobody has to bring: for `./run gpu bench`.
//
//     bench_gpu kernels|passes [DEVICE [little]]       DEVICE: cuda; little: shapes for a try on the CPU
//
// Prints a line of JSON for each measurement (gpu/bench says what is in it). Weights are random numbers of the right type and
// shape; every matrix has memory of its own, and kernels go round through more of them than a cache holds. Times are the
// device's own (backend.stamp), medians. Passes are models/block.c's, as in every run; of Qwen3 the norms of q and k, which
// read nothing, are left out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "kernels/room.h"
#include "models/block.h"
#include "models/kv_cache.h"
#include "models/model.h"

enum { MOST_ROWS = 64, PROMPT = 512, MOST_LAYERS = 64, TIMES = 15, STRETCH = 512 }; // rows: of passes, of kernels

struct model_size {
    const char *name;
    struct model_shape shape;
};

static const struct model_size sizes[] = {
    { "llama-1b",
      { .layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64, .hidden = 8192, .vocab = 128256 } },
    { "llama-8b",
      { .layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .hidden = 14336, .vocab = 128256 } },
    { "qwen3-8b",
      { .layers = 36, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .hidden = 12288, .vocab = 151936 } },
};
static const struct model_size little = {
    "little", { .layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .head_dim = 64, .hidden = 256, .vocab = 512 }
};
static const int rows[] = { 1, 4, 8, 16, 32, 64, PROMPT }, contexts[] = { 1024, 8192, 32768 };
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), N_CONTEXTS = sizeof(contexts) / sizeof(contexts[0]) };

static void insist(bool well, const struct error *err)
{
    if (well)
        return;
    fprintf(stderr, "bench_gpu: %s\n", err->text);
    exit(1);
}

// ---- numbers

// So many bytes of random blocks with small scales; free() them.
static uint8_t *random_blocks(enum type type, size_t bytes)
{
    uint8_t *to = xmalloc(bytes + 8);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(to + i, &state, 8);
    }
    const size_t step = (size_t)type_facts[type].bytes;
    for (size_t i = 0; i + step <= bytes; i += step) // exponents below 1: of numbers, or of a block's scale
        to[i + 1] = (uint8_t)((to[i + 1] & 0x80) | (type == BF16 ? 0x3C : type_is_quantised(type) ? 0x20 : 0x30));
    return to;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median(int64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof(*ns), by_size);
    return (double)ns[n / 2] * 1e-9;
}

// ---- matrices

struct stock { // what all matrices of a type are made from
    struct backend *b;
    enum type type;
    uint8_t *blocks;
    size_t bytes; // of them
};

static struct tensor matrix(const struct stock *s, int64_t m, int64_t k)
{
    struct error err;
    const struct tensor w = tensor_of(s->blocks, s->type, m, k);
    if (tensor_bytes(w) > s->bytes)
        abort();
    const struct tensor there = s->b->prepare(s->b, w, s->b->rounds_to(s->b, ACTIVATIONS_BF16, s->type), &err);
    insist(there.data != NULL, &err);
    return there;
}

static struct stock stock_of(struct backend *b, enum type type, const struct model_shape *s)
{
    const int64_t most = s->vocab > s->hidden ? s->vocab : s->hidden;
    const size_t bytes = (size_t)most * type_row_bytes(type, s->width);
    return (struct stock){ b, type, random_blocks(type, bytes), bytes };
}

// ---- kernels

static void kernel(const struct stock *s, const char *model, const char *name, int64_t m, int64_t k)
{
    enum { MOST_COPIES = 64 };
    struct backend *b = s->b;
    struct error err;
    struct tensor w[MOST_COPIES];
    const size_t bytes = tensor_bytes(tensor_of(NULL, s->type, m, k));
    int copies = (int)(((size_t)512 << 20) / bytes) + 1;
    copies = copies < MOST_COPIES ? copies : MOST_COPIES;
    for (int i = 0; i < copies; i++)
        w[i] = matrix(s, m, k);
    const struct tensor x = rows_on(b, PROMPT, k), out = rows_on(b, PROMPT, m);
    uint8_t *numbers = random_blocks(F32, tensor_bytes(x));
    for (size_t i = 0; i < tensor_bytes(x); i += 4)
        numbers[i + 3] = (uint8_t)((numbers[i + 3] & 0x80) | 0x3E);
    b->upload(b, x.data, numbers, tensor_bytes(x));
    for (int r = 0; r < N_ROWS; r++) {
        int64_t ns[TIMES];
        for (int t = -2; t < TIMES; t++) {
            b->stamp(b, 0);
            for (int i = 0; i < copies; i++)
                multiply(b, tensor_rows(out, 0, rows[r]), tensor_rows(x, 0, rows[r]), w[i]);
            b->stamp(b, 1);
            insist(b->sync(b, &err), &err);
            if (t >= 0)
                ns[t] = b->between(b, 0, 1) / copies;
        }
        printf("{\"engine\": \"speclab\", \"what\": \"%s %s %s\", \"rows\": %d, \"seconds\": %.9g, \"bytes\": %zu}\n",
               model, name, type_facts[s->type].name, rows[r], median(ns, TIMES), bytes);
        fflush(stdout);
    }
    for (int i = 0; i < copies; i++)
        b->unprepare(b, w[i]);
    b->release(b, x.data);
    b->release(b, out.data);
    free(numbers);
}

static void kernels(struct backend *b, const struct model_size *of, enum type type)
{
    const struct model_shape *s = &of->shape;
    const struct stock stock = stock_of(b, type, s);
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    kernel(&stock, of->name, "q", heads, s->width);
    kernel(&stock, of->name, "k", kv, s->width);
    kernel(&stock, of->name, "gate", s->hidden, s->width);
    kernel(&stock, of->name, "down", s->width, s->hidden);
    kernel(&stock, of->name, "head", s->vocab, s->width);
    free(stock.blocks);
}

// ---- passes

struct network {
    struct backend *b;
    struct model_shape shape;
    struct block block[MOST_LAYERS];
    struct tensor norm, head, x, last, logits;
    struct scratch scratch;
    size_t bytes; // of weights that a pass reads
};

static struct tensor counted(struct network *n, const struct stock *s, int64_t m, int64_t k)
{
    n->bytes += tensor_bytes(tensor_of(NULL, s->type, m, k));
    return matrix(s, m, k);
}

static struct tensor ones(struct backend *b, int64_t width)
{
    const struct tensor t = rows_on(b, 1, width);
    float *numbers = xmalloc((size_t)width * sizeof(*numbers));
    for (int64_t i = 0; i < width; i++)
        numbers[i] = 1;
    b->upload(b, t.data, numbers, (size_t)width * sizeof(*numbers));
    free(numbers);
    return t;
}

static void build(struct network *n, struct backend *b, const struct model_shape *s, enum type type)
{
    const struct stock stock = stock_of(b, type, s);
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    *n = (struct network){ .b = b, .shape = *s };
    n->shape.norm_eps = 1e-5f;
    for (int l = 0; l < s->layers; l++)
        n->block[l] = (struct block){ .input_norm = ones(b, s->width),
                                      .ffn_norm = ones(b, s->width),
                                      .q = counted(n, &stock, heads, s->width),
                                      .k = counted(n, &stock, kv, s->width),
                                      .v = counted(n, &stock, kv, s->width),
                                      .o = counted(n, &stock, s->width, heads),
                                      .gate = counted(n, &stock, s->hidden, s->width),
                                      .up = counted(n, &stock, s->hidden, s->width),
                                      .down = counted(n, &stock, s->width, s->hidden) };
    n->norm = ones(b, s->width);
    n->head = counted(n, &stock, s->vocab, s->width);
    free(stock.blocks);
    n->shape.inverse_frequency = ones(b, s->head_dim / 2);
    n->x = rows_on(b, MOST_ROWS, s->width);
    n->last = rows_on(b, MOST_ROWS, s->width);
    n->logits = rows_on(b, MOST_ROWS, s->vocab);
    scratch_create(&n->scratch, b, &n->shape, MOST_ROWS);
}

static void pull_down(struct network *n)
{
    struct backend *b = n->b;
    for (int l = 0; l < n->shape.layers; l++) {
        const struct block *w = &n->block[l];
        const struct tensor all[] = { w->q, w->k, w->v, w->o, w->gate, w->up, w->down };
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            b->unprepare(b, all[i]);
        b->release(b, w->input_norm.data);
        b->release(b, w->ffn_norm.data);
    }
    b->unprepare(b, n->head);
    const struct tensor all[] = { n->norm, n->shape.inverse_frequency, n->x, n->last, n->logits };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i].data);
    scratch_destroy(&n->scratch, b);
}

// The pass of models/model.c, from states in place of tokens.
static void forward(struct network *n, struct kv_cache *c, int count)
{
    struct backend *b = n->b;
    int32_t token[MOST_ROWS] = { 0 }, slot[MOST_ROWS] = { 0 }, parent[MOST_ROWS];
    for (int i = 0; i < count; i++)
        parent[i] = i - 1;
    const struct pass p = { count, token, slot, parent };
    const struct tensor x = tensor_rows(n->x, 0, count), last = tensor_rows(n->last, 0, count);
    scratch_fit(&n->scratch, count);
    const struct layout *see = kv_admit(c, &p);
    block_angles(b, &n->shape, see, &n->scratch);
    for (int l = 0; l < n->shape.layers; l++) {
        b->rmsnorm(b, n->scratch.h, x, n->block[l].input_norm, n->shape.norm_eps);
        block_forward(b, &n->block[l], &n->shape, l, c, see, &n->scratch, x, n->scratch.h);
    }
    b->rmsnorm(b, last, x, n->norm, n->shape.norm_eps);
    multiply(b, tensor_rows(n->logits, 0, count), last, n->head);
}

// A prefix of so many rows of random numbers, which nobody computed.
static void fill(const struct network *n, struct kv_cache *c, int context)
{
    int32_t zeros[STRETCH] = { 0 }, row[STRETCH], parent[STRETCH];
    const struct tensor keys = kv_keys(c, 0);
    const size_t bytes = (size_t)context * type_row_bytes(keys.type, keys.width);
    uint8_t *numbers = random_blocks(keys.type, bytes);
    for (int l = 0; l < n->shape.layers; l++) {
        n->b->upload(n->b, kv_keys(c, l).data, numbers, bytes);
        n->b->upload(n->b, kv_values(c, l).data, numbers, bytes);
    }
    free(numbers);
    for (int i = 0; i < STRETCH; i++) {
        row[i] = i;
        parent[i] = i - 1;
    }
    for (int left = context; left > 0; left -= STRETCH) {
        const struct pass p = { left < STRETCH ? left : STRETCH, zeros, zeros, parent };
        kv_admit(c, &p);
        kv_keep(c, 0, row, p.n);
    }
}

static void time_passes(struct network *n, const char *model, enum type type, int context)
{
    struct backend *b = n->b;
    struct error err;
    const struct kv_shape shape = { .layers = n->shape.layers,
                                    .width = n->shape.kv_heads * n->shape.head_dim,
                                    .head_dim = n->shape.head_dim,
                                    .slots = 1,
                                    .length = context + MOST_ROWS,
                                    .pending = STRETCH,
                                    .type = BF16 };
    struct kv_cache *c = kv_create(b, &shape, &err);
    if (c == NULL) {
        fprintf(stderr, "bench_gpu: %s, context %d is left out: %s\n", model, context, err.text);
        return;
    }
    fill(n, c, context);
    const size_t cache = (size_t)context * 2 * (size_t)shape.layers * type_row_bytes(BF16, shape.width);
    float *states = xcalloc((size_t)MOST_ROWS * (size_t)n->shape.width, sizeof(float));
    for (int64_t i = 0; i < (int64_t)MOST_ROWS * n->shape.width; i++)
        states[i] = (float)((i * 2654435761u) % 1000) / 500.0f - 1;
    for (int r = 0; r < N_ROWS && rows[r] <= MOST_ROWS; r++) {
        int64_t ns[TIMES];
        for (int t = -2; t < TIMES; t++) {
            b->upload(b, n->x.data, states, (size_t)rows[r] * (size_t)n->shape.width * sizeof(float));
            b->stamp(b, 0);
            forward(n, c, rows[r]);
            b->stamp(b, 1);
            insist(b->sync(b, &err), &err);
            kv_cut(c, 0, context);
            if (t >= 0)
                ns[t] = b->between(b, 0, 1);
        }
        printf("{\"engine\": \"speclab\", \"what\": \"%s %s\", \"rows\": %d, \"context\": %d, \"seconds\": %.9g, "
               "\"bytes\": %zu}\n",
               model, type_facts[type].name, rows[r], context, median(ns, TIMES), n->bytes + cache);
        fflush(stdout);
    }
    free(states);
    kv_destroy(c);
}

static void passes(struct backend *b, const struct model_size *of, enum type type, bool few)
{
    static struct network n;
    build(&n, b, &of->shape, type);
    for (int i = 0; i < N_CONTEXTS; i++)
        time_passes(&n, of->name, type, few ? contexts[i] / 64 : contexts[i]);
    pull_down(&n);
}

int main(int argc, char **argv)
{
    static const enum type types[] = { BF16, Q8_0, Q4_0 };
    const bool few = argc > 3 && strcmp(argv[3], "little") == 0,
               of_kernels = argc > 1 && strcmp(argv[1], "kernels") == 0;
    if (argc < 2 || argc > 4 || (argc > 3 && !few) || (!of_kernels && strcmp(argv[1], "passes") != 0)) {
        fprintf(stderr, "bench_gpu: expected kernels or passes, then a device, then perhaps little\n");
        return 2;
    }
    struct error err;
    struct devices *d = devices_create(0, NULL);
    struct backend *b = devices_get(d, argc > 2 ? argv[2] : "cuda", &err);
    insist(b != NULL, &err);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
        for (size_t i = 0; i < (few ? 1 : sizeof(sizes) / sizeof(sizes[0])); i++) {
            const struct model_size *of = few ? &little : &sizes[i];
            if (of_kernels && (few || i == 1)) // one shape of kernels says enough
                kernels(b, of, types[t]);
            else if (!of_kernels)
                passes(b, of, types[t], few);
        }
    devices_destroy(d);
    return 0;
}
