// timed.h - a backend that does what another does and keeps account of it: calls, time, bytes and work by operation.
//
// Results have the same bits. While it counts, every operation is waited for, so that a device that queues does not
// hide one behind the next; while it does not, an operation costs one more call and nothing else.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;

struct timed_entry {
    const char *operation; // "matmul"; the name it has in struct backend
    int64_t rows, width;   // of a matmul's weights: outputs together, inputs; 0 for other operations
    enum type type;        // of those weights
    int products;          // of one call
    int64_t calls, ns;
    double bytes; // of weights, or of cache rows, that had to be read
    double flops; // multiplications and additions; of matmul, gated and attend only
};

// Owns inner from now on: its destroy() destroys both. Models, caches and tensors of it belong to inner.
struct backend *backend_timed(struct backend *inner);
void timed_begin(struct backend *b); // forgets what was counted, and counts
void timed_end(struct backend *b);   // what was counted stays to be read
int timed_entries(const struct backend *b);
const struct timed_entry *timed_entry_at(const struct backend *b, int i); // in the order in which they first came
