// compare_logits.h - rows of logits that should be the same, row beside row: whether a difference is rounding or a bug.
//
// Rows that were summed in another order differ by a little everywhere, and the first two tokens may pass each other
// where they were nearer than that: a tie. The row alone cannot say if it was rounding that moved it, as any row that
// turned was moved by at least half of what its first two were apart. So how far rounding can move one is settled
// before: as a share of the row's spread (root mean square about its mean), by what products and cache are rounded to.
// On SmolLM2-135M (Q4_1, 199 places) other instructions for the same sums move rows by at most 3e-5 of their spread
// with f32 activations, by 0.46 with int8; rounding the cache to bf16 by 0.05, or 0.15 with bf16 activations. One wrong
// token in the cache moves them by 0.21 in the median, a lost row by 0.14. Hence: with f32 a bug is told from rounding, with
// bf16 and int8 a coarse one is. Any difference is one more than this engine's backends make, but for
// those that say so (backend.varies).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

// The most that rounding moves a logit, as a share of its row's spread: twice and more what was seen.
double rounding_limit(enum activations a, enum type cache);

struct compared {
    double limit;            // of rounding
    int64_t rows, different; // of logits; those of which any bit differs
    double largest;          // difference between two logits of one place; INFINITY if one of them is no number
    double share;            // the largest, of its row's spread
    int64_t ties;            // rows whose first two are nearer to one another than twice the row's largest difference
    int64_t turned;          // rows whose likeliest token differs
    int64_t bugs;            // rows that differ by more than rounding
    struct {                 // of those that turned or are bugs the first
        int64_t sequence;    // its text; -1: there is none
        int place;           // in it
        double apart, moved; // its first two, and by how much its logits differ
        bool bug;
    } first;
};
struct compared compared_nothing(double limit); // to begin with

enum same {
    SAME_BITS,
    NEAR_TIES, // rows differ as rounding makes them differ, the likeliest token hence at ties alone
    OTHERWISE, // by more: a bug
};
extern const char *const same_names[];

// one, verified: (vocab) logits of one place of a text, computed alone and in a verifying pass.
void compared_add(struct compared *c, const float *one, const float *verified, int vocab, int64_t sequence, int place);
enum same compared_same(const struct compared *c);
