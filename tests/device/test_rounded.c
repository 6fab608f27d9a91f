// test_rounded.c - an operation may return, with the rows that it made, what products will read of them (kernels/cuda/round.h).
// Products of that value have the same bits as products of a copy that was uploaded, whatever operation made the rows and whatever
// has written over them since.
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "tests/device/random_tensors.h"

enum { MOST_ROWS = 40, WIDTH = 192, M = 50 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;

static void *on_device[64]; // rows, until released()
static int n_on_device;

static struct tensor empty(struct backend *b, int64_t rows, int64_t width)
{
    const struct tensor t = rows_on(b, rows, width);
    assert_true(n_on_device < 64);
    on_device[n_on_device++] = t.data;
    return t;
}

// Releases rows down to the n first ones.
static void released(struct backend *b, int n)
{
    while (n_on_device > n)
        b->release(b, on_device[--n_on_device]);
}

static struct tensor numbers(struct backend *b, int64_t rows, int64_t width)
{
    const struct tensor t = empty(b, rows, width);
    b->upload(b, t.data, uniforms(rows * width), tensor_bytes(t));
    return t;
}

static struct tensor weights(struct backend *b, enum type type, enum activations a, int64_t rows, int64_t width)
{
    return prepared(b, blocks(type, rows, width), type, rows, width, a);
}

struct bench { // what every check needs
    struct backend *b;
    struct tensor w, hidden; // (M, WIDTH); (M, 2 WIDTH)
    struct tensor out; // (MOST_ROWS, M): made beforehand, as what is made or given back may bring planes to an end
    const char *about;
    bool rounds; // some weight reads rounded forms; not with cuBLAS or f32 activations
};

// out = x w^T of these rows, as they stand on the device.
static float *products(const struct bench *k, struct tensor x)
{
    const struct tensor w = x.width == WIDTH ? k->w : k->hidden, out = tensor_rows(k->out, 0, x.rows);
    float *y = zeros(x.rows * M);
    multiply(k->b, out, x, w);
    k->b->download(k->b, y, out.data, tensor_bytes(out));
    return y;
}

static void as_of_a_copy(const struct bench *k, struct tensor x, const char *maker)
{
    const float *here = products(k, x), *again = products(k, x);
    const struct tensor copy = rows_on(k->b, x.rows, x.width);
    float *numbers_of_x = zeros(x.rows * x.width);
    k->b->download(k->b, numbers_of_x, x.data, tensor_bytes(x));
    k->b->upload(k->b, copy.data, numbers_of_x, tensor_bytes(x));
    const float *of_copy = products(k, copy);
    const size_t bytes = (size_t)x.rows * M * sizeof(float);
    if (memcmp(here, of_copy, bytes) != 0 || memcmp(again, of_copy, bytes) != 0)
        fail_msg("%s, %s: products of %d rows differ from those of a copy", k->about, maker, (int)x.rows);
    k->b->release(k->b, copy.data);
}

// Opens a GPU, with such weights.
static struct bench bench_open(const struct gpu_here *g, enum type type, enum activations a, enum type hidden,
                               enum activations of_hidden)
{
    struct bench k = { .b = gpu_open(g), .about = g->name };
    k.w = weights(k.b, type, a, M, WIDTH);
    k.hidden = weights(k.b, hidden, of_hidden, M, 2 * WIDTH);
    k.out = empty(k.b, MOST_ROWS, M);
    k.rounds = !g->varies && a == ACTIVATIONS_BF16;
    return k;
}

static void bench_close(struct bench *k)
{
    released(k->b, 0);
    scratch_free();
    gpu_close(k->b);
}

// gated = its two products and their glu: what is left is not left over what is still read.
static void in_two_steps(const struct bench *k, struct tensor gated, struct tensor x, struct tensor gate,
                         struct tensor up)
{
    struct backend *b = k->b;
    const struct tensor g = rows_on(b, x.rows, gated.width), u = rows_on(b, x.rows, gated.width);
    float *one = zeros(g.rows * g.width), *two = zeros(g.rows * g.width);
    multiply(b, g, x, gate);
    multiply(b, u, x, up);
    b->glu(b, g, g, u, GATE_SILU);
    b->download(b, one, gated.data, tensor_bytes(g));
    b->download(b, two, g.data, tensor_bytes(g));
    if (memcmp(one, two, tensor_bytes(g)) != 0)
        fail_msg("%s: gated of %d rows differs from its two products", k->about, (int)x.rows);
    b->release(b, g.data), b->release(b, u.data);
}

// What attention of a head reads: rows of x, by tokens, beside those of y.
static void check_joined(const struct bench *k, struct tensor x, struct tensor y, struct tensor wide,
                         struct tensor norm)
{
    int32_t token[MOST_ROWS], none[MOST_ROWS] = { 0 };
    uint64_t ancestors[MOST_ROWS] = { 0 };
    const int n = (int)x.rows;
    for (int i = 0; i < n; i++)
        token[i] = n - 1 - i;
    const struct layout s = { .n = n,
                              .words = 1,
                              .length = n,
                              .slot = none,
                              .prefix = none,
                              .place = none,
                              .position = none,
                              .ancestors = ancestors,
                              .token = token,
                              .parent = none };
    const struct tensor made =
        k->b->join(k->b, wide, y, x, (struct tensor){ 0 }, norm, norm, &s, (struct joining){ .eps = 1e-5f });
    assert_true((made.rounded != 0) == k->rounds);
    as_of_a_copy(k, made, "join");
}

static void check_makers(const struct bench *k, int n, enum type type, enum activations a)
{
    struct backend *b = k->b;
    const int mark = n_on_device;
    const struct tensor x = numbers(b, n, WIDTH), h = empty(b, n, WIDTH), norm = numbers(b, 1, WIDTH),
                        wide = empty(b, n, 2 * WIDTH), gate = weights(b, type, a, 2 * WIDTH, WIDTH),
                        up = weights(b, type, a, 2 * WIDTH, WIDTH),
                        odd = weights(b, strcmp(b->name, "cublas") == 0 ? F32 : Q8_0, a, 2 * WIDTH, WIDTH);
    struct tensor made = b->rmsnorm(b, h, x, norm, 1e-5f);
    assert_true(made.data == h.data && made.rows == n && (made.rounded != 0) == k->rounds);
    as_of_a_copy(k, made, "rmsnorm");
    made = b->rmsnorm(b, h, made, norm, 1e-5f);
    as_of_a_copy(k, made, "rmsnorm in place");
    struct tensor gated = b->gated(b, wide, made, gate, up, GATE_SILU);
    assert_true((gated.rounded != 0) == (type != F32 && a == ACTIVATIONS_BF16 && k->rounds));
    as_of_a_copy(k, gated, "gated");
    as_of_a_copy(k, made, "rmsnorm, after another operation");
    in_two_steps(k, gated, made, gate, up);
    gated = b->gated(b, wide, made, gate, odd, GATE_SILU);
    assert_true(gated.rounded == 0);
    as_of_a_copy(k, gated, "gated by weights of two types");

    // Other operations write over the rows: the value's rounded form ends.
    int32_t row[MOST_ROWS];
    for (int i = 0; i < n; i++)
        row[i] = n - 1 - i;
    const struct tensor y = numbers(b, n, WIDTH), square = weights(b, type, a, WIDTH, WIDTH);
    check_joined(k, x, y, wide, norm);
    for (int writer = 0; writer < 8; writer++) {
        static const char *const names[] = { "add", "glu", "take", "place", "cut", "move", "upload", "matmul" };
        made = b->rmsnorm(b, h, x, norm, 1e-5f);
        const float *before = products(k, made);
        made = b->rmsnorm(b, h, x, norm, 1e-5f);
        if (writer == 0)
            b->add(b, made, y);
        else if (writer == 1)
            b->glu(b, made, made, y, GATE_SILU);
        else if (writer == 2)
            b->take(b, made, y, row);
        else if (writer == 3)
            b->place(b, made, 0, y);
        else if (writer == 4)
            b->cut(b, made, wide, 7);
        else if (writer == 5)
            b->move(b, &made, 1, &(struct row_run){ 0, 1, (const int32_t[]){ n - 1 } }, 1);
        else if (writer == 6) {
            b->upload(b, h.data, uniforms(n * WIDTH), tensor_bytes(h));
            made = h; // bytes are uploaded to memory, not to a tensor
        } else
            multiply(b, made, y, square);
        const float *after = products(k, made);
        if (n > 1 && memcmp(before, after, (size_t)n * M * sizeof(float)) == 0)
            fail_msg("%s: products of %d rows have the bits from before %s", k->about, n, names[writer]);
        as_of_a_copy(k, made, names[writer]);
    }
    released(b, mark);
}

// Attention behind a prefix that ends before, at and behind the end of a split, for heads whose widths are whole blocks
// and for such that are not.
static void check_attention(const struct bench *k, int n, int prefix, int head_dim)
{
    struct backend *b = k->b;
    struct error err;
    const int kv = head_dim, heads = WIDTH / head_dim, mark = n_on_device;
    const struct kv_shape shape = { 1, kv,        head_dim, 1, prefix + n, MOST_ROWS, head_dim == 64 ? BF16 : F32,
                                    0, { { 0 } }, 0 };
    struct kv_cache *c = kv_create(b, &shape, &err);
    assert_ok(c != NULL, err);
    const struct tensor frequency = numbers(b, 1, head_dim / 2), angles = empty(b, MOST_ROWS, head_dim),
                        q = numbers(b, MOST_ROWS, WIDTH), key = numbers(b, MOST_ROWS, kv),
                        value = numbers(b, MOST_ROWS, kv), out = empty(b, MOST_ROWS, WIDTH);
    int32_t none[MOST_ROWS] = { 0 }, parent[MOST_ROWS];
    for (int i = 0; i < MOST_ROWS; i++)
        parent[i] = i - 1;
    struct tensor made = out;
    for (int at = 0; at < prefix + n;) {
        const int left = prefix - at, m = left <= 0 ? n : left < MOST_ROWS ? left : MOST_ROWS;
        const struct pass p = { .n = m, .token = none, .slot = none, .parent = parent };
        const struct layout *see = kv_admit(c, &p, m);
        b->angles(b, tensor_rows(angles, 0, m), see, frequency);
        made = b->attend(b, tensor_rows(out, 0, m), tensor_rows(q, 0, m), tensor_rows(key, 0, m),
                         tensor_rows(value, 0, m), tensor_rows(angles, 0, m), kv_keys(c, 0), kv_values(c, 0), see,
                         (struct attention){ .head_dim = head_dim });
        if (left > 0)
            kv_keep(c, 0, each_row(m), m);
        at += m;
    }
    as_of_a_copy(k, made, heads == 3 ? "attend, heads of 64" : "attend, heads of 24");
    released(b, mark);
    kv_destroy(c);
}

// Products read rows that fill the last tile, to which nothing is written. Here they are left from a tensor of NaNs.
static void check_leftovers(const struct bench *k, int n)
{
    struct backend *b = k->b;
    const int mark = n_on_device;
    const struct tensor x = numbers(b, n, WIDTH), norm = numbers(b, 1, WIDTH), nans = empty(b, MOST_ROWS, 2 * WIDTH),
                        h = empty(b, n, WIDTH);
    const float *before = products(k, b->rmsnorm(b, h, x, norm, 1e-5f));
    b->upload(b, nans.data, memset(zeros(MOST_ROWS * 2 * WIDTH), 0xFF, tensor_bytes(nans)), tensor_bytes(nans));
    for (int i = 0; i < 2; i++) // both buffers of rounded forms
        products(k, tensor_rows(nans, 0, MOST_ROWS - i));
    for (int i = 0; i < 2; i++)
        if (memcmp(before, products(k, b->rmsnorm(b, h, x, norm, 1e-5f)), (size_t)n * M * sizeof(float)) != 0)
            fail_msg("%s: products of %d rows depend on what was in their tile", k->about, n);
    released(b, mark);
}

static void check(const struct gpu_here *g, enum type type, enum activations a)
{
    static const int rows[] = { 1, 3, 8, 9, 17, MOST_ROWS };
    struct bench k = bench_open(g, type, a, type, a);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_makers(&k, rows[i], type, a);
        check_leftovers(&k, rows[i]);
        check_attention(&k, rows[i], 10, 64);
        check_attention(&k, rows[i], 250, 64);
        check_attention(&k, rows[i], 10, 24);
    }
    bench_close(&k);
}

