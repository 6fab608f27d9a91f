// backend.h - what a device must be able to do. The models are written once, in these operations.
//
// Operations are queued in order and cannot fail one by one. The first thing that went wrong since
// the last sync() is what sync() reports: that is how CUDA behaves anyway, and it keeps the forward
// pass free of error handling. Shapes are checked by assert() in every backend.
//
// The arithmetic for one output of one row never depends on what else is in the pass: not on n, not on the other
// rows, not on threads. tests/device/test_kernels.c holds every backend to that, bit by bit, but the one that says it
// `varies`: its products are a library's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "core/workers.h"

struct error;
struct drafting_level;
struct drafting_request;
struct drafting_shape;
struct drafting;
struct verify_request;
struct row_stages;
struct verify_result;

// Who may look at whom in one pass. Built once per pass by kv_admit, in the host's memory; a device of its own takes a copy
// of it the first time it sees a pass's number.
// A row sees its slot's whole prefix, and of the slot's pending rows those whose bit is set. Behind all others there may be
// rows of padding (bucket): what they are is nobody's business, but they see nothing, so attention makes zeros of them, and
// nothing of them is kept.
struct layout {
    int n, words;
    int length;                // cache rows of a slot: slot s begins at row s * length
    const int32_t *slot;       // (n) -1: padding
    const int32_t *prefix;     // (n) rows of the slot's prefix
    const int32_t *place;      // (n) cache row that receives this row's key and value; -1: none
    const int32_t *position;   // (n) angle for rope: prefix + depth in the tree
    const uint64_t *ancestors; // (n, words) bit j: pending row j, itself included
    uint64_t pass;             // a number that no other pass on this backend has; 0: it has none
    // Rows of which the host knows less than the device: for those, position and ancestors here are bounds, and the device
    // puts in what parent says.
    const struct device_rows *there;
    int n_device_rows;
};

// Rows of a pass, of one slot, whose tokens the host has not seen: the drafter's device has put them into its memory.
struct device_rows {
    int first, n;         // rows first .. first + n
    const int32_t *token; // (n)
    const int32_t
        *parent;  // of the slot's pending rows from the first on, those before this pass included: the pending row
                  // that each of them follows; -1: the prefix. NULL where nobody asks
    int64_t base; // added to token, where it numbers rows of some table
};

// One weight's share of a matmul.
struct product {
    struct tensor out, w; // (n, m), (m, k) as prepare() returned it
    struct tensor bias;   // (1, m); data NULL: none
    bool add;             // out += ..: a residual stream
};
enum { MAX_PRODUCTS = 4, MAX_STAMPS = 24 };

// A routine is a stretch of operations that comes again and again. What decides which operations they are, all of it but
// what stands in the memory that they read:
enum { GRAPH_KEY_FACTS = 10 };
struct graph_key {
    const struct layout *see;  // of their pass
    const void *whose, *cache; // as long as these live, all their memory stays where it is
    int fact[GRAPH_KEY_FACTS]; // what else there is
};

struct backend {
    const char *name; // "cpu", "cuda", "cublas"
    bool varies;      // bits of a row depend on what is beside it in the pass
    bool queues; // operations are done after they return, while the host goes on; else they are done when they return
    uint64_t passes; // so many were numbered: layout.pass

    void *(*alloc)(struct backend *b, size_t bytes); // NULL: no room
    void (*release)(struct backend *b, void *data);
    void (*upload)(struct backend *b, void *to, const void *host, size_t bytes);
    void (*download)(struct backend *b, void *host, const void *from, size_t bytes);
    void *(*host)(struct backend *b, void *data); // the same memory as the host has it; NULL: it has to be downloaded
    bool (*sync)(struct backend *b, struct error *err);
    void (*destroy)(struct backend *b);
    const char *(*describe)(struct backend *b); // "avx512, 2 threads": goes into the results; borrowed

    // Notes, under a number below MAX_STAMPS, the moment at which all that is queued so far is done; between two of them lie
    // so many nanoseconds, by the device's own clock, which is known after the next sync().
    void (*stamp)(struct backend *b, int number);
    int64_t (*between)(struct backend *b, int from, int to);
    // Its memory, where it has its own; false: it has the host's.
    bool (*memory)(struct backend *b, size_t *free_bytes, size_t *all);

    // Its threads on the host, idle between operations, for what is worked on there: rows of probabilities. Borrowed for
    // its life; { 0 }: it has none.
    struct workers (*workers)(struct backend *b);

    // So many rows a pass of n is best queued as, n or more: with padding there are fewer kinds of passes. NULL: n.
    int (*bucket)(struct backend *b, int n);
    // A routine can be queued at once, as it was remembered:
    //     for (bool done = replayed(b, &r); !done; done = remembered(b))
    //         its operations, none of which waits or brings anything to the device or from it
    // replay true: it is queued. remember false: it is not, and has to be gone through again. NULL: nothing is remembered.
    bool (*graph_launch)(struct backend *b, const struct graph_key *r);
    bool (*graph_end)(struct backend *b);

