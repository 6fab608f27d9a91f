// cublas.cpp - a stand-in for the few functions of cuBLAS that blas.cu calls: plain loops in float, with the semantics
// that cuBLAS's manual gives them: matrices are columns one behind the other, so many numbers apart, transposed or not.
//
// Of cuBLAS it has the one property that everything above must live with, too: sums are taken in another order where n
// is more than one, so a row does not have the same bits in every pass.
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

static const char *lacking;
static int fails;

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
    ((struct handle *)h)->workspace = NULL; // as cuBLAS does: it has its own again
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

struct matrix { // op(it)
    const void *data;
    int type, op, ld; // ld: numbers from column to column
};

static float at(struct matrix m, int64_t row, int64_t column)
{
    const int64_t i = m.op == OP_T ? row * m.ld + column : column * m.ld + row;
    const uint16_t *halves = (const uint16_t *)m.data;
    return m.type == NUMBERS_F32   ? ((const float *)m.data)[i]
           : m.type == NUMBERS_F16 ? emulated_half_to_float(halves[i])
                                   : __uint_as_float((unsigned)halves[i] << 16);
}

// rows: of the matrix as it lies
static bool lies_well(struct matrix m, int rows)
{
    return (m.op == OP_N || m.op == OP_T) && m.ld >= (rows > 1 ? rows : 1);
}

// One thread does it all.
static void gemm_kernel(struct matrix left, struct matrix right, int m, int n, int k, float scale, float before,
                        float *c, int ldc)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) {
                const int64_t at_k = n == 1 ? l : k - 1 - l;
                sum = fmaf(at(left, i, at_k), at(right, at_k, j), sum);
            }
            float *const to = c + j * ldc + i;
            *to = before != 0 ? scale * sum + before * *to : scale * sum; // what is there may be no number
        }
}

static int gemm(void *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int)
{
    const struct matrix left = { a, type_a, op_a, lda }, right = { b, type_b, op_b, ldb };
    const float scale = *(const float *)alpha, before = *(const float *)beta;
    if (h == NULL || ((struct handle *)h)->stream == NULL)
        return NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || !lies_well(left, op_a == OP_N ? m : k) || !lies_well(right, op_b == OP_N ? k : n) ||
        ldc < (m > 1 ? m : 1))
        return INVALID_VALUE;
    if (type_a != type_b || (type_a != NUMBERS_F32 && type_a != NUMBERS_F16 && type_a != NUMBERS_BF16) ||
        type_c != NUMBERS_F32 || (compute != COMPUTE_F32 && compute != COMPUTE_F32_PEDANTIC))
        return NOT_SUPPORTED;
    if (fails > 0 && --fails == 0)
        return EXECUTION_FAILED;
    LAUNCH(gemm_kernel, 1, 1, 0, ((struct handle *)h)->stream, left, right, m, n, k, scale, before, (float *)c, ldc);
    return SUCCESS;
}

static char library; // whose address stands for it

static bool lacks(const char *name)
{
    return lacking != NULL && strstr(name, lacking) != NULL;
}

void *dlopen(const char *name, int)
{
    return strcmp(name, "libcublas.so.13") == 0 && !lacks(name) ? &library : NULL;
}

const char *dlerror(void)
{
    return "libcublas.so.13: cannot open shared object file: it is emulated, and away";
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
    for (size_t i = 0; from == &library && !lacks(name) && i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].function;
    return NULL;
}

} // namespace emulated_gpu

extern "C" void emulated_cublas_lacks(const char *name)
{
    lacking = name;
}

extern "C" void emulated_cublas_fails(int products_from_now)
{
    fails = products_from_now;
}
