// test_probabilities.c - rows of probabilities made by a device have the bits of the host's.
//
//     test_probabilities [N [SEED]]     N times as many rows on each device; other rows with another seed
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/row_stages.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "tests/support/plain_stages.h"

enum { MOST = 5000, ROWS = 20, KINDS = 9 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, times = 1;
static uint64_t seed = 8;

// Logits of every kind: spread out, close together, with ties, with few that matter, with NaN and infinities, all -inf,
// equal, and nearly equal.
static void some_logits(float *x, int n, int kind, uint32_t which)
{
    for (int i = 0; i < n; i++) {
        const double u = philox_uniform(seed, which, (struct address){ FOR_DRAFT, kind, 0 }, (uint32_t)i);
        x[i] = kind == 0   ? (float)(-3 * log(u + 1e-12))
               : kind == 1 ? (float)u
               : kind == 2 ? (float)floor(6 * u)
               : kind == 3 ? (float)(i % 50 == 7 ? 4 * u : -30 * u - 20)
               : kind == 4 ? (u < 0.1     ? NAN
                              : u < 0.2   ? -INFINITY
                              : u > 0.999 ? INFINITY
                                          : (float)(8 * u))
               : kind == 5 ? (u < 0.5 ? -INFINITY : NAN)
               : kind == 6 ? (u < 0.3   ? -0.0f
                              : u < 0.6 ? 0
                                        : (float)-u)
               : kind == 7 ? 1.5f
                           : (float)(10 + (which % 2 ? 0.005 : 0.000005) * u);
    }
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

// Few rows are divided among more multiprocessors each, and many are processed in portions.
static int rows_for(int time, int kind, int n)
{
    static const int rows[] = { 1, 2, 3, 1, 9, 4, ROWS, 1, 2 };
    return n > 4000 && time > 0 ? 1 : rows[(kind + time) % KINDS];
}

static void check(const struct gpu_here *g, struct backend *b, const struct sampling *s, int n, int used_vocab,
                  int kind, int time)
{
    const int rows = rows_for(time, kind, n);
    struct row_stages wanted;
    float *host = xmalloc(ROWS * MOST * sizeof(*host)), *device = xmalloc(ROWS * MOST * sizeof(*device));
    const struct tensor logits = rows_on(b, rows, n);
    const size_t bytes = (size_t)rows * (size_t)n * sizeof(*host);
    assert_true(sampling_row_stages(s, &wanted));
    for (uint32_t i = 0; i < (uint32_t)rows; i++)
        some_logits(host + (int)i * n, n, kind, (uint32_t)(n + 10000 * time) + i);
    b->upload(b, logits.data, host, bytes);
    struct part_sum sums[ROWS][ROW_PARTS], *device_sums = b->alloc(b, sizeof(sums));
    b->step->probabilities(b, logits, used_vocab, &wanted, device_sums);
    b->download(b, device, logits.data, bytes);
    b->download(b, sums, device_sums, (size_t)rows * sizeof(sums[0]));
    for (int i = 0; i < rows; i++) {
        sampling_row(s, host + i * n, n, used_vocab, &(struct path){ 0, NULL, 0 });
        for (int k = 0; k < n; k++)
            if (memcmp(&host[i * n + k], &device[i * n + k], sizeof(*host)) != 0)
                fail_msg("%s: logits of kind %d, %d of %d tokens, token %d: %a on the device, %a on the host", g->name,
                         kind, used_vocab, n, k, (double)device[i * n + k], (double)host[i * n + k]);
        for (int k = 0, from = 0; k < ROW_PARTS; k++, from += row_part(n)) {
            const int length = from < n ? min(row_part(n), n - from) : 0;
            int positive = 0;
            for (int x = 0; x < length; x++)
                positive += host[i * n + from + x] > 0;
            if (sums[i][k].sum != (length > 0 ? dist_row_sum(host + i * n + from, length) : 0) ||
                sums[i][k].positive != positive)
                fail_msg("%s: logits of kind %d, %d of %d tokens: part %d has %d of them, which add up to %a", g->name,
                         kind, used_vocab, n, k, (int)sums[i][k].positive, sums[i][k].sum);
        }
    }
    b->release(b, logits.data), b->release(b, device_sums);
    free(host), free(device);
}

TEST(probabilities_have_the_bits_of_the_host)
{
    static const int sizes[][2] = { { 1, 1 }, { 5, 3 }, { 257, 257 }, { 1000, 1000 }, { 4097, 4000 } };
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (int how = 0; how < 16; how++) {
            struct sampling s = how == 0   ? SAMPLING("temperature", "1")
                                : how == 1 ? SAMPLING("temperature", "0", "top_p", "0.3")
                                : how == 2 ? SAMPLING("temperature", "0.7", "top_p", "0.9")
                                : how == 3 ? SAMPLING("temperature", "1.3", "top_k", "50", "min_p", "0.02")
                                : how == 4 ? SAMPLING("top_k", "1")
                                : how == 5 ? SAMPLING("top_p", "0", "repetition_penalty", "1")
                                : how == 6 ? SAMPLING("temperature", "1e-310", "min_p", "1")
                                : how == 7 ? SAMPLING("temperature", "0.8", "top_k", "900", "top_p", "0.99")
                                : how == 8 ? SAMPLING("temperature", "30", "top_p", "0.5")
                                : how == 9 ? SAMPLING("min_p", "0.3")
                                : how == 10 // so small that the last bits of sums matter
                                    ? SAMPLING("temperature", "0.3", "top_p", "0.999999999999999")
                                    : how == 11 ? SAMPLING("temperature", "0.5", "top_p", "0.99999999999")
                                      : how == 12
                                          ? SAMPLING("temperature", "0.8", "top_k", "4000", "top_p", "0.9999999999999")
                                      : how == 13 ? SAMPLING("top_k", "64")
                                      : how == 14 ? SAMPLING("top_k", "96", "top_p", "0.5")
                                                  : SAMPLING("temperature", "2", "top_k", "1000");
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (int kind = 0; kind < KINDS * times; kind++)
                    check(&gpu[g], b, &s, sizes[i][0], sizes[i][1], kind % KINDS, kind / KINDS);
            sampling_free(&s);
        }
        gpu_close(b);
    }
}

// The token that is certain at temperature 0 is that of the host's row, and logits stay.
TEST(a_certain_token_is_that_of_the_hosts_row)
{
    static float host[ROWS * MOST], after[ROWS * MOST];
    struct sampling s = SAMPLING("temperature", "0", "top_k", "3");
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (int kind = 0; kind < KINDS; kind++)
            for (int n = 1; n < MOST; n = 9 * n + 4) {
                const int rows = rows_for(0, kind, n), used_vocab = n - n / 7;
                const struct tensor logits = rows_on(b, rows, n);
                int32_t token[ROWS], *on_device = b->alloc(b, sizeof(token));
                for (uint32_t i = 0; i < (uint32_t)rows; i++)
                    some_logits(host + (int)i * n, n, kind, (uint32_t)n + i);
                b->upload(b, logits.data, host, tensor_bytes(logits));
                b->step->certain(b, logits, used_vocab, on_device);
                b->download(b, token, on_device, (size_t)rows * sizeof(*token));
                b->download(b, after, logits.data, tensor_bytes(logits));
                assert_memory_equal(after, host, tensor_bytes(logits));
                for (int i = 0; i < rows; i++) {
                    sampling_row(&s, host + i * n, n, used_vocab, &(struct path){ 0, NULL, 0 });
                    if (token[i] < 0 || token[i] >= n || host[i * n + token[i]] != 1)
                        fail_msg("%s: logits of kind %d, %d of %d tokens: token %d is not certain", gpu[g].name, kind,
                                 used_vocab, n, token[i]);
                }
                b->release(b, logits.data), b->release(b, on_device);
            }
        gpu_close(b);
    }
    sampling_free(&s);
}

