// prepare.cu - uploads weights once and packs them on the device into the layout of matmul_small.cu (packed.h).
//
// Raw rows are uploaded in panels of at most 64 MB; kernels extract numbers and scales from their blocks one by one
// (unpack.h). Threads copy a panel into pinned memory while the one before it is uploaded and packed: from pageable
// memory, the driver would copy with one thread. Packing is lossless: a number unpacks to exactly the value that its
// block represents.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/packed.h"
#include "kernels/cuda/unpack.h"
extern "C" {
#include "kernels/cpu/threads.h"
}

namespace DEVICE_SPACE
{

enum { THREADS = 256, PANEL_BYTES = 64 << 20, MOST_COPIERS = 16, COPIER_BYTES = 1 << 20 };

// Tiles from `first` on, with raw rows at `raw`; missing rows of the last tile are zeros.
struct panel {
    struct packed p;
    const uint8_t *raw; // (rows, row bytes)
    int64_t row_bytes;
    int first, tiles, rows;
};

__device__ static uint32_t stored(const struct packed *p, const uint8_t *row, int64_t k)
{
    if (form_bits(p->form) == 16)
        return bits_at(row + 2 * k);
    const struct block_size of = block_of(p->type);
    const int in = (int)(k % of.numbers);
    const uint8_t *b = row + k / of.numbers * of.bytes;
    if (p->form == FORM_IQ4 || p->form == FORM_E2M1)
        return code_at(p->type, b, in);
    if (p->form == FORM_E4M3)
        return b[4 + in];
    const int q = quant_at(p->type, b, in);
    return p->form == FORM_INT8 ? q & 0xFF : q + p->zero;
}

// One thread per lane of each unit of each tile.
static __global__ void pack_numbers(const __grid_constant__ struct panel w)
{
    const struct packed *p = &w.p;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int lane = (int)(at % WARP), unit = (int)(at / WARP % p->units), bits = form_bits(p->form);
    const int64_t tile = at / WARP / p->units; // the panel's
    if (tile >= w.tiles)
        return;
    uint32_t word[8] = {};
    for (int i = 0; i < form_unit(p->form) / 2; i++) { // i = 8 j + 2 a + e
        const int j = i / 8, a = i / 2 % 4, e = i % 2;
        const int64_t r = tile * TILE + lane / 4 + 8 * (a % 2);
        const int64_t k = (int64_t)unit * form_unit(p->form) + 16 * j + 4 * (lane % 4) + 2 * (a / 2) + e;
        const uint32_t q = r >= w.rows || k >= p->k ? p->zero : stored(p, w.raw + r * w.row_bytes, k);
        word[(4 * j + a) * bits / 16] |= q << ((4 * j + a) * bits % 16 + 16 * e);
    }
    const int loads = form_loads(p->form);
    uint4 *to = p->quants + ((w.first + tile) * p->units + unit) * loads * WARP + lane;
    for (int l = 0; l < loads; l++)
        to[l * WARP] = make_uint4(word[4 * l], word[4 * l + 1], word[4 * l + 2], word[4 * l + 3]);
}

__device__ static struct block_scale scale_in(const struct panel &w, int64_t r, int64_t k)
{
    const struct packed *p = &w.p;
    if (r >= w.rows || k >= p->k)
        return { 0, 0, 0, 0 };
    const struct block_size of = block_of(p->type);
    return block_scale_at(p->type, w.raw + r * w.row_bytes + k / of.numbers * of.bytes, (int)(k % of.numbers));
}

// One thread per pair of rows g and g + 8 of each unit of each tile.
static __global__ void pack_scales(const __grid_constant__ struct panel w)
{
    const struct packed *p = &w.p;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int g = (int)(at % 8), unit = (int)(at / 8 % p->units), words = scale_words(p->scaling);
    const int64_t tile = at / 8 / p->units, k = (int64_t)unit * form_unit(p->form);
    if (tile >= w.tiles)
        return;
    uint32_t word[4] = {}, super[2] = {};
    for (int i = 0; i < 4; i++) { // i = 2 group + high
        const int group = i / 2, high = i % 2;
        const int64_t r = tile * TILE + g + 8 * high;
        const struct block_scale s = scale_in(w, r, k + GROUP * group);
        switch (p->scaling) {
        case SCALING_HALF:
            word[group] |= (uint32_t)s.d << 16 * high;
            break;
        case SCALING_MIN:
            word[i] = s.d | (uint32_t)s.m << 16;
            break;
        case SCALING_SUPER:
            word[group] |= (uint32_t)(s.scale | s.min << 8) << 16 * high;
            super[high] = s.d | (uint32_t)s.m << 16;
            break;
        case SCALING_SUB_BLOCK:
            word[group] |= (uint32_t)(s.scale | scale_in(w, r, k + GROUP * group + 16).scale << 8) << 16 * high;
            super[0] |= group == 0 ? (uint32_t)s.d << 16 * high : 0;
            break;
        case SCALING_FLOAT:
            word[high] = s.d | (uint32_t)s.m << 16; // both groups have it
            break;
        case SCALING_POWER:
            word[0] |= (uint32_t)s.scale << (16 * group + 8 * high);
            break;
        case SCALING_NONE:
            break;
        }
    }
    for (int i = 0; i < words; i++)
        p->scales[(((w.first + tile) * p->units + unit) * 8 + g) * words + i] = word[i];
    for (int i = 0; i < super_words(p->scaling) && unit % 4 == 0; i++)
        p->supers[(((w.first + tile) * (p->units / 4) + unit / 4) * 8 + g) * super_words(p->scaling) + i] = super[i];
}

static enum form form_of(enum type type)
{
    switch (type_facts[type].numbers) {
    case NUMBERS_INT:
        return type_facts[type].bits == 4 ? FORM_INT4 : FORM_INT8;
    case NUMBERS_IQ4:
        return FORM_IQ4;
    case NUMBERS_E2M1:
        return FORM_E2M1;
    case NUMBERS_E4M3:
        return FORM_E4M3;
    default:
        return type == F32 ? FORM_RAW : type == F16 ? FORM_F16 : FORM_BF16;
    }
}

// Sizes in bytes of the consecutive parts of a packed weight.
struct parts {
    size_t quants, scales, supers;
};

static struct parts parts_of(const struct packed *p, struct tensor w)
{
    if (p->form == FORM_RAW)
        return { tensor_bytes(w), 0, 0 };
    const size_t units = (size_t)p->tiles * (size_t)p->units;
    return { units * (size_t)form_loads(p->form) * WARP * sizeof(uint4),
             units * 8 * (size_t)scale_words(p->scaling) * sizeof(uint32_t),
             units / 4 * 8 * (size_t)super_words(p->scaling) * sizeof(uint32_t) };
}

// ---- uploads

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    pthread_t thread;
    bool started;
};

