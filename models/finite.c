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

// In a block only the scale, and the minimum if there is one, are floats. The other numbers are integers.
int64_t first_row_not_finite(const struct tensor *t)
{
    enum { F16_EXPONENT = 0x7c00, BF16_EXPONENT = 0x7f80 };
    static const struct {
        int n, at[2]; // float16 numbers of a block, and their byte offsets
    } scales[TYPES] = {
        [Q8_0] = { 1, { 0 } },    [Q4_0] = { 1, { 0 } },    [Q4_1] = { 2, { 0, 2 } }, [Q5_0] = { 1, { 0 } },
        [Q5_1] = { 2, { 0, 2 } }, [Q4_K] = { 2, { 0, 2 } }, [Q5_K] = { 2, { 0, 2 } }, [Q6_K] = { 1, { 208 } },
        [IQ4_NL] = { 1, { 0 } },  [IQ4_XS] = { 1, { 0 } },
    };
    int64_t elements = t->rows * t->width, bad = -1;
    if (t->type == F32)
        bad = first_not_finite_32(t->data, elements);
    else if (t->type == F16)
        bad = first_not_finite_halves(t->data, elements, F16_EXPONENT);
    else if (t->type == BF16)
        bad = first_not_finite_halves(t->data, elements, BF16_EXPONENT);
    else {
        const struct type_facts *f = &type_facts[t->type];
        for (int i = 0; i < scales[t->type].n && bad < 0; i++)
            bad = first_not_finite_16((const uint8_t *)t->data + scales[t->type].at[i], elements / f->block,
                                      (size_t)f->bytes, F16_EXPONENT);
        if (t->type == MXFP4)
            bad = first_not_finite_mxfp4(t->data, elements / f->block);
        if (t->type == F8_E4M3)
            bad = first_not_finite_f8(t->data, elements / f->block);
        bad = bad < 0 ? bad : bad * f->block;
    }
    return bad < 0 ? -1 : bad / t->width;
}
