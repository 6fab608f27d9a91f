// test_captures.c - where a graph cannot be had (kernels/cuda/graphs.cu) a pass is queued as ever, and nobody hears of it. For
// the emulated GPU alone, whose calls can be made to fail.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/check.h"
#include "tests/device/device_pair.h"
#include "tests/device/emulated.h"
#include "tests/support/small_model.h"

#if defined(EMULATED_DEVICE)
static struct gpu_here gpu[MAX_GPUS_HERE];

// A pass that would be captured, while this call of it fails. false: a call outside of what is captured.
static bool captured_with_a_failure(struct device_pair *c, int call)
{
    struct error err;
    struct states states;
    struct device_pair_side *a = &c->side[0];
    const struct rows r = rows_of(5, 0);
    const struct pass p = pass_of(&r);
    device_pair_cut(c, 0, 0);
    emulated_fail_next(call);
    assert_true(model_forward(a->m, a->c, &p, &a->taps, &states, &err));
    emulated_fail_next(0);
    if (!a->b->sync(a->b, &err))
        return false;
    device_pair_run(&c->side[1], &r);
    a->b->download(a->b, a->got, states.last.data, tensor_bytes(states.last));
    assert_memory_equal(a->got, c->side[1].got + r.n * PAIR_VOCAB, tensor_bytes(states.last));
    return true;
}

// Whatever fails, a pass that is captured is queued all the same, and so are others after it.
static void where_a_graph_cannot_be_had_passes_are_queued(void **unused)
{
    (void)unused;
    char *path = device_pair_model(BF16, 1, 64);
    int said = 0, instead = 0, launches = 0;
    bool captured = false;
    for (int call = 1; !captured; call++) {
        struct backend *b[2];
        device_pair_devices_open(&gpu[0], b);
        struct device_pair c = device_pair_open(&gpu[0], b, path, ACTIVATIONS_BF16, BF16);
        device_pair_behind(&c, 0, 5, FIRST);
        launches = (int)c.side[0].launches;
        const bool queued = captured_with_a_failure(&c, call);
        captured = device_pair_graphs() > 0;
        said += !queued;
        instead += queued && !captured;
        for (int i = 0; i < 3 && queued; i++)
            device_pair_behind(&c, 0, 6, captured ? SYNTHETIC : FIRST);
        device_pair_close(&c);
        device_pair_devices_close(b);
    }
    assert_int_equal(said, 3);                         // the embeddings' launch, and what became of it; the layout
    assert_int_equal(instead, 2 * (launches - 1) + 5); // each launch, and what became of it; five calls for a graph
    free(path);
}

static struct layout one_row(struct backend *b)
{
    static const int32_t zero;
    static const uint64_t itself = 1;
    return (struct layout){ 1, 1, 9, &zero, &zero, &zero, &zero, &itself, ++b->passes, NULL, 0 };
}

// ---- a product, which reads planes of its input, and makes them if nobody has left any

enum { K = 64, M = 16 };

struct product_of {
    struct backend *b;
    struct tensor x, copy, y, w, angles, frequency;
};

static struct product_of product_open(void)
{
    struct error err;
    uint16_t numbers[M * K];
    struct product_of p = { .b = gpu_open(&gpu[0]) };
    for (int i = 0; i < M * K; i++)
        numbers[i] = (uint16_t)(0x3D00 | device_pair_any(256));
    p.x = rows_on(p.b, 1, K);
    p.copy = rows_on(p.b, 1, K);
    p.y = rows_on(p.b, 1, M);
    p.angles = rows_on(p.b, 1, 2);
    p.frequency = rows_on(p.b, 1, 1);
    p.w = p.b->prepare(p.b, tensor_of(numbers, BF16, M, K), ACTIVATIONS_BF16, &err);
    assert_non_null(p.w.data);
    return p;
}

static void product_close(struct product_of *p)
{
    const struct tensor all[] = { p->x, p->copy, p->y, p->angles, p->frequency };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        p->b->release(p->b, all[i].data);
    p->b->unprepare(p->b, p->w);
    gpu_close(p->b);
}

// Of an input that is new, as a routine, and by itself. known: there are planes of the input when the routine begins.
// call: of those from there on the one that fails; 0: none.
static void product_is_right(const struct product_of *p, bool known, int call)
{
    struct backend *b = p->b;
    struct error err;
    const struct layout see = one_row(b);
    const struct graph_key r = { .see = &see, .whose = p };
    float x[K], got[M], expected[M];
    for (int i = 0; i < K; i++)
        x[i] = (float)device_pair_any(2000) / 1000 - 1;
    b->upload(b, p->x.data, x, sizeof(x));
    b->angles(b, p->angles, &see, p->frequency); // the layout is there
    if (known)
        multiply(b, p->y, p->x, p->w);
    emulated_fail_next(call);
    for (bool done = graph_launched(b, &r); !done; done = graph_ended(b))
        multiply(b, p->y, p->x, p->w);
    emulated_fail_next(0);
    if (!b->sync(b, &err))
        fail_msg("%s", err.text);
    b->download(b, got, p->y.data, sizeof(got));
    b->upload(b, p->copy.data, x, sizeof(x));
    multiply(b, p->y, p->copy, p->w);
    b->download(b, expected, p->y.data, sizeof(expected));
    assert_memory_equal(got, expected, sizeof(got));
}

