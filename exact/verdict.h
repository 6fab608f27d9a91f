// verdict.h - what the sums of an observer come to: is the text the target's, and would it have been seen if not?
//
// One false alarm in 1 / level runs is allowed for: a quarter of it goes to each of two bets, on the text and on the
// drafter's guesses, of which the first is looked at all the time, and half to the tests, all of which share it (Holm
// 1979) and are looked at once, at a length fixed before. Whoever goes on after "no verdict" takes another look, and
// spends that half once more. The control and each plant are judged by the same marks, each for itself.
#pragma once
#include <stdbool.h>
#include "exact/observer.h"

enum answer {
    NO_BIAS_FOUND,
    BIAS_FOUND,
    NO_VERDICT, // nothing was found, but the control is not clean, or a plant was not seen: more tokens are needed
};
extern const char *const answer_names[]; // "no bias found", "bias found", "no verdict"

struct finding_row { // a test of a stream
    int stream;
    struct exact_test test;
    double log10_adjusted; // p after Holm's correction within its family
};

struct stream_verdict {
    double tokens;
    double log_e;                    // of the bet, at the end
    const struct finding_row *worst; // smallest adjusted p; NULL: there was no test
    bool alarm;
};

enum { VERDICT_ROWS = STREAMS * EVIDENCE_TESTS + 2 };

struct verdict { // what it points to is its own: it must stay where it is
    enum answer answer;
    double level;
    double tokens;
    double visible_ks, visible_e; // smallest total variation that these would have shown with power 0.999, met head on
    double z_accepted;            // of accepted tokens against expected ones; NAN: the rule has no law
    struct stream_verdict of[STREAMS];
    int n;
    struct finding_row row[VERDICT_ROWS];
};

// most_log_e: the greatest that the text's bet has been on the way.
void verdict_of(struct verdict *v, const struct observed *seen, double most_log_e, double level);
// The bet alone, looked at on the way: whether it has already come to the mark.
bool verdict_is_certain(double log_e, double level);
