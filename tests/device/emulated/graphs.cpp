// graphs.cpp - streams that capture, and graphs: launches written down with their arguments, to be run as often as the graph
// is launched.
#include <vector>

#include "runtime.h"

inline namespace emulated_gpu
{

struct alignas(16) sixteen {
    uint8_t bytes[16];
};

struct node {
    struct emulated_work work;
    std::vector<struct sixteen> p; // its arguments
};

} // namespace emulated_gpu

struct emulated_gpu::emulated_graph {
    std::vector<struct node> nodes;
};

struct emulated_gpu::emulated_graph_exec {
    std::vector<struct node> nodes;
    int device;
};

inline namespace emulated_gpu
{

static int64_t graphs;
static thread_local cudaStream_t captures; // that of this thread; NULL: none

extern "C" int64_t emulated_graphs(void)
{
    held lock;
    return graphs;
}

static void count(int more)
{
    held lock;
    graphs += more;
}

// ---- capturing

bool capture_takes(cudaStream_t s, const struct emulated_work &w)
{
    if (!s || !s->capturing)
        return false;
    if (s->spoilt) {
        note(cudaErrorStreamCaptureInvalidated);
        return true;
    }
    struct node n = { w, std::vector<struct sixteen>((w.bytes + 15) / 16) };
    memcpy(n.p.data(), w.p, w.bytes);
    s->capturing->nodes.push_back(n);
    return true;
}

bool capture_forbids(void)
{
    if (!captures)
        return false;
    captures->spoilt = true;
    note(cudaErrorStreamCaptureUnsupported);
    return true;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (!s || s->capturing || captures)
        return note(cudaErrorIllegalState);
    captures = s;
    s->capturing = new emulated_graph;
    s->spoilt = false;
    count(1);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *to)
{
    *to = NULL;
    if (!s || !s->capturing)
        return note(cudaErrorIllegalState);
    if (s != captures)
        return note(cudaErrorStreamCaptureWrongThread);
    captures = NULL;
    struct emulated_graph *const graph = s->capturing;
    s->capturing = NULL;
    if (!s->spoilt && !fails()) {
        *to = graph;
        return cudaSuccess;
    }
    cudaGraphDestroy(graph);
    return note(s->spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorInvalidValue);
}

// ---- graphs

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    count(-1);
    return done();
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t graph, unsigned long long)
{
    if (fails())
        return cudaErrorInvalidValue;
    *e = new emulated_graph_exec{ graph->nodes, device_now() };
    count(1);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    delete e;
    count(-1);
    return done();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (stream_touch(s) != cudaSuccess || e->device != device_now())
        return note(cudaErrorInvalidResourceHandle);
    if (capture_forbids()) // it is not, but nobody makes graphs of graphs
        return cudaErrorStreamCaptureUnsupported;
    held lock;
    launch_count();
    for (struct node &n : e->nodes) {
        n.work.p = n.p.data();
        launch_run(n.work);
    }
    return cudaSuccess;
}

} // namespace emulated_gpu
