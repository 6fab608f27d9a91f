// test_row_operations.c - operations on rows, on every backend: dequantization, norms, activations, copies, the best logits.
#include "tests/device/every_backend.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tests/support/file_write.h"

static void blocks_dequantize_as_in_gguf_py(void **unused)
{
    struct json *j = golden_json("blocks.json");
    for (int b = 0; b < n_backends; b++)
        for (int t = 1; t < TYPES; t++) {
            char name[16] = { 0 };
            for (size_t i = 0; type_facts[t].name[i] != '\0'; i++)
                name[i] = (char)toupper(type_facts[t].name[i]);
            struct json *list = json_get(json_get(j, name), "blocks");
            assert_true(json_count(list) > 0);
            for (size_t i = 0; i < json_count(list); i++) {
                const char *hex = json_text(json_get(json_at(list, i), "hex"));
                struct json *values = json_get(json_at(list, i), "values");
                uint8_t bytes[1024];
                float out[256];
                size_t n = strlen(hex) / 2, width = json_count(values);
                for (size_t k = 0; k < n; k++)
                    sscanf(hex + 2 * k, "%2hhx", &bytes[k]);
                assert_int_equal(n, type_row_bytes((enum type)t, (int64_t)width));
                backends[b]->take(backends[b], floats(out, 1, (int64_t)width),
                                  tensor_of(bytes, (enum type)t, 1, (int64_t)width), &(const int32_t){ 0 });
                for (size_t k = 0; k < width; k++) {
                    double expected = json_number(json_at(values, k)), got = (double)out[k];
                    // A fused multiply-add may round less than gguf-py's two steps, relative to the terms.
                    double scale = 0;
                    for (size_t l = 0; l < width; l++)
                        scale = fmax(scale, fabs(json_number(json_at(values, l))));
                    if (!(fabs(got - expected) <= 1e-6 * fabs(expected) + 2e-7 * scale))
                        fail_msg("%s %s: element %zu is %.9g, not %.9g", backends[b]->describe(backends[b]), name, k,
                                 got, expected);
                }
            }
        }
    json_free(j);
}

static void operations_on_rows_agree_with_plain_loops(void **unused)
{
    for (int b = 0; b < n_backends; b++)
        for (int width = 1; width < 2100; width = width * 3 + 1) {
            struct backend *c = backends[b];
            enum { N = 5 };
            float *x = uniforms(N * width), *w = uniforms(N * width), *out = uniforms(N * width);
            double *expected = xcalloc((size_t)(N * width), sizeof(double));

            reference_rmsnorm(expected, x, w, N, width, 1e-5);
            c->rmsnorm(c, floats(out, N, width), floats(x, N, width), floats(w, 1, width), 1e-5f);
            assert_true(reference_distance(out, expected, N * width) < 1e-6);

            for (int i = 0; i < N * width; i++)
                x[i] *= 20;
            for (enum gate_function f = GATE_SILU; f <= GATE_GELU; f++) {
                reference_glu(expected, x, w, N * width, f);
                c->glu(c, floats(out, N, width), floats(x, N, width), floats(w, N, width), f);
                assert_true(reference_distance(out, expected, N * width) < 1e-6);
                reference_glu(expected, x, NULL, N * width, f);
                c->glu(c, floats(out, N, width), floats(x, N, width), (struct tensor){ 0 }, f);
                assert_true(reference_distance(out, expected, N * width) < 1e-6);
            }
            for (int cap = 0; cap < 20; cap += 7) {
                memcpy(out, x, (size_t)(N * width) * sizeof(float));
                c->rescale(c, floats(out, N, width), 0.3f, (float)cap);
                for (int i = 0; i < N * width; i++) {
                    const double y = (double)(x[i] * 0.3f), to = cap > 0 ? cap * tanh(y / cap) : y;
                    assert_true(fabs((double)out[i] - to) <= 4e-7 * fabs(to));
                }
            }

            memcpy(out, x, (size_t)(N * width) * sizeof(float));
            c->add(c, floats(out, N, width), floats(w, N, width));
            for (int i = 0; i < N * width; i++)
                assert_true(out[i] == x[i] + w[i]);
            memcpy(out, x, (size_t)(N * width) * sizeof(float));
            c->add(c, floats(out, N, width), floats(w, 1, width));
            for (int i = 0; i < N * width; i++)
                assert_true(out[i] == x[i] + w[i % width]);
            free(x), free(w), free(out), free(expected);
        }
}

