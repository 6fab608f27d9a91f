// unit.h - operations on a unit of weights: loading, conversion to pairs of bfloat16, product with the input, and
// accumulation. Shared by matmul_small.cu, matmul_ring.cu and matmul_large.cu, which divide the work differently but
// give the same bits.
//
// Each 32 k are accumulated from zero and then added to the sum with one rounding (integers with their scale), so that
// the truncation of the matrix unit stays small.
#pragma once
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

__host__ __device__ constexpr int at_least_1(int n)
{
    return n > 1 ? n : 1;
}

// A lane's part of one unit of one tile.
template <int FORM, int SCALING> struct fragment {
    uint4 quants[form_loads(FORM)];
    uint32_t scale[at_least_1(scale_words(SCALING))], super[at_least_1(super_words(SCALING))];
};

// Loads unit number `at` of the weight.
template <int FORM, int SCALING>
__device__ inline void fetch(struct fragment<FORM, SCALING> *to, const struct packed &w, int at, int lane)
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
    } else if constexpr (scale_words(SCALING) == 1)
        to->scale[0] = *scales;
    const uint32_t *supers = w.supers + ((int64_t)(at / 4) * 8 + lane / 4) * super_words(SCALING);
    if constexpr (super_words(SCALING) == 2) {
        const uint2 v = *(const uint2 *)supers;
        to->super[0] = v.x, to->super[1] = v.y;
    } else if constexpr (super_words(SCALING) == 1)
        to->super[0] = *supers;
}

// A unit of k in shared memory: TILES tiles of weights, COLUMNS tiles of x.
template <int FORM, int SCALING, int TILES, int COLUMNS> struct alignas(16) stage {
    static constexpr int BLOCKS = form_unit(FORM) / GROUP;
    uint4 quants[TILES][form_loads(FORM)][WARP];
    uint4 x[BLOCKS][COLUMNS][WARP];
    alignas(16) uint32_t scales[at_least_1(TILES * 8 * scale_words(SCALING))]; // (tiles, g, words)
    alignas(16) uint32_t supers[at_least_1(TILES * 8 * super_words(SCALING))];
    alignas(16) float sums[at_least_1(has_offset(SCALING) * BLOCKS * 2 * 8 * COLUMNS)]; // (blocks, 2, rows of x)
};

// A lane's part of a tile of a stage.
template <int FORM, int SCALING, int TILES, int COLUMNS>
__device__ inline struct fragment<FORM, SCALING> load_fragment(const struct stage<FORM, SCALING, TILES, COLUMNS> &from,
                                                               int tile) {
    const int lane = threadIdx.x % WARP;
    struct fragment<FORM, SCALING> w;
    UNROLL
    for (int i = 0; i < form_loads(FORM); i++)
        w.quants[i] = from.quants[tile][i][lane];
    UNROLL
    for (int i = 0; i < scale_words(SCALING); i++)
        w.scale[i] = from.scales[(tile * 8 + lane / 4) * scale_words(SCALING) + i];
    UNROLL
    for (int i = 0; i < super_words(SCALING); i++)
        w.super[i] = from.supers[(tile * 8 + lane / 4) * super_words(SCALING) + i];
    return w;
}

// Moves the second 32 k of a unit to the place of the first.
template <int FORM, int SCALING>
__device__ inline void next_block(struct fragment<FORM, SCALING> *w)
{
    if constexpr (form_bits(FORM) == 8)
        w->quants[0] = w->quants[1];
    if constexpr (form_bits(FORM) == 4)
        w->quants[0] = make_uint4(w->quants[0].z, w->quants[0].w, 0, 0);
    if constexpr (SCALING == SCALING_POWER)
        w->scale[0] >>= 16;
    UNROLL
    for (int i = 0; i < scale_words(SCALING) / 2 && SCALING != SCALING_FLOAT; i++)
        w->scale[i] = w->scale[i + scale_words(SCALING) / 2];
}

// ---- pairs of bfloat16

// A pair of bfloat16 from two floats that bfloat16 represents exactly.
__device__ inline uint32_t pair_of(float low, float high)
{
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xFFFF0000);
}

// 0x4300 is 128 in bfloat16, whose last seven bits then count units; 0x4380 is 256.
__device__ inline uint32_t pair_of_int8(uint32_t q) // q: bits 0..7 and 16..23, two's complement
{
    return pair_sum((q & 0x007F007F) | 0x43004300, (q & 0x00800080) | 0xC300C300);
}

__device__ inline uint32_t pair_of_int4(uint32_t q, uint32_t minus) // q: bits 0..3 and 16..19; minus: -128 - zero
{
    return pair_sum((q & 0x000F000F) | 0x43004300, minus);
}

