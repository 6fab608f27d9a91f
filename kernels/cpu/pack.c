// pack.c - packs weights from the checkpoint's blocks into panels, once when a model is opened. Bits are moved, but no
// number is computed.
#include <string.h>

#include "kernels/cpu/packed.h"

static size_t up_to_64(size_t n)
{
    return (n + 63) / 64 * 64;
}

struct packed packed_shape(struct tensor w)
{
    struct packed p = { .type = w.type, .rows = w.rows, .k = w.width, .panels = (w.rows + PANEL - 1) / PANEL };
    if (type_has_blocks(w.type)) {
        int64_t groups = w.width / GROUP;
        p.group = quant_formats[w.type].group;
        p.quants = up_to_64(packed_scales_at(w.type, groups));
        p.panel = up_to_64(p.quants + (size_t)groups * p.group);
    } else
        p.panel = up_to_64((size_t)(w.width + w.width % 2) * PANEL * (size_t)type_facts[w.type].bytes);
    p.group_stride = p.panel * GROUP / (size_t)p.k;
    return p;
}

static void pack_floats(const struct packed *p, uint8_t *to, const uint8_t *row, int lane)
{
    size_t bytes = (size_t)type_facts[p->type].bytes;
    for (int64_t k = 0; k < p->k; k++) {
        int64_t at = p->type == BF16 ? k / 2 * 2 * PANEL + lane * 2 + k % 2 : k * PANEL + lane;
        memcpy(to + (size_t)at * bytes, row + (size_t)k * bytes, bytes);
    }
}

// Stores the numbers q (0 .. 63) of a group: bits 0..3 and, for 5- and 6-bit types, the high bits.
static void pack_quants(const struct packed *p, uint8_t *to, const uint8_t q[GROUP], int lane)
{
    uint32_t high_bits[2] = { 0, 0 };
    for (int k = 0; k < GROUP / 2; k++)
        to[k / 4 * 4 * PANEL + lane * 4 + k % 4] = (uint8_t)((q[k] & 15) | q[k + GROUP / 2] << 4);
    if (p->group == 320)
        for (int k = 0; k < GROUP; k++) // quad t: bit t of byte k % 4
            high_bits[0] |= (uint32_t)(q[k] >> 4 & 1) << (8 * (k % 4) + k / 4);
    if (p->group == 384)
        for (int k = 0; k < GROUP; k++) // quad t: bits 2 (t % 4) of byte k % 4 of word t / 4
            high_bits[k / 16] |= (uint32_t)(q[k] >> 4 & 3) << (8 * (k % 4) + 2 * (k / 4 % 4));
    for (size_t w = 0; 256 + 64 * w < p->group; w++)
        for (int b = 0; b < 4; b++)
            to[256 + 64 * w + 4 * (size_t)lane + (size_t)b] = (uint8_t)(high_bits[w] >> (8 * b));
}

static void pack_half(uint8_t *to, int lane, const uint8_t *half)
{
    memcpy(to + 2 * lane, half, 2);
}

// Packs a block of 32 with a half as scale (a byte in mxfp4) and, for q4_1 and q5_1, another half as minimum.
static void pack_group(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
    const bool has_min = quant_formats[p->type].has_min;
    uint8_t q[GROUP];
    if (p->type == MXFP4)
        scales[lane] = *b++;
    else {
        pack_half(scales, lane, b);
        b += 2;
    }
    if (has_min) {
        pack_half(scales + 32, lane, b);
        b += 2;
    }
    if (p->type == Q8_0) {
        for (int k = 0; k < GROUP; k++)
            to[k / 4 * 4 * PANEL + lane * 4 + k % 4] = b[k] ^ 0x80;
        return;
    }
    const uint8_t *high = b;
    b += p->group == 320 ? 4 : 0;
    for (int k = 0; k < GROUP; k++) {
        q[k] = k < 16 ? b[k] & 15 : b[k - 16] >> 4;
        if (p->group == 320)
            q[k] = (uint8_t)(q[k] | (high[k / 8] >> k % 8 & 1) << 4);
    }
    pack_quants(p, to, q, lane);
}

