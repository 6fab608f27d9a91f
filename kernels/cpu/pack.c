// pack.c - packs weights from the checkpoint's blocks into panels, once when a model is opened. Bits are moved, but no
// number is computed.
#include <string.h>

#include "kernels/cpu/blocks.h"
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
static void pack_quants(const struct packed *p, uint8_t *to, const uint8_t *q, int lane)
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

// Stores what scales and moves the numbers of group g, of which the block itself has d and its minimum at `d`.
static void pack_scales(const struct packed *p, uint8_t *scales, const uint8_t *d, const struct block_group *x, int g,
                        int lane)
{
    const struct quant_format *f = &quant_formats[p->type];
    uint8_t *own = scales + f->head + g * f->each;
    switch (f->scaling) {
    case SCALING_FLOAT:
        memcpy(scales + 4 * lane, d, 4);
        return;
    case SCALING_POWER:
        own[lane] = x->scale[0];
        return;
    case SCALING_SUPER:
        own[lane] = x->scale[0];
        own[PANEL + lane] = x->min;
        break;
    case SCALING_SUB_BLOCK:
        own[lane] = x->scale[0];
        if (f->half_scales)
            own[PANEL + lane] = x->scale[1];
        break;
    default:
        break;
    }
    pack_half(scales, lane, d);
    if (f->has_min)
        pack_half(scales + 2 * PANEL, lane, d + 2);
}

static void pack_block(const struct packed *p, uint8_t *scales, uint8_t *to, const uint8_t *b, int lane)
{
#define READ(TYPE, name, ...) [TYPE] = read_##name,
    static struct block_group (*const read[TYPES])(const uint8_t *b, int g) = { BLOCK_TYPES(READ) };
    for (int g = 0; g < type_facts[p->type].block / GROUP; g++, to += p->group) {
        const struct block_group x = read[p->type](b, g);
        const uint8_t *q = (const uint8_t *)x.q;
        pack_scales(p, scales, b + type_facts[p->type].d_at, &x, g, lane);
        if (p->group < 512)
            pack_quants(p, to, q, lane);
        for (int t = 0; p->group == 512 && t < GROUP / 4; t++)
            memcpy(to + t * 4 * PANEL + lane * 4, q + 4 * t, 4);
    }
}

void pack_panel(const struct packed *p, struct tensor w, int64_t number)
{
    const struct quant_format *f = &quant_formats[w.type];
    uint8_t *to = p->data + (size_t)number * p->panel;
    const size_t row_bytes = type_row_bytes(w.type, w.width), block = (size_t)type_facts[w.type].bytes;
    const size_t groups = (size_t)(type_facts[w.type].block / GROUP);
    const int64_t blocks = w.width / type_facts[w.type].block;
    memset(to, 0, p->panel);
    for (int lane = 0; lane < PANEL && number * PANEL + lane < w.rows; lane++) {
        const uint8_t *row = (const uint8_t *)w.data + (size_t)(number * PANEL + lane) * row_bytes;
        if (!type_has_blocks(w.type)) {
            pack_floats(p, to, row, lane);
            continue;
        }
        for (size_t i = 0; i < (size_t)blocks; i++) // its groups have one stride of scales
            pack_block(p, to + i * f->stride, to + p->quants + i * groups * p->group, row + i * block, lane);
    }
}
