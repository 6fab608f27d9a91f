// verdict.h - the verdict from an observer's sums: does the text follow the target, and would a bias have been
// detected?
//
// The probability of a false alarm is at most `level`. A quarter goes to each of two bets, on the text and on the
// drafter's tokens, of which the first is monitored continuously. Half goes to the tests, which share it (Holm 1979)
// and are evaluated once, at a length fixed in advance. Continuing after "no verdict" evaluates the tests again, and
// spends that half once more. The control and each negative control are evaluated with the same thresholds, separately.
#pragma once
#include <stdbool.h>
#include "verifier/exact/observer.h"

enum answer {
    NO_BIAS_FOUND,
    BIAS_FOUND,
    NO_VERDICT, // no bias, but the control is not clean or a negative control was not detected: more tokens are needed
};
extern const char *const answer_names[]; // "no bias found", "bias found", "no verdict"

struct stream_test { // a test that belongs to a stream
    int stream;
    struct exact_test test;
    double log10_adjusted; // p after Holm's correction within its family
};

struct stream_verdict {
    double tokens;
    double log_e;                    // log of the bet's capital at the end
    const struct stream_test *worst; // smallest adjusted p; NULL: there was no test
    bool alarm;
};

enum { VERDICT_ROWS = STREAMS * EVIDENCE_TESTS + 2 };

struct verdict { // contains pointers into itself: it must not be moved
    enum answer answer;
    double level;
    double tokens;
    double detectable_ks, detectable_e; // smallest total variation detected with power 0.999, tested head on
    double needed; // tokens in all after which each negative control is detected, if p falls as so far; NAN: unknown
    double z_accepted; // accepted tokens against expected ones; NAN: the rule has no end_probabilities
    struct stream_verdict of[STREAMS];
    int n;
    struct stream_test row[VERDICT_ROWS];
};

// max_log_e: the maximum that the text's bet has reached so far.
void verdict_of(struct verdict *v, const struct observed *seen, double max_log_e, double level);
// Returns whether the bet alone has reached its threshold, for monitoring.
bool verdict_is_certain(double log_e, double level);

// ---- the size of a bias

struct bias_size {
    double observed; // largest difference between the tokens and p in the mass of a lower part of the guided order
    double least;    // 0 or more: a lower bound of the average total variation of the tokens; 0: nothing is known
};

// The total variation is that between the distribution of a token, given what came before it, and its row of p. No
// number of tokens bounds it from above, as a bias may keep the mass of every part of the order. `least` is above the
// true average with a probability of at most `doubt`, at whatever length the text is stopped.
struct bias_size bias_size_of(const struct evidence *text, double doubt);

// ---- sample sizes: the number of tokens that shows a bias of a given size, and the smallest bias that a number of
// tokens shows
//
// The size is the total variation d between the distribution of a token and the one it should have. It is equal at all
// tokens, and tested head on: by a score test of exactly the set of tokens that became more probable (of mass one half
// under p: the hardest case), or by an order that has exactly these tokens last. Any other test needs more tokens. What
// a test can detect falls with d^2: a tenth of the bias needs a hundred times the tokens.
enum power_test { POWER_SCORE, POWER_KS, POWER_E, POWER_TESTS };

struct power {
    double alpha; // probability of a false alarm, for all tests together
    double power; // probability of an alarm when there is a bias
    int tests;    // number of tests that share alpha (Holm); the e-process is a single test and does not share
};

// Both return INFINITY if there is no such number.
double power_tokens(enum power_test test, double d, struct power w);
double power_detectable(enum power_test test, double tokens, struct power w);
