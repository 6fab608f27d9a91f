// copies.cpp - asynchronous copies to shared memory (cp.async). In every second block they complete at once, in the others as late
// as possible.
#include <deque>

#include "gpu.h"

inline namespace emulated_gpu
{

struct copy {
    void *to;
    const void *from;
    int group;
};

static struct {
    std::deque<copy> pending; // oldest first
    int group;                // the current one
} copies[MAX_THREADS];
static bool delayed; // copies of this block complete as late as possible

void copies_init(int64_t block)
{
    delayed = block % 2 != 0;
    for (int t = 0; t < g.n; t++)
        copies[t].pending.clear();
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
    own.pending.push_back({ to, from, own.group });
}

void emulated_commit_copies(void)
{
    copies[g.now - g.thread].group++;
}

void emulated_wait_for_copies(int n_pending)
{
    auto &own = copies[g.now - g.thread];
    for (; !own.pending.empty() && own.pending.front().group < own.group - n_pending; own.pending.pop_front())
        memcpy(own.pending.front().to, own.pending.front().from, 16);
}

} // namespace emulated_gpu
