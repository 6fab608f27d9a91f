// mask.cu - the tree mask of rows whose parents only the device has: positions and ancestors of draft tokens that were built there.
// models/kv_cache.c (kv_admit) does it for the others.
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

enum { THREADS = 128, MAX_CHUNKS = 64 };

struct chunks {
    int n, words, length;
    const int32_t *slot, *prefix, *place; // of the pass's rows
    int32_t *position;
    uint64_t *ancestors; // (rows, words)
    struct device_rows of[MAX_CHUNKS];
};

// One block per chunk. A pending row sees itself and what its parent sees.
static __global__ void mask_kernel(const __grid_constant__ struct chunks s)
{
    kernel_prologue();
    const struct device_rows &rows = s.of[blockIdx.x];
    for (int i = rows.first + (int)threadIdx.x; i < rows.first + rows.n; i += THREADS) {
        uint64_t *own = s.ancestors + (int64_t)i * s.words;
        int depth = -1;
        for (int w = 0; w < s.words; w++)
            own[w] = 0;
        for (int row = s.place[i] - s.slot[i] * s.length - s.prefix[i]; row >= 0; row = rows.parent[row], depth++)
            own[row / 64] |= (uint64_t)1 << row % 64;
        s.position[i] = s.prefix[i] + depth;
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
