// copies.cpp - asynchronous copies to shared memory (cp.async). In every second block they complete at once, in the others as late
// as possible.
#include "gpu.h"

inline namespace emulated_gpu
{

struct copy {
    void *to;
    const void *from;
    int group;
};

enum { PENDING = 64 }; // of a thread
static struct {
    struct copy copy[PENDING]; // a ring
    unsigned first, end;
    int group; // the current one
} copies[MAX_THREADS];
static bool delayed; // copies of this block complete as late as possible

void copies_init(int64_t block)
{
    delayed = block % 2 != 0;
    for (int t = 0; t < g.n; t++)
        copies[t].first = copies[t].end = 0;
}

void emulated_copy_async(void *to, const void *from)
{
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0)
        die("cp.async of 16 bytes from %p to %p: expected multiples of 16", from, to);
    if (!delayed) {
        memcpy(to, from, 16);
        return;
    }
    auto &own = copies[g.now - g.thread];
    if (own.end - own.first == PENDING)
        die("more than %d pending copies of a thread", PENDING);
    own.copy[own.end++ % PENDING] = { to, from, own.group };
}

void emulated_commit_copies(void)
{
    copies[g.now - g.thread].group++;
}

void emulated_wait_for_copies(int n_pending)
{
    auto &own = copies[g.now - g.thread];
    for (; own.first != own.end && own.copy[own.first % PENDING].group < own.group - n_pending; own.first++)
        memcpy(own.copy[own.first % PENDING].to, own.copy[own.first % PENDING].from, 16);
}

} // namespace emulated_gpu
