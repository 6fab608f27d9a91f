// cublas.h - products by cuBLAS instead of the kernels here (cublas.cu): a backend for comparison, whose rows do not have the same
// bits for every n. For .cu files only.
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

// Loads cuBLAS and turns the complete backend c into one with products by cuBLAS. Returns false and sets err on failure; c is then
// unchanged.
bool cublas_open(struct cuda *c, struct error *err);
void cublas_close(struct cuda *c); // before the stream is destroyed; does nothing if cuBLAS is not open

} // namespace DEVICE_SPACE
