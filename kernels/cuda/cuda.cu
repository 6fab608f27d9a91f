// cuda.cu - opening and closing a device, and the table of operations.
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace DEVICE_SPACE
{

static const char *cuda_describe(struct backend *b)
{
    return ((struct cuda *)b)->description;
}

static struct workers cuda_workers(struct backend *b)
{
    (void)b;
    struct workers none = { NULL, NULL };
    return none;
}

static enum activations cuda_rounds_to(struct backend *b, enum activations wanted, enum type weights)
{
    (void)b;
    if (wanted == ACTIVATIONS_DEFAULT)
        return weights == F32 ? ACTIVATIONS_F32 : ACTIVATIONS_BF16;
    return wanted == ACTIVATIONS_INT8 ? ACTIVATIONS_DEFAULT : wanted;
}

static void cuda_destroy(struct backend *b)
{
    struct cuda *c = (struct cuda *)b;
    if (c->stream != NULL)
        cudaStreamSynchronize(c->stream);
    cublas_close(c);
    struct space *const all[] = {
        &c->layout,  &c->rounded[0].space, &c->rounded[1].space, &c->floats, &c->gate,  &c->grouped,
        &c->partial, &c->arrived,          &c->verify,           &c->best,   &c->parts, &c->panel
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    cudaFreeHost(c->verify_result.data);
    cudaFreeHost(c->pinned.data);
    cudaFreeHost(c->ring.data);
    for (int i = 0; i < MAX_STAMPS; i++)
        if (c->stamp[i] != NULL)
            cudaEventDestroy(c->stamp[i]);
    graphs_destroy(c->graphs);
    if (c->stream != NULL)
        cudaStreamDestroy(c->stream);
    free(c->host);
    free(c);
}

static const struct device_step step = {
    cuda_probabilities, cuda_certain,       cuda_rule_body,      cuda_verify,       cuda_verify_wait,
    cuda_verify_bytes,  cuda_drafts_create, cuda_drafts_destroy, cuda_drafts_begin, cuda_drafts_level,
};

static struct backend table(void)
{
    struct backend b = {};
    b.name = "cuda";
    b.queues = true;
    stream_operations(&b);
    b.destroy = cuda_destroy;
    b.describe = cuda_describe;
    b.workers = cuda_workers;
    b.upload_layout = cuda_upload_layout;
    b.bucket = cuda_bucket;
    b.graph_launch = cuda_graph_launch;
    b.graph_end = cuda_graph_end;
    b.rounds_to = cuda_rounds_to;
    b.prepare = cuda_prepare;
    b.unprepare = cuda_unprepare;
#define ENTRY(name, SIGNATURE) b.name = cuda_##name;
    ALL_OPERATIONS(ENTRY, ENTRY)
#undef ENTRY
    b.step = &step;
    return b;
}

static struct cuda *fail_on(const char *name, int device, cudaError_t e, const char *what, struct error *err)
{
    cudaGetLastError(); // clears it
    fail(err, "device %s:%d: %s: %s (%s)", name, device, what, cudaGetErrorString(e), cudaGetErrorName(e));
    return NULL;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

#if defined(EMULATED)
static int clusters_fitting(int blocks, int, int, int processors)
{
    return processors > blocks ? processors / blocks : 1;
}
#else
static __global__ void cluster_probe() // never launched
{
    kernel_prologue();
}

// How many clusters of so many blocks of so many threads run at the same time, with so much dynamic shared memory each;
// a slice of a GPU may have fewer multiprocessors. If the driver does not know: as many as there are multiprocessors
// for.
static int clusters_fitting(int blocks, int threads, int shared, int processors)
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t l = {};
    int fitting = 0;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    l.gridDim = (unsigned)(processors / blocks * blocks);
    l.blockDim = (unsigned)threads;
    l.dynamicSmemBytes = (size_t)shared;
    l.attrs = &cluster;
    l.numAttrs = 1;
    cudaError_t e = cudaFuncSetAttribute(cluster_probe, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveClusters(&fitting, cluster_probe, &l);
    cudaGetLastError(); // clears it
    return e == cudaSuccess ? fitting : processors / blocks;
}
#endif

// name: as the user gave it.
static struct cuda *open_device(const char *name, int device, struct error *err)
{
    int devices = 0;
    cudaError_t e = cudaGetDeviceCount(&devices);
    if (e != cudaSuccess)
        return fail_on(name, device, e, "there is no GPU that can be used", err);
    if (device < 0 || device >= devices) {
        fail(err, "device %s:%d: expected one of the %d here, from %s:0 on", name, device, devices, name);
        return NULL;
    }
    cudaDeviceProp p;
    if ((e = cuda_use_device(device)) != cudaSuccess || (e = cudaGetDeviceProperties(&p, device)) != cudaSuccess)
        return fail_on(name, device, e, "it cannot be used", err);
    if (p.major < 8) {
        fail(err, "device %s:%d: %s has compute capability %d.%d; expected 8.0 or later", name, device, p.name, p.major,
             p.minor);
        return NULL;
    }
    struct cuda *c = (struct cuda *)xcalloc(1, sizeof(*c));
    c->backend = table();
    c->device = device;
    c->processors = p.multiProcessorCount;
    const bool is_90 = p.major >= 9 && compiled_for_90();
    c->overlaps = is_90 && !is_set("SPECLAB_CUDA_NO_PDL");
    // Blocks of these use most of the shared memory of a multiprocessor.
    c->clusters = is_90 && !is_set("SPECLAB_CUDA_NO_CLUSTERS") &&
                  clusters_fitting(CLUSTER, CLUSTER_THREADS, 160 << 10, c->processors) > 0;
    c->shared = p.sharedMemPerBlockOptin;
    c->bulk = is_90 && !is_set("SPECLAB_CUDA_NO_BULK") && p.sharedMemPerBlockOptin >= RING_SHARED;
    c->ring_clusters =
        c->bulk && c->clusters ? clusters_fitting(RING_CLUSTER, RING_THREADS, RING_SHARED, c->processors) : 0;
    c->waits = is_set("SPECLAB_CUDA_SYNC");
    c->graphs = graphs_create();
    c->verify.apart = c->best.apart = c->parts.apart = true;
    e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaMallocHost((void **)&c->ring.data, RING);
    for (int i = 0; i < MAX_STAMPS && e == cudaSuccess; i++)
        e = cudaEventCreate(&c->stamp[i]);
    if (e != cudaSuccess) {
        cuda_destroy(&c->backend);
        return fail_on(name, device, e, "no stream, no pinned memory, or no events", err);
    }
    snprintf(c->description, sizeof(c->description), "%.80s (cuda:%d), compute capability %d.%d, %d multiprocessors",
             p.name, device, p.major, p.minor, p.multiProcessorCount);
    return c;
}

} // namespace DEVICE_SPACE

using namespace DEVICE_SPACE;

#if defined(EMULATED)
#define backend_cuda backend_emulated
#define backend_cublas backend_emulated_cublas
#endif

extern "C" struct backend *backend_cuda(int device, struct error *err)
{
    struct cuda *c = open_device("cuda", device, err);
    return c != NULL ? &c->backend : NULL;
}

extern "C" struct backend *backend_cublas(int device, struct error *err)
{
    struct cuda *c = open_device("cublas", device, err);
    if (c == NULL || cublas_open(c, err))
        return c != NULL ? &c->backend : NULL;
    cuda_destroy(&c->backend);
    return NULL;
}
