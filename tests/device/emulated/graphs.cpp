// graphs.cpp - stream capture and graphs: launches recorded with their arguments, which run each time the graph is launched.
#include <vector>

#include "runtime.h"

inline namespace emulated_gpu
{

struct node {
    struct emulated_work work;
    std::vector<uint8_t> arguments;
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
static thread_local cudaStream_t capturing_stream; // of this thread; NULL: none

extern "C" int64_t emulated_graphs(void)
{
    lock_guard lock;
    return graphs;
}

static void count(int change)
{
    lock_guard lock;
    graphs += change;
}

// ---- capturing

bool capture_record(cudaStream_t s, const struct emulated_work &w)
{
    if (!s || !s->capturing)
        return false;
    if (s->invalidated) {
        set_error(cudaErrorStreamCaptureInvalidated);
        return true;
    }
    s->capturing->nodes.push_back({ w, std::vector<uint8_t>((uint8_t *)w.p, (uint8_t *)w.p + w.bytes) });
    return true;
}

bool capture_invalidate(void)
{
    if (!capturing_stream)
        return false;
    capturing_stream->invalidated = true;
    set_error(cudaErrorStreamCaptureUnsupported);
    return true;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (!s || s->capturing || capturing_stream)
        return set_error(cudaErrorIllegalState);
    capturing_stream = s;
    s->capturing = new emulated_graph;
    s->invalidated = false;
    count(1);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *to)
{
    *to = NULL;
    if (!s || !s->capturing)
        return set_error(cudaErrorIllegalState);
    if (s != capturing_stream)
        return set_error(cudaErrorStreamCaptureWrongThread);
    capturing_stream = NULL;
    struct emulated_graph *const graph = s->capturing;
    s->capturing = NULL;
    if (!s->invalidated && !fails()) {
        *to = graph;
        return cudaSuccess;
    }
    cudaGraphDestroy(graph);
    return set_error(s->invalidated ? cudaErrorStreamCaptureInvalidated : cudaErrorInvalidValue);
}

// ---- graphs

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    count(-1);
    return finish_call();
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t graph, unsigned long long)
{
    if (fails())
        return cudaErrorInvalidValue;
    *e = new emulated_graph_exec{ graph->nodes, current_device() };
    count(1);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    delete e;
    count(-1);
    return finish_call();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (stream_use(s) != cudaSuccess || e->device != current_device())
        return set_error(cudaErrorInvalidResourceHandle);
    if (capture_invalidate()) // CUDA allows it; graphs of graphs are not used here
        return cudaErrorStreamCaptureUnsupported;
    lock_guard lock;
    launch_count();
    for (struct node &n : e->nodes) {
        n.work.p = n.arguments.data();
        launch_run(n.work);
    }
    return cudaSuccess;
}

} // namespace emulated_gpu