TEST(products_read_the_current_rows)
{
    for (int g = 0; g < gpus; g++) {
        check(&gpu[g], BF16, ACTIVATIONS_BF16);
        if (gpu[g].varies)
            continue;
        check(&gpu[g], Q4_1, ACTIVATIONS_BF16); // whose sums of the input are read, too
        check(&gpu[g], F32, ACTIVATIONS_BF16);  // products of unpacked weights read the rows as floats
        check(&gpu[g], BF16, ACTIVATIONS_F32);  // nothing is rounded
    }
}

// As few conversions as possible, or times of cuBLAS beside ours would be unfair.
TEST(cublas_converts_an_input_once)
{
    for (int g = 0; g < gpus; g++) {
        if (!gpu[g].varies || !gpu[g].emulated)
            continue;
        struct bench k = bench_open(&gpu[g], BF16, ACTIVATIONS_BF16, BF16, ACTIVATIONS_BF16);
        struct backend *b = k.b;
        const struct tensor x = numbers(b, 3, WIDTH), out = tensor_rows(k.out, 0, 3);
        for (int i = 0; i < 2; i++) { // the second time, as a norm has written the input
            const int64_t before = emulated_launches();
            for (int product = 0; product < 3; product++)
                multiply(b, out, x, k.w);
            assert_int_equal(emulated_launches() - before, 1 + 3);
            b->rmsnorm(b, x, x, tensor_rows(x, 0, 1), 1e-5f);
        }
        multiply(b, out, x, k.w);
        b->upload(b, x.data, zeros(3 * WIDTH), tensor_bytes(x));
        const float *got = products(&k, x);
        for (int i = 0; i < 3 * M; i++)
            assert_true(got[i] == 0);
        bench_close(&k);
    }
}

