#include "results/statistics/calibration.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

enum { BINS = 15 };

void calibration_add(struct calibration *c, float p, bool right)
{
    array_reserve(c->at, c->capacity, c->n + 1);
    c->at[c->n++] = (struct stated){ p, right };
}

void calibration_free(struct calibration *c)
{
    free(c->at);
    *c = (struct calibration){ 0 };
}

double calibration_ece(const struct calibration *c)
{
    double stated[BINS] = { 0 }, right[BINS] = { 0 }, sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        const int bin = c->at[i].p < 1 ? (int)(c->at[i].p * BINS) : BINS - 1;
        stated[bin] += (double)c->at[i].p;
        right[bin] += c->at[i].right;
    }
    for (int b = 0; b < BINS; b++)
        sum += fabs(right[b] - stated[b]);
    return sum / (double)c->n;
}

double calibration_brier(const struct calibration *c)
{
    double sum = 0;
    for (size_t i = 0; i < c->n; i++)
        sum += pow((double)c->at[i].p - (c->at[i].right ? 1 : 0), 2);
    return sum / (double)c->n;
}

static int ascending(const void *a, const void *b)
{
    const float x = ((const struct stated *)a)->p, y = ((const struct stated *)b)->p;
    return x < y ? -1 : x > y;
}

double calibration_auroc(struct calibration *c)
{
    double rights = 0, wrongs = 0, pairs = 0; // pairs: won by the one that is right
    if (c->n > 0)
        qsort(c->at, c->n, sizeof(*c->at), ascending);
    for (size_t i = 0, end; i < c->n; i = end) {
        double right = 0, wrong = 0;
        for (end = i; end < c->n && !(c->at[end].p > c->at[i].p); end++) {
            right += c->at[end].right;
            wrong += !c->at[end].right;
        }
        pairs += right * (wrongs + wrong / 2);
        rights += right;
        wrongs += wrong;
    }
    return pairs / (rights * wrongs);
}
