// nocuda.c - replaces the CUDA backend in builds without CUDA.
#include <stddef.h>

#include "core/error.h"
#include "kernels/backend.h"

struct backend *backend_cuda(int device, struct error *err)
{
    fail(err, "device cuda:%d: this speclab was built without CUDA; use device: cpu", device);
    return NULL;
}

struct backend *backend_cublas(int device, struct error *err)
{
    fail(err, "device cublas:%d: this speclab was built without CUDA; use device: cpu", device);
    return NULL;
}
