// stream.cu - the one stream of a device: launches and their errors, memory, copies, waits and times. Everything else
// is queued through what is here.
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

namespace DEVICE_SPACE
{

cudaError_t cuda_use_device(int device)
{
    static thread_local int used = -1;
    const cudaError_t e = used == device ? cudaSuccess : cudaSetDevice(device);
    used = e == cudaSuccess ? device : used;
    return e;
}

void cuda_note(struct cuda *c, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    cudaGetLastError(); // clears it
    if (c->failed)
        return;
    c->failed = true;
    fail(&c->err, "cuda:%d: %s: %s (%s)", c->device, what, cudaGetErrorString(e), cudaGetErrorName(e));
}

void cuda_queued(struct cuda *c, const char *kernel)
{
    c->writes++;
    if (!c->waits)
        return;
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(c->stream);
    if (e == cudaSuccess || c->fault != cudaSuccess)
        return;
    c->fault = e;
    c->faulty = kernel;
}

void cuda_launched(struct cuda *c, const char *what)
{
    char text[160];
    if (c->fault == cudaSuccess) {
        cuda_note(c, cudaGetLastError(), what);
        return;
    }
    snprintf(text, sizeof(text), "%s, %s", what, c->faulty);
    cuda_note(c, c->fault, text);
    c->fault = cudaSuccess;
}

void cuda_allow_shared(struct cuda *c, const void *kernel, size_t bytes, uint64_t *done)
{
    const uint64_t bit = (uint64_t)1 << (c->device % 64);
    if ((__atomic_load_n(done, __ATOMIC_RELAXED) & bit) != 0 && c->device < 64)
        return;
    cuda_use(c);
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cuda_note(c, e, "shared memory of a kernel");
    if (e == cudaSuccess)
        __atomic_fetch_or(done, bit, __ATOMIC_RELAXED);
}

// ---- memory

static void *cuda_alloc(struct backend *b, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    void *p = NULL;
    cuda_use(c);
    const cudaError_t e = cudaMalloc(&p, bytes != 0 ? bytes : 16);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // clears it; the caller reports it
        return NULL;
    }
    cuda_note(c, e, "memory");
    return e == cudaSuccess ? p : NULL;
}

static void give_back(struct cuda *c, void *data)
{
    if (data == NULL)
        return;
    cuda_note(c, cudaFree(data), "giving memory back"); // waits for what is queued
}

static void cuda_release(struct backend *b, void *data)
{
    struct cuda *c = (struct cuda *)b;
    c->releases += data != NULL;
    give_back(c, data);
}

static void wait(struct cuda *c, const char *what)
{
    const cudaError_t e = cudaStreamSynchronize(c->stream);
    cuda_note(c, e, what);
    if (e == cudaSuccess)
        c->ring.used = 0;
}

// Through the ring while it has space, unless a graph is being captured, which would read there at each launch.
// Otherwise from the caller's memory. If it is pageable, the driver copies the bytes before it returns, and may wait
// for the device. If it is pinned (only cuda_host_reserve's of verify.cu is), the copy may come later, and its owner
// waits for the stream before it writes there again.
static void cuda_upload(struct backend *b, void *to, const void *host, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    if (bytes <= RING - c->ring.used && !c->capturing) {
        uint8_t *at = c->ring.data + c->ring.used;
        memcpy(at, host, bytes);
        host = at;
        c->ring.used += (bytes + 15) / 16 * 16;
    }
    c->writes++;
    cuda_note(c, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, c->stream), "upload");
}

enum { PUT_THREADS = 256, PUT_WORDS = 960 };
struct words_to_put {
    uint32_t *to;
    int n;
    uint32_t word[PUT_WORDS];
};
static_assert(sizeof(struct words_to_put) < 4096, "limit of kernel parameters");

static __global__ void put_kernel(const __grid_constant__ struct words_to_put s)
{
    kernel_prologue();
    for (int i = (int)threadIdx.x; i < s.n; i += PUT_THREADS)
        s.to[i] = s.word[i];
}

