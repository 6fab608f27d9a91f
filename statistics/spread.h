// spread.h - median, quartiles and extremes of repeated measurements.
#pragma once

struct spread {
    int n;                                 // measurements; 0: all other fields are NAN
    double median, low, high, least, most; // low, high: quartiles, by linear interpolation between neighbours
};

struct spread spread_of(const double *x, int n); // NANs in x are skipped
