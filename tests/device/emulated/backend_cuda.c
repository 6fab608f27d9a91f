// backend_cuda.c - in `speclab_emulated` the devices cuda and cublas are the emulated GPUs: replaces the real backends.
#include "kernels/backend.h"

struct backend *backend_emulated(int device, struct error *err); // cuda.cu, compiled as C++
struct backend *backend_emulated_cublas(int device, struct error *err);

struct backend *backend_cuda(int device, struct error *err)
{
    return backend_emulated(device, err);
}

struct backend *backend_cublas(int device, struct error *err)
{
    return backend_emulated_cublas(device, err);
}