// Logits on both sides of min_p's threshold, adjacent floats, at temperatures that do not change them.
TEST(the_threshold_of_min_p_is_the_hosts_double)
{
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        const struct tensor logits = rows_on(b, 1, 4);
        for (int i = 1; i < 20; i++) {
            char text[16];
            snprintf(text, sizeof(text), "0.%02d", 5 * i);
            struct sampling s = SAMPLING("min_p", text);
            struct row_stages wanted;
            const double least = log(atof(text));
            const float near = (float)least, under = (double)near < least ? near : nextafterf(near, -INFINITY);
            float row[4] = { nextafterf(under, INFINITY), 0, under, -50 };
            assert_true(sampling_row_stages(&s, &wanted));
            b->upload(b, logits.data, row, sizeof(row));
            b->step->probabilities(b, logits, 4, &wanted, NULL);
            b->download(b, row, logits.data, sizeof(row));
            if (!(row[0] > 0 && row[1] > 0 && row[2] == 0 && row[3] == 0))
                fail_msg("%s, min_p %s: %g %g %g %g", gpu[g].name, text, (double)row[0], (double)row[1], (double)row[2],
                         (double)row[3]);
            sampling_free(&s);
        }
        b->release(b, logits.data);
        gpu_close(b);
    }
}

TEST(a_row_takes_few_launches)
{
#if defined(EMULATED_DEVICE)
    static const struct {
        const char *temperature, *top_k, *top_p;
        int launches;
    } cases[] = { { "0", "20", "0.9", 2 }, { "1", "0", "1", 3 }, { "0.7", "20", "1", 4 }, { "0.7", "20", "0.9", 4 } };
    struct error err;
    struct backend *b = backend_emulated(0, &err);
    const struct tensor logits = rows_on(b, 3, 100);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sampling s =
            SAMPLING("temperature", cases[i].temperature, "top_k", cases[i].top_k, "top_p", cases[i].top_p);
        struct row_stages wanted;
        assert_true(sampling_row_stages(&s, &wanted));
        const int64_t before = emulated_launches();
        b->step->probabilities(b, logits, 100, &wanted, NULL);
        assert_int_equal(emulated_launches() - before, cases[i].launches);
        sampling_free(&s);
    }
    b->release(b, logits.data);
    gpu_close(b);
#endif
}

TEST(stages_that_need_the_text_run_on_the_host)
{
    struct row_stages wanted;
    struct sampling penalty = SAMPLING("temperature", "0.7", "repetition_penalty", "1.1"), none = { 0 };
    assert_false(sampling_row_stages(&penalty, &wanted));
    assert_true(sampling_row_stages(&none, &wanted));
    assert_true(wanted.inverse_temperature == 1 && wanted.top_k == 0 && wanted.top_p == 1 && wanted.below == -INFINITY);
    sampling_free(&penalty);
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc, argv, &times, &seed);
    if (gpus == 0)
        return 77;
    return tests_run(NULL, NULL);
}
