// skinny.cu - products with packed weights on the matrix units, for any number of rows: out (n, m) = x (n, k) w^T.
//
// The one idea: everything is the same for every n. A block has sixteen rows of weights, and its eight warps share K:
// warp s takes units s, s + 8, s + 16, .. Each 32 k of a warp's are multiplied from zero, the smallest planes of the
// input first, and then added in with one rounding (whole numbers with their scale), so that what the matrix unit cuts
// off stays small. The eight sums are added in order. An output of the matrix instruction depends on its own row of
// weights and its own row of x, so all that n decides is how many outputs are made at once.
//
// Weights go from memory straight to registers, a few units ahead; the input comes from the caches, by ordinary loads,
// since whoever makes it may one day run at the same time. Registers are what there is least of: ptxas -v must show no
// spills, and loops are left rolled where it would.
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

__host__ __device__ constexpr int at_least_1(int n)
{
    return n > 1 ? n : 1;
}

// What a lane has of one unit of one tile.
template <int FORM, int SCALING> struct ahead {
    uint4 quants[form_loads(FORM)];
    uint32_t scale[at_least_1(scale_words(SCALING))], super[at_least_1(super_words(SCALING))];
};

// Unit number `at` of all the weight's.
template <int FORM, int SCALING>
__device__ inline void fetch(struct ahead<FORM, SCALING> *to, const struct packed &w, int at, int lane)
{
    UNROLL
    for (int i = 0; i < form_loads(FORM); i++)
        to->quants[i] = load_weights(w.quants + ((int64_t)at * form_loads(FORM) + i) * WARP + lane);
    const uint32_t *scales = w.scales + ((int64_t)at * 8 + lane / 4) * scale_words(SCALING);
    if constexpr (scale_words(SCALING) == 4) {
        const uint4 v = *(const uint4 *)scales;
        to->scale[0] = v.x, to->scale[1] = v.y, to->scale[2] = v.z, to->scale[3] = v.w;
    } else if constexpr (scale_words(SCALING) == 2) {
        const uint2 v = *(const uint2 *)scales;
        to->scale[0] = v.x, to->scale[1] = v.y;
    }
    const uint32_t *supers = w.supers + ((int64_t)(at / 4) * 8 + lane / 4) * super_words(SCALING);
    if constexpr (super_words(SCALING) == 2) {
        const uint2 v = *(const uint2 *)supers;
        to->super[0] = v.x, to->super[1] = v.y;
    } else if constexpr (super_words(SCALING) == 1)
        to->super[0] = *supers;
}

// Makes the second 32 k of a unit the first.
template <int FORM, int SCALING> __device__ inline void next_block(struct ahead<FORM, SCALING> *w)
{
    if constexpr (FORM == FORM_INT8)
        w->quants[0] = w->quants[1];
    if constexpr (FORM == FORM_INT4)
        w->quants[0] = make_uint4(w->quants[0].z, w->quants[0].w, 0, 0);
    UNROLL
    for (int i = 0; i < scale_words(SCALING) / 2; i++)
        w->scale[i] = w->scale[i + scale_words(SCALING) / 2];
}

// ---- pairs of bfloat16

// The low and the high halves of two words of which each is a float that bfloat16 holds.
__device__ inline uint32_t pair_of(float low, float high)
{
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xFFFF0000);
}

// a + b of each half, where the sum is exact.
__device__ inline uint32_t pair_sum(uint32_t a, uint32_t b)
{
#if defined(EMULATED)
    return pair_of(__uint_as_float(a << 16) + __uint_as_float(b << 16),
                   __uint_as_float(a & 0xFFFF0000) + __uint_as_float(b & 0xFFFF0000));
#else
    uint32_t sum; // from compute capability 8.0 on; there is no plain sum before 9.0
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3F803F80), "r"(b));
    return sum;
#endif
}

