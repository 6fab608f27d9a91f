// device_pair.h - a model on a device twice, as it is and on the same kind of device without graphs and padding
// (kernels/cuda/graphs.cu): passes that have to come to the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "models/model.h"
#include "tests/device/gpus.h"

enum { COUPLE_SLOTS = 2, COUPLE_LENGTH = 1700, COUPLE_ROWS = 576, COUPLE_VOCAB = 40 };

struct couple_side {
    struct backend *b; // borrowed
    struct model *m;
    struct kv_cache *c;
    struct taps taps;
    struct tensor logits, gate, up, gated;
    int64_t launches, of_logits; // of the last pass
    float *got;                  // logits, last and tapped states, and what gated makes of the last ones
};

struct couple {
    const struct gpu_here *g;
    struct couple_side side[2]; // the second is without
    size_t numbers;             // of a row, in `got`
};

struct rows { // of a pass
    int n;
    int32_t token[COUPLE_ROWS], slot[COUPLE_ROWS], parent[COUPLE_ROWS];
};

enum kind { FIRST, CAPTURED, REPLAYED }; // of passes

int32_t couple_any(int below);
// What an emulated device counts; 0: there is none.
int64_t couple_launches(void);
int64_t couple_graphs(void);

// Two devices; closing them finds graphs that are left over.
void couple_devices_open(const struct gpu_here *g, struct backend *b[2]);
void couple_devices_close(struct backend *b[2]);
char *couple_model(enum type type, int layers, int head_dim); // a path; free() it
struct couple couple_open(const struct gpu_here *g, struct backend *b[2], const char *path, enum activations a,
                          enum type cache);
void couple_close(struct couple *c);
void couple_new_cache(struct couple_side *s, enum type cache);

// So many in each slot, as trees.
struct rows rows_of(int first, int second);
struct pass pass_of(const struct rows *r);
void couple_keep(struct couple *c, int slot, const int32_t *row, int n);
void couple_cut(struct couple *c, int slot, int length);
// Of a slot's n rows, from `first` of the pass on, the last one and what it follows.
void couple_keep_path(struct couple *c, const struct rows *r, int slot, int first, int n);
// A prefix of slot 0 of numbers that nobody computed, the same on both.
void couple_fill(struct couple *c, int length);
uint8_t *couple_numbers(struct tensor t); // such numbers for a cache; free() them

// On one side, or on both and the test has failed if bits differ, or if the first does not go about it as is expected. One
// that is captured or replayed is two launches: its tokens' embeddings, and all the rest.
void couple_run(struct couple_side *s, const struct rows *r);
void couple_both(struct couple *c, const struct rows *r, enum kind expected);
// n rows behind so many of slot 0, of which nothing is kept.
void couple_behind(struct couple *c, int length, int n, enum kind expected);
