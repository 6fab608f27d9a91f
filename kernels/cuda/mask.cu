// mask.cu - the tree mask of rows whose parents only the device has: positions and ancestors of draft tokens that were built there.
// models/kv_cache.c (kv_admit) does it for the others.
#include "kernels/cuda/cuda.h"
extern "C" {
#include "device_step/drafting.h"
}

namespace DEVICE_SPACE
{

enum { THREADS = 256, MAX_CHUNKS = 64, MAX_PENDING = 2048 };
static_assert((int)MAX_NODES <= (int)MAX_PENDING && (int)DRAFTING_CANDIDATES <= (int)MAX_PENDING,
              "pending rows of such drafts");

struct chunks {
    int n, words, length;
    const int32_t *slot, *prefix, *place; // of the pass's rows
    int32_t *position;
    uint64_t *ancestors; // (rows, words)
    struct device_rows of[MAX_CHUNKS];
};

// One block per chunk, whose rows are consecutive pending rows; a thread for each word. A pending row sees itself and what its parent
// sees.
static __global__ void __launch_bounds__(THREADS) mask_kernel(const __grid_constant__ struct chunks s)
{
    __shared__ int16_t parent[MAX_PENDING];
    kernel_prologue();
    const struct device_rows &rows = s.of[blockIdx.x];
    const int prefix = s.prefix[rows.first];
    const int first = s.place[rows.first] - s.slot[rows.first] * s.length - prefix;
    for (int row = (int)threadIdx.x; row < first + rows.n; row += THREADS)
        parent[row] = (int16_t)rows.parent[row];
    __syncthreads();
    for (int k = (int)threadIdx.x; k < rows.n * s.words; k += THREADS) {
        const int i = k / s.words, word = k % s.words;
        uint64_t bits = 0;
        int depth = -1;
        for (int row = first + i; row >= 0; row = parent[row], depth++)
            bits |= row / 64 == word ? (uint64_t)1 << row % 64 : 0;
        s.ancestors[(int64_t)(rows.first + i) * s.words + word] = bits;
        if (word == 0)
            s.position[rows.first + i] = prefix + depth;
    }
}

void mask_on_device(struct cuda *c, const struct layout *see)
{
    struct chunks s;
    s.words = see->words, s.length = see->length;
    s.slot = see->slot, s.prefix = see->prefix, s.place = see->place;
    s.position = (int32_t *)see->position, s.ancestors = (uint64_t *)see->ancestors;
    for (int from = 0; from < see->n_device_rows; from += MAX_CHUNKS) {
        for (s.n = 0; s.n < MAX_CHUNKS && from + s.n < see->n_device_rows; s.n++)
            s.of[s.n] = see->device_rows[from + s.n];
        QUEUE(c, mask_kernel, s.n, THREADS, 0, s);
        cuda_launched(c, "the layout of a pass");
    }
}

} // namespace DEVICE_SPACE
