// timed.h - counts calls and time of a backend's operations, by operation.
//
// From timed_begin to timed_end the backend's operations are replaced by others, which call the real ones and wait for
// each, so that a device that queues does not run one during the next. Results have equal bits. Graphs are off
// meanwhile: their operations are queued one by one.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"

enum { MAX_TIMED = 32 };

struct timed_entry {
    const char *operation; // name of the operation in struct backend: "matmul"
    int64_t calls, ns;
};

struct timed {
    int n;
    struct timed_entry entry[MAX_TIMED]; // ordered by their first call

    // The following are used between the two calls.
    struct backend *backend, real; // the backend, and its original operations
    struct device_step step;
    int depth; // number of operations under way: one that calls another is timed as one
    bool failed;
    struct error err; // the first failure since the last sync(), found while waiting for an operation
};

// Clears the counts and begins counting. t: borrowed until timed_end. A backend has one at a time.
void timed_begin(struct timed *t, struct backend *b);
// Stops counting and keeps the counts. Returns false and sets err if an operation has failed and no sync() has reported
// it.
bool timed_end(struct timed *t, struct error *err);
