// layout.cu - the layout of a pass on the device: uploaded, or made there of rows whose tokens and parents only the
// device has, as models/kv_cache.c (kv_admit) makes the others.
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/device_step/drafting.h"
}

#include <string.h>

namespace DEVICE_SPACE
{

// ---- rows that the device has

enum { LAYOUT_THREADS = 256, MAX_CHUNKS = 64, MAX_PENDING = 2048 };
static_assert((int)MAX_NODES <= (int)MAX_PENDING && (int)DRAFTING_CANDIDATES <= (int)MAX_PENDING,
              "pending rows of such drafts");

struct layout_chunk {
    struct device_rows rows;
    int slot, prefix, place, short_prefix, short_place; // those of the first row
};

struct layout_call {
    int n;            // chunks
    int pass;         // rows without padding
    struct layout to; // arrays on the device
    struct layout_chunk of[MAX_CHUNKS];
};
static_assert(sizeof(struct layout_call) < 4096, "limit of kernel parameters");

template <typename T> __device__ static T &element(const T *array, int64_t i)
{
    return const_cast<T *>(array)[i];
}

// Padding sees nothing (kv_admit).
__device__ static void lay_out_padding(const struct layout &to, int i)
{
    element(to.slot, i) = element(to.place, i) = -1;
    element(to.prefix, i) = element(to.position, i) = element(to.token, i) = element(to.parent, i) = 0;
    for (int w = 0; w < to.words; w++)
        element(to.ancestors, (int64_t)i * to.words + w) = 0;
    if (to.short_length > 0) {
        element(to.short_place, i) = -1;
        element(to.short_prefix, i) = 0;
    }
}

__device__ static void lay_out_row(const struct layout &to, const struct layout_chunk &s, int i, int depth, int parent)
{
    const int row = s.rows.first + i;
    element(to.slot, row) = s.slot;
    element(to.prefix, row) = s.prefix;
    element(to.place, row) = s.place + i;
    element(to.position, row) = s.prefix + depth;
    element(to.token, row) = s.rows.token[i];
    element(to.parent, row) = parent;
    if (to.short_length > 0) {
        element(to.short_prefix, row) = s.short_prefix;
        element(to.short_place, row) = s.short_place + i;
    }
}

// One block per chunk, whose rows are consecutive pending rows; a thread for each word. A pending row sees itself and
// what its parent sees. One block more: padding, from row s.pass on.
static __global__ void __launch_bounds__(LAYOUT_THREADS) layout_kernel(const __grid_constant__ struct layout_call s)
{
    __shared__ int16_t parent[MAX_PENDING];
    kernel_prologue();
    if ((int)blockIdx.x == s.n) {
        for (int i = s.pass + (int)threadIdx.x; i < s.to.n; i += LAYOUT_THREADS)
            lay_out_padding(s.to, i);
        return;
    }
    const struct layout_chunk &own = s.of[blockIdx.x];
    const int first = own.place - own.slot * s.to.length - own.prefix;
    for (int row = (int)threadIdx.x; row < first + own.rows.n; row += LAYOUT_THREADS)
        parent[row] = (int16_t)own.rows.parent[row];
    __syncthreads();
    for (int k = (int)threadIdx.x; k < own.rows.n * s.to.words; k += LAYOUT_THREADS) {
        const int i = k / s.to.words, word = k % s.to.words;
        uint64_t bits = 0;
        int depth = -1;
        for (int row = first + i; row >= 0; row = parent[row], depth++)
            bits |= row / 64 == word ? (uint64_t)1 << row % 64 : 0;
        element(s.to.ancestors, (int64_t)(own.rows.first + i) * s.to.words + word) = bits;
        if (word == 0)
            lay_out_row(s.to, own, i, depth, parent[first + i]);
    }
}

// Whether the device makes all of a layout: the chunks begin with row 0 and leave out nothing but padding.
static bool layout_is_of_device_rows(const struct layout *s)
{
    int n = 0;
    for (int i = 0; i < s->n_device_rows; i++)
        n += s->device_rows[i].n;
    return n > 0 && (n == s->n || s->slot[n] < 0);
}

// Makes the device's part of a layout from what the host knows of it.
static void layout_on_device(struct cuda *c, const struct layout *host, const struct layout *see)
{
    struct layout_call s;
    s.to = *see;
    s.pass = host->n;
    for (int from = 0; from < host->n_device_rows; from += MAX_CHUNKS) {
        for (s.n = 0; s.n < MAX_CHUNKS && from + s.n < host->n_device_rows; s.n++) {
            const struct device_rows rows = host->device_rows[from + s.n];
            const int at = rows.first;
            s.of[s.n] = { rows, host->slot[at], host->prefix[at], host->place[at], 0, 0 };
            if (host->short_length > 0) {
                s.of[s.n].short_prefix = host->short_prefix[at];
                s.of[s.n].short_place = host->short_place[at];
            }
            s.pass = rows.first + rows.n;
        }
        const bool pads = from + s.n == host->n_device_rows && s.pass < host->n && host->slot[s.pass] < 0;
        QUEUE(c, layout_kernel, s.n + pads, LAYOUT_THREADS, 0, s);
    }
    cuda_launched(c, "the layout of a pass");
}

// ---- uploads

static void upload_arrays(struct cuda *c, const struct layout *s)
{
    const size_t n = (size_t)s->n, words = n * (size_t)s->words * sizeof(uint64_t), ids = n * sizeof(int32_t);
    const int arrays = s->short_length > 0 ? 8 : 6;
    const size_t bytes = words + (size_t)arrays * ids;
    uint8_t *to = (uint8_t *)cuda_reserve(c, &c->layout, bytes, "the layout of a pass");
    const int32_t *const from[] = { s->slot,  s->prefix, s->place,        s->position,
                                    s->token, s->parent, s->short_prefix, s->short_place };
    c->see = *s;
    if (to == NULL)
        return;
    c->see.ancestors = (const uint64_t *)to;
    c->see.slot = (const int32_t *)(to + words);
    c->see.prefix = c->see.slot + n;
    c->see.place = c->see.prefix + n;
    c->see.position = c->see.place + n;
    c->see.token = c->see.position + n;
    c->see.parent = c->see.token + n;
    c->see.short_prefix = c->see.parent + n;
    c->see.short_place = c->see.short_prefix + n;
    if (!layout_is_of_device_rows(s)) {
        if (bytes > c->host_bytes)
            c->host = xrealloc(c->host, c->host_bytes = bytes);
        uint8_t *host = (uint8_t *)c->host;
        memcpy(host, s->ancestors, words);
        for (int i = 0; i < arrays; i++)
            if (from[i] != NULL)
                memcpy(host + words + (size_t)i * ids, from[i], ids);
        cuda_put(c, to, host, bytes);
    }
    if (s->n_device_rows > 0)
        layout_on_device(c, s, &c->see);
}

uint64_t cuda_upload_layout(struct backend *b, const struct layout *s)
{
    struct cuda *c = (struct cuda *)b;
    upload_arrays(c, s);
    return c->see.uploaded = ++c->layouts;
}

const struct layout *cuda_see(struct cuda *c, const struct layout *s)
{
    if (s->uploaded == 0 || s->uploaded != c->see.uploaded)
        upload_arrays(c, s);
    return &c->see;
}

} // namespace DEVICE_SPACE
