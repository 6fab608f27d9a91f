// copies.cpp - asynchronous copies to shared memory (cp.async, and bulk copies with the arrivals that they complete on). In every
// second block they complete at once, in the others as late as possible.
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

struct bulk_copy {
    void *to;
    const void *from;
    int bytes;
    struct arrival *arrival;
};
enum { PENDING_BULK = 8192 };               // copies of a cluster's blocks at most
static struct bulk_copy bulk[PENDING_BULK]; // delayed ones: static data, which a kernel may touch
static int bulk_count;

void copies_init(int64_t block)
{
    if (bulk_count > 0)
        die("%d bulk copies, the first of %d bytes, that no thread has waited for", bulk_count, bulk[0].bytes);
    delayed = block % 2 != 0;
    for (int t = 0; t < g.n; t++)
        copies[t].first = copies[t].end = 0;
}

void copy_async(void *to, const void *from)
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

void commit_copies(void)
{
    copies[g.now - g.thread].group++;
}

void emulated_wait_for_copies(int n_pending)
{
    auto &own = copies[g.now - g.thread];
    for (; own.first != own.end && own.copy[own.first % PENDING].group < own.group - n_pending; own.first++)
        memcpy(own.copy[own.first % PENDING].to, own.copy[own.first % PENDING].from, 16);
}

// ---- bulk copies and arrivals

void arrival_init(struct arrival *a, int count)
{
    *a = { count, count, 0, 0 };
}

// Ends the phase if everything has arrived, and lets those look again who wait.
static void look(struct arrival *a)
{
    if (a->missing != 0)
        return;
    if (a->bytes == 0) {
        a->missing = a->count;
        a->phase ^= 1;
    }
    wake(EMULATED_ARRIVAL);
}

void arrival_expect(struct arrival *a, int bytes)
{
    if (a->missing == 0)
        die("more than the %d arrivals of a phase", a->count);
    a->missing--;
    a->bytes += bytes;
    look(a);
}

void copy_bulk(void *to, const void *from, int bytes, struct arrival *a, bool)
{
    if (((uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes) % 16 != 0 || bytes <= 0)
        die("a bulk copy of %d bytes from %p to %p: expected multiples of 16", bytes, from, to);
    if (delayed) {
        if (bulk_count == PENDING_BULK)
            die("more than %d pending bulk copies", PENDING_BULK);
        bulk[bulk_count++] = { to, from, bytes, a };
    } else {
        memcpy(to, from, (size_t)bytes);
        a->bytes -= bytes;
    }
    look(a);
}

void arrival_wait(struct arrival *a, int phase)
{
    while (a->phase == phase) {
        int kept = 0;
        for (int i = 0; i < bulk_count && a->missing == 0; i++)
            if (bulk[i].arrival == a) {
                memcpy(bulk[i].to, bulk[i].from, (size_t)bulk[i].bytes);
                a->bytes -= bulk[i].bytes;
            } else
                bulk[kept++] = bulk[i];
        bulk_count = a->missing == 0 ? kept : bulk_count;
        if (a->missing == 0 && a->bytes == 0)
            look(a);
        else
            thread_wait(g.now, EMULATED_ARRIVAL);
    }
}

} // namespace emulated_gpu
