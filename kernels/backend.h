// backend.h - the tensor operations of a device. Models are written once, in these operations.
//
// Operations are queued in order and do not fail one by one: sync() reports the first failure since the last sync().
// CUDA behaves so anyway, and forward passes need no error handling. Every backend checks shapes by assert().
//
// The arithmetic of one output of one row never depends on the rest of the pass: not on n, not on the other rows, not
// on threads. tests/device/test_matmul.c checks this bit by bit for every backend except those with `varies`, whose
// products are a library's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "core/workers.h"

struct device_step;
struct error;
struct timed;

// The tree mask of one pass. kv_admit builds it once per pass, in the host's memory; upload_layout copies it to a
// device with separate memory.
//
// A row sees its slot's whole prefix, and those of the slot's pending rows whose bit is set. The last rows may be
// padding (bucket). They see nothing, so attention returns zeros for them, and none of their results is kept.
struct layout {
    int n, words;
    int length;            // cache rows of a slot: slot s begins at row s * length
    const int32_t *slot;   // (n) -1: padding
    const int32_t *prefix; // (n) rows of the slot's prefix
    const int32_t
        *place; // (n) cache row that receives this row's key and value; a slot's rows follow each other; -1: none
    const int32_t *position;   // (n) position for rope: prefix + depth in the tree
    const uint64_t *ancestors; // (n, words) bit j: the row sees pending row j; its own bit is set
    uint64_t uploaded; // the number that upload_layout returned; 0: operations that need a copy make one each time
    // Rows whose tokens only the device has. Their position and ancestors above are bounds, which the device replaces
    // according to their parents.
    const struct device_rows *device_rows;
    int n_device_rows;
    // These replace length, prefix and place in layers that keep the rows of a window only (models/kv_cache.h). The
    // cache of such a layer begins at a later position, a multiple of SHORT_UNIT. short_length 0: no layer is short.
    int short_length;
    const int32_t *short_prefix, *short_place; // (n)
    int context;                               // maximum tokens of a sequence
    // Tokens and parents for embed, join and keep_states; NULL: none of them is called. The device replaces them in
    // device_rows.
    const int32_t *token;  // (n)
    const int32_t *parent; // (n) pending row of the slot; -1: the prefix
};

// Backends divide positions into splits of as many (or of a divisor), so the position at which a cache begins changes
// no bits.
enum { SHORT_UNIT = 256 };

// Returns the layout of a layer with a short cache.
static inline struct layout short_layout(const struct layout *s)
{
    struct layout other = *s;
    other.length = s->short_length;
    other.prefix = s->short_prefix;
    other.place = s->short_place;
    return other;
}

// Rows of a pass, all of one slot, whose tokens the device has made and the host has not seen.
struct device_rows {
    int first, n;         // rows first .. first + n
    const int32_t *token; // (n) on the device
    // (pending rows of the slot) on the device: for each pending row of the slot, the pending row before it; -1: the
    // prefix.
    const int32_t *parent;
};

// One weight of a matmul.
struct product {
    struct tensor out, w; // (n, m), (m, k) as prepare() returned it
    struct tensor bias;   // (1, m); data NULL: none
    bool add;             // out += instead of out =, for a residual stream
};
enum { MAX_PRODUCTS = 4, MAX_STAMPS = 24, MAX_MIXED = 64 };

// The function of a gate: SwiGLU's x sigmoid(x), or GEGLU's gelu(x) in its approximation by tanh (Shazeer 2020, arXiv
// 2002.05202).
enum gate_function { GATE_SILU, GATE_GELU };

// Rows of a grouped product that share weights: those that use one expert.
struct row_group {
    struct tensor w, up; // (m, k) as prepare() returned them; up.data NULL: none
    int32_t rows;        // number of rows of out, after those of the previous groups; 0: the weights are not read
};

// Rows row[0..n) of a tensor become its rows to .. to + n. They are ascending, each at or after its new place.
struct row_run {
    int to, n;
    const int32_t *row;
};

