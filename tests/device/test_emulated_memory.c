// test_emulated_memory.c - accesses that would be faults on a GPU end the program on the emulated one, with a message that says what
// was wrong: seeded faults, each in a child process.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/device/emulated.h"
#include "tests/support/check.h"

#if defined(EMULATED_DEVICE)

enum { N = 63 }; // numbers of a tensor: the last of its bytes is not the last of a granule of AddressSanitizer's

static struct tensor row(struct backend *b)
{
    return rows_on(b, 1, N);
}

static struct tensor host_row(void)
{
    return tensor_of(xcalloc(N, sizeof(float)), F32, 1, N);
}

static volatile float sink;

static void nothing_wrong(struct backend *b)
{
    const struct tensor x = row(b), y = row(b);
    b->add(b, x, y);
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
}

static void host_loads(struct backend *b)
{
    sink = *(const float *)row(b).data;
}

static void host_stores(struct backend *b)
{
    *(volatile float *)row(b).data = 1;
}

static void host_loads_after_a_kernel(struct backend *b)
{
    const struct tensor x = row(b), y = row(b);
    b->add(b, x, y);
    sink = *(const float *)x.data;
}

static void host_loads_released_memory(struct backend *b)
{
    const struct tensor x = row(b);
    b->release(b, x.data);
    sink = *(const float *)x.data;
}

static void kernel_loads_the_hosts_heap(struct backend *b)
{
    b->add(b, row(b), host_row());
}

static void kernel_stores_to_the_hosts_heap(struct backend *b)
{
    b->add(b, host_row(), row(b));
}

static void kernel_loads_the_hosts_stack(struct backend *b)
{
    float y[N] = { 0 };
    b->add(b, row(b), tensor_of(y, F32, 1, N));
}

static void kernel_uses_another_device(struct backend *b)
{
    struct error err;
    struct backend *other = backend_emulated(1, &err);
    b->add(b, row(b), row(other));
}

static void kernel_loads_beyond_the_end(struct backend *b)
{
    b->add(b, rows_on(b, 1, N + 1), tensor_of(row(b).data, F32, 1, N + 1));
}

static void kernel_stores_beyond_the_end(struct backend *b)
{
    b->add(b, tensor_of(row(b).data, F32, 1, N + 1), rows_on(b, 1, N + 1));
}

static void kernel_loads_before_the_begin(struct backend *b)
{
    b->add(b, row(b), tensor_of((float *)row(b).data - 1, F32, 1, N));
}

static void kernel_loads_released_memory(struct backend *b)
{
    const struct tensor x = row(b), y = row(b);
    b->release(b, y.data);
    row(b); // elsewhere
    b->add(b, x, y);
}

static void memory_is_not_released(struct backend *b)
{
    row(b);
    exit(0);
}

// What a child says that does this, and its wait status.
static char *said(void (*act)(struct backend *b), int *status)
{
    char text[4096] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct error err;
        dup2(fileno(f), 2);
        act(backend_emulated(0, &err));
        _exit(0);
    }
    assert_int_equal(waitpid(child, status, 0), child);
    rewind(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return xstrdup(text);
}

static void every_fault_ends_the_program(void **unused)
{
#if defined(__SANITIZE_ADDRESS__)
    const bool sanitized = true;
#else
    const bool sanitized = false;
#endif
    static const char *const outside = "host access to device memory at 0x", *const host =
                                                                                 "access to host memory at 0x";
    static const char *const poisoned = "AddressSanitizer: use-after-poison";
    static const struct {
        const char *name;
        void (*act)(struct backend *b);
        const char *message;
        bool only_sanitized; // detected under AddressSanitizer alone
    } faults[] = {
#define FAULT(name, ...) { #name, name, __VA_ARGS__ }
        FAULT(host_loads, outside, false),
        FAULT(host_stores, outside, false),
        FAULT(host_loads_after_a_kernel, outside, false),
        FAULT(host_loads_released_memory, "0x", false),
        FAULT(kernel_loads_the_hosts_heap, host, true),
        FAULT(kernel_stores_to_the_hosts_heap, host, true),
        FAULT(kernel_loads_the_hosts_stack, host, true),
        FAULT(kernel_uses_another_device, "not memory of device 0", false),
        FAULT(kernel_loads_beyond_the_end, poisoned, true),
        FAULT(kernel_stores_beyond_the_end, poisoned, true),
        FAULT(kernel_loads_before_the_begin, poisoned, true),
        FAULT(kernel_loads_released_memory, poisoned, true),
        FAULT(memory_is_not_released, "bytes of device memory were not freed", false),
    };
    int status;
    char *text = said(nothing_wrong, &status);
    assert_int_equal(status, 0);
    assert_string_equal(text, "");
    free(text);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (faults[i].only_sanitized && !sanitized)
            continue;
        text = said(faults[i].act, &status);
        if (status == 0 || strstr(text, faults[i].message) == NULL)
            fail_msg("%s: expected \"%s\", found status %d and \"%s\"", faults[i].name, faults[i].message, status,
                     text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_fault_ends_the_program) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 77;
}

#endif
