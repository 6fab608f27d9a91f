// packed.h - a weight as skinny.cu reads it: tiles of sixteen rows, in which the words that a lane loads are what it
// feeds the matrix instruction; and what products are handed from file to file. For .cu files alone.
//
// The one idea: a sum may be taken in any order, as long as weights and input agree on it. mma_bf16 wants lane 4 g + t
// to hold pairs of k that lie apart; here it gets four neighbours, k = 16 j + 4 t .. + 3 for instruction j, of rows g
// and g + 8. round.cu lays the input out alike, so that nothing is ever moved between lanes.
//
// A unit is 32 k of 16-bit numbers, 64 of smaller ones: what a lane loads at once, 16 or 32 bytes for each tile. In it
// number e (0, 1) of register a (0..3) of instruction j is bits of word (4 j + a) * bits / 16: see placed(). K is
// filled up with zeros to whole units and rows to whole tiles.
//
//     quants  [tile][unit][load][lane] uint4
//     scales  [tile][unit][g][words]   of rows g and g + 8, for each group of 32 k in the unit:
//             SCALING_HALF        half d of row g, of row g + 8                       q8_0 q5_0 q4_0
//             SCALING_LEAST       halves d, m of row g; of row g + 8                  q5_1 q4_1
//             SCALING_SUPER       bytes scale, min of row g; of row g + 8             q5_k q4_k
//             SCALING_SIXTEENTHS  bytes scale of 16 k, of 16 more of row g; g + 8     q6_k
//     supers  [tile][unit / 4][g][words], 256 k each
//             SCALING_SUPER       halves d, dmin of row g; of row g + 8
//             SCALING_SIXTEENTHS  half d of row g, of row g + 8
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

enum { TILE = 16, GROUP = 32, SUPER = 256, SLICES = 8 };
enum form { FORM_RAW, FORM_BF16, FORM_F16, FORM_INT8, FORM_INT4 };
enum scaling { SCALING_NONE, SCALING_HALF, SCALING_LEAST, SCALING_SUPER, SCALING_SIXTEENTHS };

__host__ __device__ constexpr int form_bits(int form)
{
    return form == FORM_INT8 ? 8 : form == FORM_INT4 ? 4 : 16;
}

__host__ __device__ constexpr int form_unit(int form)
{
    return form_bits(form) == 16 ? 32 : 64;
}

__host__ __device__ constexpr int form_loads(int form)
{
    return form == FORM_INT4 ? 1 : 2;
}

__host__ __device__ constexpr int scale_words(int scaling)
{
    return scaling == SCALING_NONE ? 0 : scaling == SCALING_LEAST ? 4 : 2;
}

__host__ __device__ constexpr int super_words(int scaling)
{
    return scaling == SCALING_SUPER ? 2 : scaling == SCALING_SIXTEENTHS ? 1 : 0;
}

__host__ __device__ constexpr bool has_offset(int scaling)
{
    return scaling == SCALING_LEAST || scaling == SCALING_SUPER;
}

// What prepare() returns as `packed`, on the host. A copy of it is an argument of kernels.
struct packed {
    enum type type;
    enum activations activations; // F32 or BF16
    enum form form;
    enum scaling scaling;
    int64_t rows, k;
    int tiles, units;
    int zero;         // what a stored 4-bit number is above the one it stands for: 8 or 0
    uint8_t *raw;     // FORM_RAW: the checkpoint's rows; otherwise NULL
    uint4 *quants;    // the other forms: all three in one piece of memory that begins here
    uint32_t *scales; // SCALING_NONE: NULL
    uint32_t *supers; // NULL: none
};

static inline const struct packed *packed_of(struct tensor w)
{
    assert(w.packed != NULL); // what prepare() returned
    return (const struct packed *)w.packed;
}

// ---- where a number lies

struct placed {
    int64_t load; // which uint4 of quants
    int word, shift;
};

