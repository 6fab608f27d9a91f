#include "tests/support/plain_stages.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/settings.h"
#include "sampling/rng.h"
#include "tests/support/check.h"

struct settings *stages_mapping(const char *const *pair)
{
    struct settings *s = settings_map();
    for (; pair[0]; pair += 2)
        settings_put(s, pair[0], settings_scalar(pair[1]));
    return s;
}

struct sampling stages_read(struct settings *s)
{
    struct sampling to;
    struct error err = { "" };
    assert_ok(sampling_read(s, &to, &err), err);
    settings_free(s);
    return to;
}

void make_logits(float *logit, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(7, (uint64_t)which, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
        double v = philox_uniform(7, (uint64_t)which, (struct address){ FOR_DRAFT, 1, 0 }, (uint32_t)i);
        double x = 8 * u - 4;
        switch (which % 5) {
        case 1:
            x = floor(2 * x) / 2;
            break;
        case 2:
            x = -1.25;
            break;
        case 3:
            x = v < 0.3 ? -INFINITY : x;
            break;
        case 4:
            x *= 30;
            break;
        }
        logit[i] = (float)x;
    }
}

void plain_softmax(double *p, const double *x, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(x[i] - max);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

static const double *sorted_by;

static int by_descending_value(const void *a, const void *b)
{
    int i = *(const int *)a, k = *(const int *)b;
    if (sorted_by[i] != sorted_by[k])
        return sorted_by[i] > sorted_by[k] ? -1 : 1;
    return i - k; // ties: the lowest id
}

void sort_ids(int *id, const double *x, int n)
{
    for (int i = 0; i < n; i++)
        id[i] = i;
    sorted_by = x;
    qsort(id, (size_t)n, sizeof(*id), by_descending_value);
}
