// compare_logits.h - compares rows of logits that should be equal, and classifies differences as rounding or as a bug.
//
// Rows that were summed in another order differ slightly everywhere; if the top two logits are closer than that, their
// tokens can swap: a tie. A row alone does not show whether rounding moved it, since any row whose argmax changed moved
// by at least half the gap of its top two. So the limit of rounding is fixed beforehand, as a share of the row's spread
// (standard deviation of its logits), by activations and cache type. On SmolLM2-135M (Q4_1, 199 positions) other
// instructions for the same sums move rows by at most 3e-5 of their spread with f32 activations and by 0.46 with int8;
// rounding the cache to bf16 moves them by 0.05, or by 0.15 with bf16 activations. One wrong token in the cache moves
// them by 0.21 in the median, a lost row by 0.14. Hence every bug is distinguished from rounding with f32, but only a
// coarse one with bf16 and int8. The backends themselves cause no difference at all, except those with backend.varies.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

// Maximum change of a logit by rounding, as a share of its row's spread: at least twice the observed maximum.
double rounding_limit(enum activations a, enum type cache);

struct logit_comparison {
    double limit;            // the largest change by rounding, as a share
    int64_t rows, different; // rows compared; rows with any different bit
    double largest;          // largest difference of two logits; INFINITY if one of them is not a number
    double share;            // largest difference as a share of its row's spread
    int64_t ties;            // rows whose top two are closer than twice the row's largest difference
    int64_t turned;          // rows whose argmax differs
    int64_t bugs;            // rows that differ by more than rounding
    struct {                 // the first row that is a bug or has another argmax
        int64_t sequence;    // number of its text; -1: no such row
        int position;        // position in the text
        double apart, moved; // gap of its top two logits; largest difference
        bool bug;
    } first;
};
struct logit_comparison comparison_start(double limit); // a comparison without rows

enum agreement {
    BITWISE_EQUAL,
    DIFFER_AT_TIES,         // differences are within rounding, so the argmax can differ at ties only
    DIFFER_BEYOND_ROUNDING, // a bug
};
extern const char *const agreement_names[];

// single, verified: (vocab) logits at one position of a text, of a pass of one token and of a verification pass.
void comparison_add(struct logit_comparison *c, const float *single, const float *verified, int vocab, int64_t sequence,
                    int position);
enum agreement comparison_result(const struct logit_comparison *c);
