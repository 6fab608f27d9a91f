// device_pair.h - a model on a device, and again on the same kind of device without graphs and padding (kernels/cuda/graphs.cu): passes
// that must have the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "models/model.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"

enum { PAIR_SLOTS = 2, PAIR_LENGTH = 1700, PAIR_ROWS = 576, PAIR_VOCAB = 40 };

struct device_pair_side {
    struct backend *b; // borrowed
    struct model *m;
    struct kv_cache *c;
    struct taps taps;
    struct tensor logits, gate, up, gated;
    int64_t launches, of_logits; // of the last pass
    float *got;                  // logits, last and tapped states, and what gated makes of the last ones
};

struct device_pair {
    const struct gpu_here *g;
    struct device_pair_side side[2]; // the second is without graphs
    size_t numbers;                  // of a row, in `got`
};

struct rows { // of a pass
    int n;
    int32_t token[PAIR_ROWS], slot[PAIR_ROWS], parent[PAIR_ROWS];
};

enum kind { FIRST, CAPTURED, LAUNCHED }; // of passes

int32_t device_pair_any(int below);
// Two devices; closing them fails if graphs are left.
void device_pair_devices_open(const struct gpu_here *g, struct backend *b[2]);
void device_pair_devices_close(struct backend *b[2]);
char *device_pair_model(enum type type, int layers, int head_dim); // a path; free() it
struct device_pair device_pair_open(const struct gpu_here *g, struct backend *b[2], const char *path,
                                    enum activations a, enum type cache);
void device_pair_close(struct device_pair *c);
void device_pair_new_cache(struct device_pair_side *s, enum type cache);

// Random trees of so many rows in each slot.
struct rows rows_of(int first, int second);
struct pass pass_of(const struct rows *r);
void device_pair_keep(struct device_pair *c, int slot, const int32_t *row, int n);
void device_pair_cut(struct device_pair *c, int slot, int length);
// Keeps the path to the last of a slot's n rows, which begin at row `first` of the pass.
void device_pair_keep_path(struct device_pair *c, const struct rows *r, int slot, int first, int n);
// A prefix of slot 0 of random numbers, the same on both.
void device_pair_fill(struct device_pair *c, int length);
uint8_t *device_pair_numbers(struct tensor t); // random numbers for a cache; free() them

// A pass on one side; or on both, where the test fails if bits differ or if the first side does not queue it as expected. A captured or
// launched one is two launches: the embeddings, and the graph.
void device_pair_run(struct device_pair_side *s, const struct rows *r);
void device_pair_both(struct device_pair *c, const struct rows *r, enum kind expected);
// A pass of n rows behind so many of slot 0, of which none is kept.
void device_pair_behind(struct device_pair *c, int length, int n, enum kind expected);
