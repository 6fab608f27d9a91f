// rows.c - the CPU backend's operations on rows, and how rows are divided among the threads. The arithmetic is in
// row_kernels.c.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/threads.h"

void *buffer_reserve(struct buffer *b, size_t bytes)
{
    if (bytes > b->bytes) {
        free(b->data);
        b->data = NULL;
        if (posix_memalign(&b->data, 64, bytes) != 0)
            b->data = xmalloc(SIZE_MAX / 2); // ends the program with an error message
        b->bytes = bytes;
    }
    return b->data;
}

// Operations that touch fewer floats run on the calling thread.
enum { MIN_PARALLEL = 4096 };

struct row_loop {
    void (*row)(void *job, int64_t i, int thread);
    void *job;
    int64_t rows, per_job;
};

static void row_loop_job(void *self, int number, int thread)
{
    const struct row_loop *e = self;
    for (int64_t i = number * e->per_job; i < (number + 1) * e->per_job && i < e->rows; i++)
        e->row(e->job, i, thread);
}

int cpu_shares(const struct cpu *c, int64_t work)
{
    return work < MIN_PARALLEL ? 1 : 4 * threads_count(c->threads);
}

void cpu_each_row(struct cpu *c, int64_t rows, int64_t work, void (*row)(void *job, int64_t i, int thread), void *job)
{
    const int64_t shares = cpu_shares(c, work);
    struct row_loop e = { row, job, rows, (rows + shares - 1) / shares };
    if (rows > 0)
        threads_run(c->threads, (int)((rows + e.per_job - 1) / e.per_job), row_loop_job, &e);
}

struct rows_job {
    struct cpu *cpu;
    struct tensor out, x, w;
    float eps;
    const int32_t *row;
    int k;
    int32_t *token;
    float *log_p;
    enum gate_function f;
    float scale, cap;
    const float *weight;
    void (*one)(const struct rows_job *j, int64_t i);
};

static void rows_job(void *self, int64_t i, int thread)
{
    (void)thread;
    const struct rows_job *j = self;
    j->one(j, i);
}

static void for_rows(struct cpu *c, struct rows_job *j, int64_t work)
{
    j->cpu = c;
    cpu_each_row(c, j->out.rows, work, rows_job, j);
}

static void add_row(const struct rows_job *j, int64_t i)
{
    float *out = at(j->out, i);
    const float *x = at(j->x, j->x.rows == 1 ? 0 : i);
    for (int64_t k = 0; k < j->out.width; k++)
        out[k] += x[k];
}

