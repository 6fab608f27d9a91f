// test_captures.c - calls and kernels that fail on a GPU. Without a graph (kernels/cuda/graphs.cu) a pass is queued as before, and no error is
// reported; a kernel that fails after it was queued is named under SPECLAB_CUDA_SYNC. For the emulated GPU only, which can be made to fail.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/tests.h"
#include "tests/device/device_pair.h"
#include "tests/device/emulated.h"
#include "tests/support/small_model.h"

static struct gpu_here gpu[MAX_GPUS_HERE]; // the first is emulated

static int sentences; // that the device has logged
static char sentence[600];

static void note(void *self, const char *text)
{
    sentences++;
    snprintf(sentence, sizeof(sentence), "%s", text);
}

// Two models, whose devices were opened with this value of SPECLAB_CUDA_SYNC.
static struct device_pair open_pair(struct backend *b[2], const char *sync)
{
    char *path = device_pair_model(BF16, 1, 64);
    setenv("SPECLAB_CUDA_SYNC", sync, 1);
    device_pair_devices_open(&gpu[0], b);
    unsetenv("SPECLAB_CUDA_SYNC");
    struct device_pair c = device_pair_open(&gpu[0], b, path, ACTIVATIONS_BF16, BF16);
    b[0]->log = note;
    sentences = 0;
    free(path);
    return c;
}

static void close_pair(struct device_pair *c, struct backend *b[2])
{
    device_pair_close(c);
    device_pair_devices_close(b);
}

// A pass of five rows without a prefix.
static struct rows begin_pass(struct device_pair *c)
{
    device_pair_cut(c, 0, 0);
    return rows_of(5, 0);
}

// A pass that would be captured, while this call of it fails. false: a call outside of what is captured.
static bool captured_with_a_failure(struct device_pair *c, int call)
{
    struct error err;
    struct states states;
    struct device_pair_side *a = &c->side[0];
    const struct rows r = begin_pass(c);
    const struct pass p = pass_of(&r);
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

// Whether the reason that was logged is an operation that failed, and not a call for a graph.
static bool is_about_an_operation(void)
{
    static const char begin[] = "CUDA graphs: off (cuda:0: ", end[] = ": invalid argument (cudaErrorInvalidValue))";
    const char *graph = strstr(sentence, " graph:"), *reason = strstr(sentence, end);
    assert_true(strncmp(sentence, begin, sizeof(begin) - 1) == 0 && reason != NULL && reason[sizeof(end) - 1] == '\0');
    return graph == NULL;
}

// Whichever call fails during capture, the pass is queued, and so are later ones. The reason is logged, once.
TEST(without_a_graph_passes_are_queued)
{
    int reported = 0, instead = 0, launches = 0, operations = 0;
    bool captured = false;
    for (int call = 1; !captured; call++) {
        struct backend *b[2];
        struct device_pair c = open_pair(b, "0");
        device_pair_behind(&c, 0, 5, FIRST);
        launches = (int)c.side[0].launches;
        const bool queued = captured_with_a_failure(&c, call);
        captured = emulated_graphs() > 0;
        reported += !queued;
        instead += queued && !captured;
        for (int i = 0; i < 3 && queued; i++)
            device_pair_behind(&c, 0, 6, captured ? LAUNCHED : FIRST);
        assert_int_equal(sentences, queued && !captured);
        operations += sentences != 0 && is_about_an_operation();
        close_pair(&c, b);
    }
    assert_int_equal(reported, 2);                     // the launch that writes the layout, and its check
    assert_int_equal(instead, 2 * (launches - 1) + 5); // each other launch and its check; five calls for a graph
    assert_int_equal(operations, 2 * (launches - 1));
}

static struct layout one_row(struct backend *b)
{
    static const int32_t zero;
    static const uint64_t itself = 1;
    struct layout s = { 1, 1, 9, &zero, &zero, &zero, &zero, &itself, 0, NULL, 0, 0, NULL, NULL, 0, NULL, NULL };
    s.uploaded = b->upload_layout(b, &s);
    return s;
}

// ---- a product, which reads the rounded form of its input and makes it if there is none

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

// The product of a new input, as a graph and by itself. known: the input has a rounded form before the graph. call: the number of the call
// that fails from then on; 0: none.
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
    b->angles(b, p->angles, &see, p->frequency); // the layout is uploaded
    struct tensor in = p->x, out;
    if (known) {
        b->upload(b, p->copy.data, x, sizeof(x));
        in = b->rmsnorm(b, p->x, p->x, p->copy, 1e-5f);
        assert_true(in.rounded != 0);
    }
    emulated_fail_next(call);
    for (bool done = graph_launched(b, &r, &out); !done; done = graph_ended(b, out)) {
        multiply(b, p->y, in, p->w);
        out = p->y;
    }
    emulated_fail_next(0);
    assert_ok(b->sync(b, &err), err);
    assert_true(out.data == p->y.data && out.rows == 1 && out.width == M && out.rounded == 0);
    b->download(b, got, p->y.data, sizeof(got));
    b->download(b, x, p->x.data, sizeof(x));
    b->upload(b, p->copy.data, x, sizeof(x));
    multiply(b, p->y, p->copy, p->w);
    b->download(b, expected, p->y.data, sizeof(expected));
    assert_memory_equal(got, expected, sizeof(got));
}