// A pair of codes' numbers, by a permutation of bytes: from the lower half of the table and from the upper one.
__device__ inline uint32_t pair_of_iq4(uint32_t codes) // bits 0..3 and 16..19
{
    const uint32_t place = codes & 0x00070007, from = place | place >> 8, upper = (codes >> 3 & 0x00010001) * 0xFF;
    const uint32_t low = __byte_perm(0xBFAD9881, 0xF6EADDCF, from), high = __byte_perm(0x26190D01, 0x71594535, from);
    return pair_of_int8(low ^ ((low ^ high) & upper));
}

// Floats of four bits: two of exponent, so their bits are those of subnormal bfloat16, or of ones beside them, times
// 2^126.
__device__ inline uint32_t pair_of_e2m1(uint32_t codes) // bits 0..3 and 16..19
{
    return pair_product((codes & 0x00070007) << 6, 0x7E807E80) | (codes & 0x00080008) << 12;
}

__device__ inline uint32_t pair_of_e4m3(uint32_t b) // b: bits 0..7 and 16..23; as above, times 2^120
{
    return pair_product((b & 0x007F007F) << 4, 0x7B807B80) | (b & 0x00800080) << 8;
}

// Splits halves into sums of two bfloat16: of eleven bits, eight and three.
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

// Operands of instruction j of the first 32 k; a[1]: the second part of halves.
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
        else if constexpr (FORM == FORM_IQ4)
            a[0][i] = pair_of_iq4(w);
        else if constexpr (FORM == FORM_E4M3)
            a[0][i] = pair_of_e4m3(w);
        else if constexpr (FORM == FORM_E2M1)
            a[0][i] = pair_of_e2m1(w);
        else
            a[0][i] = pair_of_int4(w, minus);
    }
}

// Calls f with the form and the scaling of a weight: the combinations that there are.
template <typename F> static inline void with_form(const struct packed &p, F f)
{
    const auto one = [&]<int FORM, int SCALING>() {
        if (p.form == FORM && p.scaling == SCALING)
            f.template operator()<FORM, SCALING>();
    };
    one.template operator()<FORM_BF16, SCALING_NONE>();
    one.template operator()<FORM_F16, SCALING_NONE>();
    one.template operator()<FORM_INT8, SCALING_HALF>();
    one.template operator()<FORM_INT8, SCALING_MIN>();
    one.template operator()<FORM_INT8, SCALING_SUPER>();
    one.template operator()<FORM_INT8, SCALING_SUB_BLOCK>();
    one.template operator()<FORM_INT4, SCALING_HALF>();
    one.template operator()<FORM_INT4, SCALING_MIN>();
    one.template operator()<FORM_INT4, SCALING_SUPER>();
    one.template operator()<FORM_IQ4, SCALING_HALF>();
    one.template operator()<FORM_IQ4, SCALING_SUB_BLOCK>();
    one.template operator()<FORM_E2M1, SCALING_POWER>();
    one.template operator()<FORM_E4M3, SCALING_FLOAT>();
}

// ---- sums

// Sums of 32 k of two rows; the sums of the two sixteens are `stride` apart.
__device__ inline float2 sums_of(const float *sums, int stride)
{
    const float2 a = *(const float2 *)sums, b = *(const float2 *)(sums + stride);
    return make_float2(a.x + b.x, a.y + b.y);
}

// sum (16, 8) += the product of 32 k: accumulated from zero, the smallest parts first, then scaled once.
template <int FORM, int SCALING>
__device__ inline void add_block(float sum[4], uint32_t a[2][2][4], const uint4 &x,
                                 const struct fragment<FORM, SCALING> &w, const float2 &sums)
{
    constexpr int HALVES = SCALING == SCALING_SUB_BLOCK ? 2 : 1; // halves of the block that have their own scales
    UNROLL
    for (int half = 0; half < HALVES; half++) {
        float d[4] = {};
        UNROLL
        for (int part = FORM == FORM_F16; part >= 0; part--) {
            if (HALVES == 1 || half == 0)
                mma_bf16(d, a[0][part], x.x, x.y);
            if (HALVES == 1 || half == 1)
                mma_bf16(d, a[1][part], x.z, x.w);
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            if constexpr (SCALING == SCALING_NONE)
                sum[i] += d[i];
            else {
                const struct affine line = affine_of(SCALING, w.scale, w.super, 0, i / 2, half);
                sum[i] = fmaf(line.scale, d[i], sum[i]);
                if constexpr (has_offset(SCALING))
                    sum[i] = fmaf(line.offset, i % 2 == 0 ? sums.x : sums.y, sum[i]);
            }
        }
    }
}

