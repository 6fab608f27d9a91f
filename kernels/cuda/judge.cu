// judge.cu - drafts judged where the logits are: `rejection` (and `lenient`) and `match`, with the answers of verifier/ bit for
// bit. A draft is a block's; its threads share the rows, and what is decided is decided by numbers that all of them have.
//
// Why the answers are the same is said in chance.h; what each rule does, and why it is right, where it is specified:
// verifier/rejection.c, verifier/match.c.
#include "kernels/cuda/chance.h"
#include "kernels/cuda/cuda.h"
extern "C" {
#include "core/draft.h"
#include "core/judging.h"
}

#include <string.h>

namespace DEVICE_SPACE
{

enum { THREADS = 512 };
typedef struct chance_room<THREADS> room;

struct answer { // on the device
    int n, empty;
    int32_t token[MAX_NODES], node[MAX_NODES];
    double trial_p[MAX_NODES], trial_q[MAX_NODES];
};

struct call {
    int n, vocab;
    const int32_t *token, *parent;
    const uint8_t *drawn;
    const float *p, *q; // (n, vocab)
    double *left, *row; // (vocab) each, to work in
    double lenience;
    struct chance chance;
    struct answer *out;
};

// ---- drafts

__device__ static int next_child(const struct call &c, int parent, int after)
{
    for (int i = after + 1; i < c.n; i++)
        if (c.parent[i] == parent)
            return i;
    return -1;
}

__device__ static void add(const struct call &c, int node, int token)
{
    if (threadIdx.x == 0) {
        c.out->node[c.out->n] = node;
        c.out->token[c.out->n++] = token;
    }
}

__device__ static void begin(const struct call &c)
{
    if (threadIdx.x == 0)
        c.out->n = c.out->empty = 0;
    for (int i = threadIdx.x; i < c.n; i += THREADS)
        c.out->trial_p[i] = c.out->trial_q[i] = NAN;
    __syncthreads();
}

__device__ static void note(const struct call &c, int node, double p, double q)
{
    if (threadIdx.x == 0) {
        c.out->trial_p[node] = p;
        c.out->trial_q[node] = q;
    }
}

// ---- rejection

// The row that a child was drawn from, into c.row.
__device__ static void drawn_row(const struct call &c, int node, int child, room &r)
{
    const int first = next_child(c, node, node);
    from_row(c.row, c.q + (int64_t)node * c.vocab, c.vocab, r);
    if (c.drawn[child] != DRAWN_DISTINCT || child == first)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int s = first; s < child; s = next_child(c, node, s))
            c.row[c.token[s]] = 0;
    __syncthreads();
    const double sum = row_sum(c.row, c.vocab, r);
    if (sum > 0)
        share_out(c.row, c.vocab, sum, r);
}

__device__ static double drawn_measure(const struct call &c, int node, int child, room &r)
{
    if (c.drawn[child] == CHOSEN)
        return 1;
    if (c.drawn[child] == DRAWN_DISTINCT && child != next_child(c, node, node)) {
        drawn_row(c, node, child, r);
        return c.row[c.token[child]];
    }
    const float *row = c.q + (int64_t)node * c.vocab;
    return share(entry_of(row, c.token[child]), row_sum(row, c.vocab, r));
}

static __global__ void __launch_bounds__(THREADS, 1) rejection_kernel(const struct call c)
{
    __shared__ room r;
    in_turn();
    begin(c);
    for (int node = 0;;) {
        const float *row = c.p + (int64_t)node * c.vocab;
        int child = next_child(c, node, node);
        const bool leaf = child < 0;
        const double sum = leaf ? 0 : row_sum(row, c.vocab, r);
        bool whole = true; // p is the row as it came; then c.left
        for (; child >= 0; child = next_child(c, node, child)) {
            const int x = c.token[child];
            const double p = c.lenience * (whole ? share(entry_of(row, x), sum) : c.left[x]);
            const double q = drawn_measure(c, node, child, r);
            note(c, child, p, q);
            if (coin(p, q, c.chance, FOR_ACCEPT, child))
                break;
            __syncthreads(); // all have read c.left
            if (whole)
                from_row(c.left, row, c.vocab, r);
            whole = false;
            __syncthreads();
            bool left;
            if (c.drawn[child] == CHOSEN)
                left = strike(c.left, c.vocab, x, r) > 0;
            else {
                drawn_row(c, node, child, r);
                left = scaled_residual(c.left, 1, c.row, c.vocab, r) > 0;
            }
            if (threadIdx.x == 0)
                c.out->empty += !left;
        }
        if (child < 0) {
            const enum purpose purpose = leaf ? FOR_BONUS : FOR_RESIDUAL;
            add(c, node,
                whole ? pick(row, c.vocab, c.chance, purpose, node, r)
                      : pick(c.left, c.vocab, c.chance, purpose, node, r));
            return;
        }
        add(c, node, c.token[child]);
        node = child;
    }
}

