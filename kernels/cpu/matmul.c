// matmul.c - rows times packed weights: packing, rounding of the rows, and the division into jobs for the threads. The
// inner loops are in the matmul_*_kernels.c files.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/threads.h"

// ---- packing

struct pack_job {
    const struct packed *p;
    struct tensor w;
    int64_t per_job; // number of panels
};

static void pack_job(void *self, int number, int thread)
{
    (void)thread;
    const struct pack_job *j = self;
    for (int64_t i = number * j->per_job; i < (number + 1) * j->per_job && i < j->p->panels; i++)
        pack_panel(j->p, j->w, i);
}

struct tensor cpu_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    struct cpu *c = (struct cpu *)b;
    struct packed shape = packed_shape(w);
    assert(a != ACTIVATIONS_DEFAULT);
    // int8 activations need quantized weights
    shape.activations = a == ACTIVATIONS_INT8 && !type_is_quantized(w.type) ? ACTIVATIONS_F32 : a;
    shape.data = arena_alloc(&c->arena, (size_t)shape.panels * shape.panel);
    if (shape.data == NULL) {
        fail(err, "cpu: not enough memory for %zu bytes of packed weights", (size_t)shape.panels * shape.panel);
        return (struct tensor){ 0 };
    }
    struct packed *p = xmalloc(sizeof(*p));
    *p = shape;
    struct pack_job j = { p, w, (p->panels + 63) / 64 };
    if (w.data != NULL)
        threads_run(c->threads, (int)((p->panels + j.per_job - 1) / j.per_job), pack_job, &j);
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
    if (c->last_weight == p)
        c->last_weight = NULL;
    if (p != NULL)
        arena_free(&c->arena, p->data);
    free(p);
}

// ---- rows

static enum rounding rounding_for(const struct cpu *c, const struct packed *p)
{
    if (p->activations == ACTIVATIONS_INT8)
        return ROUND_INT8;
    if (p->activations == ACTIVATIONS_BF16)
        return p->type == BF16 && c->kernels->matmul[ROUND_PAIRS] != NULL ? ROUND_PAIRS : ROUND_BF16;
    return ROUND_NONE;
}

struct round_job { // jobs: (chunks, parts of the width); by_columns: (parts, chunks)
    struct cpu *cpu;
    const float *x;
    const int32_t *row; // rows of x; NULL: its first ones
    const struct rounded *to;
    uint32_t *data;
    bool by_columns;
    int parts;
    int64_t part; // numbers of a row in a job
};

// Returns rows of x as if they were adjacent, numbers from .. to of each.
static const float *gathered(const struct round_job *j, int64_t first, int rows, int64_t from, int64_t to, int thread)
{
    const int64_t k = j->to->k;
    float *x = buffer_reserve(&j->cpu->scratch[thread], (size_t)(rows * k) * sizeof(*x));
    for (int i = 0; i < rows; i++)
        memcpy(x + i * k + from, j->x + j->row[first + i] * k + from, (size_t)(to - from) * sizeof(*x));
    return x;
}

static void round_job(void *self, int number, int thread)
{
    const struct round_job *j = self;
    const struct rounded *to = j->to;
    const int chunk = j->by_columns ? number % to->chunks : number / j->parts;
    const int64_t from = (j->by_columns ? number / to->chunks : number % j->parts) * j->part;
    const int64_t first = chunk_first(to, chunk);
    const int rows = (int)(chunk_first(to, chunk + 1) - first);
    const int64_t end = from + j->part < to->k ? from + j->part : to->k;
    const float *x = j->row != NULL ? gathered(j, first, rows, from, end, thread) : j->x + first * to->k;
    j->cpu->kernels->matmul_rows->round(j->data + first * to->words, rows, x, to->k, from, end, to->rounding);
}

// Returns the shape of the rounded rows, without data.
static struct rounded rounded_shape(const struct cpu *c, int64_t n, int64_t k, enum rounding how)
{
    const struct matmul_kernels *kernels = c->kernels->matmul[how];
    const int64_t max = kernels->max_rows, chunks = n <= kernels->max_rows_single ? 1 : (n + max - 1) / max;
    const int64_t words = how == ROUND_INT8 ? k / GROUP * INT8_WORDS : how == ROUND_PAIRS ? (k + 1) / 2 : k;
    return (struct rounded){ .rounding = how,
                             .n = n,
                             .k = k,
                             .words = words,
                             .chunks = (int)chunks,
                             .pass_rows = n,
                             .pass_chunks = (int)chunks };
}