void cuda_put(struct cuda *c, void *to, const void *host, size_t bytes)
{
    struct words_to_put s;
    assert(bytes % sizeof(*s.word) == 0);
    if (bytes > sizeof(s.word) || c->capturing) {
        cuda_upload(&c->backend, to, host, bytes);
        return;
    }
    s.to = (uint32_t *)to;
    s.n = (int)(bytes / sizeof(*s.word));
    memcpy(s.word, host, bytes);
    QUEUE(c, put_kernel, 1, PUT_THREADS, 0, s);
    cuda_launched(c, "upload");
}

static void cuda_download(struct backend *b, void *host, const void *from, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    cuda_note(c, cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, c->stream), "download");
    wait(c, "download");
}

static void *cuda_host(struct backend *b, void *data)
{
    (void)b, (void)data;
    return NULL;
}

static bool cuda_sync(struct backend *b, struct error *err)
{
    struct cuda *c = (struct cuda *)b;
    wait(c, "waiting for the device");
    if (!c->failed)
        return true;
    c->failed = false;
    *err = c->err;
    return false;
}

// Others may also have made another device the thread's.
static int cuda_sync_all(struct backend *b, struct error *err)
{
    struct cuda *c = (struct cuda *)b;
    cuda_note(c, cudaSetDevice(c->device), "choosing the device");
    cuda_note(c, cudaDeviceSynchronize(), "waiting for the device");
    return cuda_sync(b, err) ? c->device : -1;
}

static void cuda_stamp(struct backend *b, int number)
{
    struct cuda *c = (struct cuda *)b;
    assert(number >= 0 && number < MAX_STAMPS);
    cuda_note(c, cudaEventRecord(c->stamp[number], c->stream), "recording the time");
}

static int64_t cuda_between(struct backend *b, int from, int to)
{
    struct cuda *c = (struct cuda *)b;
    float ms = 0;
    cuda_note(c, cudaEventElapsedTime(&ms, c->stamp[from], c->stamp[to]), "reading the time");
    return (int64_t)((double)ms * 1e6);
}

static bool cuda_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    const cudaError_t e = cudaMemGetInfo(free_bytes, all);
    cuda_note(c, e, "reading the free memory");
    return e == cudaSuccess;
}

// Workspaces that graphs read are enlarged by half, so that it happens rarely, or at least to what is needed.
void *cuda_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what)
{
    if (bytes <= s->bytes)
        return s->data;
    const size_t more = s->apart ? 0 : s->bytes + s->bytes / 2;
    give_back(c, s->data); // waits for queued operations that use it
    c->releases += s->data != NULL && !s->apart;
    s->bytes = 0;
    s->data = NULL;
    if (more > bytes && (s->data = cuda_alloc(&c->backend, more)) != NULL)
        bytes = more;
    if (s->data == NULL)
        s->data = cuda_alloc(&c->backend, bytes);
    if (s->data == NULL) {
        cuda_note(c, cudaErrorMemoryAllocation, what);
        return NULL;
    }
    s->bytes = bytes;
    return s->data;
}

void *cuda_host_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what)
{
    if (bytes <= s->bytes)
        return s->data;
    cuda_use(c);
    cuda_note(c, cudaFreeHost(s->data), what); // no copy is in progress
    s->bytes = 0;
    s->data = NULL;
    const cudaError_t e = cudaMallocHost(&s->data, bytes);
    cuda_note(c, e, what);
    s->bytes = e == cudaSuccess ? bytes : 0;
    return e == cudaSuccess ? s->data : NULL;
}

void stream_operations(struct backend *b)
{
    b->alloc = cuda_alloc;
    b->release = cuda_release;
    b->upload = cuda_upload;
    b->download = cuda_download;
    b->host = cuda_host;
    b->sync = cuda_sync;
    b->sync_all = cuda_sync_all;
    b->stamp = cuda_stamp;
    b->between = cuda_between;
    b->memory = cuda_memory;
}

} // namespace DEVICE_SPACE
