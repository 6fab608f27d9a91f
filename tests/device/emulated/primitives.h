// primitives.h - the primitives of kernels/cuda/device.h for an emulated GPU, beside those of cuda_runtime.h: its machine code in C++. What they
// do is said there.
#pragma once
#include <cuda_runtime.h>

#define DEVICE_SPACE emulated_device
#define __grid_constant__
#define NOT_INLINED static
#define UNROLL
#define UNROLL_BY(n)
#define HAS_90 1
#define START_KERNEL(c, early, kernel, blocks, grid, block, shared, ...) \
    LAUNCH_CLUSTERS(kernel, blocks, grid, block, shared, (c)->stream, __VA_ARGS__)

namespace DEVICE_SPACE
{

inline void is_global(const void *)
{
}

// A pair of the upper halves of two floats.
inline uint32_t emulated_pair(float low, float high)
{
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xFFFF0000);
}

inline uint32_t pair_sum(uint32_t a, uint32_t b)
{
    return emulated_pair(__uint_as_float(a << 16) + __uint_as_float(b << 16),
                         __uint_as_float(a & 0xFFFF0000) + __uint_as_float(b & 0xFFFF0000));
}

inline uint32_t pair_product(uint32_t a, uint32_t b)
{
    return emulated_pair(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                         __uint_as_float(a & 0xFFFF0000) * __uint_as_float(b & 0xFFFF0000));
}

// One wait in place of five for each number. The rounds, and so the bits, are device.h's.
template <int count, typename number, typename function> inline void warp_tree(number *x, function)
{
    emulated_tree(x, [](void *const numbers[32]) {
        for (int i = 0; i < count; i++) {
            number of[32], to[32];
            for (int lane = 0; lane < 32; lane++)
                of[lane] = ((const number *)numbers[lane])[i];
            for (int step = 16; step > 0; step /= 2) {
                for (int lane = 0; lane < 32; lane++)
                    to[lane] = function()(of[lane], of[lane ^ step]);
                memcpy(of, to, sizeof(of));
            }
            for (int lane = 0; lane < 32; lane++)
                ((number *)numbers[lane])[i] = of[lane];
        }
    });
}

template <bool TRANSPOSED = false> inline void load_matrices(uint32_t to[4], const uint16_t *row)
{
    emulated_load_matrices(to, row, TRANSPOSED);
}

inline float exp2_flushed(float x)
{
    return x < -126 ? 0 : exp2f(x);
}

inline uint4 load_weights(const uint4 *at)
{
    return *at;
}

// Kernels run one after another.
inline void launch_dependents()
{
}

inline void wait_for_previous()
{
}

inline unsigned count_arrival(unsigned *count, unsigned last)
{
    return atomicInc(count, last);
}

template <int N> inline void wait_for_copies()
{
    emulated_wait_for_copies(N);
}

inline void arrivals_ready()
{
}

inline void arrival_arrive(struct arrival *a)
{
    arrival_expect(a, 0);
}

inline void forget(int &)
{
}

// Emulated threads are slow, so there are fewer, except in .ci/nightly.
#if defined(FULL_CLUSTERS)
enum { CLUSTER = 8, CLUSTER_THREADS = 512 };
#else
enum { CLUSTER = 4, CLUSTER_THREADS = 64 };
#endif

inline void cluster_end()
{
    cluster_barrier();
}

template <typename T> inline T *in_block(T *shared, int block)
{
    return (T *)emulated_in_block(shared, block);
}

} // namespace DEVICE_SPACE