// An enlarged workspace has another address.
TEST(enlarging_a_workspace_ends_graphs)
{
    struct product_of p = product_open();
    struct backend *b = p.b;
    for (int i = 0; i < 2; i++)
        product_is_right(&p, false, 0);
    assert_int_equal(emulated_graphs(), 1);
    const struct tensor wide = rows_on(b, 64, 40 * K), by = rows_on(b, 1, 40 * K);
    for (int i = 0; i < 2; i++) // both buffers of rounded forms
        b->rmsnorm(b, wide, wide, by, 1e-5f);
    for (int i = 0; i < 3; i++)
        product_is_right(&p, false, 0);
    b->release(b, wide.data);
    b->release(b, by.data);
    product_close(&p);
}

TEST(rounded_forms_from_before_are_not_part_of_a_graph)
{
    struct product_of p = product_open();
    product_is_right(&p, true, 0);
    product_is_right(&p, true, 0);
    assert_int_equal(emulated_graphs(), 1);
    product_is_right(&p, false, 0);
    product_close(&p);
}

// Rounded forms are written to two buffers in turn; between two graphs an odd number of them may be.
TEST(capture_enlarges_no_workspace)
{
    struct product_of p = product_open();
    struct backend *b = p.b;
    const struct tensor wide = rows_on(b, 1, 4 * K), by = rows_on(b, 1, 4 * K), narrow = tensor_of(by.data, F32, 1, K);
    for (int time = 0; time < 2; time++) {
        const struct layout see = one_row(b);
        const struct graph_key r = { .see = &see, .whose = &p };
        struct tensor out;
        for (bool done = graph_launched(b, &r, &out); !done; done = graph_ended(b, out)) {
            b->rmsnorm(b, p.x, p.x, narrow, 1e-5f);
            out = b->rmsnorm(b, wide, wide, by, 1e-5f);
        }
        assert_true(out.data == wide.data && out.rounded != 0);
        b->rmsnorm(b, p.x, p.x, narrow, 1e-5f);
    }
    assert_int_equal(emulated_graphs(), 1);
    b->release(b, wide.data), b->release(b, by.data);
    product_close(&p);
}

TEST(a_failed_capture_leaves_no_rounded_form)
{
    for (int call = 1, captured = 0; !captured; call++) {
        struct product_of p = product_open();
        product_is_right(&p, false, 0);
        product_is_right(&p, false, call);
        captured = emulated_graphs() > 0;
        product_close(&p);
        assert_true(captured == (call > 9)); // two launches and the check of each; five calls for a graph
    }
}

// ---- what a graph must not contain

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