// Divides the rounding of j->to into jobs, about `shares` of them. Returns their number.
static int divide_rounding(struct round_job *j, int shares)
{
    const int64_t k = j->to->k, parts = (shares + j->to->chunks - 1) / j->to->chunks;
    j->part = ((k + parts - 1) / parts + GROUP - 1) / GROUP * GROUP;
    j->parts = (int)((k + j->part - 1) / j->part);
    return j->to->chunks * j->parts;
}

static struct rounded round_rows(struct cpu *c, struct tensor x, enum rounding how)
{
    struct rounded r = rounded_shape(c, x.rows, x.width, how);
    r.data = x.data;
    if (how == ROUND_NONE && x.rows == 1)
        return r; // the rows are already in that layout
    uint32_t *data = buffer_reserve(&c->rounded, (size_t)(r.n * r.words) * sizeof(uint32_t));
    struct round_job j = { .cpu = c, .x = x.data, .to = &r, .data = data, .by_columns = x.data == c->by_columns };
    threads_run(c->threads, divide_rounding(&j, cpu_shares(c, r.n * r.k)), round_job, &j);
    r.data = data;
    return r;
}

// ---- products

struct products_job {
    struct cpu *cpu;
    const struct product *product; // (count)
    int count;
    struct tensor out, up; // operands of gated; up.data NULL: not gated
    enum gate_function f;
    struct rounded x;
    int blocks;             // blocks of rows: a thread keeps its rows in its caches
    int panels_per_call;    // number of panels in a unit of work
    int64_t units, per_job; // units of a block, and per job
    int jobs;               // (blocks, jobs of a block)
    // The weight that is read after this product, if the order of products is that of the last pass; NULL: unknown.
    const uint8_t *next;
    size_t next_job_bytes; // bytes per job
    int next_jobs;
};

static const struct packed *packed_of(struct tensor w)
{
    assert(w.packed != NULL); // w is from prepare()
    return w.packed;
}

static int64_t units_of(const struct packed *p, int panels_per_call)
{
    return (p->panels + panels_per_call - 1) / panels_per_call;
}

static int panel_width(const struct packed *p, int64_t panel)
{
    return (int)(p->rows - panel * PANEL < PANEL ? p->rows - panel * PANEL : PANEL);
}

// The rows and the products that a thread works on.
struct work {
    const struct products_job *job;
    struct rounded x; // a block of rows
    int64_t first;    // its first row
    float *sums;
    struct tile *tile;
};

// Returns output `column` of a row, and those of the rows after it. No struct tensor is made for each panel: its parts
// would be stored and read back at another size, which waits until the outputs before it have left the store buffer (3
// % of a pass).
static float *output_at(const struct tensor *out, int64_t row, int64_t column)
{
    return (float *)out->data + row * out->width + column;
}

// sums (count, x.n, PANEL) = x times `count` panels
static void run_panels(const struct work *w, float *sums, const struct packed *p, const struct panel *panel, int count)
{
    memset(sums, 0, (size_t)(count * w->x.n * PANEL) * sizeof(float));
    w->job->cpu->kernels->matmul[w->x.rounding]->run(sums, p, panel, count, &w->x, w->tile);
}

// Prefetches the rows to which `width` numbers will be written while they are computed: another thread may have read
// them last.
static void prefetch_outputs(const float *to, int64_t width, int64_t n)
{
    for (int64_t i = 0; i < n && i < OUTPUT_PREFETCH; i++)
        __builtin_prefetch(to + i * width, 1, 3);
}

static void run_product(const struct work *w, const struct product *q, int64_t unit)
{
    const struct products_job *j = w->job;
    const struct packed *p = packed_of(q->w);
    struct panel panel[MAX_PANELS];
    int64_t first = unit * j->panels_per_call;
    int count = 0;
    for (; count < j->panels_per_call && first + count < p->panels; count++) {
        const uint8_t *data = p->data + (size_t)(first + count) * p->panel;
        bool last = first + count + j->panels_per_call >= p->panels;
        panel[count] = (struct panel){ data, last ? NULL : data + (size_t)j->panels_per_call * p->panel };
    }
    for (int i = 0; i < count; i++)
        prefetch_outputs(output_at(&q->out, w->first, (first + i) * PANEL), q->out.width, w->x.n);
    run_panels(w, w->sums, p, panel, count);
    for (int i = 0; i < count; i++)
        j->cpu->kernels->matmul_rows->write(output_at(&q->out, w->first, 0), q->out.width, (first + i) * PANEL,
                                            panel_width(p, first + i), w->sums + i * w->x.n * PANEL, w->x.n,
                                            q->bias.data, q->add);
}

