// dlfcn.h - a library that is not there: what `#include <dlfcn.h>` finds when g++ compiles the kernels. The one library
// that can be opened is a stand-in for cuBLAS (cublas.cpp).
#pragma once

// For tests.
extern "C" {
// What is not there: part of the library's name, or the name of one of its functions; NULL: nothing is amiss.
void emulated_cublas_lacks(const char *name);
// The product so many from now is refused as CUBLAS_STATUS_EXECUTION_FAILED; 1: the next one; 0: none.
void emulated_cublas_fails(int products_from_now);
}

inline namespace emulated_gpu
{

enum { RTLD_LOCAL = 0, RTLD_NOW = 2 };
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
const char *dlerror(void); // of the last dlopen, which failed

} // namespace emulated_gpu
