// timed.h - counts calls and time of a backend's operations, by operation.
//
// From timed_begin to timed_end the backend's operations are others, which call the real ones and wait for each, so that a device that
// queues does not run one during the next. Results have the same bits. Graphs are off meanwhile: their operations are queued one by one.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"

enum { MAX_TIMED = 32 };

struct timed_entry {
    const char *operation; // "matmul": its name in struct backend
    int64_t calls, ns;
};

struct timed {
    int n;
    struct timed_entry entry[MAX_TIMED]; // in the order in which they first came

    // Between the two calls:
    struct backend *backend, real; // the backend, and what it was
    struct device_step step;
    int depth; // operations under way: one that calls another is timed alone
    bool failed;
    struct error err; // the first failure since the last sync(), found while waiting for an operation
};

// Forgets what was counted, and counts. t: borrowed until timed_end. One at a time for a backend.
void timed_begin(struct timed *t, struct backend *b);
// What was counted stays to be read. Returns false and sets err if an operation has failed, and no sync() has said so.
bool timed_end(struct timed *t, struct error *err);