// A row has the same bits alone and between others, in place and not.
static void norms_of_wide_rows(void **unused)
{
    static const int widths[] = { 64, 260, 1021, 4096, 5120, 8196, 9001, 16384, 24576 };
    enum { N = 3 };
    for (size_t i = 0; i < (size_t)n_backends * (sizeof(widths) / sizeof(widths[0])); i++) {
        struct backend *b = backends[i % (size_t)n_backends];
        const int width = widths[i / (size_t)n_backends];
        const size_t row = (size_t)width * sizeof(float);
        float *x = uniforms(N * width), *w = uniforms(width), *out = uniforms(N * width), *alone = uniforms(width);
        double *expected = xcalloc((size_t)(N * width), sizeof(double));
        reference_rmsnorm(expected, x, w, N, width, 1e-5);
        b->rmsnorm(b, floats(out, N, width), floats(x, N, width), floats(w, 1, width), 1e-5f);
        assert_true(reference_distance(out, expected, N * width) < 1e-6);
        b->rmsnorm(b, floats(alone, 1, width), floats(x + width, 1, width), floats(w, 1, width), 1e-5f);
        assert_memory_equal(alone, out + width, row);
        b->rmsnorm(b, floats(x, N, width), floats(x, N, width), floats(w, 1, width), 1e-5f);
        assert_memory_equal(x, out, N * row);
        free(x), free(w), free(out), free(alone), free(expected);
    }
}

static void gates_are_accurate_at_the_ends_of_the_range(void **unused)
{
    float gate[] = { -200, -100, -88, -87, -50, 0, 50, 87, 88, 100, 200, -0.0f };
    enum { N = sizeof(gate) / sizeof(gate[0]) };
    double expected[N];
    float out[N];
    for (int i = 0; i < 2 * n_backends; i++) {
        const enum gate_function f = i % 2 == 0 ? GATE_SILU : GATE_GELU;
        reference_glu(expected, gate, NULL, N, f);
        backends[i / 2]->glu(backends[i / 2], floats(out, 1, N), floats(gate, 1, N), (struct tensor){ 0 }, f);
        for (int j = 0; j < N; j++)
            assert_true(fabs((double)out[j] - expected[j]) <= 1e-6 * fabs(expected[j]) + 1e-35);
    }
}

static void place_take_and_cut_copy_the_right_rows(void **unused)
{
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *x = uniforms(80 * 6), wide[4 * 9] = { 0 };
        const int32_t row[] = { 5, 0, 5, 79 };
        float gathered[4 * 6];
        c->take(c, floats(gathered, 4, 6), floats(x, 80, 6), row);
        for (int i = 0; i < 4; i++)
            assert_memory_equal(gathered + i * 6, x + row[i] * 6, 6 * sizeof(float));
        c->place(c, floats(wide, 4, 9), 3, floats(gathered, 4, 6));
        for (int i = 0; i < 4; i++)
            assert_memory_equal(wide + i * 9 + 3, gathered + i * 6, 6 * sizeof(float));
        float again[4 * 6];
        c->cut(c, floats(again, 4, 6), floats(wide, 4, 9), 3);
        assert_memory_equal(again, gathered, sizeof(gathered));
        free(x);
    }
}

enum { JOINED = 5, STATES = 3, JOIN_SLOTS = 2 }; // rows; states of a slot, of so many slots

// Rows of two slots, behind prefixes of 4 and 1 rows.
static const struct layout *joined_rows(void)
{
    static const int32_t slot[] = { 1, 1, 0, 0, 0 }, prefix[] = { 1, 1, 4, 4, 4 }, place[] = { 11, 12, 4, 5, 6 },
                         token[] = { 7, 0, 7, 29, 3 }, parent[] = { -1, 0, -1, -1, 1 };
    static const uint64_t ancestors[] = { 1, 3, 1, 2, 6 };
    static const struct layout s = { .n = JOINED,
                                     .words = 1,
                                     .length = 10,
                                     .slot = slot,
                                     .prefix = prefix,
                                     .place = place,
                                     .position = prefix,
                                     .ancestors = ancestors,
                                     .token = token,
                                     .parent = parent };
    return &s;
}

