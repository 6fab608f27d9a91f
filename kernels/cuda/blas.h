// blas.h - products by cuBLAS in place of our own (blas.cu): a backend to compare with, whose rows do not have the same
// bits for every n. For .cu files alone.
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

// Loads cuBLAS and turns c into such a backend, which is otherwise complete. false: err says what is missing; nothing
// is left behind, and c is as it was.
bool blas_open(struct cuda *c, struct error *err);
void blas_close(struct cuda *c); // before its stream; nothing to do where there is none

} // namespace DEVICE_SPACE