// The treatment of attention's scores, in addition to the layout.
struct attention {
    int head_dim;
    float scale;      // factor of scores; 0: 1 / sqrt(head_dim)
    float cap;        // 0: none; otherwise a score becomes cap * tanh(score / cap) (Gemma-2)
    int window;       // 0: none; otherwise a row sees the last `window` positions up to its own
    bool short_cache; // keys and values belong to a layer with a short cache: the short_* of struct layout locate them
};

// The states of a head, in rows slot * of_slot .. of a tensor: the root's, then those of the slot's pending rows.
struct joining {
    int of_slot;
    float eps;      // epsilon of both norms
    bool keeps_raw; // x receives the raw state, otherwise the normed one
};

// Identifies a sequence of operations that is queued repeatedly, so that a backend can capture it as a graph and launch
// that. It contains all that its launches depend on, except the contents of the memory they read.
enum { GRAPH_KEY_FACTS = 10 };
struct graph_key {
    const struct layout *see;  // layout of the pass
    const void *whose, *cache; // all their memory keeps its address as long as these exist
    int fact[GRAPH_KEY_FACTS]; // everything else
};

struct backend {
    const char *name;               // "cpu", "cuda", "cublas"
    bool varies;                    // the bits of a row depend on the other rows of the pass
    bool queues;                    // operations run asynchronously; otherwise they are done when they return
    const struct device_step *step; // NULL: drafting, verification and probabilities run on the host
    struct timed *timed;            // counts the time of operations (timed.h); NULL: off

    void *(*alloc)(struct backend *b, size_t bytes); // NULL: out of memory
    void (*release)(struct backend *b, void *data);
    void (*upload)(struct backend *b, void *to, const void *host, size_t bytes);
    void (*download)(struct backend *b, void *host, const void *from, size_t bytes);
    void *(*host)(struct backend *b, void *data); // returns the host's address of the memory; NULL: it must be
                                                  // downloaded
    bool (*sync)(struct backend *b, struct error *err);
    // Waits for all work on the device, that of other libraries of this process included, and returns CUDA's number of
    // the device. Code of others may read and write the device's memory between two calls. Returns -1 and sets err on
    // failure. NULL: the memory is the host's.
    int (*sync_all)(struct backend *b, struct error *err);
    void (*destroy)(struct backend *b);
    const char *(*describe)(struct backend *b); // returns "avx512, 2 threads", which is stored with the results;
                                                // borrowed

    // Receives a sentence about a feature that the device switches off, which changes no bits: "CUDA graphs: off (..)".
    // The backend's user sets it (devices.h); NULL: the sentence is dropped.
    void (*log)(void *self, const char *sentence);
    void *log_self;

    // stamp records the time at which all operations queued so far are done, under a number below MAX_STAMPS. between
    // returns the nanoseconds between two stamps by the device's clock, known after the next sync().
    void (*stamp)(struct backend *b, int number);
    int64_t (*between)(struct backend *b, int from, int to);
    // Returns free and total device memory; false: the device uses the host's memory.
    bool (*memory)(struct backend *b, size_t *free_bytes, size_t *all);

    // Returns its threads on the host, idle between operations, for work on rows of probabilities. They are borrowed
    // while b exists; { 0 }: none.
    struct workers (*workers)(struct backend *b);

    // Copies the arrays of a pass's layout to the device. Returns the copy's number, for layout.uploaded; the next call
    // replaces the copy. NULL: operations read the host's arrays.
    uint64_t (*upload_layout)(struct backend *b, const struct layout *s);
    // Returns the number of rows, n or more, to which a pass of n rows is padded: padding makes fewer distinct graphs.
    // NULL: n.
    int (*bucket)(struct backend *b, int n);
    // Graph capture and launch:
    //     for (bool done = graph_launched(b, &k, &out); !done; done = graph_ended(b, out))
    //         out = operations, none of which waits, uploads or downloads
    // graph_launch returns true if a captured graph was launched, and sets *out to what its operations returned.
    // graph_end returns false if capture failed and the operations have to be queued again. NULL: no graphs.
    bool (*graph_launch)(struct backend *b, const struct graph_key *k, struct tensor *out);
    bool (*graph_end)(struct backend *b, struct tensor out);

