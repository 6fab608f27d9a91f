// copies.cpp - copies to shared memory that a thread does not wait for (cp.async). In every second block they come at once,
// in the others no sooner than they must.
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
    std::deque<copy> left; // on their way, the oldest first
    int group;             // that is open
} copies[MAX_THREADS];
static bool wait; // those of this block, until they must come

void copies_init(int64_t block)
{
    wait = block % 2 != 0;
    for (int t = 0; t < g.n; t++)
        copies[t].left.clear();
}

void emulated_copy_ahead(void *to, const void *from)
{
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0)
        die("cp.async of 16 bytes from %p to %p: expected multiples of 16", from, to);
    if (!wait) {
        memcpy(to, from, 16);
        return;
    }
    auto &of = copies[g.now - g.thread];
    of.left.push_back({ to, from, of.group });
}

void emulated_close_copies(void)
{
    copies[g.now - g.thread].group++;
}

void emulated_wait_for_copies(int but)
{
    auto &of = copies[g.now - g.thread];
    for (; !of.left.empty() && of.left.front().group < of.group - but; of.left.pop_front())
        memcpy(of.left.front().to, of.left.front().from, 16);
}

} // namespace emulated_gpu
