// packed.h - layout of a weight for the CPU's matmul: panels of sixteen rows, one row per lane.
//
// A panel stores its rows' numbers k by k, so that one vector load reads the same k of sixteen outputs, sums never cross
// lanes, and memory is read in one stream. Packing is lossless: a number unpacks to exactly the value that its block in the
// checkpoint represents.
//
//     F32      [k][16]
//     F16      [k][16]
//     BF16     [k / 2][16][2]           an odd k is padded with zeros
//     others   scales, padded to a multiple of 64 bytes; then for each group of 32 k:
//              q8_0      [8][16][4]     quads of k: number + 128
//              4 bits    [4][16][4]     low half of a byte: k 0..15 of the group, high half: 16..31; of iq4_nl, iq4_xs and mxfp4
//                                       these are codes: places in a table of sixteen numbers
//              5, 6 bits                as 4 bits, then each row's 5th and 6th bits: see quad() in unpack.h
//              f8_e4m3   [8][16][4]     quads of k
//     scales   q8_0 q4_0 q5_0 iq4_nl: d[16] per group. q4_1 q5_1: d[16], m[16] per group. All are halves.
//              q4_k q5_k: for each 256 k: d[16], dmin[16] halves, and for each of the 8 groups scale[16], min[16] bytes.
//              q6_k: for each 256 k: d[16] halves, and for each of the 8 groups scale[2][16] signed bytes, for its first
//              and its second 16 k.
//              iq4_xs: for each 256 k: d[16] halves, and for each of the 8 groups scale[16] signed bytes.
//              f8_e4m3: for each 128 k: d[16] floats.
//              mxfp4: exponent[16] bytes per group, whose numbers are multiples of 2^(exponent - 128).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

enum { PANEL = 16, GROUP = 32, SUPER = 256 };
enum { PACKED_LAYOUT = 1 }; // version of this layout: increased with every change, since files contain these bytes

struct packed {
    enum type type;
    enum activations activations;
    int64_t rows, k, panels;
    size_t quants;       // offset of the numbers in a panel, after the scales
    size_t group;        // bytes of the numbers of 32 k
    size_t panel;        // bytes of a panel
    size_t group_stride; // bytes of a panel per 32 k, scales included
    uint8_t *data;       // (panels, panel), aligned to 64
    // The weight that was read after this one in the last pass. Its addresses are prefetched when this one is nearly done and
    // never read: the memory may have been freed.
    struct {
        const uint8_t *data;
        size_t job_bytes;
        int jobs; // divided among the threads by threads_first()
    } next;
};

struct packed packed_shape(struct tensor w);                              // sizes only: data is NULL
void pack_panel(const struct packed *p, struct tensor w, int64_t number); // rows beyond the last of w are zeros

// Offset of the scales of group g in a panel.
static inline size_t packed_scales_at(enum type type, int64_t g)
{
    switch (type) {
    case Q4_1:
    case Q5_1:
        return (size_t)g * 64;
    case Q4_K:
    case Q5_K:
        return (size_t)(g / 8) * 320 + 64 + (size_t)(g % 8) * 32;
    case Q6_K:
        return (size_t)(g / 8) * 288 + 32 + (size_t)(g % 8) * 32;
    case IQ4_XS:
        return (size_t)(g / 8) * 160 + 32 + (size_t)(g % 8) * 16;
    case MXFP4:
        return (size_t)g * 16;
    case F8_E4M3:
        return (size_t)(g / 4) * 64;
    default:
        return (size_t)g * 32;
    }
}
