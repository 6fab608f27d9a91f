// cuda.h - the backend on an NVIDIA GPU, as its own files know it. For .cu files alone.
//
// One stream; operations are queued on it in order. Tensors of a pass are floats in the device's memory, as on the CPU;
// what a matmul rounds its input to is made anew for each input (round.cu). Weights lie as prepare.cu packs them.
#pragma once
#include <assert.h>
#include <stddef.h>

#include "kernels/cuda/device.h"
extern "C" {
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "kernels/backend.h"
}

namespace DEVICE_SPACE
{

struct space { // memory of the device's that grows and is kept; what was in it is lost when it grows
    void *data;
    size_t bytes;
    bool apart; // no routine's operations look at it
};

struct ring { // pinned memory of the host's, from which uploads go: a copy from there waits for nothing on the device
    uint8_t *data;
    size_t used; // by copies that may not be done
};
enum { RING = 4 << 20 };

// Planes of bfloat16 that add up to a tensor: one, or three, the largest first (round.h). 8 rows and 32 k make a tile of
// 512 bytes, a lane's eight numbers side by side: k = 4 t .. + 3 and 16 + 4 t .. + 3 of row g.
struct rounded {
    int n, tiles;      // of eight rows: 1, 2, 4 or a multiple of 8; nobody reads an output of those beyond n
    int blocks;        // of 32 k, an even number of them
    const uint4 *data; // (blocks, tiles, planes, lanes); NULL: there are none
    const float *sums; // (blocks, 2, 8 * tiles): of each row's 16 k, for weights with offsets
};

struct made {      // the planes that there are
    const void *x; // of the tensor that lies there; NULL: of none
    int64_t rows, width;
    struct rounded one, three;
    int turn; // which room they are in
};

struct reach {  // what attention's launches depend on besides the number of rows; more than there is does no harm
    int splits; // of the longest row
    int runs;   // of rows of one slot
};

struct blas;   // blas.cu
struct graphs; // graphs.cu

struct cuda {
    struct backend backend; // first
    int device, processors; // of the device: streaming multiprocessors
    cudaStream_t stream;
    bool overlaps; // a kernel may begin before the one before it has ended: from compute capability 9.0 on
    cudaEvent_t stamp[MAX_STAMPS];
    bool failed; // something went wrong since the last sync()
    struct error err;
    char description[240];
    struct blas *blas; // NULL: products are our own
    void *host;        // where a pass's layout is put together before it is uploaded
    size_t host_bytes;
    struct ring ring;
    struct space layout;      // the pass's, as uploaded
    uint64_t pass;            // which pass that is; 0: none
    struct layout see;        // its arrays, on the device
    int read_one, read_three; // weights whose products read one plane, three
    struct made made;
    struct graphs *graphs;
    struct reach reach;      // in a routine that may be queued again: for which passes; splits 0: for the one at hand
    uint64_t releases;       // of memory that a graph may know
    struct space rounded[2]; // round.cu
    struct space floats;     // round.cu: for weights that are not packed
    struct space gate;       // matmul.cu: gates and ups of two kinds
    struct space partial;    // attend.cu: splits before they are joined
    struct space verify;     // judge.cu: drafts, answers, rows to work in
    struct space verify_result; // judge.cu: the host's, pinned: what goes up and comes back
    struct space parts;         // probabilities.cu: what blocks found in their stretches of rows
    struct space best;          // best.cu: before it is downloaded
};

// Makes the device the one that this thread's calls are about: a process may have several. Before whatever takes memory
// or launches.
void cuda_use(const struct cuda *c);
// Notes what went wrong, if anything did; the first thing since the last sync() stays. what: "matmul".
void cuda_note(struct cuda *c, cudaError_t e, const char *what);
// After a launch. Whatever planes there were may be another's now.
void cuda_launched(struct cuda *c, const char *what);
// QUEUE(c, kernel, grid, block, bytes of dynamic shared memory, arguments): of kernels that wait for the one before
// themselves (device.h).
#if defined(EMULATED)
#define QUEUE(c, kernel, grid, block, shared, ...) \
    (cuda_use(c), LAUNCH(kernel, grid, block, shared, (c)->stream, __VA_ARGS__))
#else
template <typename... parameters, typename... arguments>
static inline void queue(struct cuda *c, void (*kernel)(parameters...), dim3 grid, dim3 block, size_t shared,
                         const arguments &...a)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t l = {};
    l.gridDim = grid;
    l.blockDim = block;
    l.dynamicSmemBytes = shared;
    l.stream = c->stream;
    l.attrs = &early;
    l.numAttrs = c->overlaps ? 1 : 0;
    cuda_use(c);
    cudaLaunchKernelEx(&l, kernel, a...); // cuda_launched() asks what became of it
}
#define QUEUE(c, kernel, grid, block, shared, ...) queue(c, kernel, dim3(grid), dim3(block), shared, __VA_ARGS__)
#endif