// 0x4300 is 128 in bfloat16, whose last seven bits then count ones; 0x4380 is 256.
__device__ inline uint32_t pair_of_int8(uint32_t q) // in bits 0..7 and 16..23, two's complement
{
    return pair_sum((q & 0x007F007F) | 0x43004300, (q & 0x00800080) | 0xC300C300);
}

__device__ inline uint32_t pair_of_int4(uint32_t q, uint32_t minus) // in bits 0..3 and 16..19; minus: -128 - zero
{
    return pair_sum((q & 0x000F000F) | 0x43004300, minus);
}

// A half as the sum of two bfloat16: its eleven bits, eight and three.
__device__ inline void pairs_of_half(uint32_t h, uint32_t *high, uint32_t *low)
{
    const float x = half_to_float((uint16_t)h), y = half_to_float((uint16_t)(h >> 16));
    const float of_x = __uint_as_float(__float_as_uint(x) & 0xFFFF0000);
    const float of_y = __uint_as_float(__float_as_uint(y) & 0xFFFF0000);
    *high = pair_of(of_x, of_y);
    *low = pair_of(x - of_x, y - of_y);
}

__device__ inline uint32_t word_of(const uint4 *v, int i)
{
    const uint4 &w = v[i / 4];
    return i % 4 == 0 ? w.x : i % 4 == 1 ? w.y : i % 4 == 2 ? w.z : w.w;
}

// The weights of instruction j of the first 32 k; halves have a second part.
template <int FORM> __device__ inline void weights_of(uint32_t a[2][4], const uint4 *quants, int j, uint32_t minus)
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t w = word_of(quants, (4 * j + i) * form_bits(FORM) / 16) >> (4 * j + i) * form_bits(FORM) % 16;
        if constexpr (FORM == FORM_BF16)
            a[0][i] = w;
        else if constexpr (FORM == FORM_F16)
            pairs_of_half(w, &a[0][i], &a[1][i]);
        else if constexpr (FORM == FORM_INT8)
            a[0][i] = pair_of_int8(w);
        else
            a[0][i] = pair_of_int4(w, minus);
    }
}

// ---- sums

// sum (16, 8) += the product of 32 k: from zero, the smallest parts first, and then once the scale.
template <int FORM, int SCALING, int PLANES>
__device__ inline void add_block(float sum[4], uint32_t a[2][2][4], const uint4 x[PLANES],
                                 const struct ahead<FORM, SCALING> &w, const float2 &sums)
{
    constexpr int HALVES = SCALING == SCALING_SIXTEENTHS ? 2 : 1; // of the block, with scales of their own
    UNROLL
    for (int half = 0; half < HALVES; half++) {
        float d[4] = {};
        UNROLL
        for (int part = FORM == FORM_F16; part >= 0; part--) {
            UNROLL
            for (int p = PLANES - 1; p >= 0; p--) {
                if (HALVES == 1 || half == 0)
                    mma_bf16(d, a[0][part], x[p].x, x[p].y);
                if (HALVES == 1 || half == 1)
                    mma_bf16(d, a[1][part], x[p].z, x[p].w);
            }
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            if constexpr (SCALING == SCALING_NONE)
                sum[i] += d[i];
            else {
                const struct line line = line_of<SCALING>(w.scale, w.super, 0, i / 2, half);
                sum[i] = fmaf(line.scale, d[i], sum[i]);
                if constexpr (has_offset(SCALING))
                    sum[i] = fmaf(line.offset, i % 2 == 0 ? sums.x : sums.y, sum[i]);
            }
        }
    }
}

