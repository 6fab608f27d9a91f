// cost.h - what a pass of n rows behind c cached tokens takes, from measured ones: the model that speedups are predicted
// by.
//
// Two forms. The hinge is physics: until n0 rows the weights' way from memory is what takes time, then each row's
// products do, and attention costs something for each cached token and for each row that looks at it:
//
//     ns = a + b n + s max(0, n - n0) + d c + e n c
//
// fitted by least squares of relative errors. Kernels that work in tiles have steps that no hinge has: where it misses a
// point by more than 5 %, the table is used, which goes straight from each measured point to the next.
#pragma once
#include <stdbool.h>

enum cost_form { COST_NONE, COST_HINGE, COST_TABLE };
extern const char *const cost_form_names[]; // "none", "hinge", "table"

struct cost_point {
    int n, context;
    double ns;
};

struct cost { // start with { 0 }
    enum cost_form form;
    double a, b, s, n0, d, e;     // of the hinge, whichever form is used
    double hinge_most, hinge_rms; // its relative errors at the points
    double table_most, table_rms; // the table's: at points between others, each as seen from its two neighbours in n
    double step_a, step_d;        // a draft step behind c tokens: ns = step_a + step_d c; NAN: there is no drafter
    double step_most;             // its largest relative error
    int n_rows, n_contexts;       // of the table
    int *rows, *context;          // ascending; owned
    double *ns;                   // (n_contexts, n_rows); owned
};

// The points are a whole grid, in any order, of which each is there once.
void cost_fit(struct cost *to, const struct cost_point *p, int n);
// Of the draft steps, one a context; their n is not looked at. After cost_fit.
void cost_fit_step(struct cost *to, const struct cost_point *p, int n);
void cost_free(struct cost *c);
double cost_ns(const struct cost *c, double n, double context);       // in the form that was chosen
double cost_hinge_ns(const struct cost *c, double n, double context); // and in each
double cost_table_ns(const struct cost *c, double n, double context); // beyond its edges, as at them
double cost_step_ns(const struct cost *c, double context);
