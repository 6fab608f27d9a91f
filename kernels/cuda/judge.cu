// judge.cu - drafts judged where the logits are, with the answers of verifier/ bit for bit: `rejection` (and `lenient`,
// `synthetic`) and `match`; for whole trees traversal.cu. All drafts of a call share one launch, one way there and one way back.
//
// Why the answers are the same is said in chance.h; what each rule does, and why it is right, where it is specified:
// verifier/rules/rejection.c, verifier/rules/match.c.
#include "kernels/cuda/judge.h"

#include <string.h>

namespace DEVICE_SPACE
{

__device__ static void add(const struct call &c, int node, int token)
{
    if (threadIdx.x == 0) {
        c.out.node[c.out.decided->n] = node;
        c.out.token[c.out.decided->n++] = token;
    }
}

// ---- rejection

// What is left of a node's row: verifier/rules/rejection.c's struct left. While `whole`, it is the row without the tokens out[0 .. n),
// and sum is theirs; then it is c.left.
struct left {
    bool whole;
    double sum;
    int n, last; // last: a token that fell and stays; -1
    int32_t out[MAX_NODES];
};

__device__ static bool is_out(const struct left &l, int x)
{
    for (int i = 0; i < l.n; i++)
        if (l.out[i] == x)
            return true;
    return false;
}

__device__ static double left_at(const struct call &c, const struct left &l, const float *row, int x)
{
    return !l.whole ? c.left[x] : is_out(l, x) ? 0 : share(entry_of(row, x), l.sum, 1 / l.sum);
}

// A chosen token falls out of the row: one thread. false: nothing else is left, and it stays.
__device__ static bool chosen_falls(struct left &l, const float *row, int x)
{
    const double mass = is_out(l, x) ? 0 : entry_of(row, x);
    if (x != l.last && l.sum > mass) {
        l.sum -= mass;
        l.out[l.n++] = x;
        return true;
    }
    l.last = x;
    return false;
}

// The row without what fell, into c.left.
__device__ static void write_out(const struct call &c, struct left &l, const float *row, verify_scratch &capacity)
{
    const struct row_without r = { row, l.out, l.n };
    for (int i = threadIdx.x; i < c.vocab; i += VERIFIES)
        c.left[i] = entry_of(&r, i);
    const double sum = row_sum(c.left, c.vocab, capacity);
    if (sum != 1)
        share_out(c.left, c.vocab, sum, capacity);
    if (threadIdx.x == 0)
        l.whole = false;
    __syncthreads();
}

// Child of node has fallen.
__device__ static void rejected(const struct call &c, const struct tree &t, int node, int child, struct left &l,
                                verify_scratch &capacity)
{
    const float *row = row_of(c, node);
    bool left;
    __syncthreads(); // all have read l
    if (t.proposal[child] == DETERMINISTIC && l.whole) {
        left = threadIdx.x == 0 && chosen_falls(l, row, t.token[child]);
        __syncthreads();
    } else if (t.proposal[child] == DETERMINISTIC) {
        left = strike(c.left, c.vocab, t.token[child], capacity) > 0;
    } else {
        if (l.whole)
            write_out(c, l, row, capacity);
        proposal_row(c, t, node, child, capacity);
        left = scaled_residual(c.left, 1, c.q_work, c.vocab, capacity) > 0;
    }
    if (threadIdx.x == 0)
        c.out.decided->empty += !left;
}

// The child of node that stands, or -1.
__device__ static int accepted_child(const struct call &c, const struct tree &t, int node, struct left &l,
                                     verify_scratch &capacity)
{
    const float *row = row_of(c, node);
    const double sum = t.child[node] < 0 ? 0 : row_sum(row, c.vocab, capacity);
    __syncthreads();
    if (threadIdx.x == 0) {
        l.whole = true;
        l.sum = sum;
        l.n = 0;
        l.last = -1;
    }
    __syncthreads();
    for (int child = t.child[node]; child >= 0; child = t.next[child]) {
        const double q = proposal_probability(c, t, node, child, capacity);
        const double p = c.lenience * left_at(c, l, row, t.token[child]) + c.rate * q;
        note(c, child, p, q);
        if (accept(p, q, c.chance, FOR_ACCEPT, child))
            return child;
        rejected(c, t, node, child, l, capacity);
    }
    return -1;
}

static __global__ void __launch_bounds__(VERIFIES, 1) rejection_kernel(const struct call *calls)
{
    __shared__ verify_scratch capacity;
    __shared__ struct tree t;
    __shared__ struct left l;
    in_turn();
    const struct call c = call_of_block(calls);
    begin(c, t);
    int node = 0;
    for (int child; (child = accepted_child(c, t, node, l, capacity)) >= 0; node = child)
        add(c, node, t.token[child]);
    const struct row_without r = { row_of(c, node), l.out, l.n };
    add(c, node,
        t.child[node] < 0 ? pick(r.row, c.vocab, c.chance, FOR_BONUS, node, capacity)
        : l.whole         ? pick(&r, c.vocab, c.chance, FOR_RESIDUAL, node, capacity)
                          : pick(c.left, c.vocab, c.chance, FOR_RESIDUAL, node, capacity));
}

// ---- match

// How likely it is child's token, given that it is none of the siblings before; *left: of the row's sum, without those.
__device__ static double chance_of(const struct tree &t, int node, int child, const float *row, double *left)
{
    const double p = (double)row[t.token[child]];
    for (int s = t.child[node]; s < child; s = t.next[s])
        if (t.token[s] == t.token[child])
            return 0;
    const double chance = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return chance;
}

static __global__ void __launch_bounds__(VERIFIES, 1) match_kernel(const struct call *calls)
{
    __shared__ verify_scratch capacity;
    __shared__ struct tree t;
    in_turn();
    const struct call c = call_of_block(calls);
    begin(c, t);
    for (int node = 0, place = c.chance.root + 1; node >= 0; place++) {
        const float *row = row_of(c, node);
        const int said = race(row, c.vocab, c.chance, place, capacity);
        add(c, node, said);
        int child = t.child[node];
        double left = child >= 0 ? row_sum(row, c.vocab, capacity) : 0;
        for (; child >= 0; child = t.next[child]) {
            note(c, child, chance_of(t, node, child, row, &left), 1);
            if (t.token[child] == said)
                break;
        }
        node = child;
    }
}

// ---- there and back

// Everything of a call in one piece of memory: calls, drafts of the host's, answers, rows to work in. The first two go
// up in one copy, the answers come back in one, from and to pinned memory.
struct parcel {
    size_t drafts, answers, rows, bytes; // where they begin; in all
};

static size_t rounded_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static size_t uniforms_given(const struct verify_request *j)
{
    return j->given != NULL ? (size_t)j->n * (j->device_rule == DEVICE_MATCH ? (size_t)j->p.width : 3) : 0;
}

static size_t given_bytes(const struct verify_request *j)
{
    return rounded_up(uniforms_given(j) * sizeof(double));
}

// Behind what is given.
static size_t draft_bytes(const struct verify_request *j)
{
    return given_bytes(j) + (j->there == NULL ? rounded_up((size_t)j->n * (2 * sizeof(int32_t) + 1)) : 0);
}

static size_t answer_bytes(const struct verify_request *j)
{
    const size_t trials = 2 * sizeof(double), ids = 2 * sizeof(int32_t), draft = 3 * sizeof(int32_t) + 1;
    return rounded_up(sizeof(struct decided) + (size_t)j->n * (trials + ids + (j->there != NULL ? draft : 0)));
}

static struct answer answer_at(const struct verify_request *j, uint8_t *at)
{
    const size_t n = (size_t)j->n;
    struct answer a = {};
    a.decided = (struct decided *)at;
    a.trial_p = (double *)(at + sizeof(struct decided));
    a.trial_q = a.trial_p + n;
    a.token = (int32_t *)(a.trial_q + n);
    a.node = a.token + n;
    if (j->there == NULL)
        return a;
    a.draft_token = a.node + n;
    a.draft_parent = a.draft_token + n;
    a.tag = a.draft_parent + n;
    a.proposal = (uint8_t *)(a.tag + n);
    return a;
}

// Rows of p of which something is left, at most: a node's is kept while the way down goes through a child that is not
// its first, and the last one is that of a node with children where it is. Of a draft on the device no more is known
// than how many nodes and levels it can have: two nodes and a level for each row, then.
static int rows_left(const struct verify_request *j)
{
    if (j->device_rule != DEVICE_TRAVERSAL)
        return j->device_rule == DEVICE_REJECTION ? 1 : 0;
    if (j->n == 1) // there is no child
        return 0;
    if (j->there != NULL && !j->there->branches)
        return 1;
    if (j->there != NULL)
        return j->n / 2 < j->there->max_depth ? j->n / 2 : j->there->max_depth;
    int16_t kept[MAX_NODES] = { 0 }, most = 0;
    bool has_child[MAX_NODES] = { false };
    for (int i = 1; i < j->n; i++) {
        const int parent = j->parent[i];
        kept[i] = (int16_t)(kept[parent] + has_child[parent]);
        has_child[parent] = true;
        most = kept[parent] > most ? kept[parent] : most;
    }
    return 1 + most;
}

static size_t row_bytes(const struct verify_request *j)
{
    const int left = rows_left(j);
    return (size_t)(left + (left > 0)) * (size_t)j->p.width * sizeof(double);
}

static struct parcel parcel_of(const struct verify_request *j, int n)
{
    struct parcel p = {};
    p.drafts = rounded_up((size_t)n * sizeof(struct call));
    size_t drafts = 0, answers = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        drafts += draft_bytes(&j[i]);
        answers += answer_bytes(&j[i]);
        rows += row_bytes(&j[i]);
    }
    p.answers = p.drafts + drafts;
    p.rows = p.answers + answers;
    p.bytes = p.rows + rows;
    return p;
}

