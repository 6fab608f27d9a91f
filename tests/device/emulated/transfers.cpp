// transfers.cpp - pinned memory, copies and fills.
//
// Copies are made at once. Pinned memory that was uploaded must nonetheless stay unchanged until the host has waited, since a
// GPU may read it as late as then.
#include <stdlib.h>
#include <vector>

#include "runtime.h"

inline namespace emulated_gpu
{

struct pinned {       // does not store the address itself, so that LeakSanitizer still finds leaks
    uintptr_t before; // address minus one
    size_t bytes;
    bool contains(const void *p) const
    {
        return (uintptr_t)p > before && (uintptr_t)p - before <= bytes;
    }
};
static std::vector<struct pinned> all_pinned;

struct upload { // that may still be pending
    const uint8_t *from;
    std::vector<uint8_t> copy;
    cudaStream_t stream;
};
static std::vector<struct upload> uploads;

static bool is_pinned(const void *p)
{
    for (const auto &k : all_pinned)
        if (k.contains(p))
            return true;
    return false;
}

void uploads_finish(cudaStream_t s)
{
    std::erase_if(uploads, [=](const struct upload &u) {
        if (s ? u.stream != s : u.stream && u.stream->device != current_device())
            return false;
        if (memcmp(u.from, u.copy.data(), u.copy.size()) != 0)
            die("pinned memory was written to while the upload of its %zu bytes may be pending", u.copy.size());
        return true;
    });
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
    all_pinned.push_back({ (uintptr_t)*p - 1, bytes });
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    {
        lock_guard lock;
        std::erase_if(all_pinned, [=](const struct pinned &k) {
            if (k.before != (uintptr_t)p - 1)
                return false;
            for (const auto &u : uploads)
                if (k.contains(u.from))
                    die("pinned memory is freed while the upload of its %zu bytes may be pending", u.copy.size());
            return true;
        });
    }
    free(p);
    return finish_call();
}

static int64_t upload_count;

extern "C" int64_t emulated_uploads(void)
{
    lock_guard lock;
    return upload_count;
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
    lock_guard lock;
    if (s && s->capturing && !from_device && is_pinned(from))
        die("a graph captures an upload from pinned memory");
    if (capture_invalidate()) // graphs of copies within the device are not used here
        return cudaErrorStreamCaptureUnsupported;
    if (side_of(to, bytes) != (to_device ? DEVICE : HOST) || side_of(from, bytes) != (from_device ? DEVICE : HOST))
        return set_error(cudaErrorInvalidValue);
    device_access access;
    memcpy(to, from, bytes);
    upload_count += !from_device;
    const uint8_t *const begin = (const uint8_t *)from;
    if (!from_device && is_pinned(from))
        uploads.push_back({ begin, std::vector<uint8_t>(begin, begin + bytes), s });
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
    lock_guard lock;
    if (side_of(to, bytes) != DEVICE)
        return set_error(cudaErrorInvalidValue);
    device_access access;
    memset(to, value, bytes);
    return cudaSuccess;
}

} // namespace emulated_gpu
