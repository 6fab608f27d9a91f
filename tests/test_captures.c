// test_captures.c - where a graph cannot be had (kernels/cuda/graphs.cu) a pass is queued as ever, and nobody hears of it. For
// the emulated GPU alone, whose calls can be made to fail.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/check.h"
#include "tests/couple.h"
#include "tests/emulated.h"
#include "tests/tiny.h"

#if defined(EMULATED_DEVICE)
static struct gpu_here gpu[MAX_GPUS_HERE];

// A pass that would be captured, while this call of it fails. false: a call outside of what is captured.
static bool captured_with_a_failure(struct couple *c, int call)
{
    struct error err;
    struct states states;
    struct couple_side *a = &c->side[0];
    const struct rows r = rows_of(5, 0);
    const struct pass p = pass_of(&r);
    couple_cut(c, 0, 0);
    emulated_fail_next(call);
    assert_true(model_forward(a->m, a->c, &p, &couple_taps, &states, &err));
    emulated_fail_next(0);
    if (!a->b->sync(a->b, &err))
        return false;
    couple_run(&c->side[1], &r);
    a->b->download(a->b, a->got, states.last.data, tensor_bytes(states.last));
    assert_memory_equal(a->got, c->side[1].got + r.n * COUPLE_VOCAB, tensor_bytes(states.last));
    return true;
}

// Whatever fails, a pass that is captured is queued all the same, and so are others after it.
static void where_a_graph_cannot_be_had_passes_are_queued(void **unused)
{
    (void)unused;
    char *path = couple_model(BF16, 1, 64);
    int said = 0, instead = 0, launches = 0;
    bool captured = false;
    for (int call = 1; !captured; call++) {
        struct backend *b[2];
        couple_devices_open(&gpu[0], b);
        struct couple c = couple_open(&gpu[0], b, path, ACTIVATIONS_BF16, BF16);
        couple_behind(&c, 0, 5, FIRST);
        launches = (int)c.side[0].launches;
        const bool queued = captured_with_a_failure(&c, call);
        captured = couple_graphs() > 0;
        said += !queued;
        instead += queued && !captured;
        for (int i = 0; i < 3 && queued; i++)
            couple_behind(&c, 0, 6, captured ? REPLAYED : FIRST);
        couple_close(&c);
        couple_devices_close(b);
    }
    assert_int_equal(said, 3);                         // the embeddings' launch, and what became of it; the layout
    assert_int_equal(instead, 2 * (launches - 1) + 5); // each launch, and what became of it; five calls for a graph
    free(path);
}

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
        const int32_t zero = 0;
        const uint64_t itself = 1;
        float got[2];
        for (int i = 0; i < TIMES; i++) {
            const struct layout see = { 1, 1, 9, &zero, &zero, &zero, &zero, &itself, ++b->passes, NULL, 0 };
            const struct routine r = { .see = &see, .whose = gpu };
            for (bool done = replayed(b, &r); !done; done = remembered(b)) {
                b->add(b, x, five);
                do_forbidden(b, (enum forbidden)what, other);
            }
        }
        b->download(b, got, x.data, sizeof(got));
        assert_true(got[0] == 5 + 5 * TIMES && got[1] == got[0]);
        assert_int_equal(couple_graphs(), what == NOTHING);
        b->release(b, x.data), b->release(b, five.data), b->release(b, other.data);
        gpu_close(b);
    }
}

int main(void)
{
    gpus_here(gpu); // the first is emulated
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_a_graph_cannot_be_had_passes_are_queued),
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
