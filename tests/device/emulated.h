// emulated.h - the CUDA backend on a GPU that is not there: the kernels' own sources, run on the host (tests/device/emulated).
// Only where EMULATED_DEVICE is defined: the build had a C++ compiler.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct backend;
struct error;

struct backend *backend_emulated(int device, struct error *err);
struct backend *backend_emulated_cublas(int device, struct error *err);
void emulated_memory_limit(size_t bytes);    // what it has
void emulated_fail_next(int calls_from_now); // one of the next calls of the runtime fails
int64_t emulated_launches(void);             // kernels and graphs so far: a graph is one
int64_t emulated_syncs(void);                // waits for a stream so far
int64_t emulated_graphs(void);               // graphs that nobody has destroyed
void emulated_cublas_lacks(
    const char *name); // part of the library's name, or a function's, that is not there; NULL: none
void emulated_cublas_fails(int products_from_now); // one of the next products is refused
