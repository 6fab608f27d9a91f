// runtime.h - shared by the runtime's calls and launches: one lock, and simulated failures.
#pragma once
#include <pthread.h>

#include "gpu.h"

struct emulated_gpu::emulated_stream {
    int device;
    int64_t operations;               // written by each operation, so that ASan detects use of a destroyed stream
    int64_t waited_for;               // operations that the host has waited for
    struct emulated_graph *capturing; // NULL: not capturing
    bool invalidated;                 // the capture contains a forbidden call
};

inline namespace emulated_gpu
{

enum { DEVICES = 2 };
enum { SHARED_DEFAULT = 48 << 10, SHARED_MAX = 227 << 10 }; // bytes

struct lock_guard { // holds the lock during its lifetime
    static pthread_mutex_t lock;
    lock_guard()
    {
        pthread_mutex_lock(&lock);
    }
    ~lock_guard()
    {
        pthread_mutex_unlock(&lock);
    }
};

// Whether this call is the one that shall fail; every call checks it first.
bool fails(void);
cudaError_t set_error(cudaError_t e); // for cudaGetLastError
cudaError_t finish_call(void);        // at the end of a call
// Counts an operation on a stream; an error if the current device is not the stream's.
cudaError_t stream_use(cudaStream_t s);
int current_device(void);
size_t memory_limit(void);

// ---- memory.cpp

// The host has waited for a stream, or for all of the device (NULL). Checks that pinned memory is unchanged. The lock is held.
void uploads_finish(cudaStream_t s);

// ---- launch.cpp

void launch_run(const struct emulated_work &w); // the lock is held
void launch_count(void);                        // likewise: counts a launch by the host
bool fault_found(void);                         // whether a launch has failed since the last call

// ---- graphs.cpp

// Returns whether the stream is capturing; the launch is then recorded, or an error is set.
bool capture_record(cudaStream_t s, const struct emulated_work &w);
// Returns whether this thread is capturing; the capture is then invalidated and an error is set.
bool capture_invalidate(void);

} // namespace emulated_gpu
