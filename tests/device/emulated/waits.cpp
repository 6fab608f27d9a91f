// waits.cpp - operations in which threads wait: the barriers of a block and of a cluster, and exchanges within a warp.
#include "gpu.h"

inline namespace emulated_gpu
{

static struct thread *caller(enum emulated_wait what)
{
    if (!g.now)
        die("%s outside of a kernel", wait_name(what));
    return g.now;
}

// ---- barriers

static void barrier_open(int block)
{
    g.block[block].at_barrier = 0;
    wake(EMULATED_BARRIER, block);
}

void emulated_barrier(void)
{
    struct thread *t = caller(EMULATED_BARRIER);
    if (++g.block[t->block].at_barrier == g.block[t->block].active)
        barrier_open(t->block);
    else
        thread_wait(t, EMULATED_BARRIER);
}

static void cluster_barrier_open(void)
{
    g.at_cluster_barrier = 0;
    g.cluster_began = true;
    wake(EMULATED_CLUSTER_BARRIER);
}

void cluster_barrier(void)
{
    struct thread *t = caller(EMULATED_CLUSTER_BARRIER);
    if (++g.at_cluster_barrier == g.active)
        cluster_barrier_open();
    else
        thread_wait(t, EMULATED_CLUSTER_BARRIER);
}

int block_in_cluster(void)
{
    return g.now->block;
}

int blocks_in_cluster(void)
{
    return g.blocks;
}

void *emulated_in_block(void *shared, int block)
{
    const size_t at = (size_t)((uint8_t *)shared - emulated_shared);
    if (at >= g.shared_bytes || block < 0 || block >= g.blocks)
        die("address %zu in the dynamic shared memory of block %d of a cluster: it has %zu bytes and %d blocks", at,
            block, g.shared_bytes, g.blocks);
    if (block != g.now->block && (!g.cluster_began || g.block[block].active == 0))
        die("the shared memory of block %d of a cluster, which may not have begun, or has ended", block);
    return g.block[block].shared + at;
}

// ---- exchanges

int emulated_source(enum emulated_wait what, int argument, int width)
{
    if (width < 1 || width > WARP || (width & (width - 1)))
        die("%s with a width of %d", wait_name(what), width);
    const int lane = emulated_lane, first = lane & ~(width - 1), last = first + width - 1;
    if (what == EMULATED_SHUFFLE)
        return first | (argument & (width - 1));
    const int from = lane ^ (argument & (WARP - 1));
    return from > last ? lane : from;
}

static void exchange_answer(struct warp *w, enum emulated_wait what, unsigned lanes)
{
    unsigned votes = 0;
    uint64_t answer = 0;
    switch (what) {
    case EMULATED_SYNC:
        return;
    case EMULATED_MMA:
        if (lanes != 0xFFFFFFFF)
            die("mma with lanes %08x only: it needs all 32", lanes);
        warp_mma(w);
        return;
    case EMULATED_TREE:
        if (lanes != 0xFFFFFFFF)
            die("warp_tree with lanes %08x only: it needs all 32", lanes);
        warp_combine(w);
        return;
    case EMULATED_MATRICES:
        if (lanes != 0xFFFFFFFF)
            die("ldmatrix with lanes %08x only: it needs all 32", lanes);
        warp_load_matrices(w);
        return;
    case EMULATED_BALLOT:
    case EMULATED_ANY:
        for (unsigned l = lanes; l; l &= l - 1)
            votes |= (unsigned)w->x[__builtin_ctz(l)] << __builtin_ctz(l);
        answer = what == EMULATED_BALLOT ? votes : votes != 0;
        for (unsigned l = lanes; l; l &= l - 1)
            w->answer[__builtin_ctz(l)] = answer;
        return;
    default:
        for (unsigned l = lanes; l; l &= l - 1) {
            const int lane = __builtin_ctz(l), source = w->source[lane];
            w->answer[lane] = lanes >> source & 1 ? w->x[source] : UINT64_MAX; // inactive lane: a NaN, or -1
        }
        return;
    }
}

// If all active lanes of this mask wait with it, computes their answers and makes all but `self` ready.
static bool exchange_complete(struct warp *w, unsigned mask, struct thread *self)
{
    const unsigned lanes = mask & w->active;
    if ((w->waiting & lanes) != lanes)
        return false;
    const int one = __builtin_ctz(lanes);
    for (unsigned l = lanes; l; l &= l - 1) {
        const int lane = __builtin_ctz(l);
        if (w->mask[lane] != mask)
            return false; // may reach this exchange later
        if (w->what[lane] != w->what[one])
            die("warp %d, mask %08x: lane %d waits in %s, lane %d in %s", (int)(w - g.warp), mask, one,
                wait_name(w->what[one]), lane, wait_name(w->what[lane]));
    }
    exchange_answer(w, w->what[one], lanes);
    w->waiting &= ~lanes;
    struct thread *const first = &g.thread[(w - g.warp) * WARP];
    for (int i = 0; i < WARP; i++) {
        struct thread *t = first + (i ^ g.lane_flip);
        if (!(lanes >> (i ^ g.lane_flip) & 1))
            continue;
        t->waits = EMULATED_NONE;
        if (t != self)
            ready_put((int)(t - g.thread));
    }
    return true;
}

uint64_t emulated_exchange(enum emulated_wait what, unsigned mask, uint64_t x, int source)
{
    struct thread *t = caller(what);
    const int lane = t->lane;
    struct warp *w = &g.warp[t->warp];
    if (!(mask >> lane & 1))
        die("lane %d of warp %d calls %s with mask %08x, which does not contain it", lane, t->warp, wait_name(what),
            mask);
    w->waiting |= 1u << lane;
    w->mask[lane] = mask;
    w->what[lane] = what;
    w->x[lane] = x;
    w->source[lane] = source;
    if (!exchange_complete(w, mask, t))
        thread_wait(t, what);
    return w->answer[lane];
}

void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const struct mma m = { d, a, { b0, b1 } };
    emulated_exchange(EMULATED_MMA, 0xFFFFFFFF, (uintptr_t)&m, 0);
}

void emulated_tree(void *number, void (*combine)(void *const numbers[WARP]))
{
    const struct tree t = { number, combine };
    emulated_exchange(EMULATED_TREE, 0xFFFFFFFF, (uintptr_t)&t, 0);
}

void emulated_load_matrices(uint32_t to[4], const uint16_t *row, bool transposed)
{
    const struct matrices m = { to, row, transposed };
    emulated_exchange(EMULATED_MATRICES, 0xFFFFFFFF, (uintptr_t)&m, 0);
}

void thread_ended(struct thread *t)
{
    struct warp *w = &g.warp[t->warp];
    w->active &= ~(1u << t->lane);
    g.active--;
    const int active = --g.block[t->block].active, waiting = g.block[t->block].at_barrier;
    if (waiting && waiting == active)
        barrier_open(t->block);
    if (g.at_cluster_barrier && g.at_cluster_barrier == g.active)
        cluster_barrier_open();
    for (unsigned l = w->waiting; l; l &= l - 1) {
        const int lane = __builtin_ctz(l);
        if ((w->waiting >> lane & 1) && (w->mask[lane] >> t->lane & 1))
            exchange_complete(w, w->mask[lane], NULL);
    }
}

} // namespace emulated_gpu