static void run_gated(const struct work *w, int64_t at)
{
    const struct products_job *j = w->job;
    const struct packed *gate = packed_of(j->product->w), *up = packed_of(j->up);
    const uint8_t *g = gate->data + (size_t)at * gate->panel, *u = up->data + (size_t)at * up->panel;
    const bool last = at + 1 == gate->panels;
    const struct panel panel[MAX_PANELS] = { { g, last ? NULL : g + gate->panel }, { u, last ? NULL : u + up->panel } };
    float *second = w->sums + w->x.n * PANEL;
    prefetch_outputs(output_at(&j->out, w->first, at * PANEL), j->out.width, w->x.n);
    if (gate->type == up->type)
        run_panels(w, w->sums, gate, panel, 2);
    else {
        run_panels(w, w->sums, gate, panel, 1);
        run_panels(w, second, up, panel + 1, 1);
    }
    j->cpu->kernels->matmul_rows->write_gated(output_at(&j->out, w->first, 0), j->out.width, at * PANEL,
                                              panel_width(gate, at), w->sums, second, w->x.n, j->f);
}

static void products_job(void *self, int number, int thread)
{
    enum { START = 4096 }; // bytes of the next product that are prefetched
    const struct products_job *j = self;
    const int block_jobs = j->jobs / j->blocks;
    struct work w = { .job = j };
    w.x = rounded_block(&j->x, number / block_jobs, j->blocks, &w.first);
    size_t sums = (size_t)(MAX_PANELS * w.x.n * PANEL) * sizeof(float);
    char *scratch = buffer_reserve(&j->cpu->scratch[thread], sums + sizeof(struct tile));
    w.tile = (struct tile *)scratch;
    w.sums = (float *)(scratch + sizeof(struct tile));
    const struct threads *threads = j->cpu->threads;
    const int64_t from = number % block_jobs * j->per_job,
                  to = from + j->per_job < j->units ? from + j->per_job : j->units;
    if (j->up.data != NULL)
        for (int64_t i = from; i < to; i++)
            run_gated(&w, i);
    int64_t before = 0;
    for (int p = 0; p < j->count && j->up.data == NULL; p++) {
        int64_t units = units_of(packed_of(j->product[p].w), j->panels_per_call);
        for (int64_t i = from > before ? from - before : 0; i < units && i + before < to; i++)
            run_product(&w, &j->product[p], i);
        before += units;
    }
    if (number + 1 == threads_first(threads, j->jobs, thread + 1) && j->next != NULL)
        prefetch_lines(j->next + (size_t)threads_first(threads, j->next_jobs, thread) * j->next_job_bytes, START);
}

// A thread reads its consecutive jobs in one stream, so jobs may be small: JOB_BYTES, if that gives each thread at
// least JOBS_PER_THREAD. round_units: blocks times units, over all products that the threads run in this round.
static void divide(struct cpu *c, struct products_job *j, int64_t units, int64_t round_units)
{
    enum { JOB_BYTES = 32 << 10, JOBS_PER_THREAD = 8 };
    const size_t unit = (size_t)j->panels_per_call * packed_of(j->product->w)->panel;
    const int64_t max = round_units / (JOBS_PER_THREAD * threads_count(c->threads)),
                  in_job = (int64_t)(JOB_BYTES / unit);
    j->cpu = c;
    j->units = units;
    j->per_job = max < 1 || in_job < 1 ? 1 : in_job < max ? in_job : max;
    j->jobs = j->blocks * (int)((units + j->per_job - 1) / j->per_job);
}

static void run(struct cpu *c, struct products_job *j, int64_t units)
{
    struct packed *p = j->product->w.packed;
    const size_t unit = (size_t)j->panels_per_call * p->panel;
    divide(c, j, units, units * j->blocks);
    j->next = p->next.data;
    j->next_job_bytes = p->next.job_bytes;
    j->next_jobs = p->next.jobs;
    if (c->last_weight != NULL) {
        c->last_weight->next.data = j->blocks == 1 ? p->data : NULL;
        c->last_weight->next.job_bytes = (size_t)j->per_job * unit;
        c->last_weight->next.jobs = j->jobs;
    }
    c->last_weight = p;
    threads_run(c->threads, j->jobs, products_job, j);
}

static int panels_per_call(const struct rounded *x)
{
    return x->rounding == ROUND_INT8 && x->chunks == 1 ? 1 : MAX_PANELS;
}

