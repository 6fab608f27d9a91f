// test_experts.c - a mixture of experts on every backend: against plain loops in double, bit for bit against rows alone, and the experts that a
// pass reads against those that its rows use.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "models/experts.h"
#include "models/model.h"
#include "tests/device/every_backend.h"

enum { WIDTH = 64, HIDDEN = 96, EXPERTS = 11, MOST = 64 };

struct weights_of { // as floats
    float *router, *gate[EXPERTS], *up[EXPERTS], *down[EXPERTS];
};

static struct tensor ready(struct backend *b, float *w, int rows, int width)
{
    struct error err;
    const struct tensor t = b->prepare(b, floats(w, rows, width), ACTIVATIONS_F32, &err);
    assert_non_null(t.data);
    return t;
}

static struct weights_of any_weights(void)
{
    struct weights_of w = { .router = uniforms(EXPERTS * WIDTH) };
    for (int e = 0; e < EXPERTS; e++) {
        w.gate[e] = uniforms(HIDDEN * WIDTH);
        w.up[e] = uniforms(HIDDEN * WIDTH);
        w.down[e] = uniforms(WIDTH * HIDDEN);
    }
    return w;
}

static void free_weights(struct weights_of *w)
{
    free(w->router);
    for (int e = 0; e < EXPERTS; e++)
        free(w->gate[e]), free(w->up[e]), free(w->down[e]);
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

// One row; used[e]: whether it uses expert e.
static void reference(const struct weights_of *w, const float *x, int used, bool normalized, double *out, bool *uses)
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
    struct weights_of w = any_weights();
    struct tensor gate[EXPERTS], up[EXPERTS], down[EXPERTS];
    struct experts e = {
        .count = EXPERTS, .used = used, .normalized = normalized, .gate = gate, .up = up, .down = down
    };
    const struct model_shape s = { .width = WIDTH, .experts = EXPERTS, .experts_used = used, .expert_hidden = HIDDEN };
    e.router = ready(b, w.router, EXPERTS, WIDTH);
    for (int i = 0; i < EXPERTS; i++) {
        gate[i] = ready(b, w.gate[i], HIDDEN, WIDTH);
        up[i] = ready(b, w.up[i], HIDDEN, WIDTH);
        down[i] = ready(b, w.down[i], WIDTH, HIDDEN);
    }
    struct expert_scratch t;
    assert_true(expert_scratch_create(&t, b, &s, MOST));
    float *x = uniforms(MOST * WIDTH), *alone = uniforms(MOST * WIDTH);
    for (int i = 0; i < MOST; i++)
        memcpy(alone + i * WIDTH, experts_forward(b, &e, &t, floats(x + i * WIDTH, 1, WIDTH), GATE_SILU).data,
               WIDTH * sizeof(float));
    assert_int_equal(t.touched, MOST * used);
    for (int n = 1; n <= MOST; n = n < 4 ? n + 1 : n * 2) {
        bool touched[EXPERTS] = { false };
        t.touched = 0;
        const float *all = experts_forward(b, &e, &t, floats(x, n, WIDTH), GATE_SILU).data;
        assert_memory_equal(all, alone, (size_t)(n * WIDTH) * sizeof(float));
        for (int i = 0; i < n; i++) {
            double expected[WIDTH];
            bool uses[EXPERTS];
            reference(&w, x + i * WIDTH, used, normalized, expected, uses);
            for (int k = 0; k < EXPERTS; k++)
                touched[k] = touched[k] || uses[k];
            assert_true(reference_distance(all + i * WIDTH, expected, WIDTH) < 2e-6);
        }
        int count = 0;
        for (int k = 0; k < EXPERTS; k++)
            count += touched[k];
        assert_int_equal(t.touched, count);
    }
    expert_scratch_destroy(&t, b);
    b->unprepare(b, e.router);
    for (int i = 0; i < EXPERTS; i++)
        b->unprepare(b, gate[i]), b->unprepare(b, up[i]), b->unprepare(b, down[i]);
    free_weights(&w);
    free(x), free(alone);
}

static void rows_get_what_their_experts_make(void **unused)
{
    for (int b = 0; b < n_backends; b++)
        for (int used = 1; used <= EXPERTS; used += 3)
            for (int normalized = 0; normalized < 2; normalized++)
                if (!backends[b]->varies)
                    check(backends[b], used, normalized != 0);
}

