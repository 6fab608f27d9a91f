// timed.h - a backend that forwards to another and counts calls and time by operation.
//
// Results have the same bits. While timing, it waits for every operation, so that a device that queues does not run one during the
// next; otherwise an operation costs one more call.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct backend;

struct timed_entry {
    const char *operation; // "matmul": its name in struct backend
    int64_t calls, ns;
};

// Takes ownership of inner: destroy() destroys both. Its models, caches and tensors belong to inner.
struct backend *backend_timed(struct backend *inner);
void timed_begin(struct backend *b); // forgets what was counted, and counts
void timed_end(struct backend *b);   // what was counted stays to be read
int timed_entries(const struct backend *b);
const struct timed_entry *timed_entry_at(const struct backend *b, int i); // in the order in which they first came
