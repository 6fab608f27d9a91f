// kv_cache.h - keys and values of several sequences, and the rows that are not yet certain.
//
// A slot's rows are a prefix, which is certain, and behind it pending rows, which a pass wrote on
// the strength of a guess. Nothing is ever rolled back: guesses that came true are kept, the rest
// is forgotten by being overwritten.
//
//     prefix                pending (a tree)         kv_keep(c, slot, {0, 1, 4}, 3)
//     | t0 t1 t2 ... t41 |  0  1  2  3  4       ->   | t0 t1 t2 ... t41 0 1 4 |
//
// Whoever runs a model owns its cache: the verifier the target's, a drafter its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;
struct kv_cache;
struct layout;
struct pass;

// What a cache keeps keys and values in, as a person asks for it. DEFAULT is made definite by kv_type_resolve alone.
enum kv_type { KV_DEFAULT, KV_F32, KV_BF16, KV_Q8_0 };
#define KV_CHOICES "default|f32|bf16|q8_0"
extern const char *const kv_type_names[]; // the same words; ends with NULL
enum type kv_type_resolve(enum kv_type wanted);

struct kv_shape {
    int layers, width; // width: kv heads * head_dim
    int head_dim;
    int slots, length; // length: prefix and pending rows together
    int pending;       // most pending rows a slot may have
    enum type type;    // F32, BF16 or Q8_0
};

bool kv_fits(const struct kv_shape *shape, struct error *err); // q8_0: a head is a whole number of blocks
struct kv_cache *kv_create(struct backend *b, const struct kv_shape *shape, struct error *err);
void kv_destroy(struct kv_cache *c);
size_t kv_bytes(const struct kv_shape *shape); // what kv_create would allocate

// Admits a pass: its rows become pending, and from parent[] alone follow their places, positions
// and what they see. For model_forward, and for drafters with layers of their own. Rows of one slot stand in a pass in
// the order of their pending numbers. rows: what the pass is queued as (rows_queued): behind its own are rows of padding.
// The layout is borrowed until the next kv_admit. A pass that does not fit is a bug: kv_capacity asks first.
const struct layout *kv_admit(struct kv_cache *c, const struct pass *p, int rows);
struct tensor kv_keys(struct kv_cache *c, int layer); // (slots * length, width)
struct tensor kv_values(struct kv_cache *c, int layer);

int kv_length(const struct kv_cache *c, int slot);                     // of the prefix
int kv_pending(const struct kv_cache *c, int slot);                    // rows behind it
int kv_capacity(const struct kv_cache *c, int slot);                   // pending rows that may still be admitted
void kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n); // pending, ascending; no others stay
void kv_cut(struct kv_cache *c, int slot, int length);                 // shorten the prefix; pending rows are dropped
