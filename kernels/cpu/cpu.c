// cpu.c - the table of operations on the CPU: shapes, shares of work for the threads, and the choice of
// instruction set. The arithmetic is in lanes.c.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/threads.h"

struct cpu {
    struct backend backend; // first
    const struct lanes *lanes;
    struct threads *threads;
    float **scratch;      // (threads) floats of each thread's own
    size_t *scratch_room; // (threads)
    float *padded;        // rows of a matmul whose k is no whole number of lanes
    size_t padded_room;
    char description[64];
};

// What is smaller than this is not worth waking a thread for.
enum { SMALL = 16384 };

static const struct lanes *best_lanes(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2"))
        return &lanes_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return &lanes_avx2;
#endif
    return &lanes_plain;
}

static float *more(float **at, size_t *room, size_t floats)
{
    if (floats > *room) {
        free(*at);
        *at = NULL;
        if (posix_memalign((void **)at, 64, floats * sizeof(float)) != 0)
            *at = xmalloc(SIZE_MAX / 2); // ends the program with its message
        *room = floats;
    }
    return *at;
}

static float *scratch(struct cpu *c, int thread, size_t floats)
{
    return more(&c->scratch[thread], &c->scratch_room[thread], floats);
}

// ---- memory

static void *cpu_alloc(struct backend *b, size_t bytes)
{
    (void)b;
    void *p = NULL;
    return posix_memalign(&p, 64, bytes != 0 ? bytes : 64) == 0 ? p : NULL;
}

static void cpu_release(struct backend *b, void *data)
{
    (void)b;
    free(data);
}

static void cpu_copy(struct backend *b, void *to, const void *from, size_t bytes)
{
    (void)b;
    memcpy(to, from, bytes);
}

static bool cpu_sync(struct backend *b, struct error *err)
{
    (void)b, (void)err;
    return true;
}

static const char *cpu_describe(struct backend *b)
{
    return ((struct cpu *)b)->description;
}

static struct tensor cpu_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    (void)b;
    (void)a, (void)err;
    return w; // used where it lies
}

static void cpu_unprepare(struct backend *b, struct tensor w)
{
    (void)b, (void)w;
}

// ---- matmul

struct matmul_job {
    struct cpu *cpu;
    struct matmul_call call;
    int64_t rows; // of w, for one job
};

static void matmul_job(void *self, int number, int thread)
{
    struct matmul_job *j = self;
    int64_t first = number * j->rows, last = first + j->rows;
    float *tile = scratch(j->cpu, thread, (size_t)(TILE_ROWS * j->call.stride));
    j->cpu->lanes->matmul(&j->call, first, last < j->call.w.rows ? last : j->call.w.rows, tile);
}

// x as rows of whole lanes: itself where it is that already, otherwise a copy with zeros behind each row.
static const float *whole_lanes(struct cpu *c, const float *x, int64_t n, int64_t k, int64_t stride)
{
    if (k == stride)
        return x;
    float *to = more(&c->padded, &c->padded_room, (size_t)(n * stride));
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * stride, x + i * k, (size_t)k * sizeof(float));
        memset(to + i * stride + k, 0, (size_t)(stride - k) * sizeof(float));
    }
    return to;
}

static void one_matmul(struct backend *b, struct tensor out, struct tensor x, struct tensor w)
{
    struct cpu *c = (struct cpu *)b;
    assert(out.type == F32 && x.type == F32 && out.rows == x.rows && x.width == w.width && out.width == w.rows);
    int64_t k = w.width, stride = (k + c->lanes->width - 1) / c->lanes->width * c->lanes->width;
    struct matmul_job j = { c, { out.data, whole_lanes(c, x.data, x.rows, k, stride), stride, w, x.rows, k }, 0 };
    // Pieces small enough that threads end together, large enough that sharing them out costs nothing.
    int64_t piece = w.rows / (8 * threads_count(c->threads)) / TILE_ROWS * TILE_ROWS;
    j.rows = piece < TILE_ROWS ? TILE_ROWS : piece;
    int jobs = (int)((w.rows + j.rows - 1) / j.rows);
    threads_run(c->threads, jobs, matmul_job, &j);
}

// ---- operations on rows

struct rows_job {
    struct cpu *cpu;
    struct tensor out, x, w;
    const struct layout *see;
    float eps;
    const int32_t *row;
    int k;
    int32_t *token;
    float *log_p;
    int64_t each; // rows of one job
    void (*one)(const struct rows_job *j, int64_t i);
};

static void rows_job(void *self, int number, int thread)
{
    (void)thread;
    const struct rows_job *j = self;
    int64_t last = (number + 1) * j->each;
    for (int64_t i = number * j->each; i < last && i < j->out.rows; i++)
        j->one(j, i);
}

static void for_rows(struct cpu *c, struct rows_job *j, int64_t work)
{
    j->cpu = c;
    int64_t shares = work < SMALL ? 1 : 4 * threads_count(c->threads);
    j->each = (j->out.rows + shares - 1) / shares;
    if (j->each > 0)
        threads_run(c->threads, (int)((j->out.rows + j->each - 1) / j->each), rows_job, j);
}

