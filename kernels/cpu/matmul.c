// matmul.c - rows times packed weights: packing, rounding of the rows, and the shares of the threads. The inner loops are
// in matmul_kernels.c.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/threads.h"

// ---- packing

struct pack_job {
    const struct packed *p;
    struct tensor w;
    int64_t each;
};

static void pack_job(void *self, int number, int thread)
{
    (void)thread;
    const struct pack_job *j = self;
    for (int64_t i = number * j->each; i < (number + 1) * j->each && i < j->p->panels; i++)
        pack_panel(j->p, j->w, i);
}

struct tensor cpu_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    struct cpu *c = (struct cpu *)b;
    struct packed shape = packed_shape(w);
    assert(a != ACTIVATIONS_DEFAULT);
    // whole numbers are for weights that have them
    shape.activations = a == ACTIVATIONS_INT8 && !type_is_quantised(w.type) ? ACTIVATIONS_F32 : a;
    shape.data = arena_take(&c->arena, (size_t)shape.panels * shape.panel);
    if (shape.data == NULL) {
        fail(err, "cpu: no room for %zu bytes of packed weights", (size_t)shape.panels * shape.panel);
        return (struct tensor){ 0 };
    }
    struct packed *p = xmalloc(sizeof(*p));
    *p = shape;
    struct pack_job j = { p, w, (p->panels + 63) / 64 };
    if (w.data != NULL)
        threads_run(c->threads, (int)((p->panels + j.each - 1) / j.each), pack_job, &j);
    w.packed = p;
    return w;
}

void *cpu_packed(struct backend *b, struct tensor w, size_t *bytes)
{
    (void)b;
    const struct packed *p = w.packed;
    *bytes = (size_t)p->panels * p->panel;
    return p->data;
}

void cpu_unprepare(struct backend *b, struct tensor w)
{
    struct cpu *c = (struct cpu *)b;
    struct packed *p = w.packed;
    if (c->before == p)
        c->before = NULL;
    if (p != NULL)
        arena_give_back(&c->arena, p->data);
    free(p);
}

// ---- rows

static enum rounding rounding_for(const struct cpu *c, const struct packed *p)
{
    if (p->activations == ACTIVATIONS_INT8)
        return ROUND_INT8;
    if (p->activations == ACTIVATIONS_BF16)
        return p->type == BF16 && c->lanes->products->pairs ? ROUND_PAIRS : ROUND_BF16;
    return ROUND_NONE;
}

struct round_job { // jobs: (chunks, parts of the width)
    const struct products *with;
    const float *x;
    const struct rounded *to;
    uint32_t *data;
    int parts;
    int64_t part; // numbers of a row
};

static void round_job(void *self, int number, int thread)
{
    (void)thread;
    const struct round_job *j = self;
    const struct rounded *to = j->to;
    const int64_t from = number % j->parts * j->part, first = chunk_first(to, number / j->parts);
    const int rows = (int)(chunk_first(to, number / j->parts + 1) - first);
    j->with->round(j->data + first * to->words, rows, j->x + first * to->k, to->k, from,
                   from + j->part < to->k ? from + j->part : to->k, to->how);
}

static struct rounded round_rows(struct cpu *c, struct tensor x, enum rounding how)
{
    const struct products *with = c->lanes->products;
    const int64_t k = x.width, n = x.rows, most = with->most[how],
                  chunks = n <= with->alone[how] ? 1 : (n + most - 1) / most;
    int64_t words = how == ROUND_INT8 ? k / GROUP * INT8_WORDS : how == ROUND_PAIRS ? (k + 1) / 2 : k;
    struct rounded r = { .how = how, .n = n, .k = k, .words = words, .chunks = (int)chunks };
    if (how == ROUND_NONE && n == 1) {
        r.data = x.data; // it is so already
        return r;
    }
    uint32_t *data = buffer_reserve(&c->rounded, (size_t)(n * words) * sizeof(uint32_t));
    int shares = cpu_shares(c, n * k), parts = (shares + r.chunks - 1) / r.chunks;
    struct round_job j = { .with = with, .x = x.data, .to = &r, .data = data };
    j.part = ((k + parts - 1) / parts + GROUP - 1) / GROUP * GROUP;
    j.parts = (int)((k + j.part - 1) / j.part);
    threads_run(c->threads, r.chunks * j.parts, round_job, &j);
    r.data = data;
    return r;
}

// ---- shares

