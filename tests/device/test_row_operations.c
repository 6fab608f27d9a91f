// test_row_operations.c - operations on rows, on every backend: dequantization, norms, activations, copies, the best logits.
#include "tests/device/every_backend.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "tests/support/file_write.h"
#include "tests/support/tests.h"

TEST(blocks_dequantize_as_in_gguf_py)
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

static void check_rows(struct backend *c, int n, int width)
{
    const int all = n * width;
    float *x = uniforms(all), *w = uniforms(all), *out = zeros(all);
    double *expected = doubles(all);
    const struct tensor to = floats(out, n, width), from = floats(x, n, width), by = floats(w, n, width);

    reference_rmsnorm(expected, x, w, n, width, 1e-5);
    c->rmsnorm(c, to, from, floats(w, 1, width), 1e-5f);
    assert_true(reference_distance(out, expected, all) < 1e-6);

    for (int i = 0; i < all; i++)
        x[i] *= 20;
    for (int i = 0; i < 4; i++) {
        const enum gate_function f = i < 2 ? GATE_SILU : GATE_GELU;
        reference_glu(expected, x, i % 2 == 0 ? w : NULL, all, f);
        c->glu(c, to, from, i % 2 == 0 ? by : (struct tensor){ 0 }, f);
        assert_true(reference_distance(out, expected, all) < 1e-6);
    }
    for (int cap = 0; cap < 20; cap += 7) {
        float *scaled = copied(x, all);
        c->rescale(c, floats(scaled, n, width), 0.3f, (float)cap);
        for (int i = 0; i < all; i++) {
            const double y = (double)(x[i] * 0.3f), limit = cap > 0 ? cap * tanh(y / cap) : y;
            assert_true(fabs((double)scaled[i] - limit) <= 4e-7 * fabs(limit));
        }
    }
    for (int rows = n; rows >= 1; rows -= n - 1) {
        float *sum = copied(x, all);
        c->add(c, floats(sum, n, width), floats(w, rows, width));
        for (int i = 0; i < all; i++)
            assert_true(sum[i] == x[i] + w[i % (rows * width)]);
    }
    scratch_free();
}

TEST(operations_on_rows_agree_with_plain_loops)
{
    for (int b = 0; b < n_backends; b++)
        for (int width = 1; width < 2100; width = width * 3 + 1)
            check_rows(backends[b], 5, width);
}

// A row has the same bits alone and between others, in place and not.
TEST(norms_of_wide_rows)
{
    static const int widths[] = { 64, 260, 1021, 4096, 5120, 8196, 9001, 16384, 24576 };
    enum { N = 3 };
    for (size_t i = 0; i < (size_t)n_backends * (sizeof(widths) / sizeof(widths[0])); i++) {
        struct backend *b = backends[i % (size_t)n_backends];
        const int width = widths[i / (size_t)n_backends];
        const size_t row = (size_t)width * sizeof(float);
        float *x = uniforms(N * width), *w = uniforms(width), *out = zeros(N * width), *alone = zeros(width);
        const struct tensor by = floats(w, 1, width);
        double *expected = doubles(N * width);
        reference_rmsnorm(expected, x, w, N, width, 1e-5);
        b->rmsnorm(b, floats(out, N, width), floats(x, N, width), by, 1e-5f);
        assert_true(reference_distance(out, expected, N * width) < 1e-6);
        b->rmsnorm(b, floats(alone, 1, width), floats(x + width, 1, width), by, 1e-5f);
        assert_memory_equal(alone, out + width, row);
        b->rmsnorm(b, floats(x, N, width), floats(x, N, width), by, 1e-5f);
        assert_memory_equal(x, out, N * row);
        scratch_free();
    }
}

TEST(gates_are_accurate_at_the_ends_of_the_range)
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

TEST(place_take_and_cut_copy_the_right_rows)
{
    static const int32_t row[] = { 5, 0, 5, 79 };
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *x = uniforms(80 * 6), *wide = zeros(4 * 9), gathered[4 * 6], again[4 * 6];
        c->take(c, floats(gathered, 4, 6), floats(x, 80, 6), row);
        c->place(c, floats(wide, 4, 9), 3, floats(gathered, 4, 6));
        for (int i = 0; i < 4; i++) {
            assert_memory_equal(gathered + i * 6, x + row[i] * 6, 6 * sizeof(float));
            assert_memory_equal(wide + i * 9 + 3, gathered + i * 6, 6 * sizeof(float));
        }
        c->cut(c, floats(again, 4, 6), floats(wide, 4, 9), 3);
        assert_memory_equal(again, gathered, sizeof(gathered));
        scratch_free();
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
    const int all = JOINED * width;
    float *x = uniforms(all), *raw = copied(x, all), *half = zeros(all), *out = zeros(2 * all),
          *expected = zeros(2 * all);
    const struct tensor none = { 0 }, halves = floats(half, JOINED, width), pairs = floats(expected, JOINED, 2 * width);
    const struct tensor table = floats(uniforms(30 * width), 30, width),
                        states = floats(uniforms(JOIN_SLOTS * STATES * width), JOIN_SLOTS * STATES, width);
    struct tensor norm[2] = { none, none };
    int32_t row[JOINED];
    for (int i = 0; i < JOINED; i++)
        row[i] = s->slot[i] * STATES + 1 + s->parent[i];
    if (gathers)
        c->take(c, floats(raw, JOINED, width), states, row);
    for (int k = 0; k < 2; k++) {
        if (k == 0)
            c->take(c, halves, table, s->token);
        else
            memcpy(half, raw, (size_t)all * sizeof(float));
        if (norms)
            c->rmsnorm(c, halves, halves, norm[k] = floats(uniforms(width), 1, width), how.eps);
        c->place(c, pairs, k * width, halves);
    }
    c->join(c, floats(out, JOINED, 2 * width), floats(x, JOINED, width), table, gathers ? states : none, norm[0],
            norm[1], s, how);
    assert_memory_equal(out, expected, (size_t)(2 * all) * sizeof(float));
    assert_memory_equal(x, keeps_raw ? raw : half, (size_t)all * sizeof(float));
    scratch_free();
}

