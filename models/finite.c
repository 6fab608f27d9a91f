#include "models/finite.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// Returns the first of n numbers, `step` bytes apart, whose exponent is all ones (infinity or NaN); -1: all are finite.
static int64_t first_not_finite_16(const uint8_t *at, int64_t n, size_t step, uint16_t exponent)
{
    for (int64_t i = 0; i < n; i++, at += step) {
        uint16_t bits;
        memcpy(&bits, at, sizeof(bits));
        if ((bits & exponent) == exponent)
            return i;
    }
    return -1;
}

// Does the same for adjacent numbers: a compiler's vectors test many at once.
static int64_t first_not_finite_halves(const uint8_t *at, int64_t n, uint16_t exponent)
{
    enum { MANY = 4096 };
    for (int64_t from = 0; from < n; from += MANY) {
        const int64_t count = n - from < MANY ? n - from : MANY;
        uint16_t bad = 0;
        for (int64_t i = 0; i < count; i++) {
            uint16_t bits;
            memcpy(&bits, at + 2 * (from + i), sizeof(bits));
            bad |= (uint16_t)((bits & exponent) == exponent);
        }
        if (bad != 0)
            return from + first_not_finite_16(at + 2 * from, count, 2, exponent);
    }
    return -1;
}

static int64_t first_not_finite_32(const uint8_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, at + 4 * i, sizeof(bits));
        if ((bits & 0x7f800000) == 0x7f800000)
            return i;
    }
    return -1;
}

// Returns the first of n blocks of mxfp4 with the exponent of a NaN, or with a number too large for a float; -1: none.
static int64_t first_not_finite_mxfp4(const uint8_t *b, int64_t n)
{
    static const float number[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    for (int64_t i = 0; i < n; i++, b += 17)
        for (int k = 0; b[0] > 252 && k < 32; k++)
            if (b[0] == 255 || isinf(ldexpf(number[b[1 + k % 16] >> (k / 16 * 4) & 7], b[0] - 128)))
                return i;
    return -1;
}

// Returns the first of n blocks of f8_e4m3 whose scale is not finite or too large, or with a NaN; -1: none.
static int64_t first_not_finite_f8(const uint8_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++, b += 132) {
        float d;
        memcpy(&d, b, sizeof(d));
        bool bad = !isfinite(d * 448); // the largest number
        for (int k = 0; k < 128; k++)
            bad |= (b[4 + k] & 0x7F) == 0x7F;
        if (bad)
            return i;
    }
    return -1;
}

// Returns the first of n blocks of a type whose scale or minimum, floats of 16 bits, is not finite; -1: none.
static int64_t first_not_finite_half(const struct type_facts *f, const uint8_t *b, int64_t n, uint16_t exponent)
{
    const bool has_min = f->scaling == SCALING_MIN || f->scaling == SCALING_SUPER;
    const int64_t bad = first_not_finite_16(b + f->d_at, n, (size_t)f->bytes, exponent);
    return bad < 0 && has_min ? first_not_finite_16(b + f->d_at + 2, n, (size_t)f->bytes, exponent) : bad;
}

// In a block only the scale, and the minimum if there is one, are floats, except in types of small floats.
int64_t first_row_not_finite(const struct tensor *t)
{
    enum { F16_EXPONENT = 0x7c00, BF16_EXPONENT = 0x7f80 };
    const struct type_facts *f = &type_facts[t->type];
    const int64_t elements = t->rows * t->width, blocks = elements / f->block;
    int64_t bad = -1;
    switch (f->scaling) {
    case SCALING_NONE:
        bad = t->type == F32
                  ? first_not_finite_32(t->data, elements)
                  : first_not_finite_halves(t->data, elements, t->type == F16 ? F16_EXPONENT : BF16_EXPONENT);
        break;
    case SCALING_POWER:
        bad = first_not_finite_mxfp4(t->data, blocks);
        break;
    case SCALING_FLOAT:
        bad = first_not_finite_f8(t->data, blocks);
        break;
    case SCALING_HALF:
    case SCALING_MIN:
    case SCALING_SUPER:
    case SCALING_SUB_BLOCK:
        bad = first_not_finite_half(f, t->data, blocks, F16_EXPONENT);
        break;
    }
    return bad < 0 ? -1 : bad * f->block / t->width;
}
