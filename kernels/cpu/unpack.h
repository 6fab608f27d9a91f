// unpack.h - unpacks packed numbers and their scales to registers. The loops of products include it, which are compiled
// for several instruction sets.
#pragma once
#include "kernels/cpu/matmul_kernels.h"

// Returns register v of quad t of a group (four consecutive k of each output). Numbers are shifted to the top of their
// bytes (a 4-bit q becomes 16 q), which saves shifts and gives all types one offset, 128. The scale is divided to
// match, which is exact.
INLINE vu quad(struct quant_format f, const uint8_t *group, int t, int v)
{
    const int bits = f.bits, up = 8 - bits, at = v * W * 4;
    if (f.table != NULL) {
        const vu codes = load_bits(group + t % 4 * V * W * 4 + at);
        return look_up(f.table, (t < 4 ? codes : codes >> 4) & 0x0F0F0F0Fu);
    }
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

// Returns the register with numbers at the bottom of their bytes.
INLINE vu low_quad(int bits, const uint8_t *group, int t, int v)
{
    const int at = v * W * 4;
    vu q = load_bits(group + t % 4 * V * W * 4 + at);
    q = (t < 4 ? q : q >> 4) & 0x0F0F0F0Fu;
    if (bits == 5) {
        const vu high = load_bits(group + 256 + at);
        q |= (t < 4 ? high << (4 - t) : high >> (t - 4)) & 0x10101010u;
    }
    if (bits == 6) {
        const vu high = load_bits(group + (t < 4 ? 256 : 320) + at);
        q |= (t % 4 < 2 ? high << (4 - 2 * (t % 4)) : high >> (2 * (t % 4) - 4)) & 0x30303030u;
    }
    return q;
}

// Returns what a scale is multiplied by to match quad().
INLINE float to_top(struct quant_format f)
{
    return 1.0f / (float)(1 << (8 - f.bits));
}

// Return W lanes of a group's plain scales at s, divided to match quad(), and of its minimums.
INLINE vf plain_scale(struct quant_format f, const uint8_t *s, int lane)
{
    return halves(s + 2 * lane) * splat(to_top(f));
}

INLINE vf plain_min(const uint8_t *s, int lane)
{
    return halves(s + 2 * PANEL + 2 * lane);
}

// Returns 2^(b - 128) for W bytes b below 255. The results for 0 and 1 are subnormal.
INLINE vf half_powers(const uint8_t *b)
{
    const vi exponent = __builtin_convertvector(unsigned_bytes(b), vi);
    return (vf)((exponent << 23) | ((exponent == 0) & 0x00400000)) * splat(0.5f);
}

// Unpacks scales (d * scale as in the checkpoint's format, divided exactly to match quad()) and minimums of one group
// to the tile.
INLINE void unpack_scales(enum type type, struct tile *t, int p, int g, const uint8_t *panel, int64_t group)
{
    const struct quant_format f = quant_formats[type];
    const uint8_t *s = panel + packed_scales_at(type, group), *of_super = panel + group / f.super * f.stride;
    UNROLL
    for (int v = 0; v < V; v++) {
        const int at = v * W;
        float *scale = t->scale[p][g][0] + at, *min = t->min[p][g] + at;
        switch (f.scaling) {
        case SCALING_SUPER:
            store(scale, halves(of_super + 2 * at) * unsigned_bytes(s + at) * splat(to_top(f)));
            store(min, -(halves(of_super + 32 + 2 * at) * unsigned_bytes(s + PANEL + at)));
            break;
        case SCALING_SUB_BLOCK:
            for (int half = 0; half < (f.half_scales ? 2 : 1); half++)
                store(t->scale[p][g][half] + at,
                      halves(of_super + 2 * at) * splat(to_top(f)) * signed_bytes(s + half * PANEL + at));
            break;
        case SCALING_FLOAT:
            store(scale, load((const float *)(const void *)s + at));
            break;
        case SCALING_POWER:
            store(scale, half_powers(s + at));
            break;
        default:
            store(scale, plain_scale(f, s, at));
            if (f.has_min)
                store(min, plain_min(s, at));
        }
    }
}

INLINE void unpack_scales_of(enum type type, struct tile *t, int p, const uint8_t *panel, int64_t first, int n)
{
    for (int g = 0; g < n; g++)
        unpack_scales(type, t, p, g, panel, first + g);
}

// Unpacks the scales of groups first .. first + n of a panel to the tile.
static void load_scales(struct tile *t, int p, const struct packed *w, const uint8_t *panel, int64_t first, int n)
{
    switch (w->type) {
#define SCALES_OF(T, ...) \
    case T: \
        unpack_scales_of(T, t, p, panel, first, n); \
        break;
        BLOCK_TYPES(SCALES_OF)
    default:
        break;
    }
}
