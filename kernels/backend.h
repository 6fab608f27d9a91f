// backend.h - what a device must be able to do. The models are written once, in these operations.
//
// Operations are queued in order and cannot fail one by one. The first thing that went wrong since
// the last sync() is what sync() reports: that is how CUDA behaves anyway, and it keeps the forward
// pass free of error handling. Shapes are checked by assert() in every backend.
//
// The arithmetic for one output of one row never depends on what else is in the pass: not on n, not on the other
// rows, not on threads. tests/test_kernels.c holds every backend to that, bit by bit.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;

// Who may look at whom in one pass. Built once per pass by kv_admit, uploaded once to fixed addresses (a captured graph
// finds them again), used by every layer.
// A row sees its slot's whole prefix, and of the slot's pending rows those whose bit is set.
struct layout {
    int n, words;
    int length;                // cache rows of a slot: slot s begins at row s * length
    const int32_t *slot;       // (n)
    const int32_t *prefix;     // (n) rows of the slot's prefix
    const int32_t *place;      // (n) cache row that receives this row's key and value
    const int32_t *position;   // (n) angle for rope: prefix + depth in the tree
    const uint64_t *ancestors; // (n, words) bit j: pending row j, itself included
};

struct backend {
    const char *name; // "cpu", "cuda"

    void *(*alloc)(struct backend *b, size_t bytes); // NULL: no room
    void (*release)(struct backend *b, void *data);
    void (*upload)(struct backend *b, void *to, const void *host, size_t bytes);
    void (*download)(struct backend *b, void *host, const void *from, size_t bytes);
    bool (*sync)(struct backend *b, struct error *err);
    void (*destroy)(struct backend *b);
    const char *(*describe)(struct backend *b); // "avx512, 2 threads": goes into the results; borrowed

    // A weight as this device likes it best: packed, repacked or uploaded once, when the model is opened. matmul and
    // take (a tied embedding is both head and table) accept what prepare returns; unprepare gives back what it took.
    struct tensor (*prepare)(struct backend *b, struct tensor w, enum activations a, struct error *err);
    void (*unprepare)(struct backend *b, struct tensor w);

    // x (n, k), w (m, k), out (n, m); one order of summation for every n
    void (*matmul)(struct backend *b, struct tensor out, struct tensor x, struct tensor w);
    void (*add)(struct backend *b, struct tensor out, struct tensor x); // x: (n, m), or one row for all
    void (*rmsnorm)(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps);
    void (*swiglu)(struct backend *b, struct tensor out, struct tensor gate, struct tensor up); // no up: silu
    void (*rope)(struct backend *b, struct tensor x, const struct layout *s, struct tensor inverse_frequency);
    void (*store)(struct backend *b, struct tensor cache, struct tensor x, const struct layout *s);
    void (*attend)(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                   const struct layout *s, int head_dim);
    void (*take)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row);
    // out[i] = x[row[i]]: embeddings, features
    void (*place)(struct backend *b, struct tensor out, int column, struct tensor x);
    // out[i][column ..] = x[i]: states laid side by side
    void (*move)(struct backend *b, struct tensor x, int to, const int32_t *row, int n);
    // x[to + i] = x[row[i]], rows ascending and >= to + i: kv_keep
    void (*best)(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p);
    // (n, k) the k likeliest of each row, ties to the lowest id: what trees grow from
};

struct backend *backend_cpu(int threads, struct error *err); // threads 0: one for each processor this process may use
// The same with one instruction set, for tests and benchmarks: "plain", "avx2", "avx512"; NULL: the best there is.
struct backend *backend_cpu_with(int threads, const char *isa, struct error *err);
struct backend *backend_cuda(int device, struct error *err); // fails in builds without CUDA
