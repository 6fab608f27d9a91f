// cuda.cu - the device, its memory, its one stream, and the table of operations.
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace DEVICE_SPACE
{

static cudaError_t use_device(int device)
{
    static thread_local int used = -1;
    const cudaError_t e = used == device ? cudaSuccess : cudaSetDevice(device);
    used = e == cudaSuccess ? device : used;
    return e;
}

void cuda_use(const struct cuda *c)
{
    use_device(c->device); // it succeeded when it was opened
}

void cuda_note(struct cuda *c, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    cudaGetLastError(); // clears it
    if (c->failed)
        return;
    c->failed = true;
    fail(&c->err, "cuda:%d: %s: %s (%s)", c->device, what, cudaGetErrorString(e), cudaGetErrorName(e));
}

void cuda_queued(struct cuda *c, const char *kernel)
{
    c->writes++;
    if (!c->waits)
        return;
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(c->stream);
    if (e == cudaSuccess || c->fault != cudaSuccess)
        return;
    c->fault = e;
    c->faulty = kernel;
}

void cuda_launched(struct cuda *c, const char *what)
{
    char text[160];
    if (c->fault == cudaSuccess) {
        cuda_note(c, cudaGetLastError(), what);
        return;
    }
    snprintf(text, sizeof(text), "%s, %s", what, c->faulty);
    cuda_note(c, c->fault, text);
    c->fault = cudaSuccess;
}

void cuda_allow_shared(struct cuda *c, const void *kernel, size_t bytes, uint64_t *done)
{
    const uint64_t bit = (uint64_t)1 << (c->device % 64);
    if ((__atomic_load_n(done, __ATOMIC_RELAXED) & bit) != 0 && c->device < 64)
        return;
    cuda_use(c);
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cuda_note(c, e, "shared memory of a kernel");
    if (e == cudaSuccess)
        __atomic_fetch_or(done, bit, __ATOMIC_RELAXED);
}

// ---- memory

static void *cuda_alloc(struct backend *b, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    void *p = NULL;
    cuda_use(c);
    const cudaError_t e = cudaMalloc(&p, bytes != 0 ? bytes : 16);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // clears it; the caller reports it
        return NULL;
    }
    cuda_note(c, e, "memory");
    return e == cudaSuccess ? p : NULL;
}

static void give_back(struct cuda *c, void *data)
{
    if (data == NULL)
        return;
    cuda_note(c, cudaFree(data), "giving memory back"); // waits for what is queued
}

static void cuda_release(struct backend *b, void *data)
{
    struct cuda *c = (struct cuda *)b;
    c->releases += data != NULL;
    give_back(c, data);
}

static void wait(struct cuda *c, const char *what)
{
    const cudaError_t e = cudaStreamSynchronize(c->stream);
    cuda_note(c, e, what);
    if (e == cudaSuccess)
        c->ring.used = 0;
}

// Through the ring while it has space, unless a graph is being captured, which would read there at each launch.
// Otherwise from the caller's memory. If it is pageable, the driver copies the bytes before it returns, and may wait
// for the device. If it is pinned (only cuda_host_reserve's of verify.cu is), the copy may come later, and its owner
// waits for the stream before it writes there again.
static void cuda_upload(struct backend *b, void *to, const void *host, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    if (bytes <= RING - c->ring.used && !graphs_capturing(c->graphs)) {
        uint8_t *at = c->ring.data + c->ring.used;
        memcpy(at, host, bytes);
        host = at;
        c->ring.used += (bytes + 15) / 16 * 16;
    }
    c->writes++;
    cuda_note(c, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, c->stream), "upload");
}

enum { PUT_THREADS = 256, PUT_WORDS = 960 };
struct words_to_put {
    uint32_t *to;
    int n;
    uint32_t word[PUT_WORDS];
};
static_assert(sizeof(struct words_to_put) < 4096, "limit of kernel parameters");

static __global__ void put_kernel(const __grid_constant__ struct words_to_put s)
{
    kernel_prologue();
    for (int i = (int)threadIdx.x; i < s.n; i += PUT_THREADS)
        s.to[i] = s.word[i];
}

void cuda_put(struct cuda *c, void *to, const void *host, size_t bytes)
{
    struct words_to_put s;
    assert(bytes % sizeof(*s.word) == 0);
    if (bytes > sizeof(s.word) || graphs_capturing(c->graphs)) {
        cuda_upload(&c->backend, to, host, bytes);
        return;
    }
    s.to = (uint32_t *)to;
    s.n = (int)(bytes / sizeof(*s.word));
    memcpy(s.word, host, bytes);
    QUEUE(c, put_kernel, 1, PUT_THREADS, 0, s);
    cuda_launched(c, "upload");
}