// As take, rmsnorm and place make it, to the bit.
static void check_join(struct backend *c, int width, bool gathers, bool norms, bool keeps_raw)
{
    const struct layout *s = joined_rows();
    const struct joining how = { STATES, 1e-5f, keeps_raw };
    float *table = uniforms(30 * width), *states = uniforms(JOIN_SLOTS * STATES * width), *x = uniforms(JOINED * width),
          *w = uniforms(2 * width), *out = uniforms(2 * JOINED * width), *half = uniforms(JOINED * width),
          *raw = uniforms(JOINED * width), *expected = uniforms(2 * JOINED * width);
    const struct tensor none = { 0 }, halves = floats(half, JOINED, width), pairs = floats(expected, JOINED, 2 * width);
    int32_t row[JOINED];
    for (int i = 0; i < JOINED; i++)
        row[i] = s->slot[i] * STATES + 1 + s->parent[i];
    c->take(c, halves, floats(table, 30, width), s->token);
    if (norms)
        c->rmsnorm(c, halves, halves, floats(w, 1, width), how.eps);
    c->place(c, pairs, 0, halves);
    memcpy(raw, x, (size_t)(JOINED * width) * sizeof(float));
    if (gathers)
        c->take(c, floats(raw, JOINED, width), floats(states, JOIN_SLOTS * STATES, width), row);
    memcpy(half, raw, (size_t)(JOINED * width) * sizeof(float));
    if (norms)
        c->rmsnorm(c, halves, halves, floats(w + width, 1, width), how.eps);
    c->place(c, pairs, width, halves);
    c->join(c, floats(out, JOINED, 2 * width), floats(x, JOINED, width), floats(table, 30, width),
            gathers ? floats(states, JOIN_SLOTS * STATES, width) : none, norms ? floats(w, 1, width) : none,
            norms ? floats(w + width, 1, width) : none, s, how);
    assert_memory_equal(out, expected, (size_t)(2 * JOINED * width) * sizeof(float));
    assert_memory_equal(x, keeps_raw ? raw : half, (size_t)(JOINED * width) * sizeof(float));
    free(table), free(states), free(x), free(w), free(out), free(half), free(raw), free(expected);
}

static void join_equals_take_norm_and_place(void **unused)
{
    static const int widths[] = { 1, 31, 64, 300, 1024, 5000, 9000 };
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < 8 * sizeof(widths) / sizeof(widths[0]); i++)
            check_join(backends[b], widths[i / 8], i & 1, i & 2, i & 4);
}

static void tokens_are_embedded_and_states_are_kept(void **unused)
{
    enum { WIDTH = 300 };
    static const int32_t draft[] = { 1 * STATES + 1, 1 * STATES + 2, 1, 2, 3 }; // where the rows' states go
    const struct layout *s = joined_rows();
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *table = uniforms(30 * WIDTH), *x = uniforms(JOINED * WIDTH);
        c->embed(c, floats(x, JOINED, WIDTH), floats(table, 30, WIDTH), s);
        for (int i = 0; i < JOINED; i++)
            assert_memory_equal(x + i * WIDTH, table + s->token[i] * WIDTH, WIDTH * sizeof(float));
        for (int roots = 0; roots < 2; roots++) {
            float *states = uniforms(JOIN_SLOTS * 4 * WIDTH),
                  *expected = xmalloc(JOIN_SLOTS * 4 * WIDTH * sizeof(float));
            memcpy(expected, states, JOIN_SLOTS * 4 * WIDTH * sizeof(float));
            for (int i = 0; i < JOINED; i++)
                if (!roots || i == 1 || i == 4)
                    memcpy(expected + (roots ? s->slot[i] * 4 : draft[i] + s->slot[i]) * WIDTH, x + i * WIDTH,
                           WIDTH * sizeof(float));
            c->keep_states(c, floats(states, JOIN_SLOTS * 4, WIDTH), floats(x, JOINED, WIDTH), s, 4, roots);
            assert_memory_equal(states, expected, JOIN_SLOTS * 4 * WIDTH * sizeof(float));
            free(states), free(expected);
        }
        free(table), free(x);
    }
}

// Each row of the result from k rows of x, one of them more than once.
static void rows_are_mixed_in_order(void **unused)
{
    enum { N = 70, M = 23, MOST = 64 };
    for (int b = 0; b < n_backends; b++)
        for (int width = 1; width < 700; width = width * 5 + 2)
            for (int k = 1; k <= MOST; k = k * 3 + 1) {
                float *x = uniforms(M * width), *out = uniforms(N * width), *weight = uniforms(N * k);
                int32_t *row = xcalloc((size_t)(N * k), sizeof(*row));
                for (int i = 0; i < N * k; i++)
                    row[i] = (int32_t)(next() % M);
                backends[b]->mix(backends[b], floats(out, N, width), floats(x, M, width), row, weight, k);
                for (int i = 0; i < N; i++)
                    for (int d = 0; d < width; d++) {
                        double sum = 0, size = 0;
                        for (int j = 0; j < k; j++) {
                            sum += (double)weight[i * k + j] * (double)x[row[i * k + j] * width + d];
                            size += fabs((double)weight[i * k + j] * (double)x[row[i * k + j] * width + d]);
                        }
                        assert_true(fabs((double)out[i * width + d] - sum) <= 1e-6 * size);
                    }
                free(x), free(out), free(weight), free(row);
            }
}

