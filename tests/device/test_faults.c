// test_faults.c - a kernel that fails after it was queued: with SPECLAB_CUDA_SYNC the error names it. For the emulated GPU only, whose
// launches can be made to fail.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/device/device_pair.h"
#include "tests/device/emulated.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

#if defined(EMULATED_DEVICE)
static const char end[] = ": an illegal memory access was encountered (cudaErrorIllegalAddress)";
static struct gpu_here gpu[MAX_GPUS_HERE];
static int sentences;

static void note(void *self, const char *sentence)
{
    assert_string_equal(sentence, "CUDA graphs: off (SPECLAB_CUDA_SYNC is set)");
    sentences++;
}

// Two models, whose devices were opened under the switch or not.
static struct device_pair open_pair(struct backend *b[2], const char *value)
{
    char *path = device_pair_model(BF16, 1, 64);
    setenv("SPECLAB_CUDA_SYNC", value, 1);
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

// The error of a pass whose n-th launch fails. false: it has fewer.
static bool fault_of(struct device_pair *c, int n, struct error *err)
{
    struct states states;
    const struct device_pair_side *a = &c->side[0];
    const struct rows r = rows_of(5, 0);
    const struct pass p = pass_of(&r);
    device_pair_cut(c, 0, 0);
    emulated_fault_next(n);
    assert_ok(model_forward(a->m, a->c, &p, &a->taps, &states, err), *err);
    model_logits(a->m, tensor_rows(a->logits, 0, r.n), states.last);
    const bool well = a->b->sync(a->b, err);
    emulated_fault_next(0);
    return !well;
}

// "cuda:0: OPERATION, KERNEL: an illegal memory access ..", and the operations are those of a pass.
static void a_kernel_that_fails_has_its_name(void **unused)
{
    enum { EXPECTED = 4 };
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
static void otherwise_a_fault_is_found_by_waiting(void **unused)
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
static void every_launch_is_waited_for(void **unused)
{
    struct backend *b[2];
    struct device_pair c = open_pair(b, "1");
    for (int i = 0; i < 3; i++) {
        const int64_t waits = emulated_syncs();
        device_pair_behind(&c, 0, 5, FIRST);
        assert_true(emulated_syncs() - waits > 2 * c.side[0].launches);
    }
    assert_int_equal(sentences, 1);
    close_pair(&c, b);
}

int main(void)
{
    gpus_here(gpu); // the first is emulated
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_fails_has_its_name),
        cmocka_unit_test(otherwise_a_fault_is_found_by_waiting),
        cmocka_unit_test(every_launch_is_waited_for),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
#else
int main(void)
{
    return 77;
}
#endif