// A room that grows lies elsewhere.
static void a_room_that_grows_ends_graphs(void **unused)
{
    (void)unused;
    struct product_of p = product_open();
    struct backend *b = p.b;
    for (int i = 0; i < 2; i++)
        product_is_right(&p, false, 0);
    assert_int_equal(device_pair_graphs(), 1);
    const struct tensor wide = rows_on(b, 64, 40 * K), by = rows_on(b, 1, 40 * K);
    for (int i = 0; i < 2; i++) // both rooms for planes
        b->rmsnorm(b, wide, wide, by, 1e-5f);
    for (int i = 0; i < 3; i++)
        product_is_right(&p, false, 0);
    b->release(b, wide.data);
    b->release(b, by.data);
    product_close(&p);
}

static void what_was_known_before_is_no_part_of_a_routine(void **unused)
{
    (void)unused;
    struct product_of p = product_open();
    product_is_right(&p, true, 0);
    product_is_right(&p, true, 0);
    assert_int_equal(device_pair_graphs(), 1);
    product_is_right(&p, false, 0);
    product_close(&p);
}

// Planes lie in two rooms, by turns. What is done between two routines may be an odd number of them.
static void a_routine_finds_its_rooms_as_large_as_it_left_them(void **unused)
{
    (void)unused;
    struct product_of p = product_open();
    struct backend *b = p.b;
    const struct tensor wide = rows_on(b, 1, 4 * K), by = rows_on(b, 1, 4 * K), narrow = tensor_of(by.data, F32, 1, K);
    for (int time = 0; time < 2; time++) {
        const struct layout see = one_row(b);
        const struct graph_key r = { .see = &see, .whose = &p };
        for (bool done = graph_launched(b, &r); !done; done = graph_ended(b)) {
            b->rmsnorm(b, p.x, p.x, narrow, 1e-5f);
            b->rmsnorm(b, wide, wide, by, 1e-5f);
        }
        b->rmsnorm(b, p.x, p.x, narrow, 1e-5f);
    }
    assert_int_equal(device_pair_graphs(), 1);
    b->release(b, wide.data), b->release(b, by.data);
    product_close(&p);
}

static void what_was_not_captured_is_not_known(void **unused)
{
    (void)unused;
    for (int call = 1, captured = 0; !captured; call++) {
        struct product_of p = product_open();
        product_is_right(&p, false, 0);
        product_is_right(&p, false, call);
        captured = device_pair_graphs() > 0;
        product_close(&p);
        assert_true(captured == (call > 9)); // two launches, and what became of each; five calls for a graph
    }
}

// ---- what is forbidden

enum forbidden { NOTHING, AN_UPLOAD, A_DOWNLOAD, MEMORY, WAITING, FORBIDDEN };

static void do_forbidden(struct backend *b, enum forbidden what, struct tensor t)
{
    float number = 0;
    struct error err;
    if (what == AN_UPLOAD)
        b->upload(b, t.data, &number, sizeof(number));
    else if (what == A_DOWNLOAD)
        b->download(b, &number, t.data, sizeof(number));
    else if (what == MEMORY)
        b->release(b, b->alloc(b, 16));
    else if (what == WAITING)
        b->sync(b, &err);
}

static struct tensor fives(struct backend *b)
{
    const float x[2] = { 5, 5 };
    const struct tensor t = rows_on(b, 1, 2);
    b->upload(b, t.data, x, sizeof(x));
    return t;
}

// What a routine must not do is done none the less, and its operations once each time.
static void what_cannot_be_captured_is_gone_through_again(void **unused)
{
    (void)unused;
    enum { TIMES = 5 };
    for (int what = NOTHING; what < FORBIDDEN; what++) {
        struct backend *b = gpu_open(&gpu[0]);
        const struct tensor x = fives(b), five = fives(b), other = fives(b);
        float got[2];
        for (int i = 0; i < TIMES; i++) {
            const struct layout see = one_row(b);
            const struct graph_key r = { .see = &see, .whose = gpu };
            for (bool done = graph_launched(b, &r); !done; done = graph_ended(b)) {
                b->add(b, x, five);
                do_forbidden(b, (enum forbidden)what, other);
            }
        }
        b->download(b, got, x.data, sizeof(got));
        assert_true(got[0] == 5 + 5 * TIMES && got[1] == got[0]);
        assert_int_equal(device_pair_graphs(), what == NOTHING);
        b->release(b, x.data), b->release(b, five.data), b->release(b, other.data);
        gpu_close(b);
    }
}

int main(void)
{
    gpus_here(gpu); // the first is emulated
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_a_graph_cannot_be_had_passes_are_queued),
        cmocka_unit_test(a_room_that_grows_ends_graphs),
        cmocka_unit_test(what_was_known_before_is_no_part_of_a_routine),
        cmocka_unit_test(a_routine_finds_its_rooms_as_large_as_it_left_them),
        cmocka_unit_test(what_was_not_captured_is_not_known),
        cmocka_unit_test(what_cannot_be_captured_is_gone_through_again),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_clean();
    return failed;
}
#else
int main(void)
{
    return 77;
}
#endif
