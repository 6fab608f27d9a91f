// judge.cu - drafts judged where the logits are: `rejection` (and `lenient`) and `match`, with the answers of verifier/ bit for
// bit. A draft is a block's; its threads share the rows, and what is decided is decided by numbers that all of them have.
//
// Why the answers are the same: what is done to single numbers is core/grid.h's, sums are exact, a sum's order does not
// matter, draws have addresses. What each rule does, and why it is right, is said where it is specified: verifier/rejection.c,
// verifier/match.c, sampling/dist.c, sampling/rng.c.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
extern "C" {
#include "core/draft.h"
#include "core/judging.h"
}

#include <math.h>
#include <string.h>

namespace DEVICE_SPACE
{

enum { THREADS = 512, WARPS = THREADS / WARP };

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
    uint64_t seed, sequence;
    int32_t root;
    struct answer *out;
};

struct room {
    double of_warp[WARPS], part[THREADS];
    int place_of_warp[WARPS], place;
};

// ---- over the block, the same in every thread

// The least number's place, the first of equals; -1: nobody has one.
__device__ static int first_of_least(double x, int place, struct room *room)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        const double y = __shfl_xor_sync(0xFFFFFFFF, x, step);
        const int other = __shfl_xor_sync(0xFFFFFFFF, place, step);
        if (other >= 0 && (place < 0 || y < x || (y == x && other < place)))
            x = y, place = other;
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        room->of_warp[threadIdx.x / WARP] = x;
        room->place_of_warp[threadIdx.x / WARP] = place;
    }
    __syncthreads();
    place = -1;
    for (int i = 0; i < WARPS; i++) {
        const double y = room->of_warp[i];
        const int other = room->place_of_warp[i];
        if (other >= 0 && (place < 0 || y < x || (y == x && other < place)))
            x = y, place = other;
    }
    return place;
}

// ---- rows: sampling/dist.c

__device__ static double row_sum(const struct call &c, const float *row, struct room *room)
{
    double sum = 0;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        sum += grid_of((double)row[i]);
    return block_sum<WARPS>(sum, room->of_warp);
}

__device__ static double share(double entry, double sum)
{
    return entry == sum ? 1 : grid_below(entry * (1 / sum));
}

// w := w / whole; what is missing of 1 goes to the first of the largest.
__device__ static void share_out(const struct call &c, double *w, double whole, struct room *room)
{
    const double by = 1 / whole;
    double sum = 0, least = 1;
    int place = -1;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS) {
        const double x = w[i] == whole ? 1 : grid_below(w[i] * by);
        w[i] = x;
        sum += x;
        if (place < 0 || -x < least)
            least = -x, place = i;
    }
    const double missing = 1 - block_sum<WARPS>(sum, room->of_warp);
    place = first_of_least(least, place, room);
    if (threadIdx.x == 0 && missing != 0)
        w[place] += missing;
    __syncthreads();
}

__device__ static void from_row(const struct call &c, double *to, const float *row, struct room *room)
{
    double sum = 0;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        sum += to[i] = grid_of((double)row[i]);
    sum = block_sum<WARPS>(sum, room->of_warp);
    __syncthreads();
    if (sum > 0 && sum != 1)
        share_out(c, to, sum, room);
}

// p without token x. false: nothing is left, and p stays as it was.
__device__ static bool strike(const struct call &c, double *p, int x, struct room *room)
{
    double sum = 0;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        sum += i != x ? p[i] : 0;
    sum = block_sum<WARPS>(sum, room->of_warp);
    if (!(sum > 0))
        return false;
    if (threadIdx.x == 0)
        p[x] = 0;
    __syncthreads();
    share_out(c, p, sum, room);
    return true;
}

// p := (p - q)+
__device__ static bool residual(const struct call &c, double *p, const double *q, struct room *room)
{
    double sum = 0;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        sum += p[i] > q[i] ? p[i] - q[i] : 0;
    sum = block_sum<WARPS>(sum, room->of_warp);
    if (!(sum > 0))
        return false;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        p[i] = p[i] > q[i] ? p[i] - q[i] : 0;
    __syncthreads();
    share_out(c, p, sum, room);
    return true;
}

// ---- chance: sampling/rng.c

__device__ static bool coin(const struct call &c, double num, double den, int node)
{
    if (num <= 0 || num >= den)
        return num > 0;
    const double u = grid_bits53(c.seed, grid_word0(FOR_ACCEPT, node, 0), c.root, c.sequence, 0) * 0x1p-53;
    return u * den < num;
}

