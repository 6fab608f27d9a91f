// stacks.cpp - the stacks that threads run on, and switching between them.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu.h"

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#if defined(ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

inline namespace emulated_gpu
{

#if defined(ASAN)
enum { STACK = 256 << 10 }; // bytes; larger, because ASan writes its reports on the fiber's stack
#else
enum { STACK = 64 << 10 };
#endif

// Called on the new stack after a switch from g.previous; informs AddressSanitizer.
static inline void switched(void *fake)
{
#if defined(ASAN)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (g.previous == &g.host) {
        g.host.bottom = (uint8_t *)bottom;
        g.host.bytes = bytes;
    }
#else
    (void)fake;
#endif
}

[[noreturn]] static void stack_begin(void)
{
    switched(NULL);
    run_threads();
    abort();
}

#if !defined(EMULATED_UCONTEXT)
extern "C" void emulated_switch(void **from, void *to);
// Pushes the callee-saved registers on the old stack and pops those of the new one.
asm(".text\n"
    ".p2align 4\n"
    ".hidden emulated_switch\n"
    ".globl emulated_switch\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size emulated_switch, .-emulated_switch\n");
#endif

static struct stack *stack_create(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stack *s = new struct stack();
    void *at = mmap(NULL, page + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || mprotect(at, page, PROT_NONE) != 0)
        die("no memory for a stack");
    s->bottom = (uint8_t *)at + page;
    // Tops have different offsets in a page, so that they do not compete for the same cache lines.
    s->bytes = STACK - (size_t)(g.stacks++ * 5 % 32) * 64;
#if defined(EMULATED_UCONTEXT)
    getcontext(&s->context);
    s->context.uc_stack.ss_sp = s->bottom;
    s->context.uc_stack.ss_size = s->bytes;
    s->context.uc_link = NULL;
    makecontext(&s->context, stack_begin, 0);
#else
    void **top = (void **)(s->bottom + s->bytes);
    *--top = NULL; // return address of stack_begin
    *--top = (void *)stack_begin;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    s->sp = top;
#endif
    return s;
}

void stack_switch(struct stack *to)
{
    struct stack *const from = g.current;
    g.previous = from;
    g.current = to;
#if defined(ASAN)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
#if defined(EMULATED_UCONTEXT)
    swapcontext(&from->context, &to->context);
#else
    emulated_switch(&from->sp, to->sp);
#endif
    switched(from->fake);
}

struct stack *stack_free(void)
{
    return g.free_count ? g.free[--g.free_count] : stack_create();
}

} // namespace emulated_gpu