static void check(const struct verify_request *j, const struct verify_request *first)
{
    const struct device_draft *d = j->there;
    assert(j->n >= 1 && j->n <= MAX_NODES && j->p.rows == j->n && j->p.width <= 1 << 20);
    assert(j->device_rule != DEVICE_NONE && j->device_rule == first->device_rule && j->lenience == first->lenience &&
           j->rate == first->rate);
    assert(d != NULL || j->q.data == NULL || j->q.width == j->p.width);
    assert(d == NULL || (d->most == j->n && d->tag != NULL));
    assert(d == NULL || d->q.data == NULL || (d->q.width == j->p.width && d->q_row != NULL));
    (void)d, (void)first; // where nothing is asserted
}

// draft, answer, rows: where those are on the device.
static struct call call_of(const struct verify_request *j, uint8_t *draft, uint8_t *answer, uint8_t *rows)
{
    const struct device_draft *d = j->there;
    struct call c = {};
    c.most = j->n;
    c.vocab = (int)j->p.width;
    c.p = (const float *)j->p.data;
    c.q_work = (double *)rows;
    c.left = c.q_work + c.vocab;
    c.lenience = j->lenience;
    c.rate = j->rate;
    c.chance = { j->seed, j->sequence, j->root, j->given != NULL ? (const double *)draft : NULL, j->n };
    draft += given_bytes(j);
    c.out = answer_at(j, answer);
    if (d == NULL) {
        c.token = (const int32_t *)draft;
        c.parent = c.token + j->n;
        c.proposal = (const uint8_t *)(c.parent + j->n);
        c.q = (const float *)j->q.data;
        return c;
    }
    c.n = d->n;
    c.token = d->token;
    c.parent = d->parent;
    c.proposal = d->proposal;
    c.tag = d->tag;
    c.q_row = d->q_row;
    c.q = (const float *)d->q.data;
    return c;
}

