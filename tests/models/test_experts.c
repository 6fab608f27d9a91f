// test_experts.c - a mixture of experts on every backend: against plain loops in double, bit for bit against rows alone, and the experts that a
// pass reads against those that its rows use.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/experts.h"
#include "models/model.h"
#include "tests/device/every_backend.h"
#include "tests/support/tests.h"

enum { WIDTH = 64, HIDDEN = 96, EXPERTS = 11, MOST = 64 };

struct mixture {
    struct backend *backend;
    float *router, *gate[EXPERTS], *up[EXPERTS], *down[EXPERTS]; // as floats
    struct tensor of_gate[EXPERTS], of_up[EXPERTS], of_down[EXPERTS];
    struct experts experts;
    struct expert_scratch scratch;
};

static struct tensor ready(struct backend *b, float *w, int rows, int width)
{
    return prepared(b, w, F32, rows, width, ACTIVATIONS_F32);
}

// Random weights; open() takes what they have become.
static struct mixture *any_mixture(struct backend *b)
{
    struct mixture *m = xcalloc(1, sizeof(*m));
    m->backend = b;
    m->router = uniforms(EXPERTS * WIDTH);
    for (int e = 0; e < EXPERTS; e++) {
        m->gate[e] = uniforms(HIDDEN * WIDTH);
        m->up[e] = uniforms(HIDDEN * WIDTH);
        m->down[e] = uniforms(WIDTH * HIDDEN);
    }
    return m;
}

static void open(struct mixture *m, int used, bool normalized)
{
    struct backend *b = m->backend;
    const struct model_shape s = { .width = WIDTH, .experts = EXPERTS, .experts_used = used, .expert_hidden = HIDDEN };
    m->experts = (struct experts){ .count = EXPERTS,
                                   .used = used,
                                   .normalized = normalized,
                                   .gate = m->of_gate,
                                   .up = m->of_up,
                                   .down = m->of_down,
                                   .router = ready(b, m->router, EXPERTS, WIDTH) };
    for (int i = 0; i < EXPERTS; i++) {
        m->of_gate[i] = ready(b, m->gate[i], HIDDEN, WIDTH);
        m->of_up[i] = ready(b, m->up[i], HIDDEN, WIDTH);
        m->of_down[i] = ready(b, m->down[i], WIDTH, HIDDEN);
    }
    assert_true(expert_scratch_create(&m->scratch, b, &s, MOST));
}

static void close_mixture(struct mixture *m)
{
    expert_scratch_destroy(&m->scratch, m->backend);
    free(m);
    scratch_free();
}

static const float *forward(struct mixture *m, float *x, int n)
{
    m->scratch.touched = 0;
    return experts_forward(m->backend, &m->experts, &m->scratch, floats(x, n, WIDTH), GATE_SILU).data;
}

// The rows one by one.
static float *alone(struct mixture *m, float *x, int n)
{
    float *rows = zeros(n * WIDTH);
    for (int i = 0; i < n; i++) {
        memcpy(rows + i * WIDTH, forward(m, x + i * WIDTH, 1), WIDTH * sizeof(float));
        assert_int_equal(m->scratch.touched, m->experts.used);
    }
    return rows;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

// One row; used[e]: whether it uses expert e.
static void reference(const struct mixture *w, const float *x, int used, bool normalized, double *out, bool *uses)
{
    double score[EXPERTS], total = 0;
    memset(out, 0, WIDTH * sizeof(*out));
    memset(uses, 0, EXPERTS * sizeof(*uses));
    for (int e = 0; e < EXPERTS; e++)
        score[e] = dot(x, w->router + e * WIDTH, WIDTH);
    for (int n = 0; n < used; n++) {
        int best = -1;
        for (int e = 0; e < EXPERTS; e++)
            if (!uses[e] && (best < 0 || score[e] > score[best]))
                best = e;
        uses[best] = true;
    }
    for (int e = 0; e < EXPERTS; e++)
        total += uses[e] || !normalized ? exp(score[e]) : 0;
    for (int e = 0; e < EXPERTS; e++) {
        float hidden[HIDDEN];
        for (int h = 0; h < HIDDEN && uses[e]; h++) {
            const double g = dot(x, w->gate[e] + h * WIDTH, WIDTH);
            hidden[h] = (float)(g / (1 + exp(-g)) * dot(x, w->up[e] + h * WIDTH, WIDTH));
        }
        for (int d = 0; d < WIDTH && uses[e]; d++)
            out[d] += exp(score[e]) / total * dot(hidden, w->down[e] + d * HIDDEN, HIDDEN);
    }
}

static void check(struct backend *b, int used, bool normalized)
{
    struct mixture *m = any_mixture(b);
    open(m, used, normalized);
    float *x = uniforms(MOST * WIDTH), *one = alone(m, x, MOST);
    for (int n = 1; n <= MOST; n = n < 4 ? n + 1 : n * 2) {
        bool touched[EXPERTS] = { false };
        const float *all = forward(m, x, n);
        assert_memory_equal(all, one, (size_t)(n * WIDTH) * sizeof(float));
        for (int i = 0; i < n; i++) {
            double expected[WIDTH];
            bool uses[EXPERTS];
            reference(m, x + i * WIDTH, used, normalized, expected, uses);
            for (int k = 0; k < EXPERTS; k++)
                touched[k] = touched[k] || uses[k];
            assert_true(reference_distance(all + i * WIDTH, expected, WIDTH) < 2e-6);
        }
        int count = 0;
        for (int k = 0; k < EXPERTS; k++)
            count += touched[k];
        assert_int_equal(m->scratch.touched, count);
    }
    close_mixture(m);
}

TEST(rows_get_what_their_experts_make)
{
    for (int b = 0; b < n_backends; b++)
        for (int used = 1; used <= EXPERTS; used += 3)
            for (int normalized = 0; normalized < 2; normalized++)
                if (!backends[b]->varies)
                    check(backends[b], used, normalized != 0);
}

// Equal scores: the experts with the lowest numbers; the others would make zeros.
TEST(ties_go_to_the_expert_with_the_lower_number)
{
    for (int b = 0; b < n_backends; b++) {
        struct mixture *m = any_mixture(backends[b]);
        float *x = uniforms(WIDTH);
        double expected[WIDTH];
        bool uses[EXPERTS];
        memset(m->router, 0, EXPERTS * WIDTH * sizeof(float));
        for (int i = 2; i < EXPERTS; i++)
            memset(m->down[i], 0, WIDTH * HIDDEN * sizeof(float));
        open(m, 2, true);
        reference(m, x, 2, true, expected, uses);
        assert_true(uses[0] && uses[1]);
        assert_true(reference_distance(forward(m, x, 1), expected, WIDTH) < 2e-6);
        close_mixture(m);
    }
}

int main(int argc, char **argv)
{
    return backends_open(argc, argv) ? tests_run(NULL, backends_close) : 77;
}
