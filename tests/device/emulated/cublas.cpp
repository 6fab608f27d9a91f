// cublas.cpp - emulates the functions of cuBLAS that cublas.cu calls: plain loops in float with the semantics of cuBLAS's manual
// (column-major matrices with a leading dimension, transposed or not).
//
// Like cuBLAS, it sums in another order for n > 1, so a row does not have the same bits in every pass.
#include <dlfcn.h>

#include <cuda_runtime.h>

#include <stdlib.h>

inline namespace emulated_gpu
{

enum status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { OP_N = 0, OP_T = 1 };
enum { NUMBERS_F32 = 0, NUMBERS_F16 = 2, NUMBERS_BF16 = 14 };
enum { COMPUTE_F32 = 68, COMPUTE_F32_PEDANTIC = 69 };

struct handle {
    cudaStream_t stream;
    void *workspace;
};

static const char *missing;
static int fails; // countdown to a failing product

static int create(void **to)
{
    *to = calloc(1, sizeof(struct handle));
    return *to != NULL ? SUCCESS : NOT_INITIALIZED;
}

static int destroy(void *h)
{
    free(h);
    return SUCCESS;
}

static int set_stream(void *h, cudaStream_t stream)
{
    ((struct handle *)h)->stream = stream;
    ((struct handle *)h)->workspace = NULL; // as cuBLAS does: resets to its own workspace
    return SUCCESS;
}

static int set_workspace(void *h, void *workspace, size_t)
{
    ((struct handle *)h)->workspace = workspace;
    return SUCCESS;
}

static int property(int which, int *value)
{
    *value = which == 0 ? 13 : 1;
    return SUCCESS;
}

static const char *status_name(int status)
{
    switch (status) {
    case SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "";
}

struct matrix { // op(matrix)
    const void *data;
    int type, op, ld; // ld: leading dimension
};

static float at(struct matrix m, int64_t row, int64_t column)
{
    const int64_t i = m.op == OP_T ? row * m.ld + column : column * m.ld + row;
    const uint16_t *halves = (const uint16_t *)m.data;
    return m.type == NUMBERS_F32   ? ((const float *)m.data)[i]
           : m.type == NUMBERS_F16 ? emulated_half_to_float(halves[i])
                                   : __uint_as_float((unsigned)halves[i] << 16);
}

// rows: of the matrix as stored
static bool is_valid(struct matrix m, int rows)
{
    return (m.op == OP_N || m.op == OP_T) && m.ld >= (rows > 1 ? rows : 1);
}

// Uses one thread.
static void gemm_kernel(struct matrix left, struct matrix right, int m, int n, int k, float alpha, float beta, float *c,
                        int ldc)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) {
                const int64_t at_k = n == 1 ? l : k - 1 - l;
                sum = fmaf(at(left, i, at_k), at(right, at_k, j), sum);
            }
            float *const to = c + j * ldc + i;
            *to = beta != 0 ? alpha * sum + beta * *to : alpha * sum; // with beta == 0 the old value may be NaN
        }
}

static int gemm(void *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int)
{
    const struct matrix left = { a, type_a, op_a, lda }, right = { b, type_b, op_b, ldb };
    const float alpha_value = *(const float *)alpha, beta_value = *(const float *)beta;
    if (h == NULL || ((struct handle *)h)->stream == NULL)
        return NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || !is_valid(left, op_a == OP_N ? m : k) || !is_valid(right, op_b == OP_N ? k : n) ||
        ldc < (m > 1 ? m : 1))
        return INVALID_VALUE;
    if (type_a != type_b || (type_a != NUMBERS_F32 && type_a != NUMBERS_F16 && type_a != NUMBERS_BF16) ||
        type_c != NUMBERS_F32 || (compute != COMPUTE_F32 && compute != COMPUTE_F32_PEDANTIC))
        return NOT_SUPPORTED;
    if (fails > 0 && --fails == 0)
        return EXECUTION_FAILED;
    LAUNCH(gemm_kernel, 1, 1, 0, ((struct handle *)h)->stream, left, right, m, n, k, alpha_value, beta_value,
           (float *)c, ldc);
    return SUCCESS;
}

static char library; // its address is the handle

static bool is_missing(const char *name)
{
    return missing != NULL && strstr(name, missing) != NULL;
}

void *dlopen(const char *name, int)
{
    return strcmp(name, "libcublas.so.13") == 0 && !is_missing(name) ? &library : NULL;
}

const char *dlerror(void)
{
    return "libcublas.so.13: cannot open shared object file (emulated)";
}

void *dlsym(void *from, const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        { "cublasCreate_v2", (void *)create },
        { "cublasDestroy_v2", (void *)destroy },
        { "cublasSetStream_v2", (void *)set_stream },
        { "cublasSetWorkspace_v2", (void *)set_workspace },
        { "cublasGetProperty", (void *)property },
        { "cublasGetStatusName", (void *)status_name },
        { "cublasGemmEx", (void *)gemm },
    };
    for (size_t i = 0; from == &library && !is_missing(name) && i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].function;
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