// Returns the number of blocks of rows that are multiplied one after another: the rows of one block remain in L2 while
// the panels are read. If the weights are too large for the cache, reading them again costs more than reading rows from
// L3, so a block has more rows. If each thread can have a block of many rows, it keeps these rows from product to
// product.
static int blocks_of(const struct cpu *c, const struct rounded *x, size_t weights)
{
    enum { SMALL_WEIGHTS = 8 << 20, L2_BYTES = 640 << 10, L3_BYTES = 5 << 20, THREAD_ROWS = 64 };
    const int64_t rows = (weights <= SMALL_WEIGHTS ? L2_BYTES : L3_BYTES) / (4 * x->k) + 1;
    int64_t blocks = (x->n + rows - 1) / rows, threads = threads_count(c->threads);
    threads = x->n / THREAD_ROWS < threads ? x->n / THREAD_ROWS : threads;
    blocks = blocks > threads ? blocks : threads;
    return (int)(blocks < 1 ? 1 : blocks < x->chunks ? blocks : x->chunks);
}

static size_t packed_bytes(struct tensor w)
{
    const struct packed *p = packed_of(w);
    return (size_t)p->panels * p->panel;
}

// Runs the products at the front of p whose rows are rounded alike. Returns their number.
static int run_same_rounding(struct cpu *c, struct tensor x, const struct product *p, int count)
{
    enum rounding how = rounding_for(c, packed_of(p->w));
    int n = 1;
    while (n < count && rounding_for(c, packed_of(p[n].w)) == how)
        n++;
    struct products_job j = { .product = p, .count = n, .x = round_rows(c, x, how) };
    j.panels_per_call = panels_per_call(&j.x);
    int64_t units = 0;
    size_t weights = 0;
    for (int i = 0; i < n; i++) {
        weights += packed_bytes(p[i].w);
        assert(p[i].out.rows == x.rows && p[i].out.width == p[i].w.rows && p[i].w.width == x.width);
        assert(p[i].out.type == F32 && x.type == F32);
        units += units_of(packed_of(p[i].w), j.panels_per_call);
    }
    j.blocks = blocks_of(c, &j.x, weights);
    run(c, &j, units);
    return n;
}

void cpu_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    assert(count <= MAX_PRODUCTS);
    for (int done = 0; done < count;)
        done += run_same_rounding((struct cpu *)b, x, p + done, count - done);
}

struct tensor cpu_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up,
                        enum gate_function f)
{
    struct cpu *c = (struct cpu *)b;
    assert(out.rows == x.rows && gate.rows == out.width && up.rows == out.width && gate.width == x.width);
    assert(up.width == x.width && out.type == F32 && x.type == F32);
    const struct product p = { .w = gate };
    struct products_job j = { .product = &p, .count = 1, .out = out, .up = up, .f = f, .panels_per_call = 1 };
    enum rounding how = rounding_for(c, packed_of(gate));
    if (how != rounding_for(c, packed_of(up))) { // two types of weights: rows are rounded twice, and nothing is fused
        struct tensor other = tensor_of(buffer_reserve(&c->gated, tensor_bytes(out)), F32, out.rows, out.width);
        multiply(b, out, x, gate);
        multiply(b, other, x, up);
        b->glu(b, out, out, other, f);
        return out;
    }
    j.x = round_rows(c, x, how);
    j.blocks = blocks_of(c, &j.x, packed_bytes(gate) + packed_bytes(up));
    run(c, &j, packed_of(gate)->panels);
    c->by_columns = j.blocks == 1 ? out.data : NULL;
    return out;
}

// ---- products of groups of rows

// The rounding and the products of one group. The jobs of all groups are one round of the threads, since the products
// of an expert may be so small that a round for each would cost more than they do.
struct group_jobs {
    struct rounded x;
    struct round_job round;
    struct product product;
    struct products_job products;
    int jobs, first; // number of jobs in the current round, and number of the first one
};

struct groups_jobs {
    void (*job)(void *self, int number, int thread);
    struct group_jobs *list;
    int count;
};

static void groups_job(void *self, int number, int thread)
{
    const struct groups_jobs *j = self;
    int low = 0, high = j->count; // list[low].first <= number < list[high].first
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(j->list[middle].first <= number ? &low : &high) = middle;
    }
    struct group_jobs *g = &j->list[low];
    if (j->job == round_job)
        round_job(&g->round, number - g->first, thread);
    else
        products_job(&g->products, number - g->first, thread);
}

static void run_groups(struct cpu *c, struct group_jobs *list, int count, void (*job)(void *, int, int))
{
    struct groups_jobs all = { job, list, count };
    int jobs = 0;
    for (int i = 0; i < count; i++) { // a group without jobs begins where the next one does, and is never found
        list[i].first = jobs;
        jobs += list[i].jobs;
    }
    threads_run(c->threads, jobs, groups_job, &all);
}

enum group_weights { OF_W, OF_UP, OF_BOTH };

