// backend_cuda.c - in `speclab_emulated` the device cuda is the emulated GPU: this stands in the place of the real one.
#include "kernels/backend.h"

struct backend *backend_emulated(int device, struct error *err); // cuda.cu, as the C++ compiler made it

struct backend *backend_cuda(int device, struct error *err)
{
    return backend_emulated(device, err);
}