static void pack_super_4_5(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
    const uint8_t *s = b + 4, *high = b + 16, *low = b + (p->type == Q5_K ? 48 : 16);
    pack_half(scales, lane, b);
    pack_half(scales + 32, lane, b + 2);
    for (int g = 0; g < 8; g++) {
        uint8_t *pair = scales + 64 + 32 * g, q[GROUP];
        pair[lane] = g < 4 ? s[g] & 63 : (uint8_t)((s[g + 4] & 15) | s[g - 4] >> 6 << 4);
        pair[PANEL + lane] = g < 4 ? s[g + 4] & 63 : (uint8_t)(s[g + 4] >> 4 | s[g] >> 6 << 4);
        for (int k = 0; k < GROUP; k++) {
            q[k] = low[g / 2 * 32 + k] >> (4 * (g % 2)) & 15;
            if (p->type == Q5_K)
                q[k] = (uint8_t)(q[k] | (high[k] >> g & 1) << 4);
        }
        pack_quants(p, to + (size_t)g * p->group, q, lane);
    }
}

static void pack_super_6(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
    pack_half(scales, lane, b + 208);
    for (int g = 0; g < 8; g++) { // each has 32 numbers: a quarter of 128
        const uint8_t *low = b + 64 * (g / 4) + 32 * (g % 2), *high = b + 128 + 32 * (g / 4);
        uint8_t q[GROUP];
        for (int s = 0; s < 2; s++)
            scales[32 + 32 * g + PANEL * s + lane] = b[192 + 2 * g + s];
        for (int k = 0; k < GROUP; k++)
            q[k] = (uint8_t)((low[k] >> (g % 4 >= 2 ? 4 : 0) & 15) | (high[k] >> (2 * (g % 4)) & 3) << 4);
        pack_quants(p, to + (size_t)g * p->group, q, lane);
    }
}

static void pack_super_iq4(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
    const int high = b[2] | b[3] << 8;
    pack_half(scales, lane, b);
    for (int g = 0; g < 8; g++) {
        const uint8_t *codes = b + 8 + 16 * g;
        uint8_t q[GROUP];
        scales[32 + PANEL * g + lane] =
            (uint8_t)(((b[4 + g / 2] >> (4 * (g % 2)) & 15) | (high >> (2 * g) & 3) << 4) - 32);
        for (int k = 0; k < GROUP; k++)
            q[k] = k < 16 ? codes[k] & 15 : codes[k - 16] >> 4;
        pack_quants(p, to + (size_t)g * p->group, q, lane);
    }
}

static void pack_f8(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
    memcpy(scales + 4 * lane, b, 4);
    for (int k = 0; k < type_facts[F8_E4M3].block; k++)
        to[(size_t)(k / GROUP) * p->group + (size_t)(k % GROUP / 4 * 4 * PANEL + lane * 4 + k % 4)] = b[4 + k];
}

void pack_panel(const struct packed *p, struct tensor w, int64_t number)
{
    static void (*const packs[TYPES])(const struct packed *, uint8_t *, uint8_t *, const uint8_t *,
                                      int) = { [Q4_K] = pack_super_4_5,
                                               [Q5_K] = pack_super_4_5,
                                               [Q6_K] = pack_super_6,
                                               [IQ4_XS] = pack_super_iq4,
                                               [F8_E4M3] = pack_f8 };
    const struct quant_format *f = &quant_formats[w.type];
    uint8_t *to = p->data + (size_t)number * p->panel;
    const size_t row_bytes = type_row_bytes(w.type, w.width), block = (size_t)type_facts[w.type].bytes;
    const int64_t blocks = w.width / type_facts[w.type].block;
    memset(to, 0, p->panel);
    for (int lane = 0; lane < PANEL && number * PANEL + lane < w.rows; lane++) {
        const uint8_t *row = (const uint8_t *)w.data + (size_t)(number * PANEL + lane) * row_bytes;
        if (!type_has_blocks(w.type)) {
            pack_floats(p, to, row, lane);
            continue;
        }
        for (size_t i = 0; i < (size_t)blocks; i++) // each has `super` groups
            (packs[w.type] != NULL ? packs[w.type] : pack_group)(
                p, to + i * f->stride, to + p->quants + i * f->super * p->group, row + i * block, lane);
    }
}
