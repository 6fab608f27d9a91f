// graphs.cu - routines (backend.h) that are queued at once, as CUDA graphs: the host is done with a pass in the time of
// a launch or two, and a kernel waits less for the one before it.
//
// A routine is named by all that its launches depend on. The first time it is gone through as ever, so that all rooms are
// as large as it wants them; the second time its launches are captured; from then on the graph is launched. What it leaves
// behind is the same in each case, the planes of its last operation among it. A graph knows addresses: whatever is given
// back, a room that grows among it, ends all graphs.
//
// Where a graph cannot be had the operations are queued as ever, then and from then on.
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

namespace DEVICE_SPACE
{

enum { MOST_GRAPHS = 64 };
enum { MOST_ROWS = 512 }; // of a pass: in longer ones a launch costs little

struct key {
    const void *whose, *cache;
    int fact[GRAPH_KEY_FACTS], n, words, length;
    struct reach reach;
    int planes; // that are left for products: one, three or both
};
static_assert(sizeof(struct key) == 2 * sizeof(void *) + (GRAPH_KEY_FACTS + 6) * sizeof(int), "compared as bytes");

struct graph {
    struct key key;
    uint64_t used;        // the last time; 0: there is none
    bool seen;            // it was gone through
    cudaGraphExec_t exec; // NULL: it was not captured
    struct made made;     // planes that it leaves
};

struct graphs {
    struct graph graph[MOST_GRAPHS];
    struct graph *now; // the routine that is gone through; NULL: it is none of these
    bool capturing, given_up;
    uint64_t uses, releases; // when it was last looked how many there were
};

// ---- what passes have in common

// Products take rows by eights, and from 65 on (wide.cu) by 64, so up to as many cost the same; attention does not.
int cuda_bucket(struct backend *b, int n)
{
    (void)b;
    if (n <= 4 || n > MOST_ROWS)
        return n;
    return n <= 6 ? 6 : n <= 64 ? (n + 7) / 8 * 8 : (n + 63) / 64 * 64;
}

// 1, 2, 3, 4, 6, 8, 12, 16, 24, ..: at most a third of them is in vain.
static int at_least(int n)
{
    int most = 1;
    while (most < n)
        most *= 2;
    return most >= 4 && most / 4 * 3 >= n ? most / 4 * 3 : most;
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
    k.reach = attend_reach(r->see);
    k.reach.splits = at_least(k.reach.splits);
    k.reach.runs = at_least(k.reach.runs);
    k.planes = (c->read_one != 0) + 2 * (c->read_three != 0);
    return k;
}

// ---- the graphs that there are

static void forget(struct graph *e)
{
    if (e->exec != NULL)
        cudaGraphExecDestroy(e->exec); // one that is under way comes to its end
    memset(e, 0, sizeof(*e));
}

static void forget_but(struct graphs *g, const struct graph *kept)
{
    for (int i = 0; i < MOST_GRAPHS; i++)
        if (&g->graph[i] != kept)
            forget(&g->graph[i]);
}

static void forget_stale(struct cuda *c)
{
    struct graphs *g = c->graphs;
    if (g->releases != c->releases)
        forget_but(g, g->now);
    g->releases = c->releases;
}

// That of the key, in the place of the one that was used longest ago if it is new.
static struct graph *find(struct graphs *g, const struct key *k)
{
    struct graph *oldest = &g->graph[0];
    for (int i = 0; i < MOST_GRAPHS; i++) {
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

bool graphs_capturing(const struct graphs *g)
{
    return g->capturing;
}

// ---- a routine

// What went wrong with a graph has not gone wrong with the pass.
static void give_up(struct cuda *c)
{
    cudaGetLastError();
    forget_but(c->graphs, NULL);
    c->graphs->given_up = true;
    c->failed = false;
    c->made.x = NULL;
}

static bool launch(struct cuda *c, const struct graph *e)
{
    return cudaGraphLaunch(e->exec, c->stream) == cudaSuccess;
}

static bool end_capture(struct cuda *c, struct graph *e)
{
    cudaGraph_t graph = NULL;
    bool ok = cudaStreamEndCapture(c->stream, &graph) == cudaSuccess && !c->failed;
    ok = ok && cudaGraphInstantiateWithFlags(&e->exec, graph, 0) == cudaSuccess;
    return (graph == NULL || cudaGraphDestroy(graph) == cudaSuccess) && ok;
}

// Of a routine that will be gone through.
static void begin(struct cuda *c, struct graph *e)
{
    struct graphs *g = c->graphs;
    if (e->seen && cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        give_up(c);
        return;
    }
    g->capturing = e->seen;
    g->now = e;
    c->reach = e->key.reach;
}

bool cuda_graph_launch(struct backend *b, const struct graph_key *r)
{
    struct cuda *c = (struct cuda *)b;
    struct graphs *g = c->graphs;
    cuda_use(c);
    cuda_see(c, r->see); // before it, as it comes from the host
    c->made.x = NULL;    // a routine begins alike whatever was before it
    c->made.turn = 0;
    forget_stale(c);
    if (r->see->n > MOST_ROWS || g->given_up || c->failed)
        return false;
    const struct key k = key_of(c, r);
    struct graph *e = find(g, &k);
    e->used = ++g->uses;
    if (e->exec == NULL) {
        begin(c, e);
        return false;
    }
    if (!launch(c, e)) {
        give_up(c);
        return false;
    }
    c->made = e->made;
    return true;
}

bool cuda_graph_end(struct backend *b)
{
    struct cuda *c = (struct cuda *)b;
    struct graphs *g = c->graphs;
    struct graph *e = g->now;
    if (e == NULL)
        return true;
    c->reach = {};
    if (g->capturing) {
        g->now = NULL;
        g->capturing = false;
        if (!end_capture(c, e) || !launch(c, e)) {
            give_up(c);
            return false;
        }
        e->made = c->made;
        return true;
    }
    forget_stale(c); // rooms that have grown: this one's launches will find them where they are
    g->now = NULL;
    e->seen = !c->failed;
    return true;
}

} // namespace DEVICE_SPACE