static void pack(const struct verify_request *j, int n, struct parcel p, uint8_t *here, uint8_t *there)
{
    for (int i = 0; i < n; i++) {
        const struct call call = call_of(&j[i], there + p.drafts, there + p.answers, there + p.rows);
        memcpy(here + (size_t)i * sizeof(call), &call, sizeof(call));
        if (j[i].given != NULL)
            memcpy(here + p.drafts, j[i].given, uniforms_given(&j[i]) * sizeof(double));
        if (j[i].there == NULL) {
            const size_t nodes = (size_t)j[i].n, ids = nodes * sizeof(int32_t);
            uint8_t *to = here + p.drafts + given_bytes(&j[i]);
            memcpy(to, j[i].token, ids);
            memcpy(to + ids, j[i].parent, ids);
            memcpy(to + 2 * ids, j[i].proposal, nodes);
        }
        p.drafts += draft_bytes(&j[i]);
        p.answers += answer_bytes(&j[i]);
        p.rows += row_bytes(&j[i]);
    }
}

static void unpack(const struct verify_request *j, uint8_t *at, struct verify_result *to)
{
    const struct answer a = answer_at(j, at);
    const size_t n = (size_t)a.decided->n, nodes = (size_t)a.decided->nodes;
    to->n = a.decided->n;
    to->empty = a.decided->empty;
    memcpy(to->token, a.token, n * sizeof(int32_t));
    memcpy(to->node, a.node, n * sizeof(int32_t));
    memcpy(to->trial_p, a.trial_p, nodes * sizeof(double));
    memcpy(to->trial_q, a.trial_q, nodes * sizeof(double));
    if (j->there == NULL)
        return;
    to->nodes = a.decided->nodes;
    memcpy(to->draft_token, a.draft_token, nodes * sizeof(int32_t));
    memcpy(to->draft_parent, a.draft_parent, nodes * sizeof(int32_t));
    memcpy(to->tag, a.tag, nodes * sizeof(int32_t));
    memcpy(to->proposal, a.proposal, nodes);
}

