// bench_kernels.c - times products of one shape, and launches single kernels for a profiler.
//
// The input of a product is what a norm has made, in the form that products read, as in a model. A norm and some products by
// different matrices, more than a cache holds, are one CUDA graph; a product's time is that of the graph over their number. So
// the time from one kernel to the next counts, as in a pass, and the host's does not. cuBLAS converts its input once per graph.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "gpu/bench_gpu.h"
#include "kernels/backend.h"

enum { MAX_COPIES = 64, PRODUCTS = 16, CACHE_BYTES = 512 << 20 };
struct matrices { // of one shape, on one engine
    struct engine *e;
    struct tensor w[MAX_COPIES], x, h, ones, out;
    int copies, products; // products: of a graph
    int64_t ns[TIMES];
};

static struct tensor uploaded(struct engine *e, int64_t rows, int64_t width)
{
    const struct tensor t = rows_on(e->b, rows, width);
    uint8_t *numbers = random_blocks(F32, tensor_bytes(t));
    e->b->upload(e->b, t.data, numbers, tensor_bytes(t));
    free(numbers);
    return t;
}

static void create_matrices(struct matrices *a, struct engine *e, const struct stock *s, int64_t m, int64_t k, int rows)
{
    const size_t bytes = tensor_bytes(tensor_of(NULL, s->type, m, k));
    const int copies = (int)((size_t)CACHE_BYTES / bytes) + 1;
    *a = (struct matrices){ .e = e };
    for (; a->copies < copies && a->copies < MAX_COPIES && !e->failed; a->copies += !e->failed)
        a->w[a->copies] = matrix(e, s, m, k);
    a->products = a->copies < PRODUCTS ? PRODUCTS : a->copies;
    a->x = uploaded(e, rows, k);
    a->ones = uploaded(e, 1, k);
    a->h = rows_on(e->b, rows, k);
    a->out = rows_on(e->b, rows, m);
}

static void free_matrices(struct matrices *a)
{
    struct backend *b = a->e->b;
    for (int i = 0; i < a->copies; i++)
        b->unprepare(b, a->w[i]);
    b->release(b, a->x.data);
    b->release(b, a->ones.data);
    b->release(b, a->h.data);
    b->release(b, a->out.data);
}

static void queue_products(const struct matrices *a, const struct graph_key *key)
{
    struct backend *b = a->e->b;
    const int rows = key->see->n;
    const struct tensor out = tensor_rows(a->out, 0, rows);
    struct tensor unused;
    for (bool done = graph_launched(b, key, &unused); !done; done = graph_ended(b, out)) {
        const struct tensor h = b->rmsnorm(b, tensor_rows(a->h, 0, rows), tensor_rows(a->x, 0, rows), a->ones, 1e-5f);
        for (int i = 0; i < a->products; i++)
            multiply(b, out, h, a->w[i % a->copies]);
    }
}

// A layout of rows that see nothing, for a graph's key.
static struct layout no_layout(struct backend *b, int rows)
{
    static const int32_t zero[PROMPT];
    static const uint64_t nothing[PROMPT * (PROMPT / 64)];
    struct layout s = { rows, (rows + 63) / 64, PROMPT, zero, zero, zero, zero, nothing, 0, NULL, 0, 0, NULL, NULL, 0 };
    if (b->upload_layout != NULL)
        s.uploaded = b->upload_layout(b, &s);
    return s;
}

// The first time untimed work is queued one by one, the second time it is captured.
static void time_once(struct matrices *a, int rows, int t)
{
    struct backend *b = a->e->b;
    if (a->e->failed)
        return;
    const struct layout see = no_layout(b, rows);
    const struct graph_key key = { .see = &see, .whose = a, .fact = { a->products } };
    queue_products(a, &key);
    b->stamp(b, 0);
    queue_products(a, &key);
    b->stamp(b, 1);
    if (engine_sync(a->e) && t >= 0)
        a->ns[t] = b->between(b, 0, 1) / a->products;
}

