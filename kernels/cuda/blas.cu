// blas.cu - products by cuBLAS: what our own are to be measured against, a float32 reference on the GPU, and arithmetic
// that is not the same for every n, for whoever wants to see what that does to texts.
//
// All products go through cublasGemmEx, whatever n is; it chooses a kernel by shape, through cublasLt inside. So a
// row's bits depend on how many rows are beside it (backend.varies). cuBLAS and cublasLt are 600 MB together: they are
// loaded when such a device is opened, not linked.
//
// Weights lie as in the checkpoint (FORM_RAW). bf16 with bf16 activations: bf16 by bf16, summed in float. Everything
// else is float by float, without TF32: cuBLAS has no product of f32 by 16-bit numbers, so f16 weights, and bf16
// weights under f32 activations, are made f32 when they are prepared: exactly, in twice the memory. (f16 by f16 would
// round the input to f16, which is none of `activations`.)
#include "kernels/cuda/blas.h"

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
enum { WORKSPACE_BYTES = 32 << 20 }; // what cuBLAS's guide recommends for Hopper; 4 MB would do before it

// ---- the library

// What is needed of cublas_v2.h, which not every machine has.
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

struct functions { // each answers a status
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_workspace)(void *handle, void *data, size_t bytes);
    int (*property)(int which, int *value);
    const char *(*status_name)(int status); // but this one
    // c (m, n) = alpha op(a) (m, k) op(b) (k, n) + beta c, all of them columns one behind the other, ld.. numbers apart
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
};

struct blas {
    struct functions f;
    void *handle, *workspace;
    struct space input; // x in bfloat16
};

// It stays loaded: libraries of CUDA's leave things behind that outlive whoever closes them.
static bool load(struct functions *f, struct error *err)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                         "/usr/local/cuda/lib64/libcublas.so" };
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
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
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *const found = dlsym(library, wanted[i].name);
        if (found == NULL)
            return fail(err, "the cuBLAS that was found has no %s: expected one of CUDA 11.4 or later", wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof(found));
    }
    return true;
}

static void note(struct cuda *c, int status, const char *what)
{
    if (status == STATUS_SUCCESS || c->failed)
        return;
    c->failed = true;
    fail(&c->err, "cublas:%d: %s: %s", c->device, what, c->blas->f.status_name(status));
}

// ---- weights

static __global__ void widen_kernel(float *to, const uint8_t *from, enum type type, int64_t n)
{
    in_turn();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = value_at(type, from, i);
}

// A weight of 16-bit numbers that was prepared, as one of f32.
static struct tensor widened(struct cuda *c, struct tensor w, struct error *err)
{
    struct packed *p = (struct packed *)w.packed;
    const struct tensor none = {};
    const int64_t n = w.rows * w.width;
    void *const to = c->backend.alloc(&c->backend, (size_t)n * sizeof(float));
    if (to == NULL) {
        cuda_unprepare(&c->backend, w);
        fail(err, "cublas:%d: no room for %zu MB of weights: those of %s are made f32 here", c->device,
             ((size_t)n * sizeof(float) + (1 << 20) - 1) >> 20, type_facts[w.type].name);
        return none;
    }
    QUEUE(c, widen_kernel, blocks_for(n, THREADS), THREADS, 0, (float *)to, p->raw, w.type, n);
    cuda_launched(c, "making weights f32");
    cuda_note(c, cudaFree(w.data), "giving weights back"); // waits for what is queued
    p->raw = (uint8_t *)to;
    p->type = F32;
    w.type = F32;
    w.data = to;
    return w;
}

static struct tensor blas_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    struct tensor there = {};
    if (type_is_quantised(w.type)) {
        fail(err, "device cublas: cuBLAS has no products of %s weights, but of f32, f16 and bf16; device cuda has them",
             type_facts[w.type].name);
        return there;
    }
    there = cuda_prepare(b, w, a, err);
    const bool as_it_is = w.type == F32 || (w.type == BF16 && a == ACTIVATIONS_BF16);
    return as_it_is || there.data == NULL ? there : widened((struct cuda *)b, there, err);
}

// ---- products

static __global__ void to_bf16_kernel(uint16_t *to, const float *x, int64_t n)
{
    in_turn();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = float_to_bf16(x[i]);
}

struct input { // x (n, k) as products read it; NULL: none of them does
    const float *rounded;
    const uint16_t *bf16;
};

