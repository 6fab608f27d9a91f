// kv_cache.h - keys and values of several sequences (slots), and rows of draft tokens that are not yet decided.
//
// The rows of a slot are a prefix, which is final, followed by pending rows, which a pass computed for draft tokens.
// Nothing is rolled back: rows of accepted tokens are appended to the prefix, the others are overwritten later.
//
//     prefix                pending (a tree)         kv_keep(c, slot, {0, 1, 4}, 3)
//     | t0 t1 t2 ... t41 |  0  1  2  3  4       ->   | t0 t1 t2 ... t41 0 1 4 |
//
// Layers that only see a window need not keep the rows before it. Their part of a slot then begins at a multiple of
// SHORT_UNIT (kernels/backend.h). When it is full, the rows that are still seen move to its beginning.
//
// The owner of a model owns its cache: the verifier the target's, a drafter its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/config.h"

struct backend;
struct error;
struct kv_cache;
struct layout;
struct pass;

// The element type of a cache, as an option names it. Only kv_type_resolve resolves DEFAULT.
enum kv_type { KV_DEFAULT, KV_F32, KV_BF16, KV_Q8_0 };
#define KV_CHOICES "default|f32|bf16|q8_0"
extern const char *const kv_names[]; // the names of KV_CHOICES, in the order of enum kv_type
enum type kv_type_resolve(enum kv_type wanted);

struct kv_shape {
    int layers, width; // width: KV heads * head_dim
    int head_dim;
    int slots, length; // length: maximum rows of a slot, prefix and pending rows together
    int pending;       // maximum pending rows of a slot
    enum type type;    // F32, BF16 or Q8_0
    int window;        // 0: layers keep all rows; otherwise those in `windowed` keep the rows of their window only
    struct layer_set windowed; // has no effect if a slot has hardly more rows than the window
    int context;               // maximum tokens of a sequence (LongRoPE); 0: length
};

// Returns false and sets err if the type does not fit: Q8_0 needs a head_dim that is a multiple of its block size.
bool kv_fits(const struct kv_shape *shape, struct error *err);
// Returns NULL and sets err on failure. backend: borrowed for the life of the cache.
struct kv_cache *kv_create(struct backend *b, const struct kv_shape *shape, struct error *err);
void kv_destroy(struct kv_cache *c);           // NULL is allowed
size_t kv_bytes(const struct kv_shape *shape); // bytes that kv_create allocates on the device

// Makes the rows of a pass pending. Derives from parent[] alone where each row is stored, its position, and its
// ancestors (the tree mask). model_forward calls it, and drafters with layers of their own. Rows of one slot are
// ordered by their pending numbers. rows: number of rows with which the pass is queued (rows_queued); those after p->n
// are padding. The layout is borrowed until the next kv_admit. A pass that does not fit is a bug of the caller.
const struct layout *kv_admit(struct kv_cache *c, const struct pass *p, int rows);
struct tensor kv_keys(struct kv_cache *c, int layer); // (slots * length, width)
struct tensor kv_values(struct kv_cache *c, int layer);

int kv_length(const struct kv_cache *c, int slot);  // rows of the prefix
int kv_pending(const struct kv_cache *c, int slot); // pending rows
// Appends pending rows row[0..n), in ascending order, to the prefix. All other pending rows are dropped. Rows move when
// the cache is next used, for all slots together.
void kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n);
// Appends n rows of zeros to the prefix, in the time of an upload, for measurements whose times do not depend on
// values. Returns false, and does nothing, if layers keep the rows of a window only.
bool kv_append_zeros(struct kv_cache *c, int slot, int n);
// Shortens the prefix to `length` rows, or to none if a window before them no longer exists. All pending rows are
// dropped. Returns the remaining rows. A caller that needs them creates its cache with window 0.
int kv_truncate(struct kv_cache *c, int slot, int length);
bool kv_is_short(const struct kv_cache *c, int layer); // value of struct attention: short_cache
