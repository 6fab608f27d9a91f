// take.cu - rows of a table as floats: rows as they are in a checkpoint or a pass, or rows of a packed weight, read
// from its tiles. Row numbers are kernel arguments, or on the device. And rows of a cache that move.
#include "kernels/cuda/norm.h"
#include "kernels/cuda/unpack.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

__device__ static float packed_value(const struct packed *p, int64_t r, int64_t k)
{
    const struct placed at = placed(p, r, k);
    const uint32_t bits = ((const uint32_t *)(p->quants + at.load))[at.word] >> at.shift;
    if (p->form == FORM_BF16)
        return bf16_to_float((uint16_t)bits);
    if (p->form == FORM_F16)
        return half_to_float((uint16_t)bits);
    const int code = (int)(bits & 15);
    const float q = p->form == FORM_INT8   ? (float)(int8_t)bits
                    : p->form == FORM_IQ4  ? (float)iq4_number(code)
                    : p->form == FORM_E4M3 ? e4m3_number((uint8_t)bits)
                    : p->form == FORM_E2M1 ? 0.5f * (float)e2m1_number(code)
                                           : (float)(code - p->zero);
    if (p->scaling == SCALING_NONE)
        return q;
    const int64_t tile = r / TILE, unit = k / form_unit(p->form);
    const uint32_t *scale = p->scales + ((tile * p->units + unit) * 8 + r % 8) * scale_words(p->scaling);
    const uint32_t *super = p->supers + ((tile * (p->units / 4) + unit / 4) * 8 + r % 8) * super_words(p->scaling);
    const struct affine line =
        affine_of(p->scaling, scale, super, (int)(k / GROUP % 2), (int)(r % TILE / 8), (int)(k % GROUP / 16));
    return q * line.scale + line.offset;
}

struct table {        // rows of either form
    const uint8_t *x; // NULL: packed
    enum type type;
    int64_t row_bytes;
    struct packed packed;
};

static struct table table_of(struct tensor x)
{
    const struct packed *p = (const struct packed *)x.packed;
    struct table t = {};
    if (p != NULL && p->form != FORM_RAW) {
        t.packed = *p;
        return t;
    }
    t.x = (const uint8_t *)x.data;
    t.type = x.type;
    t.row_bytes = (int64_t)type_row_bytes(x.type, x.width);
    return t;
}

__device__ static float table_value(const struct table &t, int64_t row, int64_t k)
{
    return t.x != NULL ? value_at(t.type, t.x + row * t.row_bytes, k) : packed_value(&t.packed, row, k);
}

struct rows_to_take {
    float *out; // (count, width)
    int64_t width;
    const int32_t *token; // (count) numbers on the device; NULL: these
    struct row_numbers numbers;
};
static_assert(sizeof(struct rows_to_take) + sizeof(struct table) <= 4096, "limit of kernel parameters");

static __global__ void take_kernel(const __grid_constant__ struct rows_to_take t,
                                   const __grid_constant__ struct table x)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int32_t *row = t.token != NULL ? t.token : t.numbers.row;
    if (k < t.width)
        t.out[blockIdx.y * t.width + k] = table_value(x, row[blockIdx.y], k);
}

static void queue_take(struct cuda *c, const struct rows_to_take &t, int rows, struct tensor x)
{
    QUEUE(c, take_kernel, dim3((unsigned)blocks_for(t.width, THREADS), (unsigned)rows), THREADS, 0, t, table_of(x));
}

// The first of n, as many as a launch has.
static struct row_numbers row_numbers_of(const int32_t *row, int64_t n)
{
    struct row_numbers to;
    to.n = (int)(n < ROW_NUMBERS ? n : (int64_t)ROW_NUMBERS);
    for (int i = 0; i < to.n; i++)
        to.row[i] = row[i];
    return to;
}

void cuda_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && out.type == F32);
    struct rows_to_take t = {};
    without_rounded(c, out);
    t.width = out.width;
    for (int64_t i = 0; i < out.rows; i++)
        assert(row[i] >= 0 && row[i] < x.rows);
    for (int64_t first = 0; first < out.rows; first += ROW_NUMBERS) {
        t.out = (float *)out.data + first * out.width;
        t.numbers = row_numbers_of(row + first, out.rows - first);
        queue_take(c, t, t.numbers.n, x);
    }
    cuda_launched(c, "take");
}

// ---- rows by a pass's layout, which is on the device: graphs have them