// Fills list[0 .. returned) with the groups that have rows.
static int groups_with_rows(struct cpu *c, struct tensor out, struct tensor x, const struct row_group *g, int count,
                            enum group_weights which, struct group_jobs *list)
{
    int n = 0;
    int64_t first = 0;
    for (int i = 0; i < count; i++) {
        const struct tensor w = which == OF_UP ? g[i].up : g[i].w;
        if (g[i].rows == 0)
            continue;
        assert(w.rows == out.width && w.width == x.width);
        struct group_jobs *j = &list[n++];
        *j = (struct group_jobs){ .x = rounded_shape(c, g[i].rows, x.width, rounding_for(c, packed_of(w))) };
        j->product = (struct product){ .out = tensor_rows(out, first, g[i].rows), .w = w };
        j->products = (struct products_job){ .product = &j->product, .count = 1 };
        if (which == OF_BOTH) {
            j->products.out = j->product.out;
            j->products.up = g[i].up;
        }
        first += g[i].rows;
    }
    assert(first == out.rows);
    return n;
}

static void round_groups(struct cpu *c, struct tensor x, const int32_t *row, struct group_jobs *list, int count)
{
    size_t words = 0, at = 0;
    int64_t rows = 0, done = 0;
    for (int i = 0; i < count; i++) {
        words += (size_t)(list[i].x.n * list[i].x.words);
        rows += list[i].x.n;
    }
    uint32_t *data = buffer_reserve(&c->rounded, words * sizeof(*data));
    const int shares = cpu_shares(c, rows * x.width);
    for (int i = 0; i < count; i++) {
        struct group_jobs *j = &list[i];
        const float *from = (const float *)x.data + (row != NULL ? 0 : done * x.width);
        j->round = (struct round_job){ .cpu = c, .x = from, .row = row, .to = &j->x, .data = data + at };
        if (row != NULL)
            j->round.row += done;
        if (j->x.rounding == ROUND_NONE && j->x.n == 1) {
            j->x.data = (const uint32_t *)(from + (row != NULL ? row[done] * x.width : 0));
        } else {
            j->x.data = data + at;
            j->jobs = divide_rounding(&j->round, (int)(shares * j->x.n / rows) + 1);
        }
        at += (size_t)(j->x.n * j->x.words);
        done += j->x.n;
    }
    run_groups(c, list, count, round_job);
}

static void multiply_groups(struct cpu *c, struct tensor out, struct tensor x, const int32_t *row,
                            const struct row_group *g, int count, enum group_weights which, enum gate_function f)
{
    struct group_jobs *list = buffer_reserve(&c->groups, (size_t)count * sizeof(*list));
    const int n = groups_with_rows(c, out, x, g, count, which, list);
    int64_t all = 0;
    round_groups(c, x, row, list, n);
    for (int i = 0; i < n; i++) {
        struct products_job *j = &list[i].products;
        j->x = list[i].x;
        j->f = f;
        j->panels_per_call = which == OF_BOTH ? 1 : panels_per_call(&j->x);
        j->blocks = blocks_of(c, &j->x, packed_bytes(j->product->w) + (which == OF_BOTH ? packed_bytes(j->up) : 0));
        all += j->blocks * units_of(packed_of(j->product->w), j->panels_per_call);
    }
    for (int i = 0; i < n; i++) {
        struct products_job *j = &list[i].products;
        divide(c, j, units_of(packed_of(j->product->w), j->panels_per_call), all);
        list[i].jobs = j->jobs;
    }
    run_groups(c, list, n, products_job);
    c->last_weight = NULL; // the experts that come next are unknown
    c->by_columns = NULL;
}

struct tensor cpu_grouped(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                          const struct row_group *g, int count, enum gate_function f)
{
    struct cpu *c = (struct cpu *)b;
    assert(out.type == F32 && x.type == F32 && (row != NULL || x.rows == out.rows));
    bool fused = true;
    for (int i = 0; i < count; i++) // rows are rounded twice, as in gated
        fused = fused &&
                (g[i].up.data == NULL || rounding_for(c, packed_of(g[i].w)) == rounding_for(c, packed_of(g[i].up)));
    if (fused) {
        multiply_groups(c, out, x, row, g, count, g->up.data != NULL ? OF_BOTH : OF_W, f);
        return out;
    }
    struct tensor other = tensor_of(buffer_reserve(&c->gated, tensor_bytes(out)), F32, out.rows, out.width);
    multiply_groups(c, out, x, row, g, count, OF_W, f);
    multiply_groups(c, other, x, row, g, count, OF_UP, f);
    b->glu(b, out, out, other, f);
    return out;
}
