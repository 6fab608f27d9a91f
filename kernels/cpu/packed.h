// packed.h - layout of a weight for the CPU (pack.c): panels of sixteen rows, one row per lane.
//
// A panel stores its rows' numbers k by k, so that one vector load reads the same k of sixteen outputs, sums never
// cross lanes, and memory is read in one stream. Packing is lossless: a number unpacks to exactly the value that its
// block in the checkpoint represents.
//
//     F32      [k][16]
//     F16      [k][16]
//     BF16     [k / 2][16][2]           an odd k is padded with zeros
//     others   scales, padded to a multiple of 64 bytes; then for each group of 32 k:
//              q8_0      [8][16][4]     quads of k: number + 128
//              4 bits    [4][16][4]     low half of a byte: k 0..15 of the group, high half: 16..31; for iq4_nl, iq4_xs
//                                       and mxfp4 these are codes: indices into a table of sixteen numbers
//              5, 6 bits                laid out like 4 bits, then each row's 5th and 6th bits: quad() in unpack.h
//              f8_e4m3   [8][16][4]     quads of k
//     scales   halves, d[16] and m[16], unless said otherwise:
//              q8_0 q4_0 q5_0 iq4_nl    d[16] per group
//              q4_1 q5_1                d[16], m[16] per group
//              q4_k q5_k                for each 256 k: d[16], dmin[16], and for each of the 8 groups scale[16] and
//                                       min[16] bytes
//              q6_k                     for each 256 k: d[16], and for each of the 8 groups scale[2][16] signed bytes,
//                                       for its first and its second 16 k
//              iq4_xs                   for each 256 k: d[16], and for each of the 8 groups scale[16] signed bytes
//              f8_e4m3                  for each 128 k: d[16] floats
//              mxfp4                    exponent[16] bytes per group, whose numbers are multiples of 2^(exponent - 128)
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

enum { PANEL = 16, GROUP = 32 };
enum { PACKED_LAYOUT = 1 }; // version of this layout: increase it with every change, since files contain these bytes

struct packed {
    enum type type;
    enum activations activations;
    int64_t rows, k, panels;
    size_t quants;       // offset of the numbers in a panel, after the scales
    size_t group;        // bytes of the numbers of 32 k
    size_t panel;        // bytes of a panel
    size_t group_stride; // bytes of a panel per 32 k, scales included
    uint8_t *data;       // (panels, panel), aligned to 64
    // The weight that was read after this one in the last pass. Its addresses are prefetched when this one is nearly
    // done, but never read: the memory may have been freed.
    struct {
        const uint8_t *data;
        size_t job_bytes;
        int jobs; // number of jobs, divided among the threads by threads_first()
    } next;
};

struct packed packed_shape(struct tensor w);                              // has sizes only: data is NULL
void pack_panel(const struct packed *p, struct tensor w, int64_t number); // rows beyond the last of w are zeros

// The sixteen numbers of the codes of 4-bit types, + 128 (ggml-common.h).
static const uint8_t iq4_numbers[16] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 };
// Twice the four-bit floats (a sign, two bits of exponent, one of mantissa), + 128.
static const uint8_t mxfp4_numbers[16] = { 128, 129, 130, 131, 132, 134, 136, 140,
                                           128, 127, 126, 125, 124, 122, 120, 116 };

// The form in which a panel stores a type with blocks. It follows from the type's row.
struct quant_format {
    enum scaling scaling;
    int bits;             // bits of a number
    bool has_min;         // a minimum is added to the numbers of a group
    bool half_scales;     // each half of a group has its own scale
    bool plain;           // scales and minimums are stored as plain halves and are read from the panel when needed
    const uint8_t *table; // (16) packed numbers are codes of `bits` bits for these; NULL: they are the numbers
    uint16_t group;       // bytes of the numbers of 32 k
    // Scales: each `super` groups have `stride` bytes. A group has `each` of them, after the first `head`.
    uint16_t super, stride, head, each;
};
#define SCALES_HALF(sub_blocks) 1, 32, 0, 0
#define SCALES_MIN(sub_blocks) 1, 64, 0, 0
#define SCALES_SUPER(sub_blocks) 8, 320, 64, 32
#define SCALES_SUB_BLOCK(sub_blocks) 8, 32 + 8 * 16 * (sub_blocks), 32, 16 * (sub_blocks)
#define SCALES_POWER(sub_blocks) 1, 16, 0, 0
#define SCALES_FLOAT(sub_blocks) 4, 64, 0, 0
#define QUANT_FORMAT(TYPE, name, block, bytes, ggml, stored, numbers, scaling, d_at) \
    [TYPE] = { SCALING_##scaling, \
               NUMBERS_##numbers == NUMBERS_INT ? (stored) : 8, \
               SCALING_##scaling == SCALING_MIN || SCALING_##scaling == SCALING_SUPER, \
               SCALING_##scaling == SCALING_SUB_BLOCK && NUMBERS_##numbers == NUMBERS_INT, \
               SCALING_##scaling == SCALING_HALF || SCALING_##scaling == SCALING_MIN, \
               NUMBERS_##numbers == NUMBERS_IQ4    ? iq4_numbers \
               : NUMBERS_##numbers == NUMBERS_E2M1 ? mxfp4_numbers \
                                                   : NULL, \
               64 * (stored), \
               SCALES_##scaling(NUMBERS_##numbers == NUMBERS_INT ? 2 : 1) },
static const struct quant_format quant_formats[TYPES] = { BLOCK_TYPES(QUANT_FORMAT) };

// Returns the offset of the scales of group g in a panel.
static inline size_t packed_scales_at(enum type type, int64_t g)
{
    const struct quant_format *f = &quant_formats[type];
    return (size_t)(g / f->super) * f->stride + f->head + (size_t)(g % f->super) * f->each;
}
