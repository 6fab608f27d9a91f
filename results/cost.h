// cost.h - cost model: the time of a pass of n rows after c cached tokens, fitted to measurements. Predictions of
// speedup use it.
//
// It has two forms. The hinge models the hardware: up to n0 rows a pass is bound by reading weights from memory, beyond
// them by each row's products; attention adds a cost per cached token, and per cached token and row:
//
//     ns = a + b n + s max(0, n - n0) + d c + e n c + u x
//
// x is the number of experts, over all layers, that a pass of a mixture of experts reads. It is smaller than the number
// that its rows use, since rows share experts.
//
// The hinge is fitted by least squares of relative errors. Kernels that work in tiles have steps, which no hinge has:
// if the hinge misses a point by more than 5 %, the table is used, which interpolates linearly between measured points.
#pragma once

enum cost_form { COST_NONE, COST_HINGE, COST_TABLE };
extern const char *const cost_form_names[]; // "none", "hinge", "table"

struct cost_point {
    int n, context;
    double ns;
    double experts; // experts that the pass reads; 0: no mixture of experts
};

struct cost { // start with { 0 }
    enum cost_form form;
    double a, b, s, n0, d, e, u;       // coefficients of the hinge, even if the table is used
    double hinge_max_error, hinge_rms; // relative errors at the points: largest, root mean square
    double table_max_error, table_rms; // errors of the table: each inner point predicted from its two neighbours in n
    double step_a, step_d;             // a draft step after c tokens: ns = step_a + step_d c; NAN: no draft model
    double step_max_error;             // largest relative error
    int n_rows, n_contexts;            // sizes of the table
    int *rows, *context;               // ascending; owned
    double *ns, *experts;              // (n_contexts, n_rows); owned
};

// p: all points of a grid of n and context, each once, in any order. The caller calls cost_free.
void cost_fit(struct cost *to, const struct cost_point *p, int n);
// Fits step_a and step_d to draft steps, one point per context; their n is ignored. Call after cost_fit.
void cost_fit_step(struct cost *to, const struct cost_point *p, int n);
void cost_free(struct cost *c);
double cost_ns(const struct cost *c, double n, double context);       // uses the form in `form`
double cost_hinge_ns(const struct cost *c, double n, double context); // uses the hinge
double cost_experts(const struct cost *c, double n,
                    double context); // experts that a pass reads: linear between measured points, constant beyond
double cost_table_ns(const struct cost *c, double n,
                     double context); // uses the table, extrapolated linearly beyond its edges
