// dlfcn.h - replaces <dlfcn.h> when g++ compiles the kernels. The only library that can be opened is that of cublas.cpp.
#pragma once

inline namespace emulated_gpu
{

enum { RTLD_LOCAL = 0, RTLD_NOW = 2 };
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
const char *dlerror(void); // of the last failed dlopen

} // namespace emulated_gpu