// ---- match

// How likely it is child's token, given that it is none of the siblings before; *left: of the row's sum, without those.
__device__ static double chance_of(const struct call &c, int node, int child, const float *row, double *left)
{
    const double p = (double)row[c.token[child]];
    for (int s = next_child(c, node, node); s < child; s = next_child(c, node, s))
        if (c.token[s] == c.token[child])
            return 0;
    const double chance = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return chance;
}

static __global__ void __launch_bounds__(THREADS, 1) match_kernel(const struct call c)
{
    __shared__ room r;
    in_turn();
    begin(c);
    for (int node = 0, depth = 0; node >= 0; depth++) {
        const float *row = c.p + (int64_t)node * c.vocab;
        const int said = race(row, c.vocab, c.chance, c.chance.root + depth + 1, r);
        add(c, node, said);
        int child = next_child(c, node, node);
        double left = child >= 0 ? row_sum(row, c.vocab, r) : 0;
        for (; child >= 0; child = next_child(c, node, child)) {
            note(c, child, chance_of(c, node, child, row, &left), 1);
            if (c.token[child] == said)
                break;
        }
        node = child;
    }
}

// ---- launches

static void judge_one(struct backend *b, const struct judging *j, struct ruling *to)
{
    struct cuda *c = (struct cuda *)b;
    const int vocab = (int)j->p.width;
    const size_t n = (size_t)j->n, ids = n * sizeof(int32_t), draft = (2 * ids + n + 15) / 16 * 16;
    const size_t bytes = draft + sizeof(struct answer) + 2 * (size_t)vocab * sizeof(double);
    assert(j->n >= 1 && j->n <= MAX_NODES && j->p.rows == j->n && (j->q.data == NULL || j->q.width == vocab));
    assert(vocab <= 1 << 20);
    uint8_t *room = (uint8_t *)cuda_room(c, &c->judge, bytes, "judging");
    to->n = to->empty = 0;
    if (room == NULL)
        return;
    uint8_t staged[MAX_NODES * 9 + 16];
    memcpy(staged, j->token, ids);
    memcpy(staged + ids, j->parent, ids);
    memcpy(staged + 2 * ids, j->drawn, n);
    b->upload(b, room, staged, 2 * ids + n);
    struct call call = {};
    call.n = j->n;
    call.vocab = vocab;
    call.token = (const int32_t *)room;
    call.parent = call.token + n;
    call.drawn = room + 2 * ids;
    call.out = (struct answer *)(room + draft);
    call.left = (double *)(room + draft + sizeof(struct answer));
    call.row = call.left + vocab;
    call.p = (const float *)j->p.data;
    call.q = (const float *)j->q.data;
    call.lenience = j->lenience;
    call.chance = { j->seed, j->sequence, j->root };
    if (j->body == BODY_MATCH)
        QUEUE(c, match_kernel, 1, THREADS, 0, call);
    else
        QUEUE(c, rejection_kernel, 1, THREADS, 0, call);
    cuda_launched(c, "judging");
    struct answer a;
    a.n = a.empty = 0;
    b->download(b, &a, call.out, sizeof(a));
    to->n = a.n;
    to->empty = a.empty;
    memcpy(to->token, a.token, (size_t)a.n * sizeof(int32_t));
    memcpy(to->node, a.node, (size_t)a.n * sizeof(int32_t));
    memcpy(to->trial_p, a.trial_p, n * sizeof(double));
    memcpy(to->trial_q, a.trial_q, n * sizeof(double));
}

void cuda_judge(struct backend *b, const struct judging *j, struct ruling *to, int n)
{
    for (int i = 0; i < n; i++)
        judge_one(b, &j[i], &to[i]);
}

} // namespace DEVICE_SPACE