    // What products with such weights round their input to here, DEFAULT being the device's choice; the answer DEFAULT: it
    // cannot do what was wanted.
    enum activations (*rounds_to)(struct backend *b, enum activations wanted, enum type weights);
    // A weight as this device likes it best: packed, repacked or uploaded once, when the model is opened. matmul and
    // take (a tied embedding is both head and table) accept what prepare returns; unprepare gives back what it took.
    struct tensor (*prepare)(struct backend *b, struct tensor w, enum activations a, struct error *err);
    void (*unprepare)(struct backend *b, struct tensor w);
    // For whoever keeps packed weights in a file. `packed` shows what prepare made, the same bytes on every machine of one
    // layout; prepare with w.data NULL makes room and leaves it to the caller to fill.
    int packed_layout; // changes when these bytes do; 0: there is nothing to keep
    void *(*packed)(struct backend *b, struct tensor w, size_t *bytes);

    // out (n, m) = x (n, k) w (m, k)^T + bias, one order of summation for every n; several weights that read the same x
    // share its rounding and the round of threads.
    void (*matmul)(struct backend *b, struct tensor x, const struct product *p, int count);
    // out = silu(x gate^T) * (x up^T): (n, m)
    void (*gated)(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up);
    void (*add)(struct backend *b, struct tensor out, struct tensor x); // x: (n, m), or one row for all
    void (*rmsnorm)(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps);
    void (*swiglu)(struct backend *b, struct tensor out, struct tensor gate, struct tensor up); // no up: silu
    // Rope's cosines and sines for the rows of a pass, once for all layers: out (n, head_dim), cosines before sines.
    void (*angles)(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency);
    // Turns q (n, heads * head_dim) in place, and k and v (n, kv heads * head_dim) into their places in the cache, k turned.
    void (*store)(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                  struct tensor keys, struct tensor values, const struct layout *s);
    // keys, values: F32, BF16 or Q8_0
    void (*attend)(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                   const struct layout *s, int head_dim);
    void (*take)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row);
    // out[i] = x[row[i]]: embeddings, features
    void (*gather_on_device)(struct backend *b, struct tensor out, struct tensor x, const struct device_rows *r, int n);
    // the same by numbers on the device: out[first + i] = x[base + token[i]]; NULL: no pass has such rows
    void (*place)(struct backend *b, struct tensor out, int column, struct tensor x);
    // out[i][column ..] = x[i]: states laid side by side
    void (*cut)(struct backend *b, struct tensor out, struct tensor x, int column);
    // out[i] = x[i][column ..]: one of them again
    void (*move)(struct backend *b, const struct tensor *x, int count, int to, const int32_t *row, int n);
    // x[to + i] = x[row[i]] in each of count tensors of one type and width, rows ascending and >= to + i: kv_keep
    void (*best)(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p);
    // (n, k) the k likeliest of each row, ties to the lowest id: what trees grow from
    // Logits (n, vocab) become probabilities where they lie, the bits being sampling_row's; ids from live on are no tokens.
    // NULL: rows are made on the host, which has them.
    void (*probabilities)(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s);
    // n drafts are judged where their rows are, all at once; the answers are verifier/'s to the bit, and ruled waits for them:
    // one read. j, of both: the same. A ruling of no tokens: the device failed, and sync says so. NULL: the host judges.
    void (*verify)(struct backend *b, const struct verify_request *j, int n);
    size_t (*verify_bytes)(struct backend *b, const struct verify_request *j); // that one such draft takes, of no data
    void (*verify_wait)(struct backend *b, const struct verify_request *j, struct verify_result *to, int n);
    // Drafts grow where the logits are (core/device_drafting.h), and the host waits for nothing. create: NULL: no room. All NULL: they
    // grow on the host.
    struct drafting *(*drafts_create)(struct backend *b, const struct drafting_shape *s);
    void (*drafts_destroy)(struct backend *b, struct drafting *g);
    void (*drafts_begin)(struct backend *b, struct drafting *g, const struct drafting_request *r,
                         int n); // of different slots
    void (*drafts_level)(struct backend *b, struct drafting *g, const struct drafting_level *l);
    void (*drafts_end)(struct backend *b, struct drafting *g);
};

// Room for rows of floats; data NULL: there is none.
static inline struct tensor rows_on(struct backend *b, int64_t rows, int64_t width)
{
    return tensor_of(b->alloc(b, (size_t)(rows * width) * sizeof(float)), F32, rows, width);
}

// Rows of a table by the tokens of a pass, of which some may be there.
static inline void take_tokens(struct backend *b, struct tensor out, struct tensor x, const int32_t *token,
                               const struct device_rows *r, int n)
{
    b->take(b, out, x, token);
    if (n > 0)
        b->gather_on_device(b, out, x, r, n);
}

static inline int rows_queued(struct backend *b, int n)
{
    return b->bucket != NULL ? b->bucket(b, n) : n;
}

static inline bool graph_launched(struct backend *b, const struct graph_key *r)
{
    return b->graph_launch != NULL && b->graph_launch(b, r);
}

static inline bool graph_ended(struct backend *b)
{
    return b->graph_end == NULL || b->graph_end(b);
}

// out = x w^T
static inline void multiply(struct backend *b, struct tensor out, struct tensor x, struct tensor w)
{
    const struct product p = { .out = out, .w = w };
    b->matmul(b, x, &p, 1);
}

struct backend *backend_cpu(int threads, struct error *err); // threads 0: one for each processor this process may use
// The same with one instruction set, for tests and benchmarks: "plain", "avx2", "avx512"; NULL: the best there is.
struct backend *backend_cpu_with(int threads, const char *isa, struct error *err);
struct backend *backend_cuda(int device, struct error *err); // fails in builds without CUDA
// The same, but products are cuBLAS's, of weights in floats alone: to compare with. It varies.
struct backend *backend_cublas(int device, struct error *err);
