// device.cpp - errors, devices, streams and events of the runtime.
#include <stdio.h>
#include <time.h>

#include "runtime.h"

struct emulated_gpu::emulated_event {
    int device;
    double recorded;     // ms; 0: never
    cudaStream_t stream; // that it was recorded on
    int64_t operation;   // its number in the stream
};

inline namespace emulated_gpu
{

// ---- errors

std::mutex runtime_lock;
static int fail_in;
static thread_local cudaError_t last;

cudaError_t set_error(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e;
    return e;
}

bool fails(void)
{
    lock_guard lock;
    if (fail_in <= 0 || --fail_in != 0)
        return false;
    last = cudaErrorInvalidValue;
    return true;
}

cudaError_t finish_call(void)
{
    return fails() ? cudaErrorInvalidValue : cudaSuccess;
}

extern "C" void emulated_fail_next(int calls_from_now)
{
    lock_guard lock;
    fail_in = calls_from_now;
}

#define NAME(name, value, text) \
    case name: \
        return #name;
#define TEXT(name, value, text) \
    case name: \
        return text;

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
        EMULATED_ERRORS(NAME)
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
        EMULATED_ERRORS(TEXT)
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    fails();
    const cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

// ---- devices

static thread_local int device;
static int processors = 4;
static size_t shared_limit = SHARED_MAX;

extern "C" void emulated_processors(int n)
{
    processors = n;
}

extern "C" void emulated_shared_limit(size_t bytes)
{
    shared_limit = bytes;
}

int current_device(void)
{
    return device;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (fails())
        return cudaErrorInvalidValue;
    *count = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int to)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (to < 0 || to >= DEVICES)
        return set_error(cudaErrorInvalidDevice);
    device = to;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int of)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (of < 0 || of >= DEVICES)
        return set_error(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof(p->name), "emulated GPU");
    p->totalGlobalMem = memory_limit();
    p->sharedMemPerBlock = SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = shared_limit;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 1 << 16;
    p->warpSize = WARP;
    p->maxThreadsPerBlock = MAX_BLOCK;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->major = 9;
    p->multiProcessorCount = processors;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

// ---- streams

cudaError_t stream_use(cudaStream_t s)
{
    if (!s)
        return cudaSuccess;
    s->operations++;
    return s->device == device ? cudaSuccess : set_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    if (fails())
        return cudaErrorInvalidValue;
    *s = new emulated_stream{ device, 0, 0, NULL, false };
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return finish_call();
}

static int64_t syncs;

extern "C" int64_t emulated_syncs(void)
{
    lock_guard lock;
    return syncs;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return fault_found() ? set_error(cudaErrorIllegalAddress) : finish_call();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    {
        lock_guard lock;
        syncs++;
        if (s && !s->capturing)
            uploads_finish(s);
    }
    if (s)
        s->waited_for = ++s->operations; // allowed from any device
    if (fault_found())
        return set_error(cudaErrorIllegalAddress);
    return s && s->capturing && capture_invalidate() ? cudaErrorStreamCaptureUnsupported : finish_call();
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    if (fails())
        return cudaErrorInvalidValue;
    *e = new emulated_event{ device, 0, nullptr, 0 };
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return finish_call();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    const int of = s ? s->device : device;
    if (e->device != of)
        return set_error(cudaErrorInvalidResourceHandle);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->recorded = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    e->stream = s;
    e->operation = s ? ++s->operations : 0;
    return cudaSuccess;
}

// Whether the event may still be pending, since the host has not waited for the stream after it.
static bool is_pending(cudaEvent_t e)
{
    return e->stream && e->operation > e->stream->waited_for;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (from->recorded == 0 || to->recorded == 0)
        return set_error(cudaErrorInvalidResourceHandle);
    if (is_pending(from) || is_pending(to))
        return cudaErrorNotReady;
    *ms = (float)(to->recorded - from->recorded);
    return cudaSuccess;
}

} // namespace emulated_gpu
