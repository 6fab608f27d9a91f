// cublas.cpp - a stand-in for the functions of cuBLAS that cublas.cu loads. Products have only the form in which cublas.cu wants them:
// c (n, m) = x (n, k) w (m, k)^T [+ c], row-major, said in cuBLAS's column-major terms; any other call ends the program.
//
// Like cuBLAS, it sums in another order for n > 1, so a row does not have the same bits in every pass.
#include <dlfcn.h>

#include "gpu.h"

inline namespace emulated_gpu
{

enum { SUCCESS = 0, EXECUTION_FAILED = 13 };
enum { OP_N = 0, OP_T = 1, NUMBERS_F32 = 0, NUMBERS_BF16 = 14, COMPUTE_F32 = 68, COMPUTE_F32_PEDANTIC = 69 };

static const char *missing; // part of the name of what cannot be loaded
static int fails;           // countdown to a failing product

static float at(const void *numbers, bool bf16, int64_t i)
{
    return bf16 ? __uint_as_float((unsigned)((const uint16_t *)numbers)[i] << 16) : ((const float *)numbers)[i];
}

// Uses one thread.
static void product_kernel(float *c, const void *x, const void *w, bool bf16, int m, int n, int k, bool add)
{
    for (int64_t i = 0; i < (int64_t)n * m; i++) {
        float sum = 0;
        for (int64_t l = 0; l < k; l++) {
            const int64_t at_k = n == 1 ? l : k - 1 - l;
            sum = fmaf(at(w, bf16, i % m * k + at_k), at(x, bf16, i / m * k + at_k), sum);
        }
        c[i] = add ? sum + c[i] : sum; // otherwise the old value may be NaN
    }
}

static int gemm(void *handle, int op_w, int op_x, int m, int n, int k, const void *alpha, const void *w, int type_w,
                int ld_w, const void *x, int type_x, int ld_x, const void *beta, void *c, int type_c, int ld_c,
                int compute, int)
{
    const bool bf16 = type_w == NUMBERS_BF16, add = *(const float *)beta == 1;
    if (op_w != OP_T || op_x != OP_N || ld_w != k || ld_x != k || ld_c != m || *(const float *)alpha != 1 ||
        (!add && *(const float *)beta != 0) || type_x != type_w || (!bf16 && type_w != NUMBERS_F32) ||
        type_c != NUMBERS_F32 || compute != (bf16 ? COMPUTE_F32 : COMPUTE_F32_PEDANTIC))
        die("cublasGemmEx is called in a form that the emulation lacks");
    if (fails > 0 && --fails == 0)
        return EXECUTION_FAILED;
    LAUNCH(product_kernel, 1, 1, 0, *(cudaStream_t *)handle, (float *)c, x, w, bf16, m, n, k, add);
    return SUCCESS;
}

static const struct {
    const char *name;
    void *function;
} functions[] = {
    { "cublasCreate_v2", (void *)+[](void **to) { return *to = new cudaStream_t(NULL), (int)SUCCESS; } },
    { "cublasDestroy_v2", (void *)+[](void *handle) { return delete (cudaStream_t *)handle, (int)SUCCESS; } },
    { "cublasSetStream_v2", (void *)+[](void *h, cudaStream_t s) { return *(cudaStream_t *)h = s, (int)SUCCESS; } },
    { "cublasSetWorkspace_v2", (void *)+[](void *, void *, size_t) { return (int)SUCCESS; } },
    { "cublasGetProperty", (void *)+[](int which, int *to) { return *to = which == 0 ? 13 : 1, (int)SUCCESS; } },
    { "cublasGetStatusName", (void *)+[](int) { return "CUBLAS_STATUS_EXECUTION_FAILED"; } },
    { "cublasGemmEx", (void *)gemm },
};

static bool is_missing(const char *name)
{
    return missing != NULL && strstr(name, missing) != NULL;
}

void *dlopen(const char *name, int)
{
    return strcmp(name, "libcublas.so.13") == 0 && !is_missing(name) ? &missing : NULL;
}

const char *dlerror(void)
{
    return "libcublas.so.13: cannot open shared object file (emulated)";
}

void *dlsym(void *, const char *name)
{
    for (const auto &f : functions)
        if (strcmp(f.name, name) == 0 && !is_missing(name))
            return f.function;
    return NULL;
}

} // namespace emulated_gpu

extern "C" void emulated_cublas_lacks(const char *name)
{
    missing = name;
}

extern "C" void emulated_cublas_fails(int products_from_now)
{
    fails = products_from_now;
}