static void *copy_part(void *of)
{
    const struct copy *k = (const struct copy *)of;
    memcpy(k->to, k->from, k->bytes);
    return NULL;
}

static void copy_by_threads(uint8_t *to, const uint8_t *from, size_t bytes)
{
    struct copy part[MOST_COPIERS];
    const size_t available = (size_t)threads_available(), wanted = bytes / COPIER_BYTES;
    size_t n = available < MOST_COPIERS ? available : (size_t)MOST_COPIERS;
    n = wanted < n ? wanted : n;
    for (size_t i = 0; i + 1 < n; i++) {
        const size_t first = bytes * i / n;
        part[i] = { to + first, from + first, bytes * (i + 1) / n - first, 0, false };
        part[i].started = pthread_create(&part[i].thread, NULL, copy_part, &part[i]) == 0;
    }
    const size_t last = n > 1 ? bytes * (n - 1) / n : 0;
    memcpy(to + last, from + last, bytes - last);
    for (size_t i = 0; i + 1 < n; i++)
        if (part[i].started)
            pthread_join(part[i].thread, NULL);
        else
            copy_part(&part[i]);
}

static cudaError_t reserve_pinned(struct cuda *c, size_t bytes)
{
    cudaError_t e = cudaStreamSynchronize(c->stream);
    if (e == cudaSuccess)
        e = cudaFreeHost(c->pinned.data);
    c->pinned = { NULL, 0, true };
    if (e == cudaSuccess)
        e = cudaMallocHost(&c->pinned.data, bytes);
    c->pinned.bytes = e == cudaSuccess ? bytes : 0;
    return e;
}

// Queues the upload of at most PANEL_BYTES: the host may change them afterwards. Waits for the upload before it, and
// the packing.
static cudaError_t upload(struct cuda *c, void *to, const uint8_t *from, size_t bytes)
{
    cudaError_t e = 2 * bytes > c->pinned.bytes ? reserve_pinned(c, 2 * bytes) : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    c->second_half = !c->second_half;
    uint8_t *pinned = (uint8_t *)c->pinned.data + (c->second_half ? c->pinned.bytes / 2 : 0);
    copy_by_threads(pinned, from, bytes);
    e = cudaStreamSynchronize(c->stream);
    return e != cudaSuccess ? e : cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, c->stream);
}

static cudaError_t upload_all(struct cuda *c, uint8_t *to, const uint8_t *from, size_t bytes)
{
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < bytes && e == cudaSuccess; i += PANEL_BYTES)
        e = upload(c, to + i, from + i, bytes - i < PANEL_BYTES ? bytes - i : (size_t)PANEL_BYTES);
    return e;
}