// Forbidden calls are carried out, and the other operations exactly once each time.
TEST(operations_that_cannot_be_captured_are_queued_again)
{
    enum { TIMES = 5 };
    for (int what = NOTHING; what < FORBIDDEN; what++) {
        struct backend *b = gpu_open(&gpu[0]);
        const struct tensor x = fives(b), five = fives(b), other = fives(b);
        float got[2];
        for (int i = 0; i < TIMES; i++) {
            const struct layout see = one_row(b);
            const struct graph_key r = { .see = &see, .whose = gpu };
            struct tensor out = x;
            for (bool done = graph_launched(b, &r, &out); !done; done = graph_ended(b, x)) {
                b->add(b, x, five);
                do_forbidden(b, (enum forbidden)what, other);
            }
        }
        b->download(b, got, x.data, sizeof(got));
        assert_true(got[0] == 5 + 5 * TIMES && got[1] == got[0]);
        assert_int_equal(emulated_graphs(), what == NOTHING);
        b->release(b, x.data), b->release(b, five.data), b->release(b, other.data);
        gpu_close(b);
    }
}

// ---- kernels that fail

// The error of a pass whose n-th launch fails. false: it has fewer.
static bool fault_of(struct device_pair *c, int n, struct error *err)
{
    struct states states;
    const struct device_pair_side *a = &c->side[0];
    const struct rows r = begin_pass(c);
    const struct pass p = pass_of(&r);
    emulated_fault_next(n);
    assert_ok(model_forward(a->m, a->c, &p, &a->taps, &states, err), *err);
    model_logits(a->m, tensor_rows(a->logits, 0, r.n), states.last);
    const bool well = a->b->sync(a->b, err);
    emulated_fault_next(0);
    return !well;
}

// "cuda:0: OPERATION, KERNEL: an illegal memory access ..", and the operations are those of a pass.
TEST(a_kernel_that_fails_has_its_name)
{
    enum { EXPECTED = 4 };
    static const char end[] = ": an illegal memory access was encountered (cudaErrorIllegalAddress)";
    static const char *const expected[EXPECTED] = { "embed", "rmsnorm", "matmul", "attend" };
    struct backend *b[2];
    struct device_pair c = open_pair(b, "1");
    struct error err;
    int found[EXPECTED] = { 0 }, n = 1;
    for (; fault_of(&c, n, &err); n++) {
        const char *operation = err.text + strlen("cuda:0: "), *kernel = strstr(operation, ", "),
                   *reason = strstr(operation, end);
        if (strncmp(err.text, "cuda:0: ", 8) != 0 || kernel == NULL || reason == NULL || reason < kernel ||
            strcmp(reason, end) != 0 || strstr(kernel, "_kernel") == NULL)
            fail_msg("launch %d of a pass failed as \"%s\"", n, err.text);
        for (int i = 0; i < EXPECTED; i++)
            found[i] += strncmp(operation, expected[i], (size_t)(kernel - operation)) == 0;
    }
    for (int i = 0; i < EXPECTED; i++)
        assert_true(found[i] > 0);
    close_pair(&c, b);
}

// Without the switch nobody knows.
TEST(otherwise_a_fault_is_found_by_waiting)
{
    struct backend *b[2];
    struct device_pair c = open_pair(b, "0");
    struct error err;
    assert_true(fault_of(&c, 3, &err));
    assert_string_equal(err.text, "cuda:0: waiting for the device: an illegal memory access was encountered"
                                  " (cudaErrorIllegalAddress)");
    close_pair(&c, b);
}

// The switch changes no bit. There are no graphs, which is logged once.
TEST(every_launch_is_waited_for)
{
    struct backend *b[2];
    struct device_pair c = open_pair(b, "1");
    for (int i = 0; i < 3; i++) {
        const int64_t waits = emulated_syncs();
        device_pair_behind(&c, 0, 5, FIRST);
        assert_true(emulated_syncs() - waits > 2 * c.side[0].launches);
    }
    assert_int_equal(sentences, 1);
    assert_string_equal(sentence, "CUDA graphs: off (SPECLAB_CUDA_SYNC is set)");
    close_pair(&c, b);
}

int main(void)
{
    if (!EMULATED_HERE)
        return 77;
    gpus_here(gpu);
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
