// memory.cpp - the devices' memory, which is the heap, and copies to it and from it.
#include <stdlib.h>

#include "runtime.h"

inline namespace emulated_gpu
{

struct allocation {
    uint8_t *at;
    size_t bytes;
    int device;
    struct allocation *next;
};
static struct allocation *allocations;
static size_t used[DEVICES], limit = (size_t)4 << 30;

extern "C" void emulated_memory_limit(size_t bytes)
{
    held lock;
    limit = bytes;
}

size_t memory_limit(void)
{
    held lock;
    return limit;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    if (capture_forbids())
        return cudaErrorStreamCaptureUnsupported;
    if (bytes == 0)
        return cudaSuccess;
    held lock;
    const int device = device_now();
    if (bytes > limit || used[device] > limit - bytes || posix_memalign(p, 256, bytes) != 0)
        return note(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    allocations = new allocation{ (uint8_t *)*p, bytes, device, allocations };
    used[device] += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (capture_forbids())
        return cudaErrorStreamCaptureUnsupported;
    if (p) {
        held lock;
        struct allocation **link = &allocations;
        while (*link && (*link)->at != p)
            link = &(*link)->next;
        struct allocation *const a = *link;
        if (!a)
            return note(cudaErrorInvalidValue);
        *link = a->next;
        used[a->device] -= a->bytes;
        delete a;
        free(p);
    }
    return done();
}

// Not among the allocations: it is the host's, and LeakSanitizer misses what nobody holds.
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (posix_memalign(p, 256, bytes) != 0)
        return note(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return done();
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    if (fails())
        return cudaErrorInvalidValue;
    held lock;
    const size_t in_use = used[device_now()];
    *total = limit;
    *free = limit > in_use ? limit - in_use : 0;
    return cudaSuccess;
}

enum side { HOST, DEVICE, NEITHER }; // NEITHER: it begins in an allocation and ends outside of it

static enum side side_of(const void *p, size_t bytes)
{
    held lock;
    const uintptr_t at = (uintptr_t)p;
    for (const struct allocation *a = allocations; a; a = a->next) {
        const uintptr_t first = (uintptr_t)a->at;
        if (at >= first && at - first < a->bytes)
            return bytes <= a->bytes - (at - first) ? DEVICE : NEITHER;
    }
    return HOST;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    const cudaError_t e = stream_touch(s);
    if (e != cudaSuccess || bytes == 0)
        return e;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!to_device && !from_device)
        return note(cudaErrorInvalidMemcpyDirection);
    if (capture_forbids()) // of copies within the device's memory nobody makes graphs
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != (to_device ? DEVICE : HOST) || side_of(from, bytes) != (from_device ? DEVICE : HOST))
        return note(cudaErrorInvalidValue);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    const cudaError_t e = stream_touch(s);
    if (e != cudaSuccess || bytes == 0)
        return e;
    if (capture_forbids()) // it is not, but nobody makes graphs of it
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != DEVICE)
        return note(cudaErrorInvalidValue);
    memset(to, value, bytes);
    return cudaSuccess;
}

} // namespace emulated_gpu
