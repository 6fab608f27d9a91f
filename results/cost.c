#include "results/cost.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "results/statistics/statistics.h"

enum { TERMS = 6 };          // 1, n, max(0, n - n0), c, n c, x
#define MAX_HINGE_ERROR 0.05 // relative; the table is used if it is exceeded

const char *const cost_form_names[] = { "none", "hinge", "table" };

// ---- the table

static int compare_points(const void *a, const void *b)
{
    const struct cost_point *x = a, *y = b;
    return x->context != y->context ? (x->context > y->context) - (x->context < y->context)
                                    : (x->n > y->n) - (x->n < y->n);
}

static void make_table(struct cost *c, const struct cost_point *p, int n)
{
    struct cost_point *sorted = xmalloc((size_t)n * sizeof(*sorted));
    memcpy(sorted, p, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_points);
    c->rows = xcalloc((size_t)n, sizeof(*c->rows));
    c->context = xcalloc((size_t)n, sizeof(*c->context));
    c->ns = xcalloc((size_t)n, sizeof(*c->ns));
    c->experts = xcalloc((size_t)n, sizeof(*c->experts));
    for (int i = 0; i < n; i++) {
        if (sorted[i].context == sorted[0].context)
            c->rows[c->n_rows++] = sorted[i].n;
        if (i == 0 || sorted[i].context != sorted[i - 1].context)
            c->context[c->n_contexts++] = sorted[i].context;
        c->ns[i] = sorted[i].ns;
        c->experts[i] = sorted[i].experts;
    }
    assert(c->n_rows * c->n_contexts == n);
    free(sorted);
}

// Returns the interval of an ascending list that contains x, and its share in *share (outside [0, 1] beyond the list).
static int between(const int *list, int n, double x, double *share)
{
    int at = 0;
    while (at + 2 < n && x > list[at + 1])
        at++;
    *share = n < 2 ? 0 : (x - list[at]) / (list[at + 1] - list[at]);
    return at;
}

static double in_row(const struct cost *c, const double *table, int context, double n)
{
    double share;
    int at = between(c->rows, c->n_rows, n, &share);
    const double *row = table + context * c->n_rows;
    return c->n_rows < 2 ? row[0] : row[at] + share * (row[at + 1] - row[at]);
}

static double in_table(const struct cost *c, const double *table, double n, double context)
{
    double share;
    int at = between(c->context, c->n_contexts, context, &share);
    double low = in_row(c, table, at, n);
    return c->n_contexts < 2 ? low : low + share * (in_row(c, table, at + 1, n) - low);
}

double cost_table_ns(const struct cost *c, double n, double context)
{
    return in_table(c, c->ns, n, context);
}

double cost_experts(const struct cost *c, double n, double context)
{
    n = fmin(fmax(n, c->rows[0]), c->rows[c->n_rows - 1]);
    context = fmin(fmax(context, c->context[0]), c->context[c->n_contexts - 1]);
    return in_table(c, c->experts, n, context);
}

// Measures the errors of the table: predicts each inner point from its two neighbours in n.
static void measure_table_error(struct cost *c)
{
    double sum = 0;
    int n = 0;
    for (int k = 0; k < c->n_contexts; k++)
        for (int i = 1; i + 1 < c->n_rows; i++, n++) {
            const double *ns = c->ns + k * c->n_rows + i;
            double share = (double)(c->rows[i] - c->rows[i - 1]) / (c->rows[i + 1] - c->rows[i - 1]);
            double error = (ns[-1] + share * (ns[1] - ns[-1])) / ns[0] - 1;
            sum += error * error;
            c->table_max_error = fmax(c->table_max_error, fabs(error));
        }
    c->table_rms = n > 0 ? sqrt(sum / n) : 0;
}

// ---- the hinge

double cost_hinge_ns(const struct cost *c, double n, double context)
{
    return c->a + c->b * n + c->s * fmax(0, n - c->n0) + c->d * context + c->e * n * context +
           (c->u != 0 ? c->u * cost_experts(c, n, context) : 0);
}

// Rows, contexts and experts are divided by their largest values, so that all terms have about the same size.
struct scale {
    double n, context, experts;
};