// The sums of the slices, in their order, and what becomes of them.
template <int COLUMNS, int WEIGHTS>
__device__ inline void put(const struct skinny &s, const float sum[WEIGHTS][COLUMNS][4], int slice, int lane, int first)
{
    __shared__ float part[SLICES][WEIGHTS][COLUMNS * 4][32];
    UNROLL
    for (int v = 0; v < WEIGHTS; v++) {
        UNROLL
        for (int i = 0; i < COLUMNS * 4; i++)
            part[slice][v][i][lane] = sum[v][i / 4][i % 4];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < COLUMNS * 8 * TILE; o += THREADS) {
        const int n = o / TILE, r = o % TILE; // of the block's outputs
        const int i = n / 8 * 4 + r / 8 * 2 + n % 2, l = r % 8 * 4 + n % 8 / 2;
        const int64_t out_n = first * 8 + n, out_m = (int64_t)blockIdx.y * TILE + r;
        if (out_n >= s.x.n || out_m >= s.w[0].rows)
            continue;
        float total[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            total[v] = part[0][v][i][l];
            UNROLL
            for (int of = 1; of < SLICES; of++)
                total[v] += part[of][v][i][l];
        }
        float *out = s.out + out_n * s.w[0].rows + out_m;
        if constexpr (WEIGHTS == 2)
            *out = silu(total[0]) * total[1];
        else
            finish(out, total[0], s.bias != NULL ? s.bias + out_m : NULL, s.add);
    }
}

// Blocks that share a multiprocessor: two, if they can do with 128 registers a thread.
__host__ __device__ constexpr int blocks_of(int form, int planes, int columns, int weights)
{
    return columns * weights < 8 || (form == FORM_BF16 && planes == 1) ? 2 : 1;
}

// Units that are on their way while one is multiplied: fewer where that takes long.
__host__ __device__ constexpr int ahead_of(int columns, int weights, int planes)
{
    return columns * weights * planes >= 12 ? 1 : columns * weights * planes >= 4 ? 2 : 4 / weights;
}

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, PLANES, COLUMNS, WEIGHTS))
    skinny_kernel(const __grid_constant__ struct skinny s)
{
    using unit_ahead = struct ahead<FORM, SCALING>;
    constexpr int AHEAD = ahead_of(COLUMNS, WEIGHTS, PLANES), BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, units = s.w[0].units;
    const int first = blockIdx.x * COLUMNS; // of the tiles of eight rows of x
    const int from = blockIdx.y * units;
    unit_ahead ring[AHEAD][WEIGHTS] = {};
    float sum[WEIGHTS][COLUMNS][4] = {};
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        UNROLL
        for (int v = 0; v < WEIGHTS; v++)
            if (slice + i * SLICES < units)
                fetch(&ring[i][v], s.w[v], from + slice + i * SLICES, lane);
    }

    const uint4 *x = s.x.data + first * PLANES * WARP + lane;
    const float *sums = s.x.sums + first * 8 + lane % 4 * 2;
    const uint32_t minus = 0xC300C300 + (uint32_t)s.w[0].zero * 0x00010001; // -128 - zero
    UNROLL_BY(COLUMNS * WEIGHTS > 1 ? 1 : PLANES == 1 ? AHEAD : 2)
    for (int unit = slice; unit < units; unit += SLICES) {
        unit_ahead now[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            now[v] = ring[0][v];
            UNROLL
            for (int i = 1; i < AHEAD; i++)
                ring[i - 1][v] = ring[i][v];
            if (unit + AHEAD * SLICES < units)
                fetch(&ring[AHEAD - 1][v], s.w[v], from + unit + AHEAD * SLICES, lane);
        }
        UNROLL_BY(COLUMNS * WEIGHTS * PLANES >= 12 ? 1 : BLOCKS)
        for (int b = 0; b < BLOCKS; b++) {
            const int block = unit * BLOCKS + b;
            const uint4 *of_block = x + (int64_t)block * (s.x.tiles * PLANES * WARP);
            uint32_t a[WEIGHTS][2][2][4];
            UNROLL
            for (int v = 0; v < WEIGHTS; v++) {
                weights_of<FORM>(a[v][0], now[v].quants, 0, minus);
                weights_of<FORM>(a[v][1], now[v].quants, 1, minus);
            }
            UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                uint4 planes[PLANES];
                float2 of_x = make_float2(0, 0);
                UNROLL
                for (int p = 0; p < PLANES; p++)
                    planes[p] = of_block[(c * PLANES + p) * WARP];
                if constexpr (has_offset(SCALING))
                    of_x = *(const float2 *)(sums + block * (s.x.tiles * 8) + c * 8);
                UNROLL
                for (int v = 0; v < WEIGHTS; v++)
                    add_block<FORM, SCALING, PLANES>(sum[v][c], a[v], planes, now[v], of_x);
            }
            UNROLL
            for (int v = 0; v < WEIGHTS; v++)
                next_block(&now[v]);
        }
    }
    put<COLUMNS, WEIGHTS>(s, sum, slice, lane, first);
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static void launch(struct cuda *c, const struct skinny *s)
{
    // Blocks of the same weights are neighbours: the second one finds them in the cache.
    const dim3 grid((unsigned)(s->x.tiles / COLUMNS), (unsigned)s->w[0].tiles);
    auto *kernel = skinny_kernel<FORM, SCALING, PLANES, COLUMNS, WEIGHTS>;
    LAUNCH(kernel, grid, THREADS, 0, c->stream, *s);
}

