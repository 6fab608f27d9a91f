// calibration.h - how well stated probabilities of being right agree with the outcomes.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct calibration { // start with { 0 }
    size_t n, capacity;
    struct stated {
        float p;
        bool right;
    } * at; // (n)
};

void calibration_add(struct calibration *c, float p, bool right); // p from 0 to 1
void calibration_free(struct calibration *c);

// These are NaN if there are no predictions. calibration_ece is the expected calibration error: the mean distance of
// the share that is right from the mean p, in 15 bins of equal width (Guo et al. 2017, arXiv 1706.04599).
double calibration_ece(const struct calibration *c);
double calibration_brier(const struct calibration *c); // mean squared error of p
// Returns the probability that a prediction that is right has a larger p than one that is not; ties count half. NaN if
// all are right, or none. Sorts c->at.
double calibration_auroc(struct calibration *c);
