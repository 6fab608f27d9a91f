// bench_passes.c - times passes of a whole model's shape, from hidden states instead of tokens, after a random prefix.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "gpu/bench_gpu.h"
#include "kernels/backend.h"
#include "models/block.h"
#include "models/kv_cache.h"

enum { MAX_BENCH_LAYERS = 64, LOGITS_CHUNK = 512 };

struct network {
    struct engine *e;
    struct backend *b; // of the engine
    struct model_shape shape;
    struct block block[MAX_BENCH_LAYERS];
    struct tensor norm, head, x, last, logits;
    struct scratch scratch;
    size_t bytes; // weights read by a pass
};

// A matrix whose bytes are counted.
static struct tensor counted(struct network *n, const struct stock *s, int64_t m, int64_t k)
{
    n->bytes += tensor_bytes(tensor_of(NULL, s->type, m, k));
    return matrix(n->e, s, m, k);
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

static void build(struct network *n, struct engine *e, const struct model_shape *s, enum type type)
{
    struct backend *b = e->b;
    const struct stock stock = stock_of(type, s);
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    *n = (struct network){ .e = e, .b = b, .shape = *s };
    n->shape.norm_eps = 1e-5f;
    for (int l = 0; l < s->layers; l++)
        n->block[l] = (struct block){ .attention = { .head_dim = s->head_dim },
                                      .input_norm = ones(b, s->width),
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
    n->shape.inverse_frequency[0] = ones(b, s->head_dim / 2);
    n->x = rows_on(b, MAX_PASS_ROWS, s->width);
    n->last = rows_on(b, MAX_PASS_ROWS, s->width);
    n->logits = rows_on(b, MAX_PASS_ROWS, s->vocab);
    scratch_create(&n->scratch, b, &n->shape, MAX_PASS_ROWS);
}

static void destroy(struct network *n)
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
    const struct tensor all[] = { n->norm, n->shape.inverse_frequency[0], n->x, n->last, n->logits };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i].data);
    scratch_destroy(&n->scratch, b);
}

// The pass of models/model.c, from hidden states instead of tokens. graph: with a CUDA graph, if the device supports it.
static void forward(struct network *n, struct kv_cache *c, int count, bool graph)
{
    struct backend *b = n->b;
    int32_t token[MAX_PASS_ROWS] = { 0 }, slot[MAX_PASS_ROWS] = { 0 }, parent[MAX_PASS_ROWS];
    for (int i = 0; i < count; i++)
        parent[i] = i - 1;
    const struct pass p = { .n = count, .token = token, .slot = slot, .parent = parent };
    const struct tensor x = tensor_rows(n->x, 0, count);
    struct tensor last;
    scratch_fit(&n->scratch, count);
    const struct layout *see = kv_admit(c, &p, p.n);
    const struct graph_key graph_key = { .see = see, .whose = n, .cache = c };
    for (bool done = graph && graph_launched(b, &graph_key, &last); !done; done = !graph || graph_ended(b, last)) {
        block_angles(b, &n->shape, see, &n->scratch);
        for (int l = 0; l < n->shape.layers; l++) {
            const struct tensor h = b->rmsnorm(b, n->scratch.h, x, n->block[l].input_norm, n->shape.norm_eps);
            block_forward(b, &n->block[l], &n->shape, l, c, see, &n->scratch, x, h);
        }
        last = b->rmsnorm(b, tensor_rows(n->last, 0, count), x, n->norm, n->shape.norm_eps);
    }
    multiply(b, tensor_rows(n->logits, 0, count), last, n->head);
}

