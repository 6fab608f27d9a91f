// memory.cpp - device memory (on the heap), pinned memory, and copies.
//
// Copies are made at once. Pinned memory that was uploaded must nonetheless stay unchanged until the host has waited, since a
// GPU may read it as late as then.
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
    if (bytes > limit || used[device] > limit - bytes || posix_memalign(p, 256, bytes) != 0)
        return set_error(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    allocations = new allocation{ (uint8_t *)*p, bytes, device, allocations };
    used[device] += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (capture_invalidate())
        return cudaErrorStreamCaptureUnsupported;
    if (p) {
        lock_guard lock;
        uploads_finish(NULL); // cudaFree waits for the device
        struct allocation **link = &allocations;
        while (*link && (*link)->at != p)
            link = &(*link)->next;
        struct allocation *const a = *link;
        if (!a)
            return set_error(cudaErrorInvalidValue);
        *link = a->next;
        used[a->device] -= a->bytes;
        delete a;
        free(p);
    }
    return finish_call();
}

// ---- pinned memory

struct pinned {       // does not store the address itself, so that LeakSanitizer still finds leaks
    uintptr_t before; // address minus one
    size_t bytes;
    struct pinned *next;
};
static struct pinned *all_pinned;

struct upload { // that may still be pending
    const uint8_t *from;
    uint8_t *copy;
    size_t bytes;
    cudaStream_t stream;
    struct upload *next;
};
static struct upload *uploads;

static bool is_pinned(const void *p)
{
    const uintptr_t at = (uintptr_t)p;
    for (const struct pinned *k = all_pinned; k; k = k->next)
        if (at > k->before && at - k->before <= k->bytes)
            return true;
    return false;
}

static void upload_start(const void *from, size_t bytes, cudaStream_t s)
{
    lock_guard lock;
    if (!is_pinned(from))
        return;
    uint8_t *copy = (uint8_t *)malloc(bytes);
    if (!copy)
        die("no memory for a copy of %zu bytes of pinned memory", bytes);
    memcpy(copy, from, bytes);
    uploads = new upload{ (const uint8_t *)from, copy, bytes, s, uploads };
}

void uploads_finish(cudaStream_t s)
{
    struct upload **link = &uploads;
    while (*link) {
        struct upload *const u = *link;
        if (s ? u->stream != s : u->stream && u->stream->device != current_device()) {
            link = &u->next;
            continue;
        }
        if (memcmp(u->from, u->copy, u->bytes) != 0)
            die("pinned memory was written to while the upload of its %zu bytes may be pending", u->bytes);
        *link = u->next;
        free(u->copy);
        delete u;
    }
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (posix_memalign(p, 256, bytes) != 0)
        return set_error(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    lock_guard lock;
    all_pinned = new pinned{ (uintptr_t)*p - 1, bytes, all_pinned };
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    {
        lock_guard lock;
        struct pinned **link = &all_pinned;
        while (p && *link && (*link)->before != (uintptr_t)p - 1)
            link = &(*link)->next;
        if (struct pinned *const k = p ? *link : NULL) {
            for (const struct upload *u = uploads; u; u = u->next)
                if ((uintptr_t)u->from > k->before && (uintptr_t)u->from - k->before <= k->bytes)
                    die("pinned memory is freed while the upload of its %zu bytes may be pending", u->bytes);
            *link = k->next;
            delete k;
        }
    }
    free(p);
    return finish_call();
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    if (fails())
        return cudaErrorInvalidValue;
    lock_guard lock;
    const size_t in_use = used[current_device()];
    *total = limit;
    *free = limit > in_use ? limit - in_use : 0;
    return cudaSuccess;
}

enum side { HOST, DEVICE, NEITHER }; // NEITHER: begins in an allocation and ends beyond it

static enum side side_of(const void *p, size_t bytes)
{
    lock_guard lock;
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
    const cudaError_t e = stream_use(s);
    if (e != cudaSuccess || bytes == 0)
        return e;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!to_device && !from_device)
        return set_error(cudaErrorInvalidMemcpyDirection);
    if (s && s->capturing && !from_device && is_pinned(from))
        die("a graph captures an upload from pinned memory");
    if (capture_invalidate()) // graphs of copies within the device are not used here
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != (to_device ? DEVICE : HOST) || side_of(from, bytes) != (from_device ? DEVICE : HOST))
        return set_error(cudaErrorInvalidValue);
    memcpy(to, from, bytes);
    if (!from_device)
        upload_start(from, bytes, s);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    const cudaError_t e = stream_use(s);
    if (e != cudaSuccess || bytes == 0)
        return e;
    if (capture_invalidate()) // CUDA allows it; graphs of it are not used here
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != DEVICE)
        return set_error(cudaErrorInvalidValue);
    memset(to, value, bytes);
    return cudaSuccess;
}

} // namespace emulated_gpu
