// graphs.cu - CUDA graphs of the operations that a graph_key names (backend.h): the host queues a pass in the time of a
// launch or two, and kernels start with less delay after each other.
//
// A key has everything that the launches depend on. The first time the operations are queued one by one, so that all
// workspaces reach their size; the second time their launches are captured; from then on the graph is launched. The
// results are the same in each case, the rounded rows of the last operation included. Graphs contain addresses:
// releasing memory, or enlarging a workspace, ends all graphs.
//
// If a graph cannot be made, the operations are queued one by one, then and from then on, and backend.log gets the
// reason, once. Under SPECLAB_CUDA_SYNC there are no graphs.
#include "kernels/cuda/round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace DEVICE_SPACE
{

enum { MAX_GRAPHS = 64 };
enum { MAX_ROWS = 512 }; // longer passes have no graphs: there launches cost little

struct key {
    const void *whose, *cache;
    int fact[GRAPH_KEY_FACTS], n, words, length;
    struct reach reach;
    int rounds; // what operations write for products: rounded rows, their sums
};
static_assert(sizeof(struct key) == 2 * sizeof(void *) + (GRAPH_KEY_FACTS + 6) * sizeof(int), "compared as bytes");

struct graph {
    struct key key;
    uint64_t used;        // number of its last use; 0: the entry is free
    bool queued;          // its operations have been queued once
    cudaGraphExec_t exec; // NULL: it was not captured
    struct tensor out;    // what its operations returned
    int buffer;           // the buffer of out's rounded rows
    struct rounded_buffer rounded;
};

struct graphs {
    struct graph graph[MAX_GRAPHS];
    struct graph *current; // whose operations are being queued; NULL: none
    bool disabled;
    uint64_t uses, releases; // releases: struct cuda's when stale graphs were last removed
};

// ---- padding

// Products process rows in groups of 8, from 65 on (matmul_large.cu) of 64, so padding up to those costs nothing there;
// in attention it does.
int cuda_bucket(struct backend *b, int n)
{
    (void)b;
    if (n <= 4 || n > MAX_ROWS)
        return n;
    return n <= 6 ? 6 : n <= 64 ? (n + 7) / 8 * 8 : (n + 63) / 64 * 64;
}

// 1, 2, 3, 4, 6, 8, 12, 16, 24, ..: at most a third is unused.
static int rounded_up(int n)
{
    int power = 1;
    while (power < n)
        power *= 2;
    return power >= 4 && power / 4 * 3 >= n ? power / 4 * 3 : power;
}

static struct key key_of(const struct cuda *c, const struct graph_key *r)
{
    struct key k = {};
    k.whose = r->whose;
    k.cache = r->cache;
    memcpy(k.fact, r->fact, sizeof(k.fact));
    k.n = r->see->n;
    k.words = r->see->words;
    k.length = r->see->length;
    k.reach = attention_extent(r->see);
    k.reach.splits = rounded_up(k.reach.splits);
    k.reach.runs = rounded_up(k.reach.runs);
    k.rounds = (c->read_rounded != 0) + 2 * (c->read_sums != 0);
    return k;
}

// ---- the cache of graphs

static void forget(struct graph *e)
{
    if (e->exec != NULL)
        cudaGraphExecDestroy(e->exec); // a launch in progress completes
    memset(e, 0, sizeof(*e));
}

static void forget_but(struct graphs *g, const struct graph *kept)
{
    for (int i = 0; i < MAX_GRAPHS; i++)
        if (&g->graph[i] != kept)
            forget(&g->graph[i]);
}

static void forget_stale(struct cuda *c)
{
    struct graphs *g = c->graphs;
    if (g->releases != c->releases)
        forget_but(g, g->current);
    g->releases = c->releases;
}

// The entry of the key; a new one replaces the least recently used.
static struct graph *find(struct graphs *g, const struct key *k)
{
    struct graph *oldest = &g->graph[0];
    for (int i = 0; i < MAX_GRAPHS; i++) {
        struct graph *e = &g->graph[i];
        if (e->used != 0 && memcmp(&e->key, k, sizeof(*k)) == 0)
            return e;
        if (e->used < oldest->used)
            oldest = e;
    }
    forget(oldest);
    oldest->key = *k;
    return oldest;
}

struct graphs *graphs_create(void)
{
    return (struct graphs *)xcalloc(1, sizeof(struct graphs));
}

void graphs_destroy(struct graphs *g)
{
    if (g == NULL)
        return;
    forget_but(g, NULL);
    free(g);
}

// ---- capture and launch

// The operations that a key names begin with the same buffers every time.
static void forget_rounded(struct cuda *c)
{
    for (int i = 0; i < ROUNDED_BUFFERS; i++)
        c->rounded[i].number = 0;
    c->last_rounded = 0;
}

// What the captured operations returned, of which out's rounded rows are in a buffer.
static void note_out(const struct cuda *c, struct graph *e, struct tensor out)
{
    e->out = out;
    e->buffer = -1;
    for (int i = 0; i < ROUNDED_BUFFERS && out.rounded != 0; i++)
        if (c->rounded[i].number == out.rounded)
            e->buffer = i;
    if (e->buffer >= 0)
        e->rounded = c->rounded[e->buffer];
}

// The same after a launch, under a new number.
static struct tensor out_of(struct cuda *c, const struct graph *e)
{
    if (e->buffer < 0)
        return without_rounded(c, e->out);
    const struct space space = c->rounded[e->buffer].space;
    c->rounded[e->buffer] = e->rounded;
    c->rounded[e->buffer].space = space;
    c->last_rounded = e->buffer;
    return with_rounded(c, e->out);
}

static void log_off(struct cuda *c, const char *why)
{
    char sentence[sizeof(c->err.text) + 32];
    snprintf(sentence, sizeof(sentence), "CUDA graphs: off (%s)", why);
    if (c->backend.log != NULL)
        c->backend.log(c->backend.log_self, sentence);
}

// A failure of graphs is not a failure of the pass. The reason is the failure of an operation while it was captured, or
// e.
static void disable_graphs(struct cuda *c, cudaError_t e, const char *what)
{
    cuda_note(c, e, what);
    cudaGetLastError();
    forget_but(c->graphs, NULL);
    c->graphs->disabled = true;
    log_off(c, c->err.text);
    c->failed = false;
    forget_rounded(c);
}

static bool launch(struct cuda *c, const struct graph *e)
{
    const cudaError_t error = cudaGraphLaunch(e->exec, c->stream);
    if (error != cudaSuccess)
        disable_graphs(c, error, "launching a graph");
    return error == cudaSuccess;
}

// Ends the capture of e's operations and makes a graph of them.
static bool make_graph(struct cuda *c, struct graph *e)
{
    cudaGraph_t graph = NULL;
    const char *what = "ending the capture of a graph";
    cudaError_t error = cudaStreamEndCapture(c->stream, &graph);
    if (error == cudaSuccess && !c->failed) {
        what = "making a graph";
        error = cudaGraphInstantiateWithFlags(&e->exec, graph, 0);
    }
    const cudaError_t destroyed = graph != NULL ? cudaGraphDestroy(graph) : cudaSuccess;
    error = error == cudaSuccess ? destroyed : error;
    if (error != cudaSuccess || c->failed)
        disable_graphs(c, error, what);
    return !c->graphs->disabled;
}

// The operations will be queued one by one, for capture if they have been before.
static void begin(struct cuda *c, struct graph *e)
{
    struct graphs *g = c->graphs;
    const cudaError_t error =
        e->queued ? cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) : cudaSuccess;
    if (error != cudaSuccess) {
        disable_graphs(c, error, "beginning the capture of a graph");
        return;
    }
    c->capturing = e->queued;
    g->current = e;
    c->reach = e->key.reach;
}