TEST(join_equals_take_norm_and_place)
{
    static const int widths[] = { 1, 31, 64, 300, 1024, 5000, 9000 };
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < 8 * sizeof(widths) / sizeof(widths[0]); i++)
            check_join(backends[b], widths[i / 8], i & 1, i & 2, i & 4);
}

TEST(tokens_are_embedded_and_states_are_kept)
{
    enum { WIDTH = 300 };
    static const int32_t draft[] = { 1 * STATES + 1, 1 * STATES + 2, 1, 2, 3 }; // where the rows' states go
    const struct layout *s = joined_rows();
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *table = uniforms(30 * WIDTH), *x = zeros(JOINED * WIDTH);
        c->embed(c, floats(x, JOINED, WIDTH), floats(table, 30, WIDTH), s);
        for (int i = 0; i < JOINED; i++)
            assert_memory_equal(x + i * WIDTH, table + s->token[i] * WIDTH, WIDTH * sizeof(float));
        for (int roots = 0; roots < 2; roots++) {
            float *states = uniforms(JOIN_SLOTS * 4 * WIDTH), *expected = copied(states, JOIN_SLOTS * 4 * WIDTH);
            for (int i = 0; i < JOINED; i++)
                if (!roots || i == 1 || i == 4)
                    memcpy(expected + (roots ? s->slot[i] * 4 : draft[i] + s->slot[i]) * WIDTH, x + i * WIDTH,
                           WIDTH * sizeof(float));
            c->keep_states(c, floats(states, JOIN_SLOTS * 4, WIDTH), floats(x, JOINED, WIDTH), s, 4, roots);
            assert_memory_equal(states, expected, JOIN_SLOTS * 4 * WIDTH * sizeof(float));
        }
        scratch_free();
    }
}

// Each row of the result from k rows of x, one of them more than once.
TEST(rows_are_mixed_in_order)
{
    enum { N = 70, M = 23, MOST = 64 };
    for (int b = 0; b < n_backends; b++)
        for (int width = 1; width < 700; width = width * 5 + 2)
            for (int k = 1; k <= MOST; k = k * 3 + 1) {
                float *x = uniforms(M * width), *out = zeros(N * width), *weight = uniforms(N * k);
                int32_t *row = each_row(N * k);
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
                scratch_free();
            }
}

// In each of `count` tensors of `slots` slots n rows move to row TO and those behind it; all other rows stay unchanged.
static void check_move(struct backend *c, int count, int slots, int width, int n)
{
    enum { TO = 10 };
    const int length = TO + n + (n + 1) / 3 + 1, rows = slots * length;
    const int64_t each = (int64_t)rows * width;
    float *x = uniforms(count * each), *before = copied(x, count * each);
    struct tensor *t = scratch(count * (int64_t)sizeof(*t));
    struct row_run *run = scratch(slots * (int64_t)sizeof(*run));
    int32_t *row = each_row(slots * n), *source = each_row(rows);
    for (int k = 0; k < count; k++)
        t[k] = floats(x + k * each, rows, width);
    for (int s = 0; s < slots; s++) {
        run[s] = (struct row_run){ s * length + TO, n - s % 3, row + s * n };
        for (int i = 0; i < run[s].n; i++)
            row[s * n + i] = source[run[s].to + i] = run[s].to + i + (i + 2) / 3;
    }
    c->move(c, t, count, run, slots);
    for (int k = 0; k < count; k++)
        for (int r = 0; r < rows; r++)
            assert_memory_equal(x + k * each + r * width, before + k * each + source[r] * width,
                                (size_t)width * sizeof(float));
    scratch_free();
}

// More tensors, runs and rows than fit into one launch; rows of a multiple of 16 bytes and others.
TEST(rows_of_many_tensors_move_down)
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
    scratch_free();
}

TEST(best_returns_the_top_k_with_ties_to_the_lowest_id)
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
    return backends_open(argc, argv) ? tests_run(NULL, backends_close) : 77;
}