static void kernel(struct engine *engine, int n, const struct stock *s, const char *name, int64_t m, int64_t k,
                   const struct plan *p)
{
    static struct matrices all[MAX_ENGINES];
    int count = 0, most = 1;
    for (int i = 0; i < p->n_rows; i++)
        most = p->rows[i] > most ? p->rows[i] : most;
    for (int i = 0; i < n; i++)
        if (takes(&engine[i], s->type))
            create_matrices(&all[count++], &engine[i], s, m, k, most);
    for (int r = 0; r < p->n_rows; r++) {
        for (int t = -2; t < TIMES; t++)
            for (int i = 0; i < count; i++)
                time_once(&all[i], p->rows[r], t);
        for (int i = 0; i < count; i++)
            if (!all[i].e->failed)
                printf("{\"engine\": \"%s%s\", \"what\": \"%s %s\", \"rows\": %d, \"seconds\": %.9g, \"bytes\": %zu}\n",
                       all[i].e->name, manner(all[i].e, true), name, type_facts[s->type].name, p->rows[r],
                       median_seconds(all[i].ns, TIMES), tensor_bytes(tensor_of(NULL, s->type, m, k)));
        fflush(stdout);
    }
    for (int i = 0; i < count; i++)
        free_matrices(&all[i]);
}

void kernels(struct engine *engine, int n, const struct model_size *of, enum type type, const struct plan *p)
{
    const struct model_shape *s = &of->shape;
    const struct stock stock = stock_of(type, s);
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        int64_t m, k;
    } shapes[] = { { "q", heads, s->width },
                   { "k", kv, s->width },
                   { "gate", s->hidden, s->width },
                   { "down", s->width, s->hidden },
                   { "head", s->vocab, s->width } };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char *name = xformat("%s %s", of->name, shapes[i].name);
        kernel(engine, n, &stock, name, shapes[i].m, shapes[i].k, p);
        free(name);
    }
    free(stock.blocks);
}

// ---- for a profiler

enum { LAUNCHES = 4, CONTEXT = 8192, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, WIDTH = 4096, HIDDEN = 14336 };

static void products_once(struct engine *e)
{
    static struct matrices a;
    const size_t bytes = (size_t)HIDDEN * type_row_bytes(BF16, WIDTH);
    const struct stock stock = { BF16, random_blocks(BF16, bytes), bytes };
    struct backend *b = e->b;
    a = (struct matrices){ .e = e };
    a.w[0] = matrix(e, &stock, HIDDEN, WIDTH);
    a.copies = !e->failed;
    a.x = uploaded(e, 1, WIDTH);
    a.out = rows_on(b, 1, HIDDEN);
    for (int i = 0; i < LAUNCHES && !e->failed; i++)
        multiply(b, a.out, a.x, a.w[0]);
    engine_sync(e);
    free_matrices(&a);
    free(stock.blocks);
}

static void attention_once(struct engine *e)
{
    struct backend *b = e->b;
    static const int32_t zero, context = CONTEXT;
    static const uint64_t itself = 1;
    struct layout see = {
        1, 1, CONTEXT + 1, &zero, &context, &context, &context, &itself, 0, NULL, 0, 0, NULL, NULL, 0
    };
    const struct tensor q = uploaded(e, 1, HEADS * HEAD_DIM), out = rows_on(b, 1, HEADS * HEAD_DIM);
    const struct tensor k = uploaded(e, 1, KV_HEADS * HEAD_DIM), v = uploaded(e, 1, KV_HEADS * HEAD_DIM),
                        angles = uploaded(e, 1, HEAD_DIM);
    struct tensor cache[2];
    for (int i = 0; i < 2; i++) {
        cache[i] = tensor_of(NULL, BF16, CONTEXT + 1, KV_HEADS * HEAD_DIM);
        uint8_t *numbers = random_blocks(BF16, tensor_bytes(cache[i]));
        cache[i].data = b->alloc(b, tensor_bytes(cache[i]));
        b->upload(b, cache[i].data, numbers, tensor_bytes(cache[i]));
        free(numbers);
    }
    if (b->upload_layout != NULL)
        see.uploaded = b->upload_layout(b, &see);
    for (int i = 0; i < LAUNCHES; i++)
        b->attend(b, out, q, k, v, angles, cache[0], cache[1], &see,
                  (struct attention){ .head_dim = (int)angles.width });
    engine_sync(e);
    const struct tensor all[] = { q, k, v, angles, out, cache[0], cache[1] };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i].data);
}

bool run_once(struct engine *e, const char *what)
{
    const bool product = strcmp(what, "matmul") == 0;
    if (!product && strcmp(what, "attend") != 0) {
        fprintf(stderr, "bench_gpu: once: expected matmul or attend, found \"%s\"\n", what);
        return false;
    }
    product ? products_once(e) : attention_once(e);
    return !e->failed;
}