struct products_job {
    struct cpu *cpu;
    const struct product *product; // (count)
    int count;
    struct tensor out, up; // of gated; up.data NULL: no
    struct rounded x;
    int together;        // panels of one call
    int64_t units, each; // in all, and of a piece
    int pieces;
    // What is read after all this, if it goes on as last time, piece by piece; NULL: not known
    const uint8_t *next;
    size_t next_piece; // bytes
    int next_pieces;
};

static const struct packed *packed_of(struct tensor w)
{
    assert(w.packed != NULL); // what prepare() returned
    return w.packed;
}

static int64_t units_of(const struct packed *p, int together)
{
    return (p->panels + together - 1) / together;
}

static int wide(const struct packed *p, int64_t panel)
{
    return (int)(p->rows - panel * PANEL < PANEL ? p->rows - panel * PANEL : PANEL);
}

static void one_product(const struct products_job *j, const struct product *q, int64_t unit, float *sums,
                        struct tile *t)
{
    const struct products *with = j->cpu->lanes->products;
    const struct packed *p = packed_of(q->w);
    struct panel panel[PANELS];
    int64_t first = unit * j->together;
    int count = 0;
    for (; count < j->together && first + count < p->panels; count++) {
        const uint8_t *data = p->data + (size_t)(first + count) * p->panel;
        bool last = first + count + j->together >= p->panels;
        panel[count] = (struct panel){ data, last ? NULL : data + (size_t)j->together * p->panel };
    }
    with->run(sums, p, panel, count, &j->x, t);
    for (int i = 0; i < count; i++)
        with->put(q->out.data, q->out.width, (first + i) * PANEL, wide(p, first + i), sums + i * j->x.n * PANEL, j->x.n,
                  q->bias.data, q->add);
}

static void one_gated(const struct products_job *j, int64_t at, float *sums, struct tile *t)
{
    const struct products *with = j->cpu->lanes->products;
    const struct packed *gate = packed_of(j->product->w), *up = packed_of(j->up);
    const uint8_t *g = gate->data + (size_t)at * gate->panel, *u = up->data + (size_t)at * up->panel;
    const bool last = at + 1 == gate->panels;
    const struct panel panel[PANELS] = { { g, last ? NULL : g + gate->panel }, { u, last ? NULL : u + up->panel } };
    float *second = sums + j->x.n * PANEL;
    if (gate->type == up->type)
        with->run(sums, gate, panel, 2, &j->x, t);
    else {
        with->run(sums, gate, panel, 1, &j->x, t);
        with->run(second, up, panel + 1, 1, &j->x, t);
    }
    with->put_gated(j->out.data, j->out.width, at * PANEL, wide(gate, at), sums, second, j->x.n);
}

static void products_job(void *self, int number, int thread)
{
    enum { START = 4096 }; // bytes of what comes next
    const struct products_job *j = self;
    size_t sums = (size_t)(PANELS * j->x.n * PANEL) * sizeof(float);
    char *capacity = buffer_reserve(&j->cpu->scratch[thread], sums + sizeof(struct tile));
    struct tile *t = (struct tile *)capacity;
    float *sum = (float *)(capacity + sizeof(struct tile));
    const struct threads *threads = j->cpu->threads;
    const int64_t from = number * j->each, to = from + j->each < j->units ? from + j->each : j->units;
    if (j->up.data != NULL)
        for (int64_t i = from; i < to; i++)
            one_gated(j, i, sum, t);
    int64_t before = 0;
    for (int p = 0; p < j->count && j->up.data == NULL; p++) {
        int64_t units = units_of(packed_of(j->product[p].w), j->together);
        for (int64_t i = from > before ? from - before : 0; i < units && i + before < to; i++)
            one_product(j, &j->product[p], i, sum, t);
        before += units;
    }
    if (number + 1 == threads_first(threads, j->pieces, thread + 1) && j->next != NULL)
        prefetch_lines(j->next + (size_t)threads_first(threads, j->next_pieces, thread) * j->next_piece, START);
}

