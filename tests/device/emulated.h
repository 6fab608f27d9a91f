// emulated.h - the CUDA backend on an emulated GPU: the kernels' own sources, compiled for the host (tests/device/emulated). If the
// build had no C++ compiler, EMULATED_DEVICE is not defined, and EMULATED_HERE is 0: nothing of this is called.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct backend;
struct error;

#if defined(EMULATED_DEVICE)
enum { EMULATED_HERE = 1 };
struct backend *backend_emulated(int device, struct error *err);
struct backend *backend_emulated_cublas(int device, struct error *err);
void emulated_memory_limit(size_t bytes);        // of device memory
void emulated_fail_next(int calls_from_now);     // the n-th next call of the runtime fails; 0: none
void emulated_fault_next(int launches_from_now); // the n-th next launch fails after it was queued; 0: none
int64_t emulated_launches(void);                 // kernels and graphs so far: a graph is one
int64_t emulated_uploads(void);                  // copies from the host so far
int64_t emulated_syncs(void);                    // waits for a stream so far
void emulated_processors(int n);                 // multiprocessors of devices that are opened from now on
void emulated_shared_limit(size_t bytes);        // shared memory of a block of these
int64_t emulated_graphs(void);                   // graphs that exist
// Part of the name of the library or of a function that cannot be loaded; NULL: none.
void emulated_cublas_lacks(const char *name);
void emulated_cublas_fails(int products_from_now); // the n-th next product fails
#else
enum { EMULATED_HERE = 0 };
#define backend_emulated(device, err) ((void)(device), (void)(err), (struct backend *)NULL)
#define backend_emulated_cublas(device, err) backend_emulated(device, err)
#define emulated_memory_limit(bytes) (void)(bytes)
#define emulated_fail_next(calls) (void)(calls)
#define emulated_fault_next(launches) (void)(launches)
#define emulated_launches() ((int64_t)0)
#define emulated_uploads() ((int64_t)0)
#define emulated_syncs() ((int64_t)0)
#define emulated_processors(n) (void)(n)
#define emulated_shared_limit(bytes) (void)(bytes)
#define emulated_graphs() ((int64_t)0)
#define emulated_cublas_lacks(name) (void)(name)
#define emulated_cublas_fails(products) (void)(products)
#endif