void cuda_embed(struct backend *b, struct tensor out, struct tensor table, const struct layout *s)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == table.width && out.type == F32 && out.rows == s->n);
    without_rounded(c, out);
    struct rows_to_take t = {};
    t.out = (float *)out.data, t.width = out.width, t.token = cuda_see(c, s)->token;
    queue_take(c, t, (int)out.rows, table);
    cuda_launched(c, "embed");
}

struct join_call {
    float *out, *x;       // (n, 2 width), (n, width)
    const float *states;  // NULL: x
    const float *norm[2]; // the token's row's, the state's; NULL: none
    const int32_t *token, *slot, *parent;
    int of_slot;
    float eps;
    bool keeps_raw;
    int64_t width;
    struct rounding rounded; // out is written rounded, too
};

// A block for each half of a row; that of the token is first brought as it is.
template <bool WIDE>
static __global__ void __launch_bounds__(NORM_THREADS)
    join_kernel(const __grid_constant__ struct join_call s, const __grid_constant__ struct table t)
{
    const int i = (int)blockIdx.x, half = (int)blockIdx.y, width = (int)s.width;
    const float *norm = s.norm[half];
    struct four weights[2];
    launch_dependents();
    load_weights_of_norm<WIDE>(weights, norm, width);
    wait_for_previous(); // norms are not written by kernels
    float *const out = s.out + (2 * (int64_t)i + half) * width, *const x = s.x + (int64_t)i * width;
    const int64_t row = half == 0          ? s.token[i]
                        : s.states == NULL ? i
                        : s.slot[i] < 0    ? 0 // padding: any row
                                           : s.slot[i] * s.of_slot + 1 + s.parent[i];
    const float *const from = half == 0 ? out : (s.states != NULL ? s.states : s.x) + row * width;
    for (int first = (int)threadIdx.x; half == 0 && first < width; first += 4 * (int)blockDim.x) {
        float some[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            some[j] = table_value(t, row, min(first + j * (int)blockDim.x, width - 1));
        UNROLL
        for (int j = 0; j < 4; j++)
            if (first + j * (int)blockDim.x < width)
                out[first + j * (int)blockDim.x] = some[j];
    }
    __syncthreads();
    norm_row<2, WIDE>(
        norm, weights, width, width, s.eps, [=](int k) { return load_four<WIDE, false>(from, k, width); },
        [&](int k, const struct four &raw, const struct four &y) {
            store_four<WIDE>(out, k, width, y);
            if (half == 1 && s.keeps_raw)
                store_four<WIDE>(x, k, width, raw);
            else if (half == 1)
                store_four<WIDE>(x, k, width, y);
            round_four(s.rounded, i, half * width + k, k < width, y.x);
        });
}

struct tensor cuda_join(struct backend *b, struct tensor out, struct tensor x, struct tensor table,
                        struct tensor states, struct tensor token_norm, struct tensor state_norm,
                        const struct layout *s, struct joining how)
{
    struct cuda *c = (struct cuda *)b;
    const struct layout *see = cuda_see(c, s);
    assert(out.rows == s->n && x.rows == s->n && x.width == table.width && out.width == 2 * x.width);
    struct join_call call = {};
    call.out = (float *)out.data, call.x = (float *)x.data, call.states = (const float *)states.data;
    call.norm[0] = (const float *)token_norm.data, call.norm[1] = (const float *)state_norm.data;
    call.token = see->token, call.slot = see->slot, call.parent = see->parent;
    call.of_slot = how.of_slot, call.eps = how.eps, call.keeps_raw = how.keeps_raw;
    call.width = x.width;
    out = without_rounded(c, out);
    without_rounded(c, x);
    const bool rounds = x.width % WARP == 0 && rounding_for(c, -1, out.rows, out.width, &call.rounded);
    const dim3 grid((unsigned)s->n, 2);
    const int threads = norm_threads((int)x.width);
    const uintptr_t tensors = (uintptr_t)out.data | (uintptr_t)x.data | (uintptr_t)states.data;
    const uintptr_t norms = (uintptr_t)token_norm.data | (uintptr_t)state_norm.data;
    const auto halves_kernel = norm_is_wide(x.width, tensors | norms) ? join_kernel<true> : join_kernel<false>;
    QUEUE(c, halves_kernel, grid, threads, 0, call, table_of(table));
    cuda_launched(c, "join");
    return rounds ? with_rounded(c, out) : out;
}

struct states_call {
    float *states;  // (slots * of_slot, width)
    const float *x; // (n, width)
    const int32_t *slot, *prefix, *place;
    int n, of_slot, length;
    bool roots;
    int64_t width;
};

static __global__ void states_kernel(const __grid_constant__ struct states_call s)
{
    kernel_prologue();
    const int i = (int)blockIdx.y, slot = s.slot[i];
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (slot < 0 || k >= s.width || (s.roots && i + 1 < s.n && s.slot[i + 1] == slot)) // padding, or not the last one
        return;
    const int row = s.roots ? 0 : 1 + s.place[i] - slot * s.length - s.prefix[i];
    s.states[((int64_t)slot * s.of_slot + row) * s.width + k] = s.x[i * s.width + k];
}

void cuda_keep_states(struct backend *b, struct tensor states, struct tensor x, const struct layout *s, int of_slot,
                      bool roots)
{
    struct cuda *c = (struct cuda *)b;
    const struct layout *see = cuda_see(c, s);
    assert(x.rows == s->n && x.width == states.width);
    without_rounded(c, states);
    struct states_call call = {};
    call.states = (float *)states.data, call.x = (const float *)x.data;
    call.slot = see->slot, call.prefix = see->prefix, call.place = see->place;
    call.n = s->n, call.of_slot = of_slot, call.length = see->length, call.roots = roots;
    call.width = x.width;
    QUEUE(c, states_kernel, dim3((unsigned)blocks_for(x.width, THREADS), (unsigned)s->n), THREADS, 0, call);
    cuda_launched(c, "keeping states");
}

// ---- rows that move down within tensors: those of accepted draft tokens in a cache, of all slots in one launch

// The sizes of a launch, whose parameters must stay below 4 KiB. A thread loads MOVE_EACH rows before it stores one.
enum { RUNS = 64, MOVED_ROWS = 384, TENSORS = 192, MOVE_EACH = 8 };

struct rows_to_move {
    int64_t units; // a row's
    int runs, rows;
    int16_t end[RUNS]; // the end of a run's rows in row[]
    int32_t to[RUNS], row[MOVED_ROWS];
    void *x[TENSORS];
};
static_assert(sizeof(struct rows_to_move) < 4096, "limit of kernel parameters");

// A run's rows move down and may overlap, so each thread copies its bytes in order: later rows lie behind the places of
// earlier ones.
template <typename unit> static __global__ void move_kernel(const __grid_constant__ struct rows_to_move m)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int run = (int)blockIdx.z, from = run > 0 ? m.end[run - 1] : 0, n = m.end[run] - from;
    unit *const x = (unit *)m.x[blockIdx.y];
    for (int first = 0; first < n && k < m.units; first += MOVE_EACH) {
        unit some[MOVE_EACH];
        UNROLL
        for (int i = 0; i < MOVE_EACH; i++)
            if (first + i < n)
                some[i] = x[m.row[from + first + i] * m.units + k];
        UNROLL
        for (int i = 0; i < MOVE_EACH; i++)
            if (first + i < n)
                x[(m.to[run] + first + i) * m.units + k] = some[i];
    }
}