// Minimises the relative errors over the used terms. Returns false if the points do not determine them.
static bool solve(double x[TERMS], const struct cost_point *p, int count, double n0, const bool used[TERMS],
                  struct scale by)
{
    double *a = xcalloc((size_t)count * TERMS, sizeof(*a)), *one = xcalloc((size_t)count, sizeof(*one));
    double found[TERMS];
    size_t terms = 0, at = 0;
    for (int i = 0; i < count; i++) {
        double n = p[i].n / by.n, context = p[i].context / by.context, w = 1 / p[i].ns;
        const double term[TERMS] = { w,           w * n,           w * fmax(0, n - n0 / by.n),
                                     w * context, w * n * context, w * p[i].experts / by.experts };
        for (int k = 0; k < TERMS; k++)
            if (used[k])
                a[at++] = term[k];
        one[i] = 1;
    }
    const bool ok = least_squares(found, a, one, (size_t)count, at / (size_t)count);
    for (int k = 0; k < TERMS; k++)
        x[k] = ok && used[k] ? found[terms++] : 0;
    free(a);
    free(one);
    return ok;
}

// Fits the terms. A term that the points do not determine in addition to those before it is 0.
static void fit_at(struct cost *c, const struct cost_point *p, int count, double n0, const bool used[TERMS],
                   struct scale by)
{
    double x[TERMS];
    if (!solve(x, p, count, n0, used, by)) {
        bool kept[TERMS] = { false };
        for (int k = 0; k < TERMS; k++) {
            kept[k] = used[k];
            kept[k] = used[k] && solve(x, p, count, n0, kept, by);
        }
        solve(x, p, count, n0, kept, by);
    }
    c->a = x[0];
    c->b = x[1] / by.n;
    c->s = x[2] / by.n;
    c->n0 = n0;
    c->d = x[3] / by.context;
    c->e = x[4] / by.n / by.context;
    c->u = x[5] / by.experts;
    c->hinge_max_error = c->hinge_rms = 0;
    for (int i = 0; i < count; i++) {
        double error = cost_hinge_ns(c, p[i].n, p[i].context) / p[i].ns - 1;
        c->hinge_rms += error * error / count;
        c->hinge_max_error = fmax(c->hinge_max_error, fabs(error));
    }
    c->hinge_rms = sqrt(c->hinge_rms);
}

// Searches for n0 by the smallest sum of squares, at each measured n and at three values between each two.
static void fit_hinge(struct cost *c, const struct cost_point *p, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, p[i].experts);
    const bool many = c->n_rows >= 2, hinged = c->n_rows >= 4, contexts = c->n_contexts >= 2,
               mixture = most > 0 && c->n_rows >= 3;
    const bool used[TERMS] = { true, many, hinged, contexts, contexts && many, mixture };
    struct scale by = { c->rows[c->n_rows - 1], fmax(1, c->context[c->n_contexts - 1]), fmax(1, most) };
    struct cost best = *c;
    fit_at(&best, p, count, c->rows[0], (const bool[TERMS]){ true, many, false, contexts, contexts && many, mixture },
           by);
    for (int i = 0; hinged && i + 1 < c->n_rows; i++)
        for (int quarter = 0; quarter < 4; quarter++) {
            double n0 = c->rows[i] + quarter * (c->rows[i + 1] - c->rows[i]) / 4.0;
            struct cost tried = *c;
            fit_at(&tried, p, count, n0, used, by);
            if (n0 > c->rows[0] && tried.hinge_rms < best.hinge_rms)
                best = tried;
        }
    *c = best;
}

void cost_fit(struct cost *to, const struct cost_point *p, int n)
{
    *to = (struct cost){ .step_a = NAN, .step_d = NAN, .step_max_error = NAN };
    if (n == 0)
        return;
    make_table(to, p, n);
    measure_table_error(to);
    fit_hinge(to, p, n);
    to->form = to->hinge_max_error <= MAX_HINGE_ERROR ? COST_HINGE : COST_TABLE;
}

// Fits by the same least squares, with the constant and the context's term only.
void cost_fit_step(struct cost *to, const struct cost_point *p, int n)
{
    struct cost line = { 0 };
    int largest = 1; // a loop replaces fmax, on which gcc 12 for ARM crashes
    for (int i = 0; i < n; i++)
        largest = p[i].context > largest ? p[i].context : largest;
    if (n == 0)
        return;
    fit_at(&line, p, n, 1, (const bool[TERMS]){ true, false, false, n >= 2 }, (struct scale){ 1, largest, 1 });
    to->step_a = line.a;
    to->step_d = line.d;
    to->step_max_error = line.hinge_max_error;
}

void cost_free(struct cost *c)
{
    free(c->rows);
    free(c->context);
    free(c->ns);
    free(c->experts);
    *c = (struct cost){ 0 };
}

double cost_ns(const struct cost *c, double n, double context)
{
    return c->form == COST_HINGE ? cost_hinge_ns(c, n, context) : cost_table_ns(c, n, context);
}