// Weights of both kinds at once.
TEST(target_and_drafter_may_have_different_activations)
{
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        struct bench k = bench_open(&gpu[g], BF16, ACTIVATIONS_BF16, F16, ACTIVATIONS_F32);
        check_makers(&k, 9, BF16, ACTIVATIONS_F32);
        check_makers(&k, 3, F16, ACTIVATIONS_BF16);
        check_attention(&k, 9, 10, 64);
        bench_close(&k);
    }
}

// Rows that a norm keeps in registers and longer ones, whose numbers come by fours or one by one; Q4_1 reads sums, too.
TEST(norms_of_any_width_write_rounded_forms)
{
    static const int widths[] = { 31, 100, 1000, 8224, 16448, 8225 };
    for (int g = 0; g < gpus; g++)
        for (size_t i = 0; i < 2 * sizeof(widths) / sizeof(widths[0]) && !gpu[g].varies; i++) {
            const int width = widths[i / 2];
            struct backend *b = gpu_open(&gpu[g]);
            struct bench k = { .b = b, .out = empty(b, 2, M), .about = gpu[g].name };
            k.hidden = weights(b, i % 2 != 0 && width % 32 == 0 ? Q4_1 : BF16, ACTIVATIONS_BF16, M, width);
            const struct tensor x = numbers(b, 2, width), norm = numbers(b, 1, width);
            char what[40];
            snprintf(what, sizeof(what), "rmsnorm of width %d", width);
            as_of_a_copy(&k, b->rmsnorm(b, x, x, norm, 1e-5f), what);
            bench_close(&k);
        }
}

// Rounded forms that were made while no weight had offsets have no sums.
TEST(weights_with_offsets_may_come_later)
{
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        struct bench k = bench_open(&gpu[g], BF16, ACTIVATIONS_BF16, BF16, ACTIVATIONS_BF16);
        const struct tensor x = numbers(k.b, 9, WIDTH), norm = numbers(k.b, 1, WIDTH);
        struct tensor made = k.b->rmsnorm(k.b, x, x, norm, 1e-5f);
        as_of_a_copy(&k, made, "rmsnorm");
        k.w = weights(k.b, Q4_1, ACTIVATIONS_BF16, M, WIDTH);
        as_of_a_copy(&k, made, "rmsnorm before weights with offsets");
        made = k.b->rmsnorm(k.b, x, x, norm, 1e-5f);
        as_of_a_copy(&k, made, "rmsnorm after weights with offsets");
        bench_close(&k);
    }
}

int main(void)
{
    gpus = gpus_here(gpu);
    if (gpus == 0)
        return 77;
    return tests_run(NULL, NULL);
}