void cpu_add(struct backend *b, struct tensor out, struct tensor x)
{
    assert(out.width == x.width && (x.rows == out.rows || x.rows == 1) && out.type == F32 && x.type == F32);
    struct rows_job j = { .out = out, .x = x, .one = add_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
}

static void rmsnorm_row(const struct rows_job *j, int64_t i)
{
    j->cpu->kernels->rows->rmsnorm(at(j->out, i), at(j->x, i), j->w.data, j->out.width, j->eps);
}

struct tensor cpu_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps)
{
    assert(out.width == x.width && out.rows == x.rows && w.rows == 1 && w.width == x.width && w.type == F32);
    struct rows_job j = { .out = out, .x = x, .w = w, .eps = eps, .one = rmsnorm_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
    return out;
}

static void glu_row(const struct rows_job *j, int64_t i)
{
    j->cpu->kernels->rows->glu(at(j->out, i), at(j->x, i), j->w.data != NULL ? at(j->w, i) : NULL, j->out.width, j->f);
}

void cpu_glu(struct backend *b, struct tensor out, struct tensor gate, struct tensor up, enum gate_function f)
{
    assert(out.width == gate.width && out.rows == gate.rows);
    assert(up.data == NULL || (up.width == gate.width && up.rows == gate.rows));
    struct rows_job j = { .out = out, .x = gate, .w = up, .one = glu_row, .f = f };
    for_rows((struct cpu *)b, &j, 4 * out.rows * out.width);
}

static void rescale_row(const struct rows_job *j, int64_t i)
{
    j->cpu->kernels->rows->rescale(at(j->out, i), j->out.width, j->scale, j->cap);
}

void cpu_rescale(struct backend *b, struct tensor x, float scale, float cap)
{
    struct rows_job j = { .out = x, .one = rescale_row, .scale = scale, .cap = cap };
    for_rows((struct cpu *)b, &j, (cap > 0 ? 8 : 1) * x.rows * x.width);
}

static void take_row(const struct rows_job *j, int64_t i)
{
    assert(j->row[i] >= 0 && j->row[i] < j->x.rows);
    const char *row = (const char *)j->x.data + (size_t)j->row[i] * type_row_bytes(j->x.type, j->x.width);
    j->cpu->kernels->rows->dequantize(at(j->out, i), row, j->x.type, j->x.width);
}

void cpu_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    assert(out.width == x.width && out.type == F32);
    struct rows_job j = { .out = out, .x = x, .row = row, .one = take_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
}

void cpu_embed(struct backend *b, struct tensor out, struct tensor table, const struct layout *s)
{
    assert(out.rows == s->n);
    cpu_take(b, out, table, s->token);
}

struct join_job {
    struct rows_job rows; // must be first; w: the table of the tokens' rows
    const struct layout *s;
    struct tensor stream, states, state_norm;
    struct joining how;
};

static void norm_or_copy(const struct row_kernels *kernels, float *out, const float *x, struct tensor w, int64_t width,
                         float eps)
{
    if (w.data != NULL)
        kernels->rmsnorm(out, x, w.data, width, eps);
    else if (out != x)
        memcpy(out, x, (size_t)width * sizeof(float));
}

static void join_row(const struct rows_job *rows, int64_t i)
{
    const struct join_job *j = (const struct join_job *)rows;
    const struct row_kernels *kernels = rows->cpu->kernels->rows;
    const int64_t width = rows->x.width;
    const char *row = (const char *)rows->x.data + (size_t)j->s->token[i] * type_row_bytes(rows->x.type, width);
    float *out = at(rows->out, i), *x = at(j->stream, i);
    if (j->states.data != NULL)
        memcpy(x, at(j->states, j->s->slot[i] * j->how.of_slot + 1 + j->s->parent[i]), (size_t)width * sizeof(float));
    kernels->dequantize(out, row, rows->x.type, width);
    norm_or_copy(kernels, out, out, rows->w, width, rows->eps);
    norm_or_copy(kernels, out + width, x, j->state_norm, width, rows->eps);
    if (!j->how.keeps_raw)
        memcpy(x, out + width, (size_t)width * sizeof(float));
}

struct tensor cpu_join(struct backend *b, struct tensor out, struct tensor x, struct tensor table, struct tensor states,
                       struct tensor token_norm, struct tensor state_norm, const struct layout *s, struct joining how)
{
    assert(out.rows == s->n && x.rows == s->n && x.width == table.width && out.width == 2 * table.width);
    struct join_job j = { .rows = { .out = out, .x = table, .w = token_norm, .eps = how.eps, .one = join_row },
                          .s = s,
                          .stream = x,
                          .states = states,
                          .state_norm = state_norm,
                          .how = how };
    for_rows((struct cpu *)b, &j.rows, 2 * out.rows * out.width);
    return out;
}

void cpu_keep_states(struct backend *b, struct tensor states, struct tensor x, const struct layout *s, int of_slot,
                     bool roots)
{
    (void)b;
    assert(x.rows == s->n && x.width == states.width);
    for (int i = 0; i < s->n; i++) {
        const int pending = s->place[i] - s->slot[i] * s->length - s->prefix[i];
        if (!roots || i + 1 == s->n || s->slot[i + 1] != s->slot[i])
            memcpy(at(states, s->slot[i] * of_slot + (roots ? 0 : 1 + pending)), at(x, i),
                   (size_t)x.width * sizeof(float));
    }
}

static void mix_row(const struct rows_job *j, int64_t i)
{
    float *out = at(j->out, i);
    for (int r = 0; r < j->k; r++) {
        const float *x = at(j->x, j->row[i * j->k + r]), weight = j->weight[i * j->k + r];
        for (int64_t d = 0; d < j->out.width; d++)
            out[d] = r == 0 ? weight * x[d] : out[d] + weight * x[d];
    }
}

void cpu_mix(struct backend *b, struct tensor out, struct tensor x, const int32_t *row, const float *weight, int k)
{
    assert(out.width == x.width && k >= 1 && k <= MAX_MIXED);
    struct rows_job j = { .out = out, .x = x, .row = row, .weight = weight, .k = k, .one = mix_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width * k);
}

void cpu_place(struct backend *b, struct tensor out, int column, struct tensor x)
{
    (void)b;
    assert(out.rows == x.rows && column + x.width <= out.width);
    for (int64_t i = 0; i < x.rows; i++)
        memcpy(at(out, i) + column, at(x, i), (size_t)x.width * sizeof(float));
}

void cpu_cut(struct backend *b, struct tensor out, struct tensor x, int column)
{
    (void)b;
    assert(out.rows == x.rows && column + out.width <= x.width);
    for (int64_t i = 0; i < out.rows; i++)
        memcpy(at(out, i), at(x, i) + column, (size_t)out.width * sizeof(float));
}

static void move_run(struct tensor x, const struct row_run *r)
{
    const size_t bytes = type_row_bytes(x.type, x.width);
    char *data = x.data;
    for (int i = 0; i < r->n; i++) {
        assert(r->row[i] >= r->to + i && (i == 0 || r->row[i] > r->row[i - 1]));
        if (r->row[i] != r->to + i)
            memcpy(data + (size_t)(r->to + i) * bytes, data + (size_t)r->row[i] * bytes, bytes);
    }
}

void cpu_move(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs)
{
    (void)b;
    for (int k = 0; k < count; k++) {
        assert(x[k].type == x[0].type && x[k].width == x[0].width);
        for (int i = 0; i < runs; i++)
            move_run(x[k], &run[i]);
    }
}

// ---- top-k

// Inserts x after the list's values that are not smaller. The list has n of at most k entries. Returns their number.
static int insert_largest(int32_t *token, float *value, int n, int k, int32_t id, float x)
{
    int place = n < k ? n++ : n - 1;
    for (; place > 0 && x > value[place - 1]; place--) {
        value[place] = value[place - 1];
        token[place] = token[place - 1];
    }
    value[place] = x;
    token[place] = id;
    return n;
}

// Blocks without a number that enters the list are skipped.
static void top_k_row(const struct rows_job *j, int64_t i)
{
    enum { BLOCK = 128 };
    const struct row_kernels *kernels = j->cpu->kernels->rows;
    const float *x = at(j->out, i);
    int32_t *token = j->token + i * j->k;
    float *value = j->log_p + i * j->k;
    const int64_t width = j->out.width;
    int n = 0;
    for (int64_t first = 0; first < width; first += BLOCK) {
        const int64_t end = first + BLOCK < width ? first + BLOCK : width;
        if (n == j->k && !(kernels->largest(x + first, end - first) > value[n - 1]))
            continue;
        for (int64_t v = first; v < end; v++)
            if (n < j->k || x[v] > value[n - 1])
                n = insert_largest(token, value, n, j->k, (int32_t)v, x[v]);
    }
    const double total = log(kernels->sum_exp(x, width, value[0])) + (double)value[0];
    for (int r = 0; r < n; r++)
        value[r] = (float)((double)value[r] - total);
}

void cpu_best(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p)
{
    assert(k >= 1 && k <= logits.width);
    struct rows_job j = { .out = logits, .k = k, .token = token, .log_p = log_p, .one = top_k_row };
    for_rows((struct cpu *)b, &j, logits.rows * logits.width);
}