bool cuda_graph_launch(struct backend *b, const struct graph_key *r, struct tensor *out)
{
    struct cuda *c = (struct cuda *)b;
    struct graphs *g = c->graphs;
    cuda_use(c);
    cuda_see(c, r->see); // uploaded before the graph is launched
    c->writes++;
    forget_rounded(c);
    forget_stale(c);
    if (c->waits && !g->disabled) {
        g->disabled = true;
        log_off(c, "SPECLAB_CUDA_SYNC is set");
    }
    if (r->see->n > MAX_ROWS || g->disabled || c->failed)
        return false;
    const struct key k = key_of(c, r);
    struct graph *e = find(g, &k);
    e->used = ++g->uses;
    if (e->exec == NULL) {
        begin(c, e);
        return false;
    }
    if (!launch(c, e))
        return false;
    *out = out_of(c, e);
    return true;
}

bool cuda_graph_end(struct backend *b, struct tensor out)
{
    struct cuda *c = (struct cuda *)b;
    struct graphs *g = c->graphs;
    struct graph *e = g->current;
    if (e == NULL)
        return true;
    c->reach = {};
    if (c->capturing) {
        g->current = NULL;
        c->capturing = false;
        if (!make_graph(c, e) || !launch(c, e))
            return false;
        note_out(c, e, out);
        return true;
    }
    forget_stale(c); // workspaces were enlarged; this entry's capture will use the new addresses
    g->current = NULL;
    e->queued = !c->failed;
    return true;
}

} // namespace DEVICE_SPACE
