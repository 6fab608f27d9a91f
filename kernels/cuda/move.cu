// move.cu - rows that move down within tensors: those of accepted draft tokens in a cache, of all slots in one launch.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

// Of a launch: the kernel's parameters must stay below 4 KiB. A thread loads EACH rows before it stores one.
enum { THREADS = 256, RUNS = 64, ROWS = 384, TENSORS = 192, EACH = 8 };

struct rows_to_move {
    int64_t units; // of a row
    int runs, rows;
    int16_t end[RUNS]; // of a run's rows in row[]
    int32_t to[RUNS], row[ROWS];
    void *x[TENSORS];
};
static_assert(sizeof(struct rows_to_move) < 4096, "limit of kernel parameters");

// A run's rows move down and may overlap, so each thread copies its bytes in order: later rows lie behind the places of earlier ones.
template <typename unit> static __global__ void move_kernel(const __grid_constant__ struct rows_to_move m)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int run = (int)blockIdx.z, from = run > 0 ? m.end[run - 1] : 0, n = m.end[run] - from;
    unit *const x = (unit *)m.x[blockIdx.y];
    for (int first = 0; first < n && k < m.units; first += EACH) {
        unit some[EACH];
        UNROLL
        for (int i = 0; i < EACH; i++)
            if (first + i < n)
                some[i] = x[m.row[from + first + i] * m.units + k];
        UNROLL
        for (int i = 0; i < EACH; i++)
            if (first + i < n)
                x[(m.to[run] + first + i) * m.units + k] = some[i];
    }
}

static void queue_moves(struct cuda *c, struct rows_to_move *m, const struct tensor *x, int count)
{
    const int64_t bytes = (int64_t)type_row_bytes(x[0].type, x[0].width), unit = bytes % 16 == 0 ? 16 : 2;
    m->units = bytes / unit;
    for (int at = 0; at < count; at += TENSORS) {
        const int n = count - at < TENSORS ? count - at : TENSORS;
        const dim3 grid((unsigned)blocks_for(m->units, THREADS), (unsigned)n, (unsigned)m->runs);
        for (int i = 0; i < n; i++)
            m->x[i] = x[at + i].data;
        if (unit == 16)
            QUEUE(c, move_kernel<uint4>, grid, THREADS, 0, *m);
        else
            QUEUE(c, move_kernel<uint16_t>, grid, THREADS, 0, *m);
    }
    m->runs = m->rows = 0;
}

void cuda_move(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs)
{
    struct cuda *c = (struct cuda *)b;
    struct rows_to_move m = {};
    for (int i = 0; i < count; i++) {
        assert(x[i].type == x[0].type && x[i].width == x[0].width);
        without_planes(c, x[i]);
    }
    for (int r = 0; r < runs; r++)
        for (int i = 0; i < run[r].n; i++) {
            assert(run[r].row[i] >= run[r].to + i && (i == 0 || run[r].row[i] > run[r].row[i - 1]));
            if (m.rows == ROWS || (i == 0 && m.runs == RUNS))
                queue_moves(c, &m, x, count);
            if (i == 0 || m.runs == 0)
                m.to[m.runs++] = run[r].to + i;
            m.row[m.rows++] = run[r].row[i];
            m.end[m.runs - 1] = (int16_t)m.rows;
        }
    if (m.runs > 0)
        queue_moves(c, &m, x, count);
    cuda_launched(c, "move");
}

} // namespace DEVICE_SPACE
