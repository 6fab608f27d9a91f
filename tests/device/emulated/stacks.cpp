// stacks.cpp - the stacks that threads run on, and switching between them.
#include <stdlib.h>

#include "runtime.h"

#if defined(ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

inline namespace emulated_gpu
{

#if defined(ASAN)
enum { STACK = 256 << 10 }; // bytes; larger, because ASan writes its reports on the fiber's stack

// All stacks are one for AddressSanitizer, so a switch between them is none of its business.
static void set_stack(const void *bottom, size_t bytes, const void **old_bottom, size_t *old_bytes)
{
    void *fake;
    __sanitizer_start_switch_fiber(&fake, bottom, bytes);
    __sanitizer_finish_switch_fiber(fake, old_bottom, old_bytes);
}
#else
enum { STACK = 64 << 10 };

static void set_stack(const void *, size_t, const void **, size_t *)
{
}
#endif

static const void *host_bottom;
static size_t host_bytes;

void stacks_enter(void)
{
    set_stack(stacks_bottom(), STACKS_BYTES, &host_bottom, &host_bytes);
}

void stacks_leave(void)
{
    const void *bottom;
    size_t bytes;
    set_stack(host_bottom, host_bytes, &bottom, &bytes);
}

[[noreturn]] static void stack_begin(void)
{
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
    static size_t stacks;
    struct stack *s = new struct stack();
    uint8_t *const bottom = stack_take(STACK);
    // Tops have different offsets in a page, so that they do not compete for the same cache lines.
    const size_t bytes = STACK - stacks++ * 5 % 32 * 64;
#if defined(EMULATED_UCONTEXT)
    getcontext(&s->context);
    s->context.uc_stack.ss_sp = bottom;
    s->context.uc_stack.ss_size = bytes;
    s->context.uc_link = NULL;
    makecontext(&s->context, stack_begin, 0);
#else
    void **top = (void **)(bottom + bytes);
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
    g.current = to;
#if defined(EMULATED_UCONTEXT)
    swapcontext(&from->context, &to->context);
#else
    emulated_switch(&from->sp, to->sp);
#endif
}

struct stack *stack_free(void)
{
    return g.free_count ? g.free[--g.free_count] : stack_create();
}

} // namespace emulated_gpu
