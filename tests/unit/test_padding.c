// test_padding.c - padding rows (models/kv_cache.h): they are not stored, attention returns zeros for them, and the rows before
// them have the same bits as without padding, for every assignment of rows to blocks.
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/device/device_pair.h"
#include "tests/support/small_model.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;

enum { REAL = 5, PADDED = 8, HEADS = 4, KV_HEADS = 2 };

// Three rows of one slot after a prefix, as a tree, two rows of another slot, and padding.
static struct layout layout_of(struct backend *b, int prefix, int n, int32_t numbers[4][PADDED],
                               uint64_t ancestors[PADDED])
{
    static const uint64_t sees[REAL] = { 1, 3, 5, 1, 3 };
    for (int i = 0; i < n; i++) {
        const bool real = i < REAL, first = i < 3;
        numbers[0][i] = real ? !first : -1;
        numbers[1][i] = real && first ? prefix : 0;
        numbers[2][i] = !real ? -1 : first ? prefix + i : PAIR_LENGTH + i - 3;
        numbers[3][i] = !real ? 0 : numbers[1][i] + (i == 1 || i == 2 || i == 4);
        ancestors[i] = real ? sees[i] : 0;
    }
    struct layout s = { n,    1, PAIR_LENGTH, numbers[0], numbers[1], numbers[2], numbers[3], ancestors, 0,
                        NULL, 0, 0,           NULL,       NULL,       0,          NULL,       NULL };
    if (b->upload_layout != NULL)
        s.uploaded = b->upload_layout(b, &s);
    return s;
}

struct padded { // inputs for PADDED rows, of which the last ones are NaN
    struct backend *b;
    struct tensor q, k, v, ones, out; // ones: angles that rotate nothing
    struct tensor all[2], cache[2];   // keys, values; the cache is preceded by an unused row
    int prefix, head_dim;
};

static struct tensor uploaded(struct backend *b, int64_t width, bool ones)
{
    const struct tensor t = rows_on(b, PADDED, width);
    float *x = xmalloc(tensor_bytes(t));
    for (int64_t i = 0; i < PADDED * width; i++)
        x[i] = ones ? (float)(i % width < width / 2) : i / width < REAL ? (float)device_pair_any(2000) / 1000 - 1 : NAN;
    b->upload(b, t.data, x, tensor_bytes(t));
    free(x);
    return t;
}

static void attend(const struct padded *a, int n, bool graph_key)
{
    struct backend *b = a->b;
    int32_t numbers[4][PADDED];
    uint64_t ancestors[PADDED];
    const struct layout see = layout_of(b, a->prefix, n, numbers, ancestors);
    const struct graph_key r = { .see = &see, .whose = a, .fact = { a->prefix } };
    const struct tensor q = tensor_rows(a->q, 0, n), k = tensor_rows(a->k, 0, n), v = tensor_rows(a->v, 0, n);
    struct tensor out;
    for (bool done = graph_key && graph_launched(b, &r, &out); !done; done = !graph_key || graph_ended(b, out))
        out = b->attend(b, tensor_rows(a->out, 0, n), q, k, v, tensor_rows(a->ones, 0, n), a->cache[0], a->cache[1],
                        &see, (struct attention){ .head_dim = a->head_dim });
}

static void *downloaded(struct backend *b, struct tensor t)
{
    void *bytes = xmalloc(tensor_bytes(t));
    b->download(b, bytes, t.data, tensor_bytes(t));
    return bytes;
}

static void check_padding(struct padded *a)
{
    struct backend *b = a->b;
    const size_t bytes = tensor_bytes(a->all[0]), row = tensor_bytes(tensor_rows(a->out, 0, 1));
    float *nan = downloaded(b, a->v);
    void *before[2] = { downloaded(b, a->all[0]), downloaded(b, a->all[1]) };
    attend(a, REAL, false);
    void *stored[2] = { downloaded(b, a->all[0]), downloaded(b, a->all[1]) };
    float *real = downloaded(b, a->out);
    for (int time = 0; time < 4; time++) { // without a graph; then first seen, captured and launched
        for (int i = 0; i < 2; i++)
            b->upload(b, a->all[i].data, before[i], bytes);
        for (int i = 0; i < PADDED; i++)
            b->upload(b, (char *)a->out.data + (size_t)i * row, nan + REAL * a->v.width, row);
        attend(a, PADDED, time > 0);
        float *out = downloaded(b, a->out);
        assert_memory_equal(out, real, REAL * row);
        for (int64_t i = REAL * a->out.width; i < PADDED * a->out.width; i++)
            assert_true(out[i] == 0);
        for (int i = 0; i < 2; i++) {
            void *now = downloaded(b, a->all[i]);
            assert_memory_equal(now, stored[i], bytes);
            free(now);
        }
        free(out);
    }
    free(nan), free(real);
    free(before[0]), free(before[1]), free(stored[0]), free(stored[1]);
}

TEST(padding_attends_to_nothing_and_is_not_stored)
{
    static const struct {
        int head_dim;
        enum type cache;
    } kinds[] = { { 64, BF16 }, { 96, BF16 }, { 128, BF16 }, { 80, BF16 }, { 16, BF16 }, { 24, F32 }, { 32, Q8_0 } };
    static const int prefixes[] = { 10, 300, 1100 };
    for (int g = 0; g < gpus; g++)
        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
            struct padded a = { .b = gpu_open(&gpu[g]), .head_dim = kinds[i].head_dim };
            const int64_t kv = (int64_t)KV_HEADS * a.head_dim, rows = 1 + PAIR_SLOTS * PAIR_LENGTH;
            a.q = uploaded(a.b, (int64_t)HEADS * a.head_dim, false);
            a.k = uploaded(a.b, kv, false);
            a.v = uploaded(a.b, kv, false);
            a.ones = uploaded(a.b, a.head_dim, true);
            a.out = rows_on(a.b, PADDED, a.q.width);
            for (int t = 0; t < 2; t++) {
                a.all[t] = tensor_of(NULL, kinds[i].cache, rows, kv);
                a.all[t].data = a.b->alloc(a.b, tensor_bytes(a.all[t]));
                a.cache[t] = tensor_rows(a.all[t], 1, rows - 1);
                uint8_t *bytes = device_pair_numbers(a.all[t]);
                a.b->upload(a.b, a.all[t].data, bytes, tensor_bytes(a.all[t]));
                free(bytes);
            }
            for (size_t k = 0; k < sizeof(prefixes) / sizeof(*prefixes); k++) {
                a.prefix = prefixes[k];
                check_padding(&a);
            }
            const struct tensor made[] = { a.q, a.k, a.v, a.ones, a.out, a.all[0], a.all[1] };
            for (size_t k = 0; k < sizeof(made) / sizeof(*made); k++)
                a.b->release(a.b, made[k].data);
            gpu_close(a.b);
        }
}

int main(void)
{
    gpus = gpus_here(gpu);
    if (gpus == 0)
        return 77;
    return tests_run(NULL, NULL);
}
