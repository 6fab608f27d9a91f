// codes.h - the sixteen numbers that the codes of 4-bit types mean, + 128, as ggml-common.h has them.
#pragma once
#include <stdint.h>

static const uint8_t iq4_numbers[16] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 };
// Twice the numbers of four bits: a sign, two bits of exponent, one of mantissa.
static const uint8_t mxfp4_numbers[16] = { 128, 129, 130, 131, 132, 134, 136, 140,
                                           128, 127, 126, 125, 124, 122, 120, 116 };
