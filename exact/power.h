// power.h - sample sizes: the number of tokens that shows a bias of a given size, and the smallest bias that a number
// of tokens shows.
//
// The size is the total variation d between the distribution of a token and the one it should have, the same at each
// token, and tested head on: a score test of exactly the set of tokens that became more probable (of mass one half
// under p: the hardest case), or an order that has exactly these tokens last. Any other test needs more tokens. What a
// test can detect falls with d^2: a tenth of the bias needs a hundred times the tokens.
#pragma once

enum power_test { POWER_SCORE, POWER_KS, POWER_E, POWER_TESTS };

struct power {
    double alpha; // probability of a false alarm, of all tests together
    double power; // probability of an alarm when there is a bias
    int tests;    // number of tests that share alpha (Holm); the e-process is a single test and does not share
};

// Both return INFINITY if there is no such number.
double power_tokens(enum power_test test, double d, struct power w);
double power_detectable(enum power_test test, double tokens, struct power w);