// The number of row r and column k, in units of so many k and numbers of so many bits.
__device__ inline struct placed placed(const struct packed *p, int64_t r, int64_t k)
{
    const int bits = form_bits(p->form), unit = form_unit(p->form), in = (int)(k % unit);
    const int lane = (int)(r % 8) * 4 + in % 16 / 4, j = in / 16, a = in % 4 / 2 * 2 + (int)(r % TILE / 8);
    const int word = (4 * j + a) * bits / 16;
    const int64_t load = (r / TILE * p->units + k / unit) * form_loads(p->form) + word / 4;
    return { load * WARP + lane, word % 4, (4 * j + a) * bits % 16 + 16 * (in % 2) };
}

// ---- scales: a number stands for scale * q + offset

struct line {
    float scale, offset;
};

// From the words of rows g, g + 8: of row g + 8 * high, group 0 or 1 of the unit, half 0 or 1 of the group.
template <int SCALING>
__device__ inline struct line line_of(const uint32_t *scale, const uint32_t *super, int group, int high, int half)
{
    if constexpr (SCALING == SCALING_HALF)
        return { half_to_float((uint16_t)(scale[group] >> 16 * high)), 0 };
    else if constexpr (SCALING == SCALING_LEAST) {
        const uint32_t w = scale[2 * group + high];
        return { half_to_float((uint16_t)w), half_to_float((uint16_t)(w >> 16)) };
    } else if constexpr (SCALING == SCALING_SUPER) {
        const uint32_t w = scale[group] >> 16 * high, d = super[high];
        return { half_to_float((uint16_t)d) * (float)(w & 0xFF),
                 -(half_to_float((uint16_t)(d >> 16)) * (float)(w >> 8 & 0xFF)) };
    } else if constexpr (SCALING == SCALING_SIXTEENTHS)
        return { half_to_float((uint16_t)(super[0] >> 16 * high)) *
                     (float)(int8_t)(scale[group] >> (16 * high + 8 * half)),
                 0 };
    else
        return { 1, 0 };
}

// ---- input

struct wanted { // which forms of an input
    bool one, three, floats;
};

struct inputs {
    struct rounded one, three; // a plane of bfloat16; three
    const float *floats;       // (n, k), rounded to bfloat16 and made floats again
};

static inline bool wants_three(const struct packed *p)
{
    return p->activations != ACTIVATIONS_BF16;
}

// round.cu: planes of x, unless there are some. false: there is no room, and that is noted.
bool round_input(struct cuda *c, struct tensor x, struct wanted w, struct inputs *to);

// ---- products

struct rounding; // round.h

struct part { // one weight's share of a launch
    struct packed w;
    float *out;        // (n, rows)
    const float *bias; // (rows) or NULL
    bool add;
};

struct skinny { // one launch of skinny.cu: of weights that are alike
    struct rounded x;
    int count; // of parts
    struct part part[MAX_PRODUCTS];
};

// Whether one launch can have both.
static inline bool packed_alike(const struct packed *a, const struct packed *b)
{
    return a->form == b->form && a->scaling == b->scaling && wants_three(a) == wants_three(b) && a->k == b->k;
}

void skinny_run(struct cuda *c, const struct skinny *s);
// part[0].out = silu(x w0^T) * (x w1^T), w0 and w1 being part[0] and part[1]'s; leaves planes of it, if there is a place.
void skinny_gated(struct cuda *c, const struct skinny *s, const struct rounding *left);

// wide.cu, with the same bits: for inputs of more rows than a block of skinny.cu has, which would be read anew for each
// sixteen rows of weights, the weights for each so many rows of x.
enum { WIDE_FROM = 64 };
struct wide {           // one launch
    struct packed w[2]; // the second one: gated
    struct rounded x;
    float *out;        // (n, rows)
    const float *bias; // (rows) or NULL
    bool add;
};
void wide_run(struct cuda *c, const struct wide *s, bool gated);
// plain.cu: from raw rows on the device. x: (n, k) as it is to be multiplied; out, bias: as in struct part
void plain_run(struct cuda *c, float *out, const float *x, int n, const uint8_t *rows, enum type type, int64_t m,
               int64_t k, const float *bias, bool add);

// What becomes of a sum.
__device__ inline void finish(float *out, float sum, const float *bias, bool add)
{
    if (bias != NULL)
        sum += *bias;
    *out = add ? *out + sum : sum;
}

} // namespace DEVICE_SPACE