// At least so many bytes, and more if it has to grow; NULL if there are none, and that is noted.
void *cuda_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what);
// The same of the host's memory, pinned: a copy to it or from it needs no other on the way.
void *cuda_host_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what);
// The layout with its arrays on the device: uploaded if it is another pass's than the last one's.
const struct layout *cuda_see(struct cuda *c, const struct layout *s);
void mask_on_device(struct cuda *c, const struct layout *see); // admit.cu: puts into it what only the device knows

static inline int blocks_for(int64_t n, int each)
{
    return (int)((n + each - 1) / each);
}

// Row numbers that travel with a launch, in shares of so many.
enum { ROW_NUMBERS = 512 };
struct row_numbers {
    int n;
    int32_t row[ROW_NUMBERS];
};
struct row_numbers row_numbers_of(const int32_t *row, int64_t n); // the first of n

void attend_grant(struct cuda *c); // attend_mma.cu: shared memory for its kernels, once
void wide_grant(struct cuda *c);   // wide.cu: so too
// best.cu: token, log_p (rows, k) on the device.
void best_queue(struct cuda *c, struct tensor logits, int k, int32_t *token, float *log_p);
struct reach attend_reach(const struct layout *s);
struct graphs *graphs_create(void);
void graphs_destroy(struct graphs *g); // NULL is fine
bool graphs_capturing(const struct graphs *g);

// The operations, as backend.h has them.
int cuda_bucket(struct backend *b, int n);
bool cuda_graph_launch(struct backend *b, const struct graph_key *r);
bool cuda_graph_end(struct backend *b);
struct tensor cuda_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err);
void cuda_unprepare(struct backend *b, struct tensor w);
void cuda_matmul(struct backend *b, struct tensor x, const struct product *p, int count);
void cuda_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up);
void cuda_add(struct backend *b, struct tensor out, struct tensor x);
void cuda_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps);
void cuda_swiglu(struct backend *b, struct tensor out, struct tensor gate, struct tensor up);
void cuda_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency);
void cuda_store(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                struct tensor keys, struct tensor values, const struct layout *s);
void cuda_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                 const struct layout *s, int head_dim);
void cuda_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row);
void cuda_gather_on_device(struct backend *b, struct tensor out, struct tensor x, const struct device_rows *r, int n);
void cuda_place(struct backend *b, struct tensor out, int column, struct tensor x);
void cuda_cut(struct backend *b, struct tensor out, struct tensor x, int column);
void cuda_move(struct backend *b, const struct tensor *x, int count, int to, const int32_t *row, int n);
void cuda_probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s);
size_t cuda_verify_bytes(struct backend *b, const struct verify_request *j);
void cuda_verify(struct backend *b, const struct verify_request *j, int n);
void cuda_verify_wait(struct backend *b, const struct verify_request *j, struct verify_result *to, int n);
struct drafting *cuda_drafts_create(struct backend *b, const struct drafting_shape *s);
void cuda_drafts_destroy(struct backend *b, struct drafting *g);
void cuda_drafts_begin(struct backend *b, struct drafting *g, const struct drafting_request *r, int n);
void cuda_drafts_level(struct backend *b, struct drafting *g, const struct drafting_level *l);
void cuda_drafts_end(struct backend *b, struct drafting *g);
void cuda_best(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p);

} // namespace DEVICE_SPACE
