// packed.h - a weight as the CPU's matmul reads it: panels of sixteen rows, one row to a lane.
//
// A panel holds its rows' numbers k by k, so that one vector load brings the same k of sixteen outputs, sums never cross
// lanes, and memory is read in one stream. Packing loses nothing: a number unpacks to exactly what its block in the
// checkpoint stands for.
//
//     F32      [k][16]
//     F16      [k][16]
//     BF16     [k / 2][16][2]           a last odd k is followed by zeros
//     others   scales, up to a multiple of 64 bytes; then for each group of 32 k:
//              q8_0      [8][16][4]     quads of k: number + 128
//              4 bits    [4][16][4]     low half of a byte: k 0..15 of the group, high half: 16..31
//              5, 6 bits                as 4 bits, then each row's 5th bits, 6th bits: see quad() in unpack.h
//     scales   q8_0 q4_0 q5_0: d[16] a group. q4_1 q5_1: d[16], m[16] a group. All halves.
//              q4_k q5_k: for each 256 k: d[16], dmin[16] halves, and for each of the 8 groups scale[16], min[16] bytes.
//              q6_k: d[16] halves, and for each group scale[2][16] signed bytes, for its first and its second 16 k.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

enum { PANEL = 16, GROUP = 32, SUPER = 256 };
enum { PACKED_LAYOUT = 1 }; // of the bytes described above: another number when they change, since files hold them

struct packed {
    enum type type;
    enum activations activations;
    int64_t rows, k, panels;
    size_t quants; // where the numbers begin in a panel, behind the scales
    size_t group;  // bytes of 32 k's numbers
    size_t panel;  // bytes of a panel
    size_t along;  // bytes of a panel for 32 k, scales and all
    uint8_t *data; // (panels, panel), at a multiple of 64
    // Where the threads began to read after this weight, the last time: asked for when this one is nearly done. Addresses
    // to ask memory for and nothing else: what stood there may be gone.
    struct {
        const uint8_t *data;
        size_t piece; // bytes
        int pieces;   // shared out as threads.h does
    } next;
};

struct packed packed_shape(struct tensor w);                              // data NULL
void pack_panel(const struct packed *p, struct tensor w, int64_t number); // rows beyond w's are zeros

// Where the scales of group g lie in a panel of this type.
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
    default:
        return (size_t)g * 32;
    }
}
