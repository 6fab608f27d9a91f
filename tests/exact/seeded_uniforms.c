#include "tests/exact/seeded_uniforms.h"

#include <math.h>
#include <string.h>

#include "sampling/dist.h"

static double rounded_down(double u, int bits)
{
    return ldexp(floor(ldexp(u, bits)), -bits);
}

static bool stands(double p, double q, double u, enum slip slip)
{
    if (slip == INCLUSIVE)
        return u <= p / q;
    if (p <= 0 || p >= q)
        return p > 0;
    return slip == TURNS_TWICE ? fabs(u - 0.5) * q * 2 < p : u * q < p;
}

static int inverted(const double *w, int n, double u)
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

// Rejection on a chain, plainly.
static void chain_verify(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                         struct verification *out)
{
    enum slip slip = ((struct slipping_box *)self)->slip;
    const int vocab = rows->vocab;
    double p[LAW_VOCAB], q[LAW_VOCAB];
    int node = 0;
    verification_clear(out, d->n);
    for (;; node++) {
        double accept = node + 1 < d->n ? u[slip == SHARED_ACCEPT_ONLY ? 1 : node + 1] : 0;
        double draw = u[(node + 1 < d->n ? d->n : 2 * d->n) + node];
        dist_from_row(p, rows->row(rows, node), vocab);
        if (slip == COARSE_PICKS)
            draw = rounded_down(draw, 24);
        if (node + 1 == d->n) {
            verification_add(out, node, inverted(p, vocab, draw));
            return;
        }
        const int x = d->token[node + 1];
        if (d->proposal[node + 1] != DETERMINISTIC)
            dist_from_row(q, d->q->row(d->q, node), vocab);
        for (int i = 0; d->proposal[node + 1] == DETERMINISTIC && i < vocab; i++)
            q[i] = i == x;
        accept = slip == ALWAYS_ZERO ? 0 : slip == COARSE_COINS ? rounded_down(accept, 11) : accept;
        if (!stands(p[x], q[x], accept, slip)) {
            residual(p, q, vocab);
            verification_add(out, node, inverted(p, vocab, slip == ONE_UNIFORM ? accept : draw));
            return;
        }
        verification_add(out, node, x);
    }
}

// A tree of chosen tokens: at each node one uniform walks along its children.
static void one_coin_judge(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                           struct verification *out)
{
    bool again = ((struct slipping_box *)self)->slip == SHARED_ACCEPT_AGAIN;
    double p[LAW_VOCAB];
    verification_clear(out, d->n);
    for (int node = 0;;) {
        double below = 0;
        bool leaf = draft_next_child(d, node, node) < 0;
        int c = draft_next_child(d, node, node);
        dist_from_row(p, rows->row(rows, node), rows->vocab);
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            below += p[d->token[c]]; // 0 of one that fell before
            if (u[node] < below)
                break;
            p[d->token[c]] = 0;
        }
        if (c < 0) {
            double draw = leaf ? u[2 * d->n + node] : u[again ? node : d->n + node];
            verification_add(out, node, inverted(p, rows->vocab, draw));
            return;
        }
        verification_add(out, node, d->token[c]);
        node = c;
    }
}

struct slipping_box slipping_box(enum slip slip)
{
    return (struct slipping_box){ { false, slip >= SHARED_ACCEPT ? one_coin_judge : chain_verify, -1, { 0 } }, slip };
}

// ---- races

// What match does on a chain, plainly.
static void racing_judge(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                         struct verification *out)
{
    enum gait gait = ((struct racing_box *)self)->gait;
    verification_clear(out, d->n);
    for (int node = 0;; node++) {
        const float *row = rows->row(rows, node);
        int first = -1;
        double best = INFINITY;
        for (int i = 0; i < rows->vocab; i++) {
            double at = u[(gait == SAME_EVERYWHERE ? 0 : node * rows->vocab) + i] + 0x1p-54;
            double time = (gait == BY_UNIFORMS ? at : -log1p(-at)) / (double)row[i];
            if (row[i] > 0 && (first < 0 || time < best))
                first = i, best = time;
        }
        verification_add(out, node, first);
        if (node + 1 == d->n || d->token[node + 1] != first)
            return;
    }
}

struct racing_box racing_box(enum gait gait)
{
    return (struct racing_box){ { true, racing_judge, -1, { 0 } }, gait };
}
