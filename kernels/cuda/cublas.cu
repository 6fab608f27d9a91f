// cublas.cu - products by cuBLAS: a baseline for speed, a float32 reference on the GPU, and an example of arithmetic
// that is not the same for every n, to show what that does to generated text.
//
// All products use cublasGemmEx for every n; it chooses a kernel by shape, through cublasLt. So a row's bits depend on
// how many rows are in the pass (backend.varies). cuBLAS and cublasLt are 600 MB together: they are loaded when such a
// device is opened, not linked.
//
// Weights keep the checkpoint's layout (FORM_RAW). bf16 weights with bf16 activations: bf16 by bf16, accumulated in
// float. All other products are float by float, without TF32: cuBLAS has no product of f32 by 16-bit numbers, so f16
// weights, and bf16 weights with f32 activations, are converted to f32 when they are prepared: exactly, in twice the
// memory. (f16 by f16 would round the input to f16, which is not one of `activations`.)
#include "kernels/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/packed.h"
#include "kernels/cuda/unpack.h"

#if !defined(EMULATED) && __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define HAS_HEADER 1
#endif

namespace DEVICE_SPACE
{

enum { THREADS = 256 };
enum { WORKSPACE_BYTES = 32 << 20 }; // recommended by cuBLAS's guide for Hopper; 4 MB for earlier devices

// ---- the library

// The constants of cublas_v2.h that are used here, since not every machine has that header.
enum { STATUS_SUCCESS = 0, OP_N = 0, OP_T = 1, ALGORITHM_DEFAULT = -1, MAJOR = 0, MINOR = 1 };
enum { NUMBERS_F32 = 0, NUMBERS_BF16 = 14, COMPUTE_F32 = 68, COMPUTE_F32_PEDANTIC = 69 };
#if defined(HAS_HEADER)
static_assert(STATUS_SUCCESS == (int)CUBLAS_STATUS_SUCCESS && OP_N == (int)CUBLAS_OP_N && OP_T == (int)CUBLAS_OP_T, "");
static_assert(ALGORITHM_DEFAULT == (int)CUBLAS_GEMM_DEFAULT && MAJOR == (int)MAJOR_VERSION, "");
static_assert(MINOR == (int)MINOR_VERSION && NUMBERS_F32 == (int)CUDA_R_32F && NUMBERS_BF16 == (int)CUDA_R_16BF, "");
static_assert(COMPUTE_F32 == (int)CUBLAS_COMPUTE_32F && COMPUTE_F32_PEDANTIC == (int)CUBLAS_COMPUTE_32F_PEDANTIC, "");
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cublasOperation_t) == sizeof(int), "");
static_assert(sizeof(cudaDataType) == sizeof(int) && sizeof(cublasComputeType_t) == sizeof(int), "");
static_assert(sizeof(cublasGemmAlgo_t) == sizeof(int) && sizeof(cublasHandle_t) == sizeof(void *), "");
#endif

struct functions { // each returns a status, except status_name
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_workspace)(void *handle, void *data, size_t bytes);
    int (*property)(int which, int *value);
    const char *(*status_name)(int status);
    // c (m, n) = alpha op(a) (m, k) op(b) (k, n) + beta c, all column-major with leading dimensions ld..
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
};

struct cublas {
    struct functions f;
    void *handle, *workspace;
    struct space input;      // x in bfloat16
    struct tensor converted; // that x; it is not converted again until something but a product has been queued
    uint64_t writes;         // struct cuda's, then
};

// Never unloaded: CUDA's libraries leave state behind that outlives dlclose.
static bool load(struct functions *f, struct error *err)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                         "/usr/local/cuda/lib64/libcublas.so" };
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        { "cublasCreate_v2", &f->create },
        { "cublasDestroy_v2", &f->destroy },
        { "cublasSetStream_v2", &f->set_stream },
        { "cublasSetWorkspace_v2", &f->set_workspace },
        { "cublasGetProperty", &f->property },
        { "cublasGetStatusName", &f->status_name },
        { "cublasGemmEx", &f->gemm },
    };
    struct error first = {};
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && i == 0)
            fail(&first, "%s", dlerror());
    }
    if (library == NULL)
        return fail(err, "cuBLAS cannot be loaded: looked for %s, %s, %s and %s (%s)", names[0], names[1], names[2],
                    names[3], first.text);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *const found = dlsym(library, symbols[i].name);
        if (found == NULL)
            return fail(err, "cuBLAS has no %s: expected the version of CUDA 11.4 or later", symbols[i].name);
        memcpy(symbols[i].to, &found, sizeof(found));
    }
    return true;
}

