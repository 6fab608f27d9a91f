// addresses.cpp - the addresses of the emulated GPU: one reserved range with the stacks of threads, then each device's memory.
//
// A device's memory is inaccessible unless a kernel, copy or fill of this device runs, so the host cannot touch it. Under
// AddressSanitizer what is not allocated is poisoned, and all that a kernel loads or stores must lie in this range or in static data,
// where shared memory and arguments are. Not checked: memcpy of a variable size, and builds without AddressSanitizer.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

inline namespace emulated_gpu
{

enum : size_t { RANGE_BYTES = STACKS_BYTES + DEVICES * DEVICE_BYTES, HUGE_PAGE = 2 << 20 };

static uint8_t *range;
static size_t mapped[DEVICES]; // bytes
static struct sigaction previous;

bool in_range(const void *p)
{
    return (size_t)p - (size_t)range < RANGE_BYTES;
}

static void at_fault(int, siginfo_t *info, void *)
{
    if (!in_range(info->si_addr))
        sigaction(SIGSEGV, &previous, NULL); // the access is repeated
    else if (g.running)
        die("access to %p: beyond a stack, or not memory of device %d", info->si_addr, current_device());
    else
        die("host access to device memory at %p, outside a kernel", info->si_addr);
}

static void protect(void *at, size_t bytes, int how)
{
    if (mprotect(at, bytes, how) != 0)
        die("mprotect failed");
}

// ---- stacks

uint8_t *stacks_bottom(void)
{
    return range;
}

uint8_t *stack_take(size_t bytes)
{
    static size_t taken;
    const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const at = range + taken + guard;
    taken += guard + bytes;
    protect(at, bytes, PROT_READ | PROT_WRITE);
    return at;
}

// ---- device memory

uint8_t *device_memory(int device)
{
    return range + STACKS_BYTES + (size_t)device * DEVICE_BYTES;
}

bool device_map(int device, size_t bytes)
{
    if (bytes <= mapped[device])
        return true;
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (bytes > DEVICE_BYTES)
        return false;
    poison(device_memory(device) + mapped[device], bytes - mapped[device]);
    mapped[device] = bytes;
    return true;
}

device_access::device_access() : device(current_device())
{
    struct sigaction action = {}, old;
    action.sa_sigaction = at_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &old); // again, since cmocka has a handler of its own for every test
    if (old.sa_sigaction != at_fault)
        previous = old;
    protect(device_memory(device), mapped[device], PROT_READ | PROT_WRITE);
}

device_access::~device_access()
{
    protect(device_memory(device), mapped[device], PROT_NONE);
}

// ---- what kernels load and store

static size_t shadow; // AddressSanitizer's

#if defined(ASAN)
extern "C" {
extern char __executable_start, _end;
void __asan_report_load_n(size_t at, size_t bytes);
void __asan_report_store_n(size_t at, size_t bytes);
}

static __attribute__((noinline)) void check_outside(size_t at)
{
    const size_t frame = (size_t)__builtin_frame_address(0) - (size_t)range, image = (size_t)&__executable_start;
    if (frame < STACKS_BYTES && at - image >= (size_t)&_end - image)
        die("access to host memory at %p", (void *)at);
}

static inline void check(size_t at, size_t bytes, void (*report)(size_t at, size_t bytes))
{
    const uint8_t first = *(const uint8_t *)((at >> 3) + shadow),
                  last = *(const uint8_t *)(((at + bytes - 1) >> 3) + shadow);
    if ((first | last || bytes > 16) && __asan_region_is_poisoned((void *)at, bytes))
        report(at, bytes);
    if (!in_range((void *)at))
        check_outside(at);
}

// These replace AddressSanitizer's functions of the same names, which code calls that is compiled for calls.
#define ACCESS(suffix, parameters, bytes) \
    extern "C" void __asan_load##suffix parameters \
    { \
        check(at, bytes, __asan_report_load_n); \
    } \
    extern "C" void __asan_store##suffix parameters \
    { \
        check(at, bytes, __asan_report_store_n); \
    }
ACCESS(1, (size_t at), 1)
ACCESS(2, (size_t at), 2)
ACCESS(4, (size_t at), 4)
ACCESS(8, (size_t at), 8)
ACCESS(16, (size_t at), 16)
ACCESS(N, (size_t at, size_t bytes), bytes)
#undef ACCESS
#endif

// Early, since constructors of other files may be compiled for calls, too.
__attribute__((constructor(101))) static void reserve(void)
{
    void *const at = mmap(NULL, RANGE_BYTES + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        die("no address space");
    range = (uint8_t *)(((size_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(device_memory(0), DEVICES * DEVICE_BYTES, MADV_HUGEPAGE); // mprotect of small pages takes much longer
#if defined(ASAN)
    size_t scale;
    __asan_get_shadow_mapping(&scale, &shadow);
#endif
}

} // namespace emulated_gpu
