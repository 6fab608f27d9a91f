// packed.h - layout of a weight for matmul_small.cu: tiles of sixteen rows, in which the words that a lane loads are
// the operands of its matrix instruction; and the interfaces between the files of matmul. For .cu files only.
//
// The main idea: a sum may be taken in any order of k, as long as weights and input agree. mma_bf16 wants lane 4 g + t
// to hold pairs of k that are apart; here the lane holds four consecutive ones, k = 16 j + 4 t .. + 3 for instruction
// j, of rows g and g + 8. round.cu lays out the input in the same way, so nothing is ever moved between lanes.
//
// A unit is 32 k of 16-bit numbers or 64 k of smaller ones: what a lane loads at once, 16 or 32 bytes per tile. Within
// it, number e (0, 1) of register a (0..3) of instruction j lies in word (4 j + a) * bits / 16: see placed(). K is
// padded with zeros to whole units, and rows to whole tiles.
//
//     quants  [tile][unit][load][lane] uint4
//     scales  [tile][unit][g][words]   of rows g and g + 8, for each group of 32 k in the unit:
//             SCALING_HALF       half d of row g; of row g + 8                             q8_0 q5_0 q4_0 iq4_nl
//             SCALING_MIN        halves d, m of row g; of row g + 8                        q5_1 q4_1
//             SCALING_SUPER      bytes scale, min of row g; of row g + 8                   q5_k q4_k
//             SCALING_SUB_BLOCK  bytes scale of the first and second 16 k of row g; g + 8  q6_k iq4_xs
//             SCALING_POWER      bytes exponent of row g; of row g + 8                     mxfp4
//             SCALING_FLOAT      of the whole unit: float d of row g; of row g + 8         f8_e4m3
//     supers  [tile][unit / 4][g][words], 256 k each
//             SCALING_SUPER      halves d, dmin of row g; of row g + 8
//             SCALING_SUB_BLOCK  half d of row g; of row g + 8
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

enum { TILE = 16, GROUP = 32, SUPER = 256, SLICES = 4 };
// FORM_IQ4: codes for sixteen numbers; FORM_E2M1, FORM_E4M3: floats of four and of eight bits.
enum form { FORM_RAW, FORM_BF16, FORM_F16, FORM_INT8, FORM_INT4, FORM_IQ4, FORM_E2M1, FORM_E4M3 };

__host__ __device__ constexpr int form_bits(int form)
{
    return form == FORM_INT8 || form == FORM_E4M3                       ? 8
           : form == FORM_INT4 || form == FORM_IQ4 || form == FORM_E2M1 ? 4
                                                                        : 16;
}

__host__ __device__ constexpr int form_unit(int form)
{
    return form_bits(form) == 16 ? 32 : 64;
}

__host__ __device__ constexpr int form_loads(int form)
{
    return form_bits(form) == 4 ? 1 : 2;
}

__host__ __device__ constexpr int scale_words(int scaling)
{
    return scaling == SCALING_NONE ? 0 : scaling == SCALING_POWER ? 1 : scaling == SCALING_MIN ? 4 : 2;
}

__host__ __device__ constexpr int super_words(int scaling)
{
    return scaling == SCALING_SUPER ? 2 : scaling == SCALING_SUB_BLOCK ? 1 : 0;
}

__host__ __device__ constexpr bool has_offset(int scaling)
{
    return scaling == SCALING_MIN || scaling == SCALING_SUPER;
}

// tensor.packed of a prepared weight, in host memory; passed to kernels by value.
struct packed {
    enum type type;
    enum activations activations; // F32 or BF16; F32: FORM_RAW
    enum form form;
    enum scaling scaling;
    int64_t rows, k;
    int tiles, units;
    int zero;         // zero point of stored 4-bit numbers: 8 or 0
    uint8_t *raw;     // FORM_RAW: the checkpoint's rows; otherwise NULL
    uint4 *quants;    // the other forms: start of one allocation of quants, scales and supers
    uint32_t *scales; // SCALING_NONE: NULL
    uint32_t *supers; // NULL: none
};

static inline const struct packed *packed_of(struct tensor w)
{
    assert(w.packed != NULL); // w is from prepare()
    return (const struct packed *)w.packed;
}

// ---- position of a number

struct placed {
    int64_t load; // which uint4 of quants
    int word, shift;
};

// Position of the number at row r and column k.
__device__ inline struct placed placed(const struct packed *p, int64_t r, int64_t k)
{
    const int bits = form_bits(p->form), unit = form_unit(p->form), in = (int)(k % unit);
    const int lane = (int)(r % 8) * 4 + in % 16 / 4, j = in / 16, a = in % 4 / 2 * 2 + (int)(r % TILE / 8);
    const int word = (4 * j + a) * bits / 16;
    const int64_t load = (r / TILE * p->units + k / unit) * form_loads(p->form) + word / 4;
    return { load * WARP + lane, word % 4, (4 * j + a) * bits % 16 + 16 * (in % 2) };
}

// ---- slices of k: as many units each, the last ones fewer or none

struct slice {
    int first, end;
};

__host__ __device__ inline struct slice slice_of(int units, int slice)
{
    const int each = (units + SLICES - 1) / SLICES, first = slice * each < units ? slice * each : units;
    return { first, first + each < units ? first + each : units };
}

