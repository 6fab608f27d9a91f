// unpack.h - packed numbers and their scales in registers. A part of matmul_kernels.c, whose vector types it uses: it is compiled
// once for each instruction set.
#pragma once
#include "kernels/cpu/matmul_kernels.h"

enum { V = PANEL / W }; // registers of a panel's width

// Quad t of a group, register v of it. Numbers are moved to the top of their bytes (a 4-bit q becomes 16 q), which saves
// shifts and makes one offset, 128, of the types' own; the scale is divided to match, which is exact.
INLINE vu quad(int bits, const uint8_t *group, int t, int v)
{
    const int up = 8 - bits, at = v * W * 4;
    if (bits == 8)
        return load_bits(group + t * V * W * 4 + at);
    vu q = load_bits(group + t % 4 * V * W * 4 + at);
    q = (t < 4 ? q << up : up == 4 ? q : q >> (4 - up)) & (0x0F0F0F0Fu << up);
    if (bits == 5)
        q |= (load_bits(group + 256 + at) << (7 - t)) & 0x80808080u;
    if (bits == 6)
        q |= (load_bits(group + (t < 4 ? 256 : 320) + at) << (6 - 2 * (t % 4))) & 0xC0C0C0C0u;
    return q;
}

// What the numbers of a type are: how many bits, whether a least is added to them, whether the halves of a group have
// scales of their own; whether scales and leasts are plain, halves side by side, which can be read from the panel as they
// are needed.
struct form {
    int bits;
    bool least, halves, plain;
};

INLINE struct form form_of(enum type type)
{
    switch (type) {
    case Q8_0:
        return (struct form){ 8, false, false, true };
    case Q4_0:
        return (struct form){ 4, false, false, true };
    case Q4_1:
        return (struct form){ 4, true, false, true };
    case Q5_0:
        return (struct form){ 5, false, false, true };
    case Q5_1:
        return (struct form){ 5, true, false, true };
    case Q4_K:
        return (struct form){ 4, true, false, false };
    case Q6_K:
        return (struct form){ 6, false, true, false };
    default:
        return (struct form){ 5, true, false, false }; // Q5_K
    }
}

// W lanes of a group's plain scales, which lie from s on, divided as quad() asks for; and of its leasts.
INLINE vf plain_scale(struct form f, const uint8_t *s, int lane)
{
    return halves(s + 2 * lane) * all(1.0f / (float)(1 << (8 - f.bits)));
}

INLINE vf plain_least(const uint8_t *s, int lane)
{
    return halves(s + 2 * PANEL + 2 * lane);
}

// d * scale as the checkpoint's own formulas have it, then the exact division by `one`.
INLINE void unpack_scales(enum type type, struct tile *t, int p, int g, const uint8_t *panel, int64_t group)
{
    const struct form f = form_of(type);
    const uint8_t *s = panel + packed_scales_at(type, group);
    UNROLL
    for (int v = 0; v < V; v++) {
        const int at = v * W;
        float *scale = t->scale[p][g][0] + at, *least = t->least[p][g] + at;
        switch (type) {
        case Q4_K:
        case Q5_K: {
            const uint8_t *d = panel + group / 8 * 320;
            save(scale, halves(d + 2 * at) * unsigned_bytes(s + at) * all(type == Q4_K ? 0x1p-4f : 0x1p-3f));
            save(least, -(halves(d + 32 + 2 * at) * unsigned_bytes(s + PANEL + at)));
            break;
        }
        case Q6_K: {
            vf d = halves(panel + group / 8 * 288 + 2 * at) * all(0x1p-2f);
            save(scale, d * signed_bytes(s + at));
            save(t->scale[p][g][1] + at, d * signed_bytes(s + PANEL + at));
            break;
        }
        default:
            save(scale, plain_scale(f, s, at));
            if (f.least)
                save(least, plain_least(s, at));
        }
    }
}

INLINE void scales_of_type(enum type type, struct tile *t, int p, const uint8_t *panel, int64_t first, int n)
{
    for (int g = 0; g < n; g++)
        unpack_scales(type, t, p, g, panel, first + g);
}

// The scales of groups first .. first + n of a panel into the tile.
static void take_scales(struct tile *t, int p, const struct packed *w, const uint8_t *panel, int64_t first, int n)
{
    switch (w->type) {
#define SCALES_OF(T) \
    case T: \
        scales_of_type(T, t, p, panel, first, n); \
        break;
        SCALES_OF(Q8_0)
        SCALES_OF(Q4_0)
        SCALES_OF(Q4_1)
        SCALES_OF(Q5_0)
        SCALES_OF(Q5_1)
        SCALES_OF(Q4_K)
        SCALES_OF(Q5_K)
        SCALES_OF(Q6_K)
    default:
        break;
    }
}