static void cuda_download(struct backend *b, void *host, const void *from, size_t bytes)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    cuda_note(c, cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, c->stream), "download");
    wait(c, "download");
}

static void *cuda_host(struct backend *b, void *data)
{
    (void)b, (void)data;
    return NULL;
}

static bool cuda_sync(struct backend *b, struct error *err)
{
    struct cuda *c = (struct cuda *)b;
    wait(c, "waiting for the device");
    if (!c->failed)
        return true;
    c->failed = false;
    *err = c->err;
    return false;
}

static void cuda_stamp(struct backend *b, int number)
{
    struct cuda *c = (struct cuda *)b;
    assert(number >= 0 && number < MAX_STAMPS);
    cuda_note(c, cudaEventRecord(c->stamp[number], c->stream), "recording the time");
}

static int64_t cuda_between(struct backend *b, int from, int to)
{
    struct cuda *c = (struct cuda *)b;
    float ms = 0;
    cuda_note(c, cudaEventElapsedTime(&ms, c->stamp[from], c->stamp[to]), "reading the time");
    return (int64_t)((double)ms * 1e6);
}

static bool cuda_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    struct cuda *c = (struct cuda *)b;
    cuda_use(c);
    const cudaError_t e = cudaMemGetInfo(free_bytes, all);
    cuda_note(c, e, "reading the free memory");
    return e == cudaSuccess;
}

// Workspaces that graphs read are enlarged by half, so that it happens rarely, or at least to what is needed.
void *cuda_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what)
{
    if (bytes <= s->bytes)
        return s->data;
    const size_t more = s->apart ? 0 : s->bytes + s->bytes / 2;
    give_back(c, s->data); // waits for queued operations that use it
    c->releases += s->data != NULL && !s->apart;
    s->bytes = 0;
    s->data = NULL;
    if (more > bytes && (s->data = cuda_alloc(&c->backend, more)) != NULL)
        bytes = more;
    if (s->data == NULL)
        s->data = cuda_alloc(&c->backend, bytes);
    if (s->data == NULL) {
        cuda_note(c, cudaErrorMemoryAllocation, what);
        return NULL;
    }
    s->bytes = bytes;
    return s->data;
}

void *cuda_host_reserve(struct cuda *c, struct space *s, size_t bytes, const char *what)
{
    if (bytes <= s->bytes)
        return s->data;
    cuda_use(c);
    cuda_note(c, cudaFreeHost(s->data), what); // no copy is in progress
    s->bytes = 0;
    s->data = NULL;
    const cudaError_t e = cudaMallocHost(&s->data, bytes);
    cuda_note(c, e, what);
    s->bytes = e == cudaSuccess ? bytes : 0;
    return e == cudaSuccess ? s->data : NULL;
}

// ---- a pass's layout

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

static uint64_t cuda_upload_layout(struct backend *b, const struct layout *s)
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

// ---- life

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
        cuda_release(b, all[i]->data);
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
    b.alloc = cuda_alloc;
    b.release = cuda_release;
    b.upload = cuda_upload;
    b.download = cuda_download;
    b.host = cuda_host;
    b.sync = cuda_sync;
    b.destroy = cuda_destroy;
    b.describe = cuda_describe;
    b.stamp = cuda_stamp;
    b.between = cuda_between;
    b.memory = cuda_memory;
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
static bool clusters_fit()
{
    return true;
}
#else
static __global__ void cluster_probe() // never launched
{
    kernel_prologue();
}

// Whether a cluster fits whose blocks need a multiprocessor each, since they use most of its shared memory: a slice of
// a GPU may have fewer multiprocessors. Clusters stay on if the driver does not know.
static bool clusters_fit()
{
    enum { MOST = 160 << 10 };
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t l = {};
    int fitting = 0;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    l.gridDim = CLUSTER;
    l.blockDim = CLUSTER_THREADS;
    l.dynamicSmemBytes = MOST;
    l.attrs = &cluster;
    l.numAttrs = 1;
    cudaError_t e = cudaFuncSetAttribute(cluster_probe, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveClusters(&fitting, cluster_probe, &l);
    cudaGetLastError(); // clears it
    return e != cudaSuccess || fitting > 0;
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
    if ((e = use_device(device)) != cudaSuccess || (e = cudaGetDeviceProperties(&p, device)) != cudaSuccess)
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
    c->clusters = is_90 && !is_set("SPECLAB_CUDA_NO_CLUSTERS") && clusters_fit();
    c->bulk = is_90 && !is_set("SPECLAB_CUDA_NO_BULK") && p.sharedMemPerBlockOptin >= RING_SHARED;
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