// false: there is no room, and that is noted.
static bool round_for(struct cuda *c, struct tensor x, const struct product *p, int count, struct input *to)
{
    struct wanted wanted = {};
    struct inputs in = {};
    bool bf16 = false;
    for (int i = 0; i < count; i++) {
        const struct packed *w = packed_of(p[i].w);
        bf16 = bf16 || w->type == BF16;
        wanted.floats = wanted.floats || (w->type == F32 && w->activations == ACTIVATIONS_BF16);
    }
    if (!round_input(c, x, wanted, &in))
        return false;
    to->rounded = in.floats;
    if (!bf16)
        return true;
    const int64_t n = x.rows * x.width;
    uint16_t *const capacity =
        (uint16_t *)cuda_reserve(c, &c->blas->input, (size_t)n * sizeof(uint16_t), "the input of products");
    if (capacity == NULL)
        return false;
    QUEUE(c, to_bf16_kernel, blocks_for(n, THREADS), THREADS, 0, capacity, (const float *)x.data, n);
    cuda_launched(c, "rounding the input of products");
    to->bf16 = capacity;
    return true;
}

// Rows one behind the other are columns to cuBLAS, and a matrix its transpose. out (n, m) = x (n, k) w (m, k)^T is to
// it out' (m, n) = w (m, k) x' (k, n), where it sees w as w' (k, m), hence transposed; a column of w' and of x' has k
// numbers, one of out' has m.
static void one_product(struct cuda *c, struct tensor x, const struct input *in, const struct product *q)
{
    const struct packed *p = packed_of(q->w);
    const bool bf16 = p->type == BF16;
    const void *const from = bf16                                 ? (const void *)in->bf16
                             : p->activations == ACTIVATIONS_BF16 ? (const void *)in->rounded
                                                                  : x.data;
    const int type = bf16 ? NUMBERS_BF16 : NUMBERS_F32, n = (int)x.rows, m = (int)p->rows, k = (int)p->k;
    const float one = 1, before = q->add ? 1 : 0;
    assert(q->out.rows == x.rows && q->out.width == p->rows && p->k == x.width && p->form == FORM_RAW);
    assert(q->out.type == F32 && x.type == F32);
    cuda_use(c);
    note(c,
         c->blas->f.gemm(c->blas->handle, OP_T, OP_N, m, n, k, &one, p->raw, type, k, from, type, k, &before,
                         q->out.data, NUMBERS_F32, m, bf16 ? COMPUTE_F32 : COMPUTE_F32_PEDANTIC, ALGORITHM_DEFAULT),
         "matmul");
    if (q->bias.data != NULL)
        cuda_add(&c->backend, q->out, q->bias);
}

static void blas_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cuda *c = (struct cuda *)b;
    struct input in = {};
    assert(count <= MAX_PRODUCTS);
    if (x.rows == 0 || !round_for(c, x, p, count, &in))
        return;
    for (int i = 0; i < count; i++)
        one_product(c, x, &in, &p[i]);
}

// ---- life

bool blas_open(struct cuda *c, struct error *err)
{
    struct error why;
    struct blas *s = (struct blas *)xcalloc(1, sizeof(*s));
    if (!load(&s->f, &why)) {
        free(s);
        return fail(err, "device cublas:%d: %s", c->device, why.text);
    }
    c->blas = s;
    int major = 0, minor = 0, status = s->f.create(&s->handle);
    s->workspace = c->backend.alloc(&c->backend, WORKSPACE_BYTES);
    if (status == STATUS_SUCCESS)
        status = s->f.set_stream(s->handle, c->stream);
    if (status == STATUS_SUCCESS && s->workspace != NULL) // after the stream, which would give it back
        status = s->f.set_workspace(s->handle, s->workspace, WORKSPACE_BYTES);
    if (status == STATUS_SUCCESS)
        status = s->f.property(MAJOR, &major);
    if (status == STATUS_SUCCESS)
        status = s->f.property(MINOR, &minor);
    if (status != STATUS_SUCCESS || s->workspace == NULL) {
        fail(err, "device cublas:%d: cuBLAS cannot be used: %s", c->device,
             status != STATUS_SUCCESS ? s->f.status_name(status) : "there is no room for its workspace of 32 MB");
        blas_close(c);
        return false;
    }
    c->backend.name = "cublas";
    c->backend.varies = true;
    c->backend.prepare = blas_prepare;
    c->backend.matmul = blas_matmul;
    const size_t n = strlen(c->description);
    snprintf(c->description + n, sizeof(c->description) - n,
             ", products by cuBLAS %d.%d (not the same bits for every n)", major, minor);
    return true;
}

void blas_close(struct cuda *c)
{
    struct blas *s = c->blas;
    if (s == NULL)
        return;
    if (s->handle != NULL)
        s->f.destroy(s->handle);
    c->backend.release(&c->backend, s->input.data);
    c->backend.release(&c->backend, s->workspace);
    c->blas = NULL;
    free(s);
}

} // namespace DEVICE_SPACE
