// launch.cpp - launches: runs their blocks, or clusters of blocks, one after another.
#include <map>
#include <utility>

#include "runtime.h"

inline namespace emulated_gpu
{

// ---- blocks

// Static data, which kernels may use. AddressSanitizer detects accesses beyond the launch's size.
alignas(128) static uint8_t shared[MAX_CLUSTER][SHARED_MAX + 4096], arguments[4096];

static uint32_t random_below(uint32_t n) // good enough for shuffling
{
    g.random = g.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g.random >> 32) * n >> 32);
}

// Of eight blocks, one has its threads in reverse order, one in order, and the others shuffled.
static void block_order(int64_t number)
{
    const bool backwards = number % 8 == 0, forwards = number % 8 == 4;
    g.fifo = number % 3 == 2;
    g.lane_flip = backwards ? WARP - 1 : forwards ? 0 : (int)random_below(WARP);
    for (int w = 0; w < g.warps; w++)
        g.warp_order[w] = (uint8_t)(backwards ? g.warps - 1 - w : w);
    if (!backwards && !forwards)
        for (int w = g.warps - 1; w > 0; w--)
            std::swap(g.warp_order[w], g.warp_order[random_below((uint32_t)w + 1)]);
    if (!g.fifo) { // the last thread added is the first to run
        g.lane_flip ^= WARP - 1;
        for (int w = 0; w < g.warps / 2; w++)
            std::swap(g.warp_order[w], g.warp_order[g.warps - 1 - w]);
    }
}

static void cluster_run(int64_t number)
{
    for (int b = 0; b < g.blocks; b++) {
        g.block[b].active = g.n / g.blocks;
        memset(shared[b], 0xFF, g.shared_bytes);
    }
    g.cluster_began = false;
    block_order(number);
    copies_init(number);
    g.active = g.n;
    for (int w = 0; w < g.warps; w++) {
        const int lanes = g.n - w * WARP;
        g.warp[w].active = lanes >= WARP ? 0xFFFFFFFF : (1u << lanes) - 1;
        g.warp[w].waiting = 0;
    }
    g.front = g.end = 0;
    ready_put_all([](struct thread *) { return true; });
    threads_begin();
}

static void cluster_init(dim3 block, int blocks)
{
    g.n = (int)(block.x * block.y * block.z) * blocks;
    g.warps = (g.n + WARP - 1) / WARP;
    g.blocks = blocks;
    int t = 0;
    for (int b = 0; b < blocks; b++)
        for (unsigned z = 0; z < block.z; z++)
            for (unsigned y = 0; y < block.y; y++)
                for (unsigned x = 0; x < block.x; x++, t++)
                    g.thread[t] = { { x, y, z }, t % WARP, t / WARP, b, NULL, EMULATED_NONE };
}

// ---- launches

static std::map<std::pair<const void *, int>, size_t> shared_limits; // bytes, of a kernel and a device

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_MAX)
        return set_error(cudaErrorInvalidValue);
    lock_guard lock;
    shared_limits[{ kernel, current_device() }] = (size_t)value;
    return cudaSuccess;
}

static void launch_check(const struct emulated_work &w)
{
    const uint64_t threads = (uint64_t)w.block.x * w.block.y * w.block.z;
    if (threads == 0 || threads > MAX_BLOCK || w.block.z > 64)
        die("%s: a block of (%u, %u, %u) threads: from 1 to %d, and at most 64 in z", w.name, w.block.x, w.block.y,
            w.block.z, MAX_BLOCK);
    if (w.grid.x == 0 || w.grid.y == 0 || w.grid.z == 0 || w.grid.x > INT_MAX || w.grid.y > 65535 || w.grid.z > 65535)
        die("%s: a grid of (%u, %u, %u) blocks: at least 1 each, and at most 65535 in y and z", w.name, w.grid.x,
            w.grid.y, w.grid.z);
    if (w.cluster < 1 || w.cluster > MAX_CLUSTER || w.grid.x % (unsigned)w.cluster != 0)
        die("%s: clusters of %d blocks in a grid of %u: at most %d, and they divide it", w.name, w.cluster, w.grid.x,
            MAX_CLUSTER);
    if (w.cluster > 1 && threads % WARP != 0)
        die("%s: clusters of blocks of %d threads: warps are whole here", w.name, (int)threads);
    if (w.bytes > sizeof(arguments))
        die("%s: %zu bytes of arguments: at most %zu", w.name, w.bytes, sizeof(arguments));
    const auto found = shared_limits.find({ w.kernel, current_device() });
    const size_t limit = found != shared_limits.end() ? found->second : SHARED_DEFAULT;
    if (w.shared > limit)
        die("%s: %zu bytes of dynamic shared memory, but the limit is %zu (cudaFuncSetAttribute)", w.name, w.shared,
            limit);
}

void launch_run(const struct emulated_work &w)
{
    device_access access;
    g.kernel = w.name;
    g.body = w.body;
    g.p = memcpy(arguments, w.p, w.bytes);
    g.running = true;
    g.shared_bytes = w.shared;
    for (int b = 0; b < w.cluster; b++) {
        g.block[b].shared = shared[b];
        unpoison(shared[b], w.shared);
        poison(shared[b] + w.shared, sizeof(shared[b]) - w.shared);
    }
    cluster_init(w.block, w.cluster);
    blockDim = w.block;
    gridDim = w.grid;
    // Every second kernel runs its clusters in reverse order.
    const int64_t x = w.grid.x / (unsigned)w.cluster, clusters = x * w.grid.y * w.grid.z;
    for (int64_t i = 0; i < clusters; i++) {
        const int64_t c = g.kernels % 2 ? clusters - 1 - i : i;
        blockIdx = g.first = { (unsigned)(c % x) * (unsigned)w.cluster, (unsigned)(c / x % w.grid.y),
                               (unsigned)(c / x / w.grid.y) };
        cluster_run(g.kernels + i);
    }
    g.running = false;
    g.kernels++;
}

static int64_t launches, faulty_launch; // faulty_launch: its number; 0: none

void launch_count(void)
{
    launches++;
}

extern "C" void emulated_fault_next(int launches_from_now)
{
    lock_guard lock;
    faulty_launch = launches_from_now > 0 ? launches + launches_from_now : 0;
}

bool fault_found(void)
{
    lock_guard lock;
    const bool found = faulty_launch != 0 && launches >= faulty_launch;
    faulty_launch = found ? 0 : faulty_launch;
    return found;
}

void emulated_run(const struct emulated_work &w, cudaStream_t s)
{
    if (fails() || stream_use(s) != cudaSuccess)
        return;
    if (in_range(__builtin_frame_address(0)))
        die("%s: launched by a kernel", w.name);
    lock_guard lock;
    launch_check(w);
    if (capture_record(s, w))
        return;
    launch_count();
    launch_run(w);
}

extern "C" int64_t emulated_launches(void)
{
    lock_guard lock;
    return launches;
}

} // namespace emulated_gpu
