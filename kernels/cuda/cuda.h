// cuda.h - the backend on an NVIDIA GPU: what its own files share. For .cu files only.
//
// One stream; operations are queued on it in order. Tensors of a pass are floats in device memory, as on the CPU;
// matmul reads its input rounded (round.cu), and weights as packed by prepare.cu.
#pragma once
#include <assert.h>
#include <stddef.h>

#include "kernels/cuda/device.h"
extern "C" {
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"
#include "kernels/operations.h"
}

namespace DEVICE_SPACE
{

struct space { // a workspace in device memory; enlarging it loses its contents
    void *data;
    size_t bytes;
    bool apart; // no graph reads it
};

struct ring { // pinned host memory that uploads are copied from, so that they do not wait for the device
    uint8_t *data;
    size_t used; // bytes that copies in progress may read
};
enum { RING = 4 << 20 };

// A tensor rounded to bfloat16 as products read it, laid out like weights (packed.h): 8 rows and 32 k make a tile of
// 512 bytes, a lane's eight numbers adjacent: k = 4 t .. + 3 and 16 + 4 t .. + 3 of row g.
struct rounded {
    int n, tiles; // rows; tiles of eight of them, 1, 2, 4 or a multiple of 8: outputs of rows beyond n are not read
    int blocks;   // an even number of blocks of 32 k
    const uint4 *data; // (blocks, tiles, lanes); NULL: none
    const float *sums; // (blocks, 2, 8 * tiles): of each row's 16 k, for weights with offsets (rounded_buffer: sums)
};

// Where a kernel writes such rows.
struct rounding {
    int tiles;      // eights of rows
    uint16_t *data; // struct rounded's; NULL: nothing is written
    float *sums;    // NULL: no weight reads them
};

struct rounded_buffer { // the rounded rows of one tensor (round.cu)
    struct space space;
    uint64_t number; // struct tensor: rounded; 0: no value has it
    int64_t width;
    bool sums; // they are written: some weight of this backend has offsets
    struct rounded rows;
};
enum { ROUNDED_BUFFERS = 2 }; // an operation may read one and write the other

struct reach {  // what attention's launches depend on besides the number of rows; larger values do no harm
    int splits; // splits of the longest row
    int runs;   // runs of rows of one slot
};

// A block of matmul_ring.cu at most: bytes of shared memory, threads; blocks of its clusters.
enum { RING_SHARED = 220 << 10, RING_THREADS = 512, RING_CLUSTER = 4 };

struct cublas; // cublas.cu
struct graphs; // graphs.cu

struct cuda {
    struct backend backend; // first
    int device, processors; // the device's number, and its streaming multiprocessors
    size_t shared;          // bytes of shared memory that a block can have
    cudaStream_t stream;
    bool overlaps;     // a kernel may start before the previous one has ended: from compute capability 9.0 on
    bool clusters;     // kernels run in clusters of blocks (device.h)
    bool bulk;         // products of up to 64 rows read their weights by bulk copies (matmul_ring.cu)
    int ring_clusters; // clusters of that kernel that run at the same time; 0: none
    cudaEvent_t stamp[MAX_STAMPS];
    bool failed; // since the last sync()
    struct error err;
    bool waits;         // the host waits for each kernel, so that a fault has its name: SPECLAB_CUDA_SYNC
    cudaError_t fault;  // the first kernel's that failed since cuda_launched was last called; cudaSuccess: none
    const char *faulty; // its name
    uint64_t writes;    // kernels, graphs and uploads queued so far
    char description[240];
    struct cublas *cublas; // NULL: our own products
    void *host;            // a pass's layout before it is uploaded
    size_t host_bytes;
    struct ring ring;
    struct space layout; // the pass's, as uploaded
    struct layout see;   // that layout with its arrays on the device
    uint64_t layouts;    // number of the last one uploaded
    int read_rounded,
        read_sums; // number of weights whose products read rounded rows; of those with offsets, which read sums
    struct rounded_buffer rounded[ROUNDED_BUFFERS];
    int last_rounded;        // the buffer that was written last
    uint64_t rounded_number; // the last number given out
    struct graphs *graphs;
    bool capturing;             // operations are recorded in a graph: what is queued does not run yet
    struct reach reach;         // the reach of the graph that is being captured; splits 0: the pass's own
    uint64_t releases;          // how often memory was released that a graph may know
    struct space floats;        // round.cu: input of weights that are not packed
    struct space gate;          // matmul.cu: for gate and up of different types
    struct space grouped;       // matmul.cu: the rows of groups
    struct space partial;       // attention.cu: results of parts of rows
    struct space arrived;       // attention.cu: counts of blocks
    struct space verify;        // verify.cu: drafts, output, rows to work in
    struct space verify_result; // verify.cu: the host's, pinned: what goes up and comes back
    struct space parts;         // probabilities.cu: partial results of chunks of rows
    struct space best;          // top_k.cu: results before the download
    struct space panel, pinned; // prepare.cu: raw rows; the host's, two panels that are uploaded in turn
    bool second_half;           // prepare.cu: the panel that was uploaded last
};

// ---- stream.cu

// Selects the device for this thread's calls: a process may have several. To be called before allocations and launches.
cudaError_t cuda_use_device(int device);
static inline void cuda_use(const struct cuda *c)
{
    cuda_use_device(c->device); // it succeeded when it was opened
}
// Records an error, if e is one and the first since the last sync(). what: "matmul".
void cuda_note(struct cuda *c, cudaError_t e, const char *what);
// After the launches of an operation.
void cuda_launched(struct cuda *c, const char *what);
// Part of QUEUE: counts the kernel. If the device waits for each, waits for it; cuda_launched reports its fault.
void cuda_queued(struct cuda *c, const char *kernel);
#if !defined(EMULATED)
// early: it may start while the previous kernel runs. blocks: of each cluster.
template <typename... parameters, typename... arguments>
static inline void start(struct cuda *c, bool early, void (*kernel)(parameters...), int blocks, dim3 grid, dim3 block,
                         size_t shared, const arguments &...a)
{
    cudaLaunchAttribute attribute[2] = {};
    cudaLaunchConfig_t l = {};
    l.gridDim = grid;
    l.blockDim = block;
    l.dynamicSmemBytes = shared;
    l.stream = c->stream;
    l.attrs = attribute;
    if (early && c->overlaps) {
        attribute[l.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[l.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (blocks > 1) {
        attribute[l.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attribute[l.numAttrs].val.clusterDim.x = (unsigned)blocks;
        attribute[l.numAttrs].val.clusterDim.y = attribute[l.numAttrs].val.clusterDim.z = 1;
        l.numAttrs++;
    }
    cudaLaunchKernelEx(&l, kernel, a...); // cuda_launched() checks the error
}
#define START_KERNEL(c, early, kernel, blocks, grid, block, shared, ...) \
    start(c, early, kernel, blocks, dim3(grid), dim3(block), shared, __VA_ARGS__)
#endif

// After a failure nothing is queued until sync() has reported it: a kernel may depend on what the failed one should
// have written, such as places.
#define QUEUE_KERNEL(c, early, kernel, blocks, ...) \
    ((c)->failed ? (void)0 \
                 : (cuda_use(c), START_KERNEL(c, early, kernel, blocks, __VA_ARGS__), cuda_queued(c, #kernel)))
// QUEUE(c, kernel, grid, block, bytes of dynamic shared memory, arguments): a kernel that waits for the previous one
// itself (device.h: kernel_prologue). QUEUE_CLUSTERS: in clusters of `blocks` blocks, a divisor of grid.x.
// QUEUE_EARLY_IF: without `early` it starts after the previous one has ended.
#define QUEUE_CLUSTERS(c, kernel, blocks, ...) QUEUE_KERNEL(c, true, kernel, blocks, __VA_ARGS__)
#define QUEUE_EARLY_IF(c, early, kernel, ...) QUEUE_KERNEL(c, early, kernel, 1, __VA_ARGS__)
#define QUEUE(c, kernel, ...) QUEUE_KERNEL(c, true, kernel, 1, __VA_ARGS__)

// Whether this file was compiled for compute capability 9.0 or later; else such a device runs the code of an older one.
static inline bool compiled_for_90()
{
#if defined(__CUDA_ARCH_LIST__)
    for (int capability : { __CUDA_ARCH_LIST__ })
        if (capability >= 900)
            return true;
    return false;
#else
    return true;
#endif
}

static inline int cluster_blocks(const struct cuda *c)
{
    return c->clusters ? CLUSTER : 1;
}

// Allows a kernel its dynamic shared memory on the device, before its first launch there. done: a bit for each device.
void cuda_allow_shared(struct cuda *c, const void *kernel, size_t bytes, uint64_t *done);
// Makes s at least `bytes` large. NULL: out of memory, which is recorded.
void *cuda_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what);
// Makes s at least `bytes` of pinned host memory: copies to and from it are direct.
void *cuda_host_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what);
// An upload of a multiple of 4 bytes. Few are arguments of a kernel: it waits for no copy, and nothing for it.
void cuda_put(struct cuda *c, void *to, const void *host, size_t bytes);

// Fills in the operations of memory, copies, waits and times.
void stream_operations(struct backend *b);

static inline int blocks_for(int64_t n, int each)
{
    return (int)((n + each - 1) / each);
}

// ---- layout.cu, top_k.cu, attention.cu, graphs.cu, cublas.cu

// The layout with its arrays on the device: uploaded if it is not the last one that was.
const struct layout *cuda_see(struct cuda *c, const struct layout *s);
uint64_t cuda_upload_layout(struct backend *b, const struct layout *s);
// token, log_p (rows, k) on the device.
void top_k_queue(struct cuda *c, struct tensor logits, int k, int32_t *token, float *log_p);
struct reach attention_extent(const struct layout *s);
struct graphs *graphs_create(void);
void graphs_destroy(struct graphs *g); // g may be NULL

// Products by cuBLAS instead of the kernels here, for comparison; their rows do not have the same bits for every n.
// Loads cuBLAS and turns the complete backend c into one with products by cuBLAS. Returns false and sets err on
// failure; c is then unchanged.
bool cublas_open(struct cuda *c, struct error *err);
void cublas_close(struct cuda *c); // called before the stream is destroyed; does nothing if cuBLAS is not open

// ---- the operations, as backend.h has them: in graphs.cu, prepare.cu, .., and cuda_NAME of each of operations.h

int cuda_bucket(struct backend *b, int n);
bool cuda_graph_launch(struct backend *b, const struct graph_key *r, struct tensor *out);
bool cuda_graph_end(struct backend *b, struct tensor out);
struct tensor cuda_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err);
void cuda_unprepare(struct backend *b, struct tensor w);
#define DECLARE_VOID(name, SIGNATURE) void cuda_##name OPERATION_PARAMETERS(SIGNATURE);
#define DECLARE_VALUE(name, SIGNATURE) struct tensor cuda_##name OPERATION_PARAMETERS(SIGNATURE);
ALL_OPERATIONS(DECLARE_VOID, DECLARE_VALUE)
void cuda_probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                        struct part_sum *sums);
void cuda_certain(struct backend *b, struct tensor logits, int used_vocab, int32_t *token);
const struct rule_body *cuda_rule_body(struct backend *b, const char *name);
size_t cuda_verify_bytes(struct backend *b, const struct verify_request *r);
void cuda_verify(struct backend *b, const struct verify_request *r, int n);
void cuda_verify_wait(struct backend *b, const struct verify_request *r, struct verify_result *to, int n);
struct drafting *cuda_drafts_create(struct backend *b, const struct drafting_shape *s);
void cuda_drafts_destroy(struct backend *b, struct drafting *g);
void cuda_drafts_begin(struct backend *b, struct drafting *g, const struct drafting_request *r, int n);
void cuda_drafts_level(struct backend *b, struct drafting *g, const struct drafting_level *l);

} // namespace DEVICE_SPACE
