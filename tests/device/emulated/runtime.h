// runtime.h - what the runtime's calls share, launches among them: one lock, and how they fail.
#pragma once
#include <pthread.h>

#include "gpu.h"

struct emulated_gpu::emulated_stream {
    int device;
    int64_t operations;               // touched by each, so that one on a stream that was destroyed is found
    int64_t waited_for;               // of them: all that the host may know to be done
    struct emulated_graph *capturing; // NULL: it does not
    bool spoilt;                      // what was forbidden was done
};

inline namespace emulated_gpu
{

enum { DEVICES = 2 };
enum { SHARED_DEFAULT = 48 << 10, SHARED_MOST = 227 << 10 }; // bytes

struct held { // the lock, as long as there is one of these
    static pthread_mutex_t lock;
    held()
    {
        pthread_mutex_lock(&lock);
    }
    ~held()
    {
        pthread_mutex_unlock(&lock);
    }
};

// Every call asks first whether it is the one that is to fail.
bool fails(void);
cudaError_t note(cudaError_t e); // for cudaGetLastError
cudaError_t done(void);          // of a call that has nothing more to do
// What is queued on a stream, from the device that cudaSetDevice named: that has to be the stream's own.
cudaError_t stream_touch(cudaStream_t s);
int device_now(void);
size_t memory_limit(void);

// ---- memory.cpp

// The host has waited for a stream, or, NULL, for all of the device; the lock is held. What was in pinned memory must be there still.
void uploads_end(cudaStream_t s);

// ---- launch.cpp

void launch_run(const struct emulated_work &w); // the lock is held
void launch_count(void);                        // so too: the host has launched something

// ---- graphs.cpp

// Whether the stream captures; then this was written down, or cannot be.
bool capture_takes(cudaStream_t s, const struct emulated_work &w);
// Whether this thread captures, so that what it is about to do is forbidden; that is noted.
bool capture_forbids(void);

} // namespace emulated_gpu
