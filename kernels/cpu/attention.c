// attention.c - RoPE, writes to the KV cache, and the division of attention into jobs for the threads. The inner loops
// are in attention_kernels.c.
#include <assert.h>
#include <math.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/threads.h"

// ---- RoPE and the KV cache

struct store_job {
    struct cpu *cpu;
    struct tensor q, k, v, angles, keys, values;
    int head_dim;
    const struct layout *layout;
};

static uint8_t *cache_row(struct tensor t, int64_t row)
{
    return (uint8_t *)t.data + (size_t)row * type_row_bytes(t.type, t.width);
}

static void store_row(void *self, int64_t i, int thread)
{
    const struct store_job *j = self;
    const struct row_kernels *kernels = j->cpu->kernels->rows;
    const float *keys = at(j->k, i);
    if (j->angles.data != NULL) {
        const float *angles = at(j->angles, i);
        const int rotated = (int)j->angles.width;
        float *to = buffer_reserve(&j->cpu->scratch[thread], (size_t)j->k.width * sizeof(float));
        kernels->rope(at(j->q, i), at(j->q, i), angles, j->q.width, j->head_dim, rotated);
        kernels->rope(to, keys, angles, j->k.width, j->head_dim, rotated);
        keys = to;
    }
    kernels->write_kv(cache_row(j->keys, j->layout->place[i]), j->keys.type, keys, j->k.width);
    kernels->write_kv(cache_row(j->values, j->layout->place[i]), j->values.type, at(j->v, i), j->v.width);
}

static void rotate_and_store(struct cpu *c, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                             struct tensor keys, struct tensor values, const struct layout *s, int head_dim)
{
    assert(keys.width == k.width && values.width == v.width && q.rows == s->n && k.rows == s->n && v.rows == s->n);
    assert(angles.data == NULL || (angles.rows == s->n && angles.width % 2 == 0 && angles.width <= head_dim));
    struct store_job j = { .cpu = c,
                           .q = q,
                           .k = k,
                           .v = v,
                           .angles = angles,
                           .keys = keys,
                           .values = values,
                           .head_dim = head_dim,
                           .layout = s };
    cpu_each_row(c, q.rows, q.rows * (q.width + k.width + v.width), store_row, &j);
}

// Angles are those of HF transformers: position * frequency is rounded to float, then its cosine and sine are taken.
void cpu_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency)
{
    (void)b;
    const int half = (int)inverse_frequency.width;
    const float *frequency = inverse_frequency.data;
    assert(out.rows == s->n && out.width == 2 * half);
    for (int64_t i = 0; i < out.rows; i++)
        for (int d = 0; d < half; d++) {
            float angle = (float)s->position[i] * frequency[d];
            at(out, i)[d] = cosf(angle);
            at(out, i)[d + half] = sinf(angle);
        }
}

// ---- attention

struct attend_job {
    struct cpu *cpu;
    struct attend_call call;
    const struct attend_part *block; // the rows of the block
    int heads_of_part, head_parts;   // kv heads of a part; parts of all kv heads
    int splits;                      // jobs: (blocks, head_parts, splits); splits == 1: each job computes all splits
};

// positions (n): how many positions each row attends to. dense (n): how many of them are in the cache row of their
// position: the prefix, and the pending rows from the first on without a gap.
static void count_positions(const struct layout *s, int32_t *positions, int32_t *dense)
{
    for (int i = 0; i < s->n; i++) {
        const uint64_t *bits = s->ancestors + (int64_t)i * s->words;
        bool gap = false;
        positions[i] = dense[i] = s->prefix[i];
        for (int w = 0; w < s->words; w++) {
            positions[i] += __builtin_popcountll(bits[w]);
            int run = ~bits[w] == 0 ? 64 : __builtin_ctzll(~bits[w]);
            if (!gap)
                dense[i] += run;
            gap = gap || run < 64;
        }
    }
}

static void attend_job(void *self, int number, int thread)
{
    const struct attend_job *j = self;
    const struct attention_kernels *kernels = j->cpu->kernels->attention;
    struct attend_call c = j->call;
    struct attend_part t = j->block[number / j->splits / j->head_parts];
    t.split = number % j->splits;
    t.kv_head = number / j->splits % j->head_parts * j->heads_of_part;
    t.kv_heads = c.kv_heads - t.kv_head < j->heads_of_part ? c.kv_heads - t.kv_head : j->heads_of_part;
    const int heads = t.kv_heads * (c.heads / c.kv_heads), queries = t.n * heads;
    size_t scratch_bytes = (attention_scratch(queries, c.head_dim) + 63) / 64 * 64;
    size_t partial = c.splits > 1 && j->splits == 1
                         ? (size_t)queries * (size_t)c.splits * (size_t)(c.head_dim + 2) * sizeof(float)
                         : 0;
    char *work = buffer_reserve(&j->cpu->scratch[thread], scratch_bytes + partial);
    int max_positions = 0, first = INT32_MAX;
    for (int i = t.first; i < t.first + t.n; i++) {
        max_positions = c.positions[i] > max_positions ? c.positions[i] : max_positions;
        first = attend_first(&c, i) < first ? attend_first(&c, i) : first;
    }
    if (j->splits > 1) {
        if (t.split * SPLIT < max_positions && (t.split + 1) * SPLIT > first)
            kernels->run_split(&c, &t, work);
        return;
    }
    if (partial > 0) {
        c.partial = (float *)(work + scratch_bytes);
        c.row0 = t.first;
        c.head0 = t.kv_head * (c.heads / c.kv_heads);
        c.n_heads = heads;
    }
    for (t.split = first / SPLIT; t.split * SPLIT < max_positions; t.split++)
        kernels->run_split(&c, &t, work);
    for (int i = t.first; i < t.first + t.n && partial > 0; i++)
        for (int h = 0; h < heads; h++)
            kernels->combine(&c, i, c.head0 + h);
}