// Fills the cache with a prefix of `context` rows of random numbers.
static void fill(const struct network *n, struct kv_cache *c, int context)
{
    int32_t zeros[LOGITS_CHUNK] = { 0 }, row[LOGITS_CHUNK], parent[LOGITS_CHUNK];
    const struct tensor keys = kv_keys(c, 0);
    const size_t bytes = (size_t)context * type_row_bytes(keys.type, keys.width);
    uint8_t *numbers = random_blocks(keys.type, bytes);
    for (int l = 0; l < n->shape.layers; l++) {
        n->b->upload(n->b, kv_keys(c, l).data, numbers, bytes);
        n->b->upload(n->b, kv_values(c, l).data, numbers, bytes);
    }
    free(numbers);
    for (int i = 0; i < LOGITS_CHUNK; i++) {
        row[i] = i;
        parent[i] = i - 1;
    }
    for (int left = context; left > 0; left -= LOGITS_CHUNK) {
        const struct pass p = {
            .n = left < LOGITS_CHUNK ? left : LOGITS_CHUNK, .token = zeros, .slot = zeros, .parent = parent
        };
        kv_admit(c, &p, p.n);
        kv_keep(c, 0, row, p.n);
    }
}

struct timed_passes { // passes after a context
    const char *model;
    enum type type;
    int context;
    struct kv_cache *c;
    const float *states; // (MAX_PASS_ROWS, width)
};

// A pass whose rows are not kept.
static void pass_once(struct network *n, const struct timed_passes *s, int rows, bool graph)
{
    forward(n, s->c, rows, graph);
    kv_truncate(s->c, 0, s->context);
}

static void time_rows(struct network *n, const struct timed_passes *s, int rows, bool graph)
{
    struct backend *b = n->b;
    int64_t ns[TIMES];
    for (int t = -2; t < TIMES && !n->e->failed; t++) {
        b->upload(b, n->x.data, s->states, (size_t)rows * (size_t)n->shape.width * sizeof(float));
        pass_once(n, s, rows, graph); // untimed: the device is busy while the next one is queued
        b->stamp(b, 0);
        pass_once(n, s, rows, graph);
        b->stamp(b, 1);
        if (engine_sync(n->e) && t >= 0)
            ns[t] = b->between(b, 0, 1);
    }
    if (n->e->failed)
        return;
    const struct tensor keys = kv_keys(s->c, 0);
    const size_t cache = (size_t)s->context * 2 * (size_t)n->shape.layers * type_row_bytes(keys.type, keys.width);
    printf("{\"engine\": \"%s%s\", \"what\": \"%s %s\", \"rows\": %d, \"context\": %d, \"seconds\": %.9g, "
           "\"bytes\": %zu}\n",
           n->e->name, manner(n->e, graph), s->model, type_facts[s->type].name, rows, s->context,
           median_seconds(ns, TIMES), n->bytes + cache);
    fflush(stdout);
}

// With CUDA graphs, if the device supports them, and launch by launch.
static void time_passes(struct network *n, const char *model, enum type type, int context, const struct plan *p)
{
    struct backend *b = n->b;
    struct error err;
    const struct kv_shape shape = { .layers = n->shape.layers,
                                    .width = n->shape.kv_heads * n->shape.head_dim,
                                    .head_dim = n->shape.head_dim,
                                    .slots = 1,
                                    .length = context + MAX_PASS_ROWS,
                                    .pending = LOGITS_CHUNK,
                                    .type = BF16 };
    struct kv_cache *c = kv_create(b, &shape, &err);
    if (c == NULL) {
        fprintf(stderr, "bench_gpu: %s of %s, context %d is not measured: %s\n", model, n->e->name, context, err.text);
        return;
    }
    fill(n, c, context);
    float *states = xcalloc((size_t)MAX_PASS_ROWS * (size_t)n->shape.width, sizeof(float));
    for (int64_t i = 0; i < (int64_t)MAX_PASS_ROWS * n->shape.width; i++)
        states[i] = (float)((i * 2654435761u) % 1000) / 500.0f - 1;
    const struct timed_passes s = { model, type, context, c, states };
    for (int r = 0; r < p->n_rows; r++)
        for (int graph = n->e->graphs; graph >= 0; graph--)
            time_rows(n, &s, p->rows[r], graph == 1);
    free(states);
    kv_destroy(c);
}

void passes(struct engine *e, const struct model_size *of, enum type type, const struct plan *p)
{
    static struct network n;
    build(&n, e, &of->shape, type);
    for (int i = 0; i < p->n_contexts && !e->failed; i++)
        time_passes(&n, of->name, type, p->quick ? p->contexts[i] / 64 : p->contexts[i], p);
    destroy(&n);
}