// sum += the products of a unit of two tiles of weights and COLUMNS tiles of x; APART: one tile of weights after the
// other, where registers do not suffice for both. x, of_x: the lane's, of the first block and tile of x; columns: tiles
// of x that a block of 32 k has there.
template <int FORM, int SCALING, int COLUMNS, bool APART = false>
__device__ inline void add_unit(float (&sum)[2][COLUMNS][4], struct fragment<FORM, SCALING> (&w)[2], const uint4 *x,
                                const float *of_x, int columns, uint32_t minus)
{
    constexpr int TOGETHER = APART ? 1 : 2;
    UNROLL_BY(COLUMNS > 2 ? 1 : form_unit(FORM) / GROUP) // registers do not suffice for more
    for (int b = 0; b < form_unit(FORM) / GROUP; b++) {
        UNROLL
        for (int first = 0; first < 2; first += TOGETHER) {
            uint32_t a[TOGETHER][2][2][4];
            UNROLL
            for (int v = 0; v < TOGETHER; v++) {
                weights_of<FORM>(a[v][0], w[first + v].quants, 0, minus);
                weights_of<FORM>(a[v][1], w[first + v].quants, 1, minus);
            }
            UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                const uint4 of_tile = x[(b * columns + c) * WARP];
                float2 sums = make_float2(0, 0);
                if constexpr (has_offset(SCALING))
                    sums = sums_of(of_x + 2 * b * columns * 8 + c * 8, 8 * columns);
                UNROLL
                for (int v = 0; v < TOGETHER; v++)
                    add_block<FORM, SCALING>(sum[first + v][c], a[v], of_tile, w[first + v], sums);
            }
        }
        next_block(&w[0]);
        next_block(&w[1]);
    }
}

// ---- a slice of k for each warp or block (matmul_small.cu, matmul_ring.cu): tiles, sums on their way, outputs

struct place { // a tile's: its part, and its number there
    int part, tile;
};

// Tile number `tile` of weights side by side; part k.count if there are fewer.
__device__ inline struct place place_of(const struct work &k, int tile)
{
    struct place p = { 0, tile };
    while (p.part < k.count && p.tile >= k.part[p.part].w.tiles)
        p.tile -= k.part[p.part++].w.tiles;
    return p;
}

// Where the totals of output (n, r) of a tile are in what its warps have written: index i of COLUMNS * 4, and lane.
// Neighbouring outputs lie in different banks.
struct corner_of_sum {
    int i, lane;
};

__device__ inline struct corner_of_sum sum_at(int n, int r)
{
    const int i = n / 8 * 4 + r / 8 * 2 + n % 2;
    return { i, (r % 8 * 4 + n % 8 / 2) ^ (i % 4) };
}

// Writes the sums of a warp where sum_at finds them. to: (COLUMNS * 4, WARP)
template <int COLUMNS> __device__ inline void keep_sums(float (*to)[WARP], const float sum[COLUMNS][4])
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int i = 0; i < COLUMNS * 4; i++)
        to[i][lane ^ (i % 4)] = sum[i / 4][i % 4];
}

// The total of an output of a tile: its sums of all slices, in order. sums (SLICES, tiles, ..): as keep_sums() has
// written them.
template <typename sums_of_slice>
__device__ inline float total_of_slices(const sums_of_slice *sums, int tile, const struct corner_of_sum &in)
{
    float total = sums[0][tile][in.i][in.lane];
    UNROLL
    for (int s = 1; s < SLICES; s++)
        total += sums[s][tile][in.i][in.lane];
    return total;
}

// An output, with what is added to its sum: the bias, and its old value; -0 where there is none, which changes no sum.
struct output {
    float *at; // NULL: there is none
    float bias, before;
};

__device__ inline struct output output_of(const struct work &k, const struct part &p, int64_t n, int64_t m)
{
    if (n >= k.x.n || m >= p.w.rows)
        return { NULL, 0, 0 };
    float *const at = p.out + n * p.w.rows + m;
    return { at, p.bias != NULL ? p.bias[m] : -0.0f, p.add ? *at : -0.0f };
}

__device__ inline void write_sum(const struct output &to, float total)
{
    *to.at = to.before + (total + to.bias);
}

// Writes output (n, m) of a part, from the sum of all slices; gated: from those of gate and up.
__device__ inline void write_total(const struct work &k, const struct part &p, int64_t n, int64_t m, float total)
{
    const struct output to = output_of(k, p, n, m);
    if (to.at != NULL)
        write_sum(to, total);
}

__device__ inline void write_gated(const struct work &k, int64_t n, int64_t m, float gate, float up)
{
    const struct part &p = k.part[0];
    const float y = passed(gate, k.f) * up;
    if (n < k.x.n && m < p.w.rows)
        p.out[n * p.w.rows + m] = y;
    round_number(k.rounded, n, m, y); // rows beyond n too: any numbers, as no output depends on them
}

} // namespace DEVICE_SPACE
