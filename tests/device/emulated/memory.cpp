// memory.cpp - the devices' memory, which is the heap, pinned memory, and copies from one to another.
//
// Copies are made at once. What lies in pinned memory and was to be uploaded must nonetheless stay as it is until the host
// has waited: a GPU may read it then only.
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
        uploads_end(NULL); // it waits for the device
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

// ---- pinned memory

struct pinned {       // not held by its address: LeakSanitizer is to miss what nobody else holds
    uintptr_t before; // one byte before it
    size_t bytes;
    struct pinned *next;
};
static struct pinned *all_pinned;

struct upload { // that may be under way
    const uint8_t *from;
    uint8_t *was;
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

static void upload_begins(const void *from, size_t bytes, cudaStream_t s)
{
    held lock;
    if (!is_pinned(from))
        return;
    uint8_t *was = (uint8_t *)malloc(bytes);
    if (!was)
        die("no memory for %zu bytes of pinned memory once more", bytes);
    memcpy(was, from, bytes);
    uploads = new upload{ (const uint8_t *)from, was, bytes, s, uploads };
}

void uploads_end(cudaStream_t s)
{
    struct upload **link = &uploads;
    while (*link) {
        struct upload *const u = *link;
        if (s ? u->stream != s : u->stream && u->stream->device != device_now()) {
            link = &u->next;
            continue;
        }
        if (memcmp(u->from, u->was, u->bytes) != 0)
            die("pinned memory was written to while its %zu bytes may not yet have been uploaded", u->bytes);
        *link = u->next;
        free(u->was);
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
        return note(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    held lock;
    all_pinned = new pinned{ (uintptr_t)*p - 1, bytes, all_pinned };
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    {
        held lock;
        struct pinned **link = &all_pinned;
        while (p && *link && (*link)->before != (uintptr_t)p - 1)
            link = &(*link)->next;
        if (struct pinned *const k = p ? *link : NULL) {
            for (const struct upload *u = uploads; u; u = u->next)
                if ((uintptr_t)u->from > k->before && (uintptr_t)u->from - k->before <= k->bytes)
                    die("pinned memory is given back while its %zu bytes may not yet have been uploaded", u->bytes);
            *link = k->next;
            delete k;
        }
    }
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
    if (s && s->capturing && !from_device && is_pinned(from))
        die("a graph is made that uploads what pinned memory holds whenever it is launched");
    if (capture_forbids()) // of copies within the device's memory nobody makes graphs
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != (to_device ? DEVICE : HOST) || side_of(from, bytes) != (from_device ? DEVICE : HOST))
        return note(cudaErrorInvalidValue);
    memcpy(to, from, bytes);
    if (!from_device)
        upload_begins(from, bytes, s);
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