// The first token that the sum up to and with it takes beyond u of all; of a row of floats, or of doubles.
__device__ static int pick(const struct call &c, const float *row, const double *w, enum purpose purpose, int node,
                           struct room *room)
{
    const int each = (c.vocab + THREADS - 1) / THREADS, from = (int)threadIdx.x * each;
    double part = 0;
    for (int i = from; i < from + each && i < c.vocab; i++)
        part += w != NULL ? w[i] : grid_of((double)row[i]);
    const double sum = block_sum<WARPS>(part, room->of_warp);
    room->part[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
        const double u = grid_bits53(c.seed, grid_word0(purpose, node, 0), c.root, c.sequence, 0) * 0x1p-53;
        const double target = u * sum;
        double before = 0, below = 0;
        int there = 0, last = -1;
        for (int t = 0; t < THREADS && before <= target; t++)
            if (room->part[t] > 0) {
                there = t;
                below = before;
                before += room->part[t];
            }
        for (int i = there * each; i < (there + 1) * each && i < c.vocab; i++) {
            const double x = w != NULL ? w[i] : grid_of((double)row[i]);
            if (!(x > 0))
                continue;
            last = i;
            below += x;
            if (below > target)
                break;
        }
        room->place = last;
    }
    __syncthreads();
    return room->place;
}

// The race for the place behind the node at this depth.
__device__ static int race(const struct call &c, const float *row, int depth, struct room *room)
{
    double best = INFINITY;
    int winner = -1;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS) {
        const double w = grid_of((double)row[i]);
        if (!(w > 0))
            continue;
        const double k =
            grid_bits53(c.seed, grid_word0(FOR_TOKEN, 0, (uint32_t)i / 2), c.root + depth + 1, c.sequence, i % 2);
        const double time = grid_wait((k + 0.5) * 0x1p-53) / w;
        if (winner < 0 || time < best)
            best = time, winner = i;
    }
    return first_of_least(best, winner, room);
}

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
__device__ static void drawn_row(const struct call &c, int node, int child, struct room *room)
{
    const int first = next_child(c, node, node);
    from_row(c, c.row, c.q + (int64_t)node * c.vocab, room);
    __syncthreads();
    if (c.drawn[child] != DRAWN_DISTINCT || child == first)
        return;
    if (threadIdx.x == 0)
        for (int s = first; s < child; s = next_child(c, node, s))
            c.row[c.token[s]] = 0;
    __syncthreads();
    double sum = 0;
    for (int i = threadIdx.x; i < c.vocab; i += THREADS)
        sum += c.row[i];
    sum = block_sum<WARPS>(sum, room->of_warp);
    if (sum > 0)
        share_out(c, c.row, sum, room);
}

__device__ static double drawn_measure(const struct call &c, int node, int child, struct room *room)
{
    if (c.drawn[child] == CHOSEN)
        return 1;
    if (c.drawn[child] == DRAWN_DISTINCT && child != next_child(c, node, node)) {
        drawn_row(c, node, child, room);
        return c.row[c.token[child]];
    }
    const float *row = c.q + (int64_t)node * c.vocab;
    return share(grid_of((double)row[c.token[child]]), row_sum(c, row, room));
}

static __global__ void __launch_bounds__(THREADS, 1) rejection_kernel(const struct call c)
{
    __shared__ struct room room;
    in_turn();
    begin(c);
    for (int node = 0;;) {
        const float *row = c.p + (int64_t)node * c.vocab;
        int child = next_child(c, node, node);
        const bool leaf = child < 0;
        const double sum = leaf ? 0 : row_sum(c, row, &room);
        bool whole = true; // p is the row as it came; then c.left
        for (; child >= 0; child = next_child(c, node, child)) {
            const int x = c.token[child];
            const double p = c.lenience * (whole ? share(grid_of((double)row[x]), sum) : c.left[x]);
            const double q = drawn_measure(c, node, child, &room);
            note(c, child, p, q);
            if (coin(c, p, q, child))
                break;
            __syncthreads(); // all have read c.left
            if (whole)
                from_row(c, c.left, row, &room);
            whole = false;
            __syncthreads();
            bool left;
            if (c.drawn[child] == CHOSEN)
                left = strike(c, c.left, x, &room);
            else {
                drawn_row(c, node, child, &room);
                left = residual(c, c.left, c.row, &room);
            }
            if (threadIdx.x == 0)
                c.out->empty += !left;
        }
        if (child < 0) {
            add(c, node, pick(c, row, whole ? NULL : c.left, leaf ? FOR_BONUS : FOR_RESIDUAL, node, &room));
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
    __shared__ struct room room;
    in_turn();
    begin(c);
    for (int node = 0, depth = 0; node >= 0; depth++) {
        const float *row = c.p + (int64_t)node * c.vocab;
        const int said = race(c, row, depth, &room);
        add(c, node, said);
        int child = next_child(c, node, node);
        double left = child >= 0 ? row_sum(c, row, &room) : 0;
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
    call.seed = j->seed;
    call.sequence = j->sequence;
    call.root = j->root;
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
