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
#include "tests/support/tests.h"

enum { N = 63 }; // numbers of a tensor: the last of its bytes is not the last of a granule of AddressSanitizer's

// Where a tensor lies.
enum place { ROW, LONGER_ROW, HOST_HEAP, HOST_STACK, OTHER_DEVICE, BEYOND_THE_END, BEFORE_THE_BEGIN, RELEASED };

static struct tensor tensor_at(struct backend *b, enum place at, float stack[N])
{
    struct error err;
    struct tensor t = rows_on(at == OTHER_DEVICE ? backend_emulated(1, &err) : b, 1, at == LONGER_ROW ? N + 1 : N);
    if (at == RELEASED) {
        b->release(b, t.data);
        rows_on(b, 1, N); // elsewhere
    }
    if (at == HOST_HEAP)
        t.data = xcalloc(N, sizeof(float));
    if (at == HOST_STACK)
        t.data = stack;
    if (at == BEFORE_THE_BEGIN)
        t.data = (float *)t.data - 1;
    if (at == BEYOND_THE_END)
        t.width = N + 1;
    return t;
}

enum act { NOTHING_WRONG, HOST_LOADS, HOST_STORES, HOST_LOADS_AFTER_A_KERNEL, KERNEL_ADDS, NOT_RELEASED };

struct fault {
    enum act act;
    enum place x, y; // a kernel computes x += y; the host uses x
    const char *message;
    bool only_sanitized; // detected under AddressSanitizer alone
};

static volatile float sink;

static void act(struct backend *b, const struct fault *f)
{
    float stack[N] = { 0 };
    const struct tensor x = tensor_at(b, f->x, stack), y = tensor_at(b, f->y, stack);
    if (f->act == KERNEL_ADDS || f->act == HOST_LOADS_AFTER_A_KERNEL || f->act == NOTHING_WRONG)
        b->add(b, x, y);
    if (f->act == HOST_LOADS || f->act == HOST_LOADS_AFTER_A_KERNEL)
        sink = *(const float *)x.data;
    if (f->act == HOST_STORES)
        *(volatile float *)x.data = 1;
    if (f->act == NOT_RELEASED)
        exit(0);
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
}

// What a child says that does this, and its wait status.
static char *said(const struct fault *f, int *status)
{
    char text[4096] = "";
    FILE *to = tmpfile();
    assert_non_null(to);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct error err;
        dup2(fileno(to), 2);
        act(backend_emulated(0, &err), f);
        _exit(0);
    }
    assert_int_equal(waitpid(child, status, 0), child);
    rewind(to);
    text[fread(text, 1, sizeof(text) - 1, to)] = '\0';
    fclose(to);
    return xstrdup(text);
}

TEST(every_fault_ends_the_program)
{
#if defined(__SANITIZE_ADDRESS__)
    const bool sanitized = true;
#else
    const bool sanitized = false;
#endif
    static const char outside[] = "host access to device memory at 0x", host[] = "access to host memory at 0x";
    static const char poisoned[] = "AddressSanitizer: use-after-poison";
    static const struct fault faults[] = {
        { NOTHING_WRONG, ROW, ROW, NULL, false },
        { HOST_LOADS, ROW, ROW, outside, false },
        { HOST_STORES, ROW, ROW, outside, false },
        { HOST_LOADS_AFTER_A_KERNEL, ROW, ROW, outside, false },
        { HOST_LOADS, RELEASED, ROW, "0x", false },
        { KERNEL_ADDS, ROW, HOST_HEAP, host, true },
        { KERNEL_ADDS, HOST_HEAP, ROW, host, true },
        { KERNEL_ADDS, ROW, HOST_STACK, host, true },
        { KERNEL_ADDS, ROW, OTHER_DEVICE, "not memory of device 0", false },
        { KERNEL_ADDS, LONGER_ROW, BEYOND_THE_END, poisoned, true },
        { KERNEL_ADDS, BEYOND_THE_END, LONGER_ROW, poisoned, true },
        { KERNEL_ADDS, ROW, BEFORE_THE_BEGIN, poisoned, true },
        { KERNEL_ADDS, ROW, RELEASED, poisoned, true },
        { NOT_RELEASED, ROW, ROW, "bytes of device memory were not freed", false },
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const char *message = faults[i].message;
        int status;
        if (faults[i].only_sanitized && !sanitized)
            continue;
        char *text = said(&faults[i], &status);
        if (message == NULL ? status != 0 || *text != '\0' : status == 0 || strstr(text, message) == NULL)
            fail_msg("fault %zu: expected \"%s\", found status %d and \"%s\"", i, message == NULL ? "" : message,
                     status, text);
        free(text);
    }
}

int main(void)
{
    return EMULATED_HERE ? tests_run(NULL, NULL) : 77;
}