static void combine_job(void *self, int number, int thread)
{
    (void)thread;
    const struct attend_job *j = self;
    for (int h = 0; h < j->call.heads; h++)
        j->cpu->kernels->attention->combine(&j->call, number, h);
}

// Returns the rows per block: as many as share one reading of a kv head's keys, but fewer if threads would be idle.
// Transposing the keys of a block costs about as much as four queries.
static int rows_of_block(int n, int group, int jobs, int threads)
{
    enum { TRANSPOSE_COST = 4 };
    const int max_rows = MAX_PART_QUERIES / group > 1 ? MAX_PART_QUERIES / group : 1;
    int best = max_rows < n ? max_rows : n, min_cost = INT32_MAX;
    for (int rows = best; rows >= 1; rows--) {
        int rounds = ((n + rows - 1) / rows * jobs + threads - 1) / threads;
        int cost = rounds * (TRANSPOSE_COST + rows * group);
        if (cost < min_cost) {
            min_cost = cost;
            best = rows;
        }
    }
    return best;
}

// Returns the kv heads of a part. Their parts of a cache row are read in one stream, so it is as many as the workspace
// allows, but fewer if threads would be idle.
static int heads_together(int kv_heads, int queries, int jobs, int threads)
{
    int together = MAX_PART_QUERIES / queries < kv_heads ? MAX_PART_QUERIES / queries : kv_heads;
    while (together > 1 && (kv_heads + together - 1) / together * jobs < 4 * threads)
        together--;
    return together > 1 ? together : 1;
}

struct tensor cpu_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor k, struct tensor v,
                         struct tensor angles, struct tensor keys, struct tensor values, const struct layout *s,
                         struct attention a)
{
    struct cpu *c = (struct cpu *)b;
    const int n = s->n, head_dim = a.head_dim, heads = (int)(q.width / head_dim),
              kv_heads = (int)(keys.width / head_dim);
    const int threads = threads_count(c->threads);
    const struct layout in_short = a.short_cache ? short_layout(s) : *s;
    s = &in_short;
    assert(out.rows == n && q.rows == n && out.width == q.width && q.width % head_dim == 0 && heads % kv_heads == 0 &&
           keys.type == values.type && keys.width == values.width);
    assert(keys.type == F32 || keys.type == BF16 || (keys.type == Q8_0 && head_dim % 32 == 0));
    rotate_and_store(c, q, k, v, angles, keys, values, s, head_dim);
    int32_t *positions = buffer_reserve(&c->positions, (size_t)n * (2 * sizeof(int32_t) + sizeof(struct attend_part)));
    int32_t *dense = positions + n;
    struct attend_part *block = (struct attend_part *)(dense + n);
    count_positions(s, positions, dense);
    int blocks = 0, max_positions = 0;
    for (int i = 0; i < n; i++)
        max_positions = positions[i] > max_positions ? positions[i] : max_positions;
    const int splits = (max_positions + SPLIT - 1) / SPLIT,
              rows = rows_of_block(n, heads / kv_heads, kv_heads * splits, threads);
    for (int i = 0; i < n; i++) {
        if (blocks == 0 || block[blocks - 1].n == rows || s->slot[i] != s->slot[block[blocks - 1].first])
            block[blocks++] = (struct attend_part){ .first = i };
        block[blocks - 1].n++;
    }
    struct attend_job j = { .cpu = c, .block = block, .splits = 1 };
    j.heads_of_part = heads_together(kv_heads, heads / kv_heads * (rows < n ? rows : n), blocks * splits, threads);
    j.head_parts = (kv_heads + j.heads_of_part - 1) / j.heads_of_part;
    j.call = (struct attend_call){ .out = out.data,
                                   .q = q.data,
                                   .keys = keys,
                                   .values = values,
                                   .row_bytes = type_row_bytes(keys.type, keys.width),
                                   .layout = s,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = head_dim,
                                   .scale = a.scale != 0 ? a.scale : 1.0f / sqrtf((float)head_dim),
                                   .cap = a.cap,
                                   .window = a.window,
                                   .positions = positions,
                                   .dense = dense,
                                   .splits = splits };
    // If there are few rows of long sequences, the threads share the splits.
    if (splits > 1 && blocks * j.head_parts < 4 * threads) {
        j.splits = splits;
        j.call.partial = buffer_reserve(&c->partial, (size_t)n * (size_t)heads * (size_t)j.splits *
                                                         (size_t)(head_dim + 2) * sizeof(float));
        j.call.n_heads = heads;
    }
    threads_run(c->threads, blocks * j.head_parts * j.splits, attend_job, &j);
    if (j.splits > 1)
        threads_run(c->threads, n, combine_job, &j);
    if (blocks == 1 && j.splits == 1)
        c->by_columns = out.data;
    return out;
}