    // Returns the activations of products with such weights on this device; DEFAULT: the device's choice. Returns
    // DEFAULT if it does not support `wanted`.
    enum activations (*rounds_to)(struct backend *b, enum activations wanted, enum type weights);
    // prepare returns the device's form of a weight: packed, repacked or uploaded once, when the model is opened.
    // matmul and take (a tied embedding is head and table) accept it; unprepare frees it.
    struct tensor (*prepare)(struct backend *b, struct tensor w, enum activations a, struct error *err);
    void (*unprepare)(struct backend *b, struct tensor w);
    // These serve the packed-weight cache. `packed` returns the bytes that prepare made, which are equal on every
    // machine with an equal packed_layout. prepare with w.data NULL allocates them for the caller to fill.
    int packed_layout; // changes when these bytes do; 0: not supported
    void *(*packed)(struct backend *b, struct tensor w, size_t *bytes);

    // Products read a special form of their input: rounded, and in the order of the weights. An operation that makes
    // the input of a product may also write that form. It then returns `out` with a number (struct tensor: rounded) by
    // which the product finds the form. The number belongs to that value alone, and is void when an operation writes to
    // the value; `upload` ignores it. A device keeps few of these forms, and a product makes the form if its input has
    // none.

    // out (n, m) = x (n, k) w (m, k)^T + bias, summed in the same order for every n. Weights that read the same x share
    // its rounding and one launch.
    void (*matmul)(struct backend *b, struct tensor x, const struct product *p, int count);
    // out = f(x gate^T) * (x up^T): (n, m)
    struct tensor (*gated)(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up,
                           enum gate_function f);
    // Do the same for groups of rows: out[i] = x[row[i]] w^T, or f(x[row[i]] w^T) * (x[row[i]] up^T) if all groups have
    // `up`, with the weights of i's group. row NULL: i. Every output has the bits that matmul and gated give it. The
    // weights of a group are read once, whatever its number of rows.
    struct tensor (*grouped)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                             const struct row_group *g, int count, enum gate_function f);
    void (*add)(struct backend *b, struct tensor out, struct tensor x); // x: (n, m), or one row for all
    struct tensor (*rmsnorm)(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps);
    // out = f(gate) * up; no up: f(gate)
    void (*glu)(struct backend *b, struct tensor out, struct tensor gate, struct tensor up, enum gate_function f);
    // x = scale * x; with a positive cap: cap * tanh(scale * x / cap). Used for embeddings, residuals and logits.
    void (*rescale)(struct backend *b, struct tensor x, float scale, float cap);
    // Computes rope's cosines and sines for the rows of a pass, once for all layers of that RoPE: out (n, rotated),
    // cosines before sines.
    void (*angles)(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency);
    // Computes attention of the rows of a pass, with RoPE. It rotates the first `rotated` numbers of each head of q (n,
    // heads * head_dim) and k by angles (n, rotated; data NULL: no rotation), writes k and v (n, kv heads * head_dim)
    // to the cache, keys and values (F32, BF16 or Q8_0), and returns out (n, heads * head_dim). The contents of q are
    // undefined afterwards.
    struct tensor (*attend)(struct backend *b, struct tensor out, struct tensor q, struct tensor k, struct tensor v,
                            struct tensor angles, struct tensor keys, struct tensor values, const struct layout *s,
                            struct attention a);
    // out[i] = x[row[i]], for embeddings and features
    void (*take)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row);
    // out[i] = table[s->token[i]], the embedding of a pass
    void (*embed)(struct backend *b, struct tensor out, struct tensor table, const struct layout *s);
    // Computes the input of a layer of EAGLE: out[i] = [table[s->token[i]]; the state before row i], each normed if its
    // norm has data. With states (struct joining) the state is that of the row's parent; with data NULL it is x[i]. The
    // state is also written to x[i].
    struct tensor (*join)(struct backend *b, struct tensor out, struct tensor x, struct tensor table,
                          struct tensor states, struct tensor token_norm, struct tensor state_norm,
                          const struct layout *s, struct joining how);
    // Keeps the states x of a pass in `states`, one for each row. roots: the state of each slot's last row is also
    // stored as its root's.
    void (*keep_states)(struct backend *b, struct tensor states, struct tensor x, const struct layout *s, int of_slot,
                        bool roots);
    // out[i] = the sum over j < k of weight[i * k + j] * x[row[i * k + j]], in the order of j; k is at most MAX_MIXED.
    // Used for experts.
    void (*mix)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row, const float *weight, int k);
    // out[i][column ..] = x[i]: concatenates states
    void (*place)(struct backend *b, struct tensor out, int column, struct tensor x);
    // out[i] = x[i][column ..]: takes one of them
    void (*cut)(struct backend *b, struct tensor out, struct tensor x, int column);
    // Moves rows within each of count tensors of one type and width, for kv_keep. No run reads what another one writes.
    void (*move)(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs);
    // Returns the top-k of each row (n, k), ties to the lowest id.
    void (*best)(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p);
};

