// spread.h - what several measurements of one thing say: the middle, and how far they lie apart.
#pragma once

struct spread {
    int n;                                 // measurements; 0: all the others are NAN
    double median, low, high, least, most; // low, high: quartiles, by linear interpolation between neighbours
};

struct spread spread_of(const double *x, int n); // NAN among them: not measured