static float *at(struct tensor t, int64_t row)
{
    return (float *)t.data + row * t.width;
}

static void add_row(const struct rows_job *j, int64_t i)
{
    float *out = at(j->out, i);
    const float *x = at(j->x, j->x.rows == 1 ? 0 : i);
    for (int64_t k = 0; k < j->out.width; k++)
        out[k] += x[k];
}

static void cpu_add(struct backend *b, struct tensor out, struct tensor x)
{
    assert(out.width == x.width && (x.rows == out.rows || x.rows == 1) && out.type == F32 && x.type == F32);
    struct rows_job j = { .out = out, .x = x, .one = add_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
}

static void rmsnorm_row(const struct rows_job *j, int64_t i)
{
    j->cpu->lanes->rmsnorm(at(j->out, i), at(j->x, i), j->w.data, j->out.width, j->eps);
}

static void cpu_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps)
{
    assert(out.width == x.width && out.rows == x.rows && w.rows == 1 && w.width == x.width && w.type == F32);
    struct rows_job j = { .out = out, .x = x, .w = w, .eps = eps, .one = rmsnorm_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
}

static void cpu_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    for (int i = 0; i < count; i++) {
        struct tensor to = p[i].out;
        if (p[i].add)
            to.data = cpu_alloc(b, tensor_bytes(to));
        one_matmul(b, to, x, p[i].w);
        if (p[i].bias.data != NULL)
            cpu_add(b, to, p[i].bias);
        if (p[i].add) {
            cpu_add(b, p[i].out, to);
            cpu_release(b, to.data);
        }
    }
}

static void swiglu_row(const struct rows_job *j, int64_t i)
{
    j->cpu->lanes->swiglu(at(j->out, i), at(j->x, i), j->w.data != NULL ? at(j->w, i) : NULL, j->out.width);
}

static void cpu_swiglu(struct backend *b, struct tensor out, struct tensor gate, struct tensor up)
{
    assert(out.width == gate.width && out.rows == gate.rows);
    assert(up.data == NULL || (up.width == gate.width && up.rows == gate.rows));
    struct rows_job j = { .out = out, .x = gate, .w = up, .one = swiglu_row };
    for_rows((struct cpu *)b, &j, 4 * out.rows * out.width);
}

static void cpu_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up)
{
    struct tensor t = out;
    t.data = cpu_alloc(b, tensor_bytes(out));
    one_matmul(b, out, x, gate);
    one_matmul(b, t, x, up);
    cpu_swiglu(b, out, out, t);
    cpu_release(b, t.data);
}

// Angles as HF transformers computes them: position * frequency rounded to float, then its cosine and sine.
static void angles_row(const struct rows_job *j, int64_t i)
{
    const int half = (int)j->w.width;
    const float *frequency = j->w.data;
    float *out = at(j->out, i);
    for (int d = 0; d < half; d++) {
        float angle = (float)j->see->position[i] * frequency[d];
        out[d] = cosf(angle);
        out[d + half] = sinf(angle);
    }
}

static void cpu_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency)
{
    assert(out.rows == s->n && out.width == 2 * inverse_frequency.width);
    struct rows_job j = { .out = out, .w = inverse_frequency, .see = s, .one = angles_row };
    for_rows((struct cpu *)b, &j, 16 * out.rows * out.width);
}

// Halves of a head are turned against each other ("rotate half").
static void turn(float *to, const float *x, const float *angles, int64_t width, int hd)
{
    const int half = hd / 2;
    for (int64_t h = 0; h < width; h += hd)
        for (int d = 0; d < half; d++) {
            float a = x[h + d], b = x[h + d + half], c = angles[d], s = angles[d + half];
            to[h + d] = a * c - b * s;
            to[h + d + half] = b * c + a * s;
        }
}

static void cpu_store(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                      struct tensor keys, struct tensor values, const struct layout *s)
{
    (void)b;
    assert(keys.width == k.width && values.width == v.width && keys.type == F32 && q.rows == s->n);
    int hd = (int)angles.width;
    for (int64_t i = 0; i < q.rows; i++) {
        turn(at(q, i), at(q, i), at(angles, i), q.width, hd);
        turn(at(keys, s->place[i]), at(k, i), at(angles, i), k.width, hd);
        memcpy(at(values, s->place[i]), at(v, i), (size_t)v.width * sizeof(float));
    }
}

static void take_row(const struct rows_job *j, int64_t i)
{
    assert(j->row[i] >= 0 && j->row[i] < j->x.rows);
    const char *row = (const char *)j->x.data + (size_t)j->row[i] * type_row_bytes(j->x.type, j->x.width);
    j->cpu->lanes->expand(at(j->out, i), row, j->x.type, j->x.width);
}

static void cpu_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    assert(out.width == x.width && out.type == F32);
    struct rows_job j = { .out = out, .x = x, .row = row, .one = take_row };
    for_rows((struct cpu *)b, &j, out.rows * out.width);
}

