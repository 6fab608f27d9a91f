// dlfcn.h - replaces <dlfcn.h> when g++ compiles the kernels. The only library that can be opened is the emulated cuBLAS
// (cublas.cpp).
#pragma once

// For tests.
extern "C" {
// Makes the library (part of its name) or one of its functions missing; NULL: nothing is missing.
void emulated_cublas_lacks(const char *name);
// Makes a product fail with CUBLAS_STATUS_EXECUTION_FAILED: 1: the next one, 2: the one after; 0: none.
void emulated_cublas_fails(int products_from_now);
}

inline namespace emulated_gpu
{

enum { RTLD_LOCAL = 0, RTLD_NOW = 2 };
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
const char *dlerror(void); // of the last failed dlopen

} // namespace emulated_gpu