// Allocates rows of floats. data is NULL if memory is exhausted.
static inline struct tensor rows_on(struct backend *b, int64_t rows, int64_t width)
{
    return tensor_of(b->alloc(b, (size_t)(rows * width) * sizeof(float)), F32, rows, width);
}

static inline int rows_queued(struct backend *b, int n)
{
    return b->bucket != NULL ? b->bucket(b, n) : n;
}

static inline bool graph_launched(struct backend *b, const struct graph_key *k, struct tensor *out)
{
    return b->graph_launch != NULL && b->graph_launch(b, k, out);
}

static inline bool graph_ended(struct backend *b, struct tensor out)
{
    return b->graph_end == NULL || b->graph_end(b, out);
}

// out = x w^T
static inline void multiply(struct backend *b, struct tensor out, struct tensor x, struct tensor w)
{
    const struct product p = { .out = out, .w = w };
    b->matmul(b, x, &p, 1);
}

// Checks for sufficient memory of the device before a large allocation. Returns false and sets err (the purpose, the
// bytes needed, and the bytes free) if `bytes` are not free. what: the purpose, such as "the weights of x.gguf". A
// device that uses the host's memory always passes.
bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err);
// to (n, w.width) = rows first .. first + n - 1 of w, whose numbers are in the host's memory, as floats on the host:
// the backend reads every type. Returns false and sets err on failure.
bool float_rows(struct backend *b, struct tensor w, int64_t first, int64_t n, float *to, struct error *err);
// Returns the rows of floats that queued operations compute, valid until the next ones: in the backend's memory if that
// is the host's, otherwise in *copy, which is enlarged and which the caller frees. It waits. Returns NULL and sets err
// on failure.
float *rows_read(struct backend *b, struct tensor rows, float **copy, struct error *err);

struct backend *backend_cpu(int threads, struct error *err); // cpu/cpu.c; threads 0: one for each processor it may use
// Creates a CPU backend with one instruction set, for tests and benchmarks: "plain", "avx2", "neon", ..; NULL: the best
// supported.
struct backend *backend_cpu_with(int threads, const char *isa, struct error *err);
// Creates a CPU backend on the threads of the CPU backend `beside`: two pools would compete for the processors, since
// idle threads poll. Only one of the two backends may work at a time.
struct backend *backend_cpu_beside(struct backend *beside, const char *isa, struct error *err);
struct backend *backend_cuda(int device, struct error *err); // cuda/cuda.cu; nocuda.c fails in builds without CUDA
// Creates a CUDA backend with cuBLAS's products, for weights in floats only: it is for comparison, and has `varies`.
struct backend *backend_cublas(int device, struct error *err);