static void check_status(struct cuda *c, int status, const char *what)
{
    if (status == STATUS_SUCCESS || c->failed)
        return;
    c->failed = true;
    fail(&c->err, "cublas:%d: %s: %s", c->device, what, c->cublas->f.status_name(status));
}

// ---- weights

static __global__ void to_f32_kernel(float *to, const uint8_t *from, enum type type, int64_t n)
{
    kernel_prologue();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = value_at(type, from, i);
}

// Converts a prepared weight of 16-bit numbers to f32.
static struct tensor convert_to_f32(struct cuda *c, struct tensor w, struct error *err)
{
    struct packed *p = (struct packed *)w.packed;
    const struct tensor none = {};
    const int64_t n = w.rows * w.width;
    void *const to = c->backend.alloc(&c->backend, (size_t)n * sizeof(float));
    if (to == NULL) {
        cuda_unprepare(&c->backend, w);
        fail(err, "cublas:%d: not enough memory for %zu MB of weights: %s is converted to f32 on this device",
             c->device, ((size_t)n * sizeof(float) + (1 << 20) - 1) >> 20, type_facts[w.type].name);
        return none;
    }
    QUEUE(c, to_f32_kernel, blocks_for(n, THREADS), THREADS, 0, (float *)to, p->raw, w.type, n);
    cuda_launched(c, "converting weights to f32");
    cuda_note(c, cudaFree(w.data), "freeing weights"); // waits for queued work
    p->raw = (uint8_t *)to;
    p->type = F32;
    w.type = F32;
    w.data = to;
    return w;
}

static struct tensor cublas_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    struct tensor prepared = {};
    if (type_has_blocks(w.type)) {
        fail(err, "device cublas: cuBLAS supports f32, f16 and bf16 weights, not %s; device cuda supports it",
             type_facts[w.type].name);
        return prepared;
    }
    prepared = cuda_prepare(b, w, a, err);
    const bool unchanged = w.type == F32 || (w.type == BF16 && a == ACTIVATIONS_BF16);
    return unchanged || prepared.data == NULL ? prepared : convert_to_f32((struct cuda *)b, prepared, err);
}

// ---- products

static __global__ void to_bf16_kernel(uint16_t *to, const float *x, int64_t n)
{
    kernel_prologue();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = float_to_bf16(x[i]);
}

struct input { // x (n, k) as products read it; NULL: not needed
    const float *rounded;
    const uint16_t *bf16;
};

// Products of one input after each other convert it once: only they have been queued since, and none of them writes its
// input.
static bool convert_input(struct cuda *c, struct tensor x, const uint16_t **to)
{
    struct cublas *s = c->cublas;
    const int64_t n = x.rows * x.width;
    const bool same = s->converted.data == x.data && s->converted.rows == x.rows && s->converted.width == x.width;
    uint16_t *const buffer =
        (uint16_t *)cuda_reserve(c, &s->input, (size_t)n * sizeof(uint16_t), "the input of products");
    if (buffer == NULL)
        return false;
    *to = buffer;
    if (same && s->writes == c->writes)
        return true;
    QUEUE(c, to_bf16_kernel, blocks_for(n, THREADS), THREADS, 0, buffer, (const float *)x.data, n);
    cuda_launched(c, "rounding the input of products");
    s->converted = x;
    s->writes = c->writes;
    return true;
}

// Returns false and records the error if memory is exhausted.
static bool round_for(struct cuda *c, struct tensor x, const struct product *p, int count, struct input *to)
{
    bool bf16 = false, floats = false;
    for (int i = 0; i < count; i++) {
        const struct packed *w = packed_of(p[i].w);
        bf16 = bf16 || w->type == BF16;
        floats = floats || (w->type == F32 && w->activations == ACTIVATIONS_BF16);
    }
    if (floats && (to->rounded = round_floats(c, x)) == NULL)
        return false;
    c->writes += !bf16; // what was converted may be written by this product
    return !bf16 || convert_input(c, x, &to->bf16);
}

