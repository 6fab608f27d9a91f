// runtime.h - shared by the runtime's calls and launches: one lock, and simulated failures.
#pragma once
#include <mutex>

#include "gpu.h"

#if defined(ASAN) // defined by CMakeLists.txt, also for files that are not checked themselves
#include <sanitizer/asan_interface.h>
#endif

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

extern std::mutex runtime_lock;
struct lock_guard : std::lock_guard<std::mutex> { // holds the lock during its lifetime
    lock_guard() : std::lock_guard<std::mutex>(runtime_lock)
    {
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

// ---- addresses.cpp

inline void poison(void *p, size_t bytes)
{
#if defined(ASAN)
    __asan_poison_memory_region(p, bytes);
#endif
}
inline void unpoison(void *p, size_t bytes)
{
#if defined(ASAN)
    __asan_unpoison_memory_region(p, bytes);
#endif
}
enum : size_t { STACKS_BYTES = (size_t)4 << 30, DEVICE_BYTES = (size_t)1 << 40 };
uint8_t *stacks_bottom(void);            // of all stacks
uint8_t *stack_take(size_t bytes);       // the bottom of a new one
uint8_t *device_memory(int device);      // the first address
bool device_map(int device, size_t end); // memory up to this offset will be used, at first poisoned; false: too much
bool in_range(const void *p);            // the stacks, or memory of a device
struct device_access { // makes the current device's memory accessible during its lifetime; the lock is held
    int device;
    device_access();
    ~device_access();
};

// ---- memory.cpp

enum side { HOST, DEVICE, NEITHER };            // DEVICE: all bytes are in one allocation of the current device
enum side side_of(const void *p, size_t bytes); // the lock is held

// ---- transfers.cpp

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
