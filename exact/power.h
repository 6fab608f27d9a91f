// power.h - how long a text must be to show a bias of a given size, and how small a bias a text can show.
//
// The size is a total variation d between what a token is drawn from and what it should be drawn from, the same at each
// token, and met head on: a score test of just the set of tokens that became likelier (of which p expects one half: the
// hardest case), an order that has just these tokens last. Where d is not met head on it takes more. What any test can
// see falls with d^2: ten times as fine is a hundred times as long.
#pragma once

enum power_test { POWER_SCORE, POWER_KS, POWER_E, POWER_TESTS };
extern const char *const power_test_names[]; // "score", "KS", "e"

struct power {
    double alpha; // the chance of a false alarm, of all tests together
    double power; // the chance of an alarm when there is a bias
    int tests;    // how many share alpha (Holm); the e-process is one and does not share
};

// Either is INFINITY when there is none. With a power of 0.5 the e-process has what is often quoted for it: where its
// mean log-value reaches the mark.
double power_tokens(enum power_test test, double d, struct power w);
double power_visible(enum power_test test, double tokens, struct power w);