static void queue_body(struct cuda *c, enum device_rule device_rule, int n, const struct call *calls)
{
    if (device_rule == DEVICE_TRAVERSAL)
        queue_traversal(c, n, calls);
    else if (device_rule == DEVICE_MATCH)
        QUEUE(c, match_kernel, n, VERIFIES, 0, calls);
    else
        QUEUE(c, rejection_kernel, n, VERIFIES, 0, calls);
    cuda_launched(c, "judging");
}

size_t cuda_verify_bytes(struct backend *b, const struct verify_request *j)
{
    (void)b;
    return parcel_of(j, 1).bytes;
}

void cuda_verify(struct backend *b, const struct verify_request *j, int n)
{
    struct cuda *c = (struct cuda *)b;
    assert(n >= 1);
    for (int i = 0; i < n; i++)
        check(&j[i], j);
    const struct parcel p = parcel_of(j, n);
    uint8_t *there = (uint8_t *)cuda_reserve(c, &c->verify, p.bytes, "judging");
    uint8_t *here = (uint8_t *)cuda_host_reserve(c, &c->verify_result, p.rows, "judging");
    if (there == NULL || here == NULL)
        return;
    pack(j, n, p, here, there);
    b->upload(b, there, here, p.answers);
    if (!c->failed) // else addresses may not be there
        queue_body(c, j->device_rule, n, (const struct call *)there);
}

void cuda_verify_wait(struct backend *b, const struct verify_request *j, struct verify_result *to, int n)
{
    struct cuda *c = (struct cuda *)b;
    struct parcel p = parcel_of(j, n);
    uint8_t *here = (uint8_t *)c->verify_result.data;
    for (int i = 0; i < n; i++)
        to[i].n = to[i].empty = to[i].nodes = 0;
    if (!c->failed)
        b->download(b, here + p.answers, (uint8_t *)c->verify.data + p.answers, p.rows - p.answers);
    for (int i = 0; i < n && !c->failed; i++) {
        unpack(&j[i], here + p.answers, &to[i]);
        p.answers += answer_bytes(&j[i]);
    }
}

} // namespace DEVICE_SPACE