// A thread reads its run of pieces in one stream, so they may be small: PIECE bytes if that leaves each thread eight.
static void run(struct cpu *c, struct products_job *j, int64_t units)
{
    enum { PIECE = 32 << 10, PIECES = 8 };
    struct packed *p = j->product->w.packed;
    const size_t unit = (size_t)j->together * p->panel;
    const int64_t most = units / (PIECES * threads_count(c->threads)), whole = (int64_t)(PIECE / unit);
    j->cpu = c;
    j->units = units;
    j->each = most < 1 || whole < 1 ? 1 : whole < most ? whole : most;
    j->pieces = (int)((units + j->each - 1) / j->each);
    j->next = p->next.data;
    j->next_piece = p->next.piece;
    j->next_pieces = p->next.pieces;
    if (c->before != NULL) {
        c->before->next.data = p->data;
        c->before->next.piece = (size_t)j->each * unit;
        c->before->next.pieces = j->pieces;
    }
    c->before = p;
    threads_run(c->threads, j->pieces, products_job, j);
}

static int panels_together(const struct rounded *x)
{
    return x->how == ROUND_INT8 && x->chunks == 1 ? 1 : PANELS;
}

// Those of p that want their rows rounded alike, in one go. Returns how many it took.
static int run_alike(struct cpu *c, struct tensor x, const struct product *p, int count)
{
    enum rounding how = rounding_for(c, packed_of(p->w));
    int n = 1;
    while (n < count && rounding_for(c, packed_of(p[n].w)) == how)
        n++;
    struct products_job j = { .product = p, .count = n, .x = round_rows(c, x, how) };
    j.together = panels_together(&j.x);
    int64_t units = 0;
    for (int i = 0; i < n; i++) {
        assert(p[i].out.rows == x.rows && p[i].out.width == p[i].w.rows && p[i].w.width == x.width);
        assert(p[i].out.type == F32 && x.type == F32);
        units += units_of(packed_of(p[i].w), j.together);
    }
    run(c, &j, units);
    return n;
}

static size_t packed_bytes(struct tensor w)
{
    const struct packed *p = packed_of(w);
    return (size_t)p->panels * p->panel;
}

// Rows of a pass that are multiplied together: as many as stay in the second-level cache while panels go by; more of them
// where the panels are too many to stay near, and reading them again costs more than rows from further away do.
static int64_t rows_together(const struct cpu *c, struct tensor x, size_t weights)
{
    enum { NEAR = 8 << 20, CAPACITY = 640 << 10, MORE = 5 << 20 };
    int64_t most = c->lanes->products->most[ROUND_INT8], rows = (weights <= NEAR ? CAPACITY : MORE) / (4 * x.width);
    int64_t blocks = (x.rows + (rows > most ? rows : most) - 1) / (rows > most ? rows : most);
    return blocks <= 1 ? x.rows : (x.rows + blocks * most - 1) / (blocks * most) * most;
}

static struct tensor some_rows(struct tensor t, int64_t first, int64_t n)
{
    return tensor_rows(t, first, t.rows - first < n ? t.rows - first : n);
}

void cpu_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cpu *c = (struct cpu *)b;
    assert(count <= MAX_PRODUCTS);
    size_t weights = 0;
    for (int i = 0; i < count; i++)
        weights += packed_bytes(p[i].w);
    const int64_t rows = rows_together(c, x, weights);
    for (int64_t first = 0; first < x.rows; first += rows) {
        struct product part[MAX_PRODUCTS];
        for (int i = 0; i < count; i++) {
            part[i] = p[i];
            part[i].out = some_rows(p[i].out, first, rows);
        }
        for (int done = 0; done < count;)
            done += run_alike(c, some_rows(x, first, rows), part + done, count - done);
    }
}

void cpu_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up)
{
    struct cpu *c = (struct cpu *)b;
    assert(out.rows == x.rows && gate.rows == out.width && up.rows == out.width && gate.width == x.width);
    assert(up.width == x.width && out.type == F32 && x.type == F32);
    const struct product p = { .w = gate };
    struct products_job j = { .product = &p, .count = 1, .out = out, .up = up, .together = 1 };
    enum rounding how = rounding_for(c, packed_of(gate));
    if (how != rounding_for(c, packed_of(up))) { // weights of two kinds, rows rounded twice
        struct tensor other = tensor_of(buffer_reserve(&c->second, tensor_bytes(out)), F32, out.rows, out.width);
        multiply(b, out, x, gate);
        multiply(b, other, x, up);
        b->swiglu(b, out, out, other);
        return;
    }
    const int64_t rows = rows_together(c, x, packed_bytes(gate) + packed_bytes(up));
    for (int64_t first = 0; first < x.rows; first += rows) {
        j.out = some_rows(out, first, rows);
        j.x = round_rows(c, some_rows(x, first, rows), how);
        run(c, &j, packed_of(gate)->panels);
    }
}