static void cpu_place(struct backend *b, struct tensor out, int column, struct tensor x)
{
    (void)b;
    assert(out.rows == x.rows && column + x.width <= out.width);
    for (int64_t i = 0; i < x.rows; i++)
        memcpy(at(out, i) + column, at(x, i), (size_t)x.width * sizeof(float));
}

static void cpu_move(struct backend *b, struct tensor x, int to, const int32_t *row, int n)
{
    (void)b;
    size_t bytes = type_row_bytes(x.type, x.width);
    for (int i = 0; i < n; i++) {
        assert(row[i] >= to + i && (i == 0 || row[i] > row[i - 1]));
        if (row[i] != to + i)
            memcpy((char *)x.data + (size_t)(to + i) * bytes, (char *)x.data + (size_t)row[i] * bytes, bytes);
    }
}

// ---- attention

struct attend_job {
    struct cpu *cpu;
    struct attend_call call;
};

static void attend_job(void *self, int number, int thread)
{
    struct attend_job *j = self;
    const struct attend_call *c = &j->call;
    size_t room = (size_t)c->see->length + 16;
    float *work = scratch(j->cpu, thread, (size_t)(c->heads / c->kv_heads + 1) * room);
    j->cpu->lanes->attend(c, number / c->kv_heads, number % c->kv_heads, work);
}

static void cpu_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                       const struct layout *s, int head_dim)
{
    struct cpu *c = (struct cpu *)b;
    int heads = (int)(q.width / head_dim), kv_heads = (int)(keys.width / head_dim);
    assert(out.rows == s->n && q.rows == s->n && out.width == q.width && heads % kv_heads == 0 && keys.type == F32);
    struct attend_job j = { c, { out.data, q.data, keys.data, values.data, s, heads, kv_heads, head_dim } };
    threads_run(c->threads, s->n * kv_heads, attend_job, &j);
}

// ---- the likeliest

static void best_row(const struct rows_job *j, int64_t i)
{
    const float *x = at(j->out, i);
    int32_t *token = j->token + i * j->k;
    float *value = j->log_p + i * j->k;
    int n = 0;
    for (int64_t v = 0; v < j->out.width; v++) {
        if (n == j->k && !(x[v] > value[n - 1]))
            continue;
        int place = n < j->k ? n++ : n - 1;
        for (; place > 0 && x[v] > value[place - 1]; place--) {
            value[place] = value[place - 1];
            token[place] = token[place - 1];
        }
        value[place] = x[v];
        token[place] = (int32_t)v;
    }
    double total = log(j->cpu->lanes->sum_exp(x, j->out.width, value[0])) + (double)value[0];
    for (int r = 0; r < n; r++)
        value[r] = (float)((double)value[r] - total);
}

static void cpu_best(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p)
{
    assert(k >= 1 && k <= logits.width);
    struct rows_job j = { .out = logits, .k = k, .token = token, .log_p = log_p, .one = best_row };
    for_rows((struct cpu *)b, &j, logits.rows * logits.width);
}

static void cpu_destroy(struct backend *b)
{
    struct cpu *c = (struct cpu *)b;
    for (int i = 0; i < threads_count(c->threads); i++)
        free(c->scratch[i]);
    free(c->scratch);
    free(c->scratch_room);
    free(c->padded);
    threads_destroy(c->threads);
    free(c);
}

static const struct backend table = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .sync = cpu_sync,
    .destroy = cpu_destroy,
    .describe = cpu_describe,
    .prepare = cpu_prepare,
    .unprepare = cpu_unprepare,
    .matmul = cpu_matmul,
    .gated = cpu_gated,
    .add = cpu_add,
    .rmsnorm = cpu_rmsnorm,
    .swiglu = cpu_swiglu,
    .angles = cpu_angles,
    .store = cpu_store,
    .attend = cpu_attend,
    .take = cpu_take,
    .place = cpu_place,
    .move = cpu_move,
    .best = cpu_best,
};

struct backend *backend_cpu_with(int threads, const char *isa, struct error *err)
{
    const struct lanes *lanes = best_lanes();
    if (isa != NULL && strcmp(isa, "plain") == 0)
        lanes = &lanes_plain;
#if defined(__x86_64__)
    else if (isa != NULL && strcmp(isa, "avx2") == 0 && lanes == &lanes_avx512)
        lanes = &lanes_avx2;
#endif
    else if (isa != NULL && strcmp(isa, lanes->name) != 0) {
        fail(err, "cpu: this processor has no %s", isa);
        return NULL;
    }
    struct cpu *c = xcalloc(1, sizeof(*c));
    c->backend = table;
    c->lanes = lanes;
    c->threads = threads_create(threads > 0 ? threads : threads_available());
    int n = threads_count(c->threads);
    c->scratch = xcalloc((size_t)n, sizeof(*c->scratch));
    c->scratch_room = xcalloc((size_t)n, sizeof(*c->scratch_room));
    snprintf(c->description, sizeof(c->description), "%s, %d thread%s", lanes->name, n, n == 1 ? "" : "s");
    return &c->backend;
}

struct backend *backend_cpu(int threads, struct error *err)
{
    return backend_cpu_with(threads, NULL, err);
}