// cuBLAS is column-major: a row-major matrix is its transpose. out (n, m) = x (n, k) w (m, k)^T becomes out' (m, n) = w
// (m, k) x' (k, n), where w is stored as w' (k, m) and hence transposed; the leading dimension of w' and x' is k, that
// of out' is m.
static void run_product(struct cuda *c, struct tensor x, const struct input *in, const struct product *q)
{
    const struct packed *p = packed_of(q->w);
    const bool bf16 = p->type == BF16;
    const void *const from = bf16                                 ? (const void *)in->bf16
                             : p->activations == ACTIVATIONS_BF16 ? (const void *)in->rounded
                                                                  : x.data;
    const int type = bf16 ? NUMBERS_BF16 : NUMBERS_F32, n = (int)x.rows, m = (int)p->rows, k = (int)p->k;
    const float alpha = 1, beta = q->add ? 1 : 0;
    assert(q->out.rows == x.rows && q->out.width == p->rows && p->k == x.width && p->form == FORM_RAW);
    assert(q->out.type == F32 && x.type == F32);
    cuda_use(c);
    check_status(c,
                 c->cublas->f.gemm(c->cublas->handle, OP_T, OP_N, m, n, k, &alpha, p->raw, type, k, from, type, k,
                                   &beta, q->out.data, NUMBERS_F32, m, bf16 ? COMPUTE_F32 : COMPUTE_F32_PEDANTIC,
                                   ALGORITHM_DEFAULT),
                 "matmul");
    if (q->bias.data != NULL)
        cuda_add(&c->backend, q->out, q->bias);
}

static void cublas_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cuda *c = (struct cuda *)b;
    struct input in = {};
    assert(count <= MAX_PRODUCTS);
    if (x.rows == 0 || !round_for(c, x, p, count, &in))
        return;
    for (int i = 0; i < count; i++)
        run_product(c, x, &in, &p[i]);
}

// ---- opening and closing

bool cublas_open(struct cuda *c, struct error *err)
{
    struct error why;
    struct cublas *s = (struct cublas *)xcalloc(1, sizeof(*s));
    if (!load(&s->f, &why)) {
        free(s);
        return fail(err, "device cublas:%d: %s", c->device, why.text);
    }
    c->cublas = s;
    int major = 0, minor = 0, status = s->f.create(&s->handle);
    s->workspace = c->backend.alloc(&c->backend, WORKSPACE_BYTES);
    if (status == STATUS_SUCCESS)
        status = s->f.set_stream(s->handle, c->stream);
    if (status == STATUS_SUCCESS && s->workspace != NULL) // set_stream resets it, and comes first
        status = s->f.set_workspace(s->handle, s->workspace, WORKSPACE_BYTES);
    if (status == STATUS_SUCCESS)
        status = s->f.property(MAJOR, &major);
    if (status == STATUS_SUCCESS)
        status = s->f.property(MINOR, &minor);
    if (status != STATUS_SUCCESS || s->workspace == NULL) {
        fail(err, "device cublas:%d: cuBLAS cannot be used: %s", c->device,
             status != STATUS_SUCCESS ? s->f.status_name(status) : "not enough memory for its workspace of 32 MB");
        cublas_close(c);
        return false;
    }
    c->backend.name = "cublas";
    c->backend.varies = true;
    c->backend.prepare = cublas_prepare;
    c->backend.matmul = cublas_matmul;
    const size_t n = strlen(c->description);
    snprintf(c->description + n, sizeof(c->description) - n,
             ", products by cuBLAS %d.%d (not the same bits for every n)", major, minor);
    return true;
}

void cublas_close(struct cuda *c)
{
    struct cublas *s = c->cublas;
    if (s == NULL)
        return;
    if (s->handle != NULL)
        s->f.destroy(s->handle);
    c->backend.release(&c->backend, s->input.data);
    c->backend.release(&c->backend, s->workspace);
    c->cublas = NULL;
    free(s);
}

} // namespace DEVICE_SPACE
