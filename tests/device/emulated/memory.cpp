// memory.cpp - device memory: allocation, and what each pointer is. What is freed is not allocated again until another 64 MB are freed.
#include <deque>
#include <map>

#include "runtime.h"

inline namespace emulated_gpu
{

enum : size_t { ALIGNMENT = 256, GAP = 4096, QUARANTINE = 64 << 20 };

struct allocation {
    size_t bytes;
    bool is_freed;
};
static struct {
    std::map<uint8_t *, struct allocation> allocations;
    std::deque<uint8_t *> freed; // oldest first
    size_t used, freed_bytes;
} memory[DEVICES];
static size_t limit = (size_t)4 << 30;

extern "C" void emulated_memory_limit(size_t bytes)
{
    lock_guard lock;
    limit = bytes;
}

size_t memory_limit(void)
{
    lock_guard lock;
    return limit;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    if (capture_invalidate())
        return cudaErrorStreamCaptureUnsupported;
    if (bytes == 0)
        return cudaSuccess;
    lock_guard lock;
    const int device = current_device();
    auto &m = memory[device];
    uint8_t *const first = device_memory(device), *at = first + GAP; // the first gap that is large enough
    for (const auto &[begin, a] : m.allocations) {
        if (begin >= at + bytes + GAP)
            break;
        at = begin + (a.bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (bytes > limit || m.used > limit - bytes || !device_map(device, (size_t)(at - first) + bytes + GAP))
        return set_error(cudaErrorMemoryAllocation);
    m.allocations[at] = { bytes, false };
    m.used += bytes;
    device_access access;
    unpoison(at, bytes);
    *p = memset(at, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (capture_invalidate())
        return cudaErrorStreamCaptureUnsupported;
    if (p) {
        lock_guard lock;
        uploads_finish(NULL); // cudaFree waits for the device
        auto &m = memory[p >= device_memory(1)];
        const auto found = m.allocations.find((uint8_t *)p);
        if (found == m.allocations.end() || found->second.is_freed)
            return set_error(cudaErrorInvalidValue);
        const size_t bytes = found->second.bytes;
        found->second.is_freed = true;
        m.used -= bytes;
        m.freed_bytes += bytes;
        m.freed.push_back((uint8_t *)p);
        poison(p, bytes);
        for (; m.freed_bytes > QUARANTINE; m.freed.pop_front()) {
            const auto oldest = m.allocations.find(m.freed.front());
            m.freed_bytes -= oldest->second.bytes;
            m.allocations.erase(oldest);
        }
    }
    return finish_call();
}

enum side side_of(const void *p, size_t bytes)
{
    if (!in_range(p))
        return HOST;
    const auto &allocations = memory[current_device()].allocations;
    auto b = allocations.upper_bound((uint8_t *)p);
    if (b == allocations.begin() || (--b)->second.is_freed)
        return NEITHER;
    const size_t offset = (size_t)((uint8_t *)p - b->first);
    return offset < b->second.bytes && bytes <= b->second.bytes - offset ? DEVICE : NEITHER;
}

// Memory that nobody freed is an error, as for AddressSanitizer on the heap.
__attribute__((destructor)) static void check_freed(void)
{
    for (const auto &m : memory)
        if (m.used > 0)
            die("%zu bytes of device memory were not freed", m.used);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    if (fails())
        return cudaErrorInvalidValue;
    lock_guard lock;
    const size_t used = memory[current_device()].used;
    *total = limit;
    *free = limit > used ? limit - used : 0;
    return cudaSuccess;
}

} // namespace emulated_gpu