static cudaError_t pack(struct cuda *c, const struct packed *p, struct tensor w, int rows)
{
    const size_t row_bytes = type_row_bytes(w.type, w.width);
    uint8_t *const raw = (uint8_t *)c->panel.data;
    cudaError_t e = cudaSuccess;
    for (int64_t first = 0; first < w.rows && e == cudaSuccess; first += rows) {
        const int count = (int)(w.rows - first < rows ? w.rows - first : rows);
        const struct panel part = { *p, raw, (int64_t)row_bytes, (int)(first / TILE), blocks_for(count, TILE), count };
        e = upload_all(c, raw, (const uint8_t *)w.data + (size_t)first * row_bytes, (size_t)count * row_bytes);
        if (e != cudaSuccess)
            return e;
        const int64_t units = (int64_t)part.tiles * p->units;
        LAUNCH(pack_numbers, blocks_for(units * WARP, THREADS), THREADS, 0, c->stream, part);
        if (p->scales != NULL)
            LAUNCH(pack_scales, blocks_for(units * 8, THREADS), THREADS, 0, c->stream, part);
        e = cudaGetLastError();
    }
    return e;
}

static bool reserve_panel(struct cuda *c, size_t bytes)
{
    if (bytes <= c->panel.bytes)
        return true;
    cudaFree(c->panel.data); // waits for queued work
    c->panel = { c->backend.alloc(&c->backend, bytes), bytes, true };
    c->panel.bytes = c->panel.data != NULL ? bytes : 0;
    return c->panel.data != NULL;
}

// Counts the weights that read rounded rows, and their sums.
static void count_readers(struct cuda *c, const struct packed *p, int change)
{
    c->read_rounded += p->form != FORM_RAW ? change : 0;
    c->read_sums += p->form != FORM_RAW && has_offset(p->scaling) ? change : 0;
}

struct tensor cuda_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    struct cuda *c = (struct cuda *)b;
    struct tensor none = {};
    struct packed p = {};
    assert(w.data != NULL && a != ACTIVATIONS_DEFAULT && w.rows < INT32_MAX - TILE);
    cuda_use(c);
    if (a == ACTIVATIONS_INT8) {
        fail(err, "cuda: activations are f32 or bf16 on this device, not int8");
        return none;
    }
    p.type = w.type;
    p.activations = a;
    p.form = c->cublas != NULL || a == ACTIVATIONS_F32 ? FORM_RAW : form_of(w.type);
    p.scaling = type_facts[w.type].scaling;
    p.rows = w.rows;
    p.k = w.width;
    p.tiles = blocks_for(w.rows, TILE);
    p.units = blocks_for(w.width, form_unit(p.form));
    p.zero = form_of(w.type) == FORM_INT4 && !has_offset(p.scaling) ? 8 : 0;
    const struct parts parts = parts_of(&p, w);
    const size_t bytes = parts.quants + parts.scales + parts.supers, row_bytes = type_row_bytes(w.type, w.width);
    uint8_t *to = (uint8_t *)c->backend.alloc(&c->backend, bytes);
    bool fits = to != NULL;
    cudaError_t e = cudaSuccess;
    if (p.form == FORM_RAW) {
        p.raw = to;
        if (fits)
            e = upload_all(c, to, (const uint8_t *)w.data, bytes);
    } else {
        const size_t tile = TILE * row_bytes, panel = PANEL_BYTES / tile * TILE,
                     max_rows = panel > 0 ? panel : (size_t)TILE;
        const int rows = (int)(max_rows < (size_t)w.rows ? max_rows : (size_t)w.rows);
        p.quants = (uint4 *)to;
        p.scales = parts.scales != 0 ? (uint32_t *)(to + parts.quants) : NULL;
        p.supers = parts.supers != 0 ? (uint32_t *)(to + parts.quants + parts.scales) : NULL;
        fits = fits && reserve_panel(c, (size_t)rows * row_bytes);
        if (fits)
            e = pack(c, &p, w, rows);
    }
    if (!fits || e != cudaSuccess) {
        cudaFree(to);
        cudaGetLastError(); // clear it: reported below
        if (e != cudaSuccess)
            fail(err, "cuda:%d: uploading weights: %s (%s)", c->device, cudaGetErrorString(e), cudaGetErrorName(e));
        else
            fail(err, "cuda:%d: not enough memory for %zu MB of packed weights", c->device,
                 (bytes + (1 << 20) - 1) >> 20);
        return none;
    }
    struct packed *packed = (struct packed *)xcalloc(1, sizeof(*packed));
    *packed = p;
    count_readers(c, packed, 1);
    w.data = to;
    w.packed = packed;
    return w;
}

void cuda_unprepare(struct backend *b, struct tensor w)
{
    struct cuda *c = (struct cuda *)b;
    if (w.packed == NULL)
        return;
    count_readers(c, packed_of(w), -1);
    c->releases++;
    cuda_note(c, cudaFree(w.data), "freeing weights"); // waits for queued work
    free(w.packed);
}

} // namespace DEVICE_SPACE