// ---- scales: the value of a number q is scale * q + offset

struct affine {
    float scale, offset;
};

// 2^(exponent - 127); that of 0 is subnormal.
__device__ inline float power_to_float(uint8_t exponent)
{
    return __uint_as_float(exponent == 0 ? 0x00400000 : (uint32_t)exponent << 23);
}

// For row g + 8 * high, group 0 or 1 of the unit, half 0 or 1 of the group; from the words of rows g and g + 8.
__device__ inline struct affine affine_of(int scaling, const uint32_t *scale, const uint32_t *super, int group,
                                          int high, int half)
{
    if (scaling == SCALING_HALF)
        return { half_to_float((uint16_t)(scale[group] >> 16 * high)), 0 };
    if (scaling == SCALING_MIN) {
        const uint32_t w = scale[2 * group + high];
        return { half_to_float((uint16_t)w), half_to_float((uint16_t)(w >> 16)) };
    }
    if (scaling == SCALING_SUPER) {
        const uint32_t w = scale[group] >> 16 * high, d = super[high];
        return { half_to_float((uint16_t)d) * (float)(w & 0xFF),
                 -(half_to_float((uint16_t)(d >> 16)) * (float)(w >> 8 & 0xFF)) };
    }
    if (scaling == SCALING_FLOAT)
        return { __uint_as_float(scale[high]), 0 };
    if (scaling == SCALING_POWER)
        return { power_to_float((uint8_t)(scale[0] >> (16 * group + 8 * high))), 0 };
    if (scaling == SCALING_SUB_BLOCK) {
        const float d = half_to_float((uint16_t)(super[0] >> 16 * high));
        return { d * (float)(int8_t)(scale[group] >> (16 * high + 8 * half)), 0 };
    }
    return { 1, 0 };
}

// ---- input

// round.cu: finds x as products with packed weights read it, or rounds it. Returns the buffer; -1: memory is exhausted,
// which is recorded.
int round_input(struct cuda *c, struct tensor x, struct rounded *to);
// x (n, k) rounded to bfloat16 and converted back, for f32 weights; NULL: memory is exhausted, which is recorded.
const float *round_floats(struct cuda *c, struct tensor x);

// ---- products

struct part { // one weight of a launch
    struct packed w;
    float *out;        // (n, rows)
    const float *bias; // (rows) or NULL
    bool add;
};

// One launch: weights with the same packing side by side, or (gated) gate and up: out of part 0 = f(x w0^T) * (x w1^T).
struct work {
    struct rounded x;
    int count; // parts; matmul_large.cu: 1, or gated 2
    struct part part[MAX_PRODUCTS];
    enum gate_function f;    // gated
    struct rounding rounded; // gated, except for matmul_large.cu: the output is written rounded, too
};

// Whether one launch can compute both.
static inline bool same_packing(const struct packed *a, const struct packed *b)
{
    return a->form == b->form && a->scaling == b->scaling && a->k == b->k;
}

// Three kernels with the same bits: matmul_ring.cu for at most MAX_SMALL_ROWS rows where there are bulk copies,
// matmul_small.cu where there are none, and matmul_large.cu for more rows than a block of those has, where they would
// read x again for every few rows of weights, and the weights again for every block of rows of x.
enum { MAX_SMALL_ROWS = 64 };
void matmul_small_run(struct cuda *c, const struct work &k, bool gated);
void matmul_ring_run(struct cuda *c, const struct work &k, bool gated);
void matmul_large_run(struct cuda *c, const struct work &k, bool gated);
int64_t matmul_large_blocks(const struct work &k, bool gated); // blocks of the smallest size
// matmul_plain.cu: from raw rows on the device. x: (n, k), already rounded; out, bias: as in struct part
void matmul_plain_run(struct cuda *c, float *out, const float *x, int n, const uint8_t *rows, enum type type, int64_t m,
                      int64_t k, const float *bias, bool add);

// One launch for groups of rows that have weights of one packing and shape each (w: of all; its pointers are not used).
// Each group's rows begin at a tile of x of their own.
enum { GROUPS_PER_LAUNCH = 48 };
struct grouped_matmul {
    struct packed w;
    struct rounded x;
    float *out; // (n, w.rows), without gaps between groups
    enum gate_function f;
    int count;
    struct {
        const uint4 *quants[2]; // [1]: gated only, as in struct packed
        const uint32_t *scales[2], *supers[2];
        int first_tile, rows, first_row; // x's tile and rows; out's row
    } group[GROUPS_PER_LAUNCH];
};
static_assert(sizeof(struct grouped_matmul) <= 4096, "limit of kernel parameters");
void matmul_grouped_run(struct cuda *c, const struct grouped_matmul &k, bool gated); // matmul_small.cu
// round.cu: rows row[0 .. sum of g[i].rows) of x (row NULL: in order), those of each group from a tile of their own.
// Returns false and records the error if memory is exhausted.
bool round_groups(struct cuda *c, struct tensor x, const int32_t *row, const struct row_group *g, int count,
                  struct rounded *to);

// Writes a sum to *out.
__device__ inline void write_output(float *out, float sum, const float *bias, bool add)
{
    if (bias != NULL)
        sum += *bias;
    *out = add ? *out + sum : sum;
}

} // namespace DEVICE_SPACE
