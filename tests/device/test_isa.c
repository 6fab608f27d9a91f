// test_isa.c - operations have the same bits with every instruction set of this processor that has fused multiply-adds: a sum is a chain
// over k, sixteen partial sums or an integer, and the rest are the same operations on each element. `./run arm` compares ARM with x86.
#include "tests/support/tests.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "tests/device/isa_cases.h"

enum { MAX_ISA = 6, MAX_RESULTS = 1000 };
static struct backend *isa[MAX_ISA];
static int n_isa;

struct results { // of the first instruction set
    void *data[MAX_RESULTS];
    int n;
    struct backend *other; // compared with them
};

static void store_result(void *self, const char *name, const void *data, size_t bytes)
{
    struct results *r = self;
    assert_true(r->n < MAX_RESULTS);
    r->data[r->n] = xmalloc(bytes);
    memcpy(r->data[r->n++], data, bytes);
}

static void compare_result(void *self, const char *name, const void *data, size_t bytes)
{
    struct results *r = self;
    if (memcmp(r->data[r->n++], data, bytes) != 0)
        fail_msg("%s: %s and %s differ", name, isa[0]->describe(isa[0]), r->other->describe(r->other));
}

TEST(operations_have_the_same_bits)
{
    struct results r = { .n = 0 };
    isa_cases(isa[0], store_result, &r);
    const int n = r.n;
    for (int i = 1; i < n_isa; i++) {
        r.other = isa[i];
        r.n = 0;
        isa_cases(isa[i], compare_result, &r);
        assert_int_equal(r.n, n);
    }
    assert_true(n > 0);
    for (int i = 0; i < n; i++)
        free(r.data[i]);
}

static int running_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

// Threads of two pools would take the processors from each other: an idle thread polls before it sleeps.
TEST(devices_of_one_program_share_their_threads)
{
    struct error err;
    const int before = running_threads();
    struct devices *d = devices_create(3);
    struct backend *first = devices_get(d, "cpu", &err), *second = devices_get(d, "cpu:plain", &err);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_equal(first->workers(first).self, second->workers(second).self);
    assert_int_equal(running_threads(), before + 2); // and the caller
    devices_destroy(d);
    for (int i = 0; i < 1000 && running_threads() > before;
         i++) // a thread is listed for a moment after it has been joined
        nanosleep(&(const struct timespec){ 0, 1000000 }, NULL);
    assert_int_equal(running_threads(), before);
}

int main(void)
{
    static const char *const names[MAX_ISA] = { "avx2", "avx2_vnni", "avx512", "avx512_vnni", "neon", "neon_dotprod" };
    struct error err;
    for (int i = 0; i < MAX_ISA; i++) {
        struct backend *b = backend_cpu_with(1 + i % 2, names[i], &err);
        if (b == NULL)
            printf("skipped: %s\n", err.text);
        else
            isa[n_isa++] = b;
    }
    const int status = n_isa < 2 ? 77 : tests_run(NULL, NULL);
    for (int i = 0; i < n_isa; i++)
        isa[i]->destroy(isa[i]);
    return status;
}