// Rows of which each is a unit vector, so the router's columns say which experts it uses: rows that share all experts, some, or none.
static void check_shared(struct backend *b, int (*expert)(int row, int k), int n, int united)
{
    enum { SETS_USED = 2 };
    struct weights_of w = any_weights();
    struct tensor gate[EXPERTS], up[EXPERTS], down[EXPERTS];
    struct experts e = {
        .count = EXPERTS, .used = SETS_USED, .normalized = true, .gate = gate, .up = up, .down = down
    };
    const struct model_shape s = {
        .width = WIDTH, .experts = EXPERTS, .experts_used = SETS_USED, .expert_hidden = HIDDEN
    };
    float *x = calloc((size_t)n * WIDTH, sizeof(*x)), *alone = uniforms(n * WIDTH);
    memset(w.router, 0, EXPERTS * WIDTH * sizeof(float));
    for (int i = 0; i < n; i++) {
        x[i * WIDTH + i] = 1;
        for (int k = 0; k < SETS_USED; k++)
            w.router[expert(i, k) * WIDTH + i] = (float)(2 + k);
    }
    e.router = ready(b, w.router, EXPERTS, WIDTH);
    for (int i = 0; i < EXPERTS; i++) {
        gate[i] = ready(b, w.gate[i], HIDDEN, WIDTH);
        up[i] = ready(b, w.up[i], HIDDEN, WIDTH);
        down[i] = ready(b, w.down[i], WIDTH, HIDDEN);
    }
    struct expert_scratch t;
    assert_true(expert_scratch_create(&t, b, &s, n));
    for (int i = 0; i < n; i++)
        memcpy(alone + i * WIDTH, experts_forward(b, &e, &t, floats(x + i * WIDTH, 1, WIDTH), GATE_SILU).data,
               WIDTH * sizeof(float));
    assert_int_equal(t.touched, n * SETS_USED);
    t.touched = 0;
    assert_memory_equal(experts_forward(b, &e, &t, floats(x, n, WIDTH), GATE_SILU).data, alone,
                        (size_t)(n * WIDTH) * sizeof(float));
    assert_int_equal(t.touched, united);
    expert_scratch_destroy(&t, b);
    b->unprepare(b, e.router);
    for (int i = 0; i < EXPERTS; i++)
        b->unprepare(b, gate[i]), b->unprepare(b, up[i]), b->unprepare(b, down[i]);
    free_weights(&w);
    free(x), free(alone);
}

static int same(int row, int k)
{
    return 3 + 4 * k;
}

static int own(int row, int k)
{
    return 2 * row + k;
}

static int one_shared(int row, int k)
{
    return k == 0 ? 10 : row % 10;
}

static void rows_may_share_all_some_or_no_experts(void **unused)
{
    for (int b = 0; b < n_backends; b++)
        if (!backends[b]->varies) {
            check_shared(backends[b], same, 64, 2);
            check_shared(backends[b], own, 5, 10);
            check_shared(backends[b], one_shared, 7, 8);
            check_shared(backends[b], one_shared, 64, 11);
        }
}

// Equal scores: the experts with the lowest numbers.
static void ties_go_to_the_expert_with_the_lower_number(void **unused)
{
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        struct weights_of w = any_weights();
        struct tensor gate[EXPERTS], up[EXPERTS], down[EXPERTS];
        memset(w.router, 0, EXPERTS * WIDTH * sizeof(float));
        for (int i = 0; i < EXPERTS; i++) {
            for (int k = 0; k < WIDTH * HIDDEN; k++)
                w.down[i][k] = i < 2 ? w.down[i][k] : 0; // the others would make zeros
            gate[i] = ready(c, w.gate[i], HIDDEN, WIDTH);
            up[i] = ready(c, w.up[i], HIDDEN, WIDTH);
            down[i] = ready(c, w.down[i], WIDTH, HIDDEN);
        }
        struct experts e = { .count = EXPERTS, .used = 2, .normalized = true, .gate = gate, .up = up, .down = down };
        const struct model_shape s = { .width = WIDTH, .experts = EXPERTS, .experts_used = 2, .expert_hidden = HIDDEN };
        struct expert_scratch t;
        e.router = ready(c, w.router, EXPERTS, WIDTH);
        assert_true(expert_scratch_create(&t, c, &s, 1));
        float *x = uniforms(WIDTH);
        double expected[WIDTH] = { 0 };
        const float *out = experts_forward(c, &e, &t, floats(x, 1, WIDTH), GATE_SILU).data;
        for (int i = 0; i < 2; i++) {
            float hidden[HIDDEN];
            for (int h = 0; h < HIDDEN; h++) {
                const double g = dot(x, w.gate[i] + h * WIDTH, WIDTH);
                hidden[h] = (float)(g / (1 + exp(-g)) * dot(x, w.up[i] + h * WIDTH, WIDTH));
            }
            for (int d = 0; d < WIDTH; d++)
                expected[d] += dot(hidden, w.down[i] + d * HIDDEN, HIDDEN) / 2;
        }
        assert_true(reference_distance(out, expected, WIDTH) < 2e-6);
        expert_scratch_destroy(&t, c);
        c->unprepare(c, e.router);
        for (int i = 0; i < EXPERTS; i++)
            c->unprepare(c, gate[i]), c->unprepare(c, up[i]), c->unprepare(c, down[i]);
        free_weights(&w);
        free(x);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_get_what_their_experts_make),
        cmocka_unit_test(rows_may_share_all_some_or_no_experts),
        cmocka_unit_test(ties_go_to_the_expert_with_the_lower_number),
    };
    return backends_open(argc, argv) ? cmocka_run_group_tests(tests, NULL, backends_close) : 77;
}