static void queue_moves(struct cuda *c, struct rows_to_move *m, const struct tensor *x, int count)
{
    const int64_t bytes = (int64_t)type_row_bytes(x[0].type, x[0].width), unit = bytes % 16 == 0 ? 16 : 2;
    m->units = bytes / unit;
    for (int at = 0; at < count; at += TENSORS) {
        const int n = count - at < TENSORS ? count - at : TENSORS;
        const dim3 grid((unsigned)blocks_for(m->units, THREADS), (unsigned)n, (unsigned)m->runs);
        for (int i = 0; i < n; i++)
            m->x[i] = x[at + i].data;
        const auto runs_kernel = unit == 16 ? move_kernel<uint4> : move_kernel<uint16_t>;
        QUEUE(c, runs_kernel, grid, THREADS, 0, *m);
    }
    m->runs = m->rows = 0;
}

void cuda_move(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs)
{
    struct cuda *c = (struct cuda *)b;
    struct rows_to_move m = {};
    for (int i = 0; i < count; i++) {
        assert(x[i].type == x[0].type && x[i].width == x[0].width);
        without_rounded(c, x[i]);
    }
    for (int r = 0; r < runs; r++)
        for (int i = 0; i < run[r].n; i++) {
            assert(run[r].row[i] >= run[r].to + i && (i == 0 || run[r].row[i] > run[r].row[i - 1]));
            if (m.rows == MOVED_ROWS || (i == 0 && m.runs == RUNS))
                queue_moves(c, &m, x, count);
            if (i == 0 || m.runs == 0)
                m.to[m.runs++] = run[r].to + i;
            m.row[m.rows++] = run[r].row[i];
            m.end[m.runs - 1] = (int16_t)m.rows;
        }
    if (m.runs > 0)
        queue_moves(c, &m, x, count);
    cuda_launched(c, "move");
}

} // namespace DEVICE_SPACE