// In each of `count` tensors of `slots` slots n rows move to row TO and those behind it; all other rows stay unchanged.
static void check_move(struct backend *c, int count, int slots, int width, int n)
{
    enum { TO = 10 };
    const int length = TO + n + (n + 1) / 3 + 1, rows = slots * length;
    const size_t each = (size_t)rows * (size_t)width, all = (size_t)count * each * sizeof(float);
    float *x = uniforms((int64_t)count * rows * width), *before = xmalloc(all);
    struct tensor *t = xcalloc((size_t)count, sizeof(*t));
    struct row_run *run = xcalloc((size_t)slots, sizeof(*run));
    int32_t *row = xcalloc((size_t)(slots * n), sizeof(*row)), *source = xcalloc((size_t)rows, sizeof(*source));
    memcpy(before, x, all);
    for (int k = 0; k < count; k++)
        t[k] = floats(x + (size_t)k * each, rows, width);
    for (int r = 0; r < rows; r++)
        source[r] = r;
    for (int s = 0; s < slots; s++) {
        run[s] = (struct row_run){ s * length + TO, n - s % 3, row + s * n };
        for (int i = 0; i < run[s].n; i++)
            row[s * n + i] = source[run[s].to + i] = run[s].to + i + (i + 2) / 3;
    }
    c->move(c, t, count, run, slots);
    for (int k = 0; k < count; k++)
        for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)k * each;
            assert_memory_equal(x + at + (size_t)(r * width), before + at + (size_t)(source[r] * width),
                                (size_t)width * sizeof(float));
        }
    free(x), free(before), free(t), free(run), free(row), free(source);
}

// More tensors, runs and rows than fit into one launch; rows of a multiple of 16 bytes and others.
static void rows_of_many_tensors_move_down(void **unused)
{
    for (int b = 0; b < n_backends; b++) {
        check_move(backends[b], 1, 1, 6, 4);
        check_move(backends[b], 200, 1, 2, 600);
        check_move(backends[b], 200, 2, 4, 9);
        check_move(backends[b], 3, 70, 4, 3);
        check_move(backends[b], 2, 50, 3, 17);
    }
}

// Logits with many ties, ascending, descending, all the same; all but one -inf.
static void some_logits(float *x, int n, int kind)
{
    for (int i = 0; i < n; i++)
        x[i] = kind == 0   ? roundf(x[i] * 20)
               : kind == 1 ? (float)i / 100
               : kind == 2 ? (float)-i / 100
               : kind == 3 ? 1
                           : (i == n / 2 ? 1 : -INFINITY);
}

static void check_best(struct backend *c, int vocab, int k, int kind)
{
    enum { N = 4, MOST = 96 };
    float *x = uniforms(N * vocab), log_p[N * MOST];
    int32_t token[N * MOST];
    for (int i = 0; i < N; i++)
        some_logits(x + i * vocab, vocab, kind);
    c->best(c, floats(x, N, vocab), k, token, log_p);
    for (int i = 0; i < N; i++) {
        double total = 0;
        for (int v = 0; v < vocab; v++)
            total += exp((double)x[i * vocab + v]);
        for (int r = 0; r < k; r++) {
            int better = 0, own = token[i * k + r];
            for (int v = 0; v < vocab; v++)
                better += x[i * vocab + v] > x[i * vocab + own] || (x[i * vocab + v] == x[i * vocab + own] && v < own);
            assert_int_equal(better, r);
            const double expected = (double)x[i * vocab + own] - log(total);
            assert_true((double)log_p[i * k + r] == expected || fabs((double)log_p[i * k + r] - expected) < 1e-5);
        }
    }
    free(x);
}

static void best_returns_the_top_k_with_ties_to_the_lowest_id(void **unused)
{
    static const int ranks[] = { 1, 4, 9, 40, 96 };
    for (int b = 0; b < n_backends; b++)
        for (int vocab = 1; vocab < 5000; vocab = vocab * 7 + 3)
            for (int i = 0; i < 5; i++)
                for (int kind = 0; kind < 5; kind++)
                    check_best(backends[b], vocab, vocab < ranks[i] ? vocab : ranks[i], kind);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_dequantize_as_in_gguf_py),
        cmocka_unit_test(operations_on_rows_agree_with_plain_loops),
        cmocka_unit_test(norms_of_wide_rows),
        cmocka_unit_test(gates_are_accurate_at_the_ends_of_the_range),
        cmocka_unit_test(place_take_and_cut_copy_the_right_rows),
        cmocka_unit_test(join_equals_take_norm_and_place),
        cmocka_unit_test(tokens_are_embedded_and_states_are_kept),
        cmocka_unit_test(rows_are_mixed_in_order),
        cmocka_unit_test(rows_of_many_tensors_move_down),
        cmocka_unit_test(best_returns_the_top_k_with_ties_to_the_lowest_id),
    };
    return backends_open(argc, argv) ? cmocka_run_group_tests(tests, NULL, backends_close) : 77;
}
