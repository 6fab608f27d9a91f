#include "tests/exact/seeded_uniforms.h"

#include <math.h>
#include <string.h>

#include "sampling/dist.h"

static double rounded_down(double u, int bits)
{
    return ldexp(floor(ldexp(u, bits)), -bits);
}

static bool is_accepted(double p, double q, double u, enum misuse misuse)
{
    if (misuse == INCLUSIVE_ACCEPT)
        return u <= p / q;
    if (p <= 0 || p >= q)
        return p > 0;
    return misuse == ACCEPTS_MIDDLE ? fabs(u - 0.5) * q * 2 < p : u * q < p;
}

static int inverse_cdf(const double *w, int n, double u)
{
    double sum = 0, below = 0;
    int last = -1;
    for (int i = 0; i < n; i++)
        sum += w[i];
    for (int i = 0; i < n && below <= u * sum; i++)
        if (w[i] > 0) {
            below += w[i];
            last = i;
        }
    return last;
}

static void residual(double *p, const double *q, int n)
{
    double w[LAW_VOCAB], sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i] = fmax(p[i] - q[i], 0);
    if (sum > 0)
        memcpy(p, w, (size_t)n * sizeof(*p));
}

// Plain rejection on a chain.
static void chain_verify(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                         struct verification *out)
{
    enum misuse misuse = ((struct misusing_box *)self)->misuse;
    const int vocab = rows->vocab;
    double p[LAW_VOCAB], q[LAW_VOCAB];
    int node = 0;
    verification_clear(out, d->n);
    for (;; node++) {
        double accept = node + 1 < d->n ? u[misuse == SHARED_ACCEPT_ONLY ? 1 : node + 1] : 0;
        double draw = u[(node + 1 < d->n ? d->n : 2 * d->n) + node];
        dist_from_row(p, rows->row(rows, node), vocab);
        if (misuse == COARSE_PICK)
            draw = rounded_down(draw, 24);
        if (node + 1 == d->n) {
            verification_add(out, node, inverse_cdf(p, vocab, draw));
            return;
        }
        const int x = d->token[node + 1];
        if (d->proposal[node + 1] != DETERMINISTIC)
            dist_from_row(q, d->q->row(d->q, node), vocab);
        for (int i = 0; d->proposal[node + 1] == DETERMINISTIC && i < vocab; i++)
            q[i] = i == x;
        accept = misuse == ACCEPT_ALWAYS_ZERO ? 0 : misuse == COARSE_ACCEPT ? rounded_down(accept, 11) : accept;
        if (!is_accepted(p[x], q[x], accept, misuse)) {
            residual(p, q, vocab);
            verification_add(out, node, inverse_cdf(p, vocab, misuse == RESIDUAL_REUSES_ACCEPT ? accept : draw));
            return;
        }
        verification_add(out, node, x);
    }
}

// A tree of deterministic tokens: one uniform per node selects among its children.
static void shared_accept_verify(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                                 struct verification *out)
{
    bool again = ((struct misusing_box *)self)->misuse == SHARED_ACCEPT_AND_PICK;
    double p[LAW_VOCAB];
    verification_clear(out, d->n);
    for (int node = 0;;) {
        double below = 0;
        bool leaf = draft_next_child(d, node, node) < 0;
        int c = draft_next_child(d, node, node);
        dist_from_row(p, rows->row(rows, node), rows->vocab);
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            below += p[d->token[c]]; // 0 if it was rejected before
            if (u[node] < below)
                break;
            p[d->token[c]] = 0;
        }
        if (c < 0) {
            double draw = leaf ? u[2 * d->n + node] : u[again ? node : d->n + node];
            verification_add(out, node, inverse_cdf(p, rows->vocab, draw));
            return;
        }
        verification_add(out, node, d->token[c]);
        node = c;
    }
}

struct misusing_box misusing_box(enum misuse misuse)
{
    return (struct misusing_box){ { false, misuse >= SHARED_ACCEPT ? shared_accept_verify : chain_verify, -1, { 0 } },
                                  misuse };
}

// ---- races

// Plain match on a chain.
static void racing_verify(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                          struct verification *out)
{
    enum race_variant race_variant = ((struct racing_box *)self)->race_variant;
    verification_clear(out, d->n);
    for (int node = 0;; node++) {
        const float *row = rows->row(rows, node);
        int first = -1;
        double best = INFINITY;
        for (int i = 0; i < rows->vocab; i++) {
            double at = u[(race_variant == RACE_SAME_UNIFORMS ? 0 : node * rows->vocab) + i] + 0x1p-54;
            double time = (race_variant == RACE_BY_UNIFORMS ? at : -log1p(-at)) / (double)row[i];
            if (row[i] > 0 && (first < 0 || time < best))
                first = i, best = time;
        }
        verification_add(out, node, first);
        if (node + 1 == d->n || d->token[node + 1] != first)
            return;
    }
}

struct racing_box racing_box(enum race_variant race_variant)
{
    return (struct racing_box){ { true, racing_verify, -1, { 0 } }, race_variant };
}