template <int FORM, int SCALING, int PLANES>
static void choose_columns(struct cuda *c, const struct skinny *s, bool gated)
{
    const int tiles = s->x.tiles;
    if (gated)
        tiles == 1   ? launch<FORM, SCALING, PLANES, 1, 2>(c, s)
        : tiles == 2 ? launch<FORM, SCALING, PLANES, 2, 2>(c, s)
                     : launch<FORM, SCALING, PLANES, 4, 2>(c, s);
    else
        tiles == 1       ? launch<FORM, SCALING, PLANES, 1, 1>(c, s)
        : tiles == 2     ? launch<FORM, SCALING, PLANES, 2, 1>(c, s)
        : tiles % 8 != 0 ? launch<FORM, SCALING, PLANES, 4, 1>(c, s)
                         : launch<FORM, SCALING, PLANES, 8, 1>(c, s);
}

template <int FORM, int SCALING> static void choose_planes(struct cuda *c, const struct skinny *s, bool gated)
{
    if (wants_three(&s->w[0]))
        choose_columns<FORM, SCALING, 3>(c, s, gated);
    else
        choose_columns<FORM, SCALING, 1>(c, s, gated);
}

void skinny_run(struct cuda *c, const struct skinny *s, bool gated)
{
    const struct packed *p = &s->w[0];
    if (p->form == FORM_BF16)
        choose_planes<FORM_BF16, SCALING_NONE>(c, s, gated);
    else if (p->form == FORM_F16)
        choose_planes<FORM_F16, SCALING_NONE>(c, s, gated);
    else if (p->form == FORM_INT8 && p->scaling == SCALING_HALF)
        choose_planes<FORM_INT8, SCALING_HALF>(c, s, gated);
    else if (p->form == FORM_INT8 && p->scaling == SCALING_LEAST)
        choose_planes<FORM_INT8, SCALING_LEAST>(c, s, gated);
    else if (p->form == FORM_INT8 && p->scaling == SCALING_SUPER)
        choose_planes<FORM_INT8, SCALING_SUPER>(c, s, gated);
    else if (p->form == FORM_INT8)
        choose_planes<FORM_INT8, SCALING_SIXTEENTHS>(c, s, gated);
    else if (p->scaling == SCALING_HALF)
        choose_planes<FORM_INT4, SCALING_HALF>(c, s, gated);
    else if (p->scaling == SCALING_LEAST)
        choose_planes<FORM_INT4, SCALING_LEAST>(c, s, gated);
    else
        choose_planes<FORM_INT4, SCALING_SUPER>(c, s, gated);
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
