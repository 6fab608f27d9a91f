// verify.cu - drafts verified where the logits are, with the results of verifier/ to the bit. All drafts of a call
// share one launch, one upload and one download. sampling.h explains why the results are the same; each body of rules
// is a file of its own (verify.h).
#include "kernels/cuda/verify.h"

#include <string.h>

namespace DEVICE_SPACE
{

#define BODY_ADDRESS(name) &name##_body,
static const struct rule_body *const bodies[] = { RULE_BODIES(BODY_ADDRESS) NULL };

const struct rule_body *cuda_rule_body(struct backend *b, const char *name)
{
    (void)b;
    for (int i = 0; bodies[i] != NULL; i++)
        if (strcmp(bodies[i]->name, name) == 0)
            return bodies[i];
    return NULL;
}

// ---- upload and download

// Everything of a call in one piece of memory: calls, drafts of the host, output, rows to work in. Calls and drafts are
// uploaded in one copy, the output is downloaded in one, from and to pinned memory.
struct offsets {
    size_t drafts, output, rows, bytes; // where they begin; total
};

static size_t rounded_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static size_t uniforms(const struct verify_request *r)
{
    return r->uniforms != NULL ? (size_t)r->n * (r->body->races ? (size_t)r->p.width : 3) : 0;
}

static size_t uniform_bytes(const struct verify_request *r)
{
    return rounded_up(uniforms(r) * sizeof(double));
}

// Uniforms first.
static size_t draft_bytes(const struct verify_request *r)
{
    return uniform_bytes(r) + (r->on_device == NULL ? rounded_up((size_t)r->n * (2 * sizeof(int32_t) + 1)) : 0);
}

static size_t output_bytes(const struct verify_request *r)
{
    const size_t trials = 2 * sizeof(double), ids = 2 * sizeof(int32_t), draft = 3 * sizeof(int32_t) + 1;
    return rounded_up(sizeof(struct decision) + (size_t)r->n * (trials + ids + (r->on_device != NULL ? draft : 0)));
}

static struct verify_output output_at(const struct verify_request *r, uint8_t *at)
{
    const size_t n = (size_t)r->n;
    struct verify_output o = {};
    o.decision = (struct decision *)at;
    o.trial_p = (double *)(at + sizeof(struct decision));
    o.trial_q = o.trial_p + n;
    o.token = (int32_t *)(o.trial_q + n);
    o.node = o.token + n;
    if (r->on_device == NULL)
        return o;
    o.draft_token = o.node + n;
    o.draft_parent = o.draft_token + n;
    o.tag = o.draft_parent + n;
    o.proposal = (uint8_t *)(o.tag + n);
    return o;
}

static size_t row_bytes(const struct verify_request *r)
{
    return (size_t)r->body->residual_rows(r) * (size_t)r->p.width * sizeof(double);
}

static struct offsets offsets_of(const struct verify_request *r, int n)
{
    struct offsets o = {};
    o.drafts = rounded_up((size_t)n * sizeof(struct verify_call));
    size_t drafts = 0, output = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        drafts += draft_bytes(&r[i]);
        output += output_bytes(&r[i]);
        rows += row_bytes(&r[i]);
    }
    o.output = o.drafts + drafts;
    o.rows = o.output + output;
    o.bytes = o.rows + rows;
    return o;
}

static void check(const struct verify_request *r, const struct verify_request *first)
{
    const struct device_draft *d = r->on_device;
    assert(r->n >= 1 && r->n <= MAX_NODES && r->p.rows == r->n && r->p.width <= 1 << 20);
    assert(r->body != NULL && r->body == first->body &&
           memcmp(r->parameter, first->parameter, sizeof(r->parameter)) == 0);
    assert(d != NULL || r->q.data == NULL || r->q.width == r->p.width);
    assert(d == NULL || (d->max_nodes == r->n && d->tag != NULL));
    assert(d == NULL || d->q.data == NULL || (d->q.width == r->p.width && d->q_row != NULL));
    (void)d, (void)first; // unused without assertions
}

// draft, output, rows: their addresses on the device.
static struct verify_call call_of(const struct verify_request *r, uint8_t *draft, uint8_t *output, uint8_t *rows)
{
    const struct device_draft *d = r->on_device;
    struct verify_call c = {};
    c.max_nodes = r->n;
    c.vocab = (int)r->p.width;
    c.p = (const float *)r->p.data;
    c.p_certain = r->p_certain;
    c.p_sums = r->p_sums;
    c.residual = (double *)rows;
    memcpy(c.parameter, r->parameter, sizeof(c.parameter));
    c.rng = { r->seed, r->sequence, r->root, r->uniforms != NULL ? (const double *)draft : NULL, r->n };
    draft += uniform_bytes(r);
    c.out = output_at(r, output);
    if (d == NULL) {
        c.token = (const int32_t *)draft;
        c.parent = c.token + r->n;
        c.proposal = (const uint8_t *)(c.parent + r->n);
        c.q = (const float *)r->q.data;
        return c;
    }
    c.n = d->n;
    c.token = d->token;
    c.parent = d->parent;
    c.proposal = d->proposal;
    c.tag = d->tag;
    c.q_row = d->q_row;
    c.q = (const float *)d->q.data;
    c.q_sums = d->q_sums;
    return c;
}

static void pack(const struct verify_request *r, int n, struct offsets o, uint8_t *host, uint8_t *device)
{
    for (int i = 0; i < n; i++) {
        const struct verify_call call = call_of(&r[i], device + o.drafts, device + o.output, device + o.rows);
        memcpy(host + (size_t)i * sizeof(call), &call, sizeof(call));
        if (r[i].uniforms != NULL)
            memcpy(host + o.drafts, r[i].uniforms, uniforms(&r[i]) * sizeof(double));
        if (r[i].on_device == NULL) {
            const size_t nodes = (size_t)r[i].n, ids = nodes * sizeof(int32_t);
            uint8_t *to = host + o.drafts + uniform_bytes(&r[i]);
            memcpy(to, r[i].token, ids);
            memcpy(to + ids, r[i].parent, ids);
            memcpy(to + 2 * ids, r[i].proposal, nodes);
        }
        o.drafts += draft_bytes(&r[i]);
        o.output += output_bytes(&r[i]);
        o.rows += row_bytes(&r[i]);
    }
}

static void unpack(const struct verify_request *r, uint8_t *at, struct verify_result *to)
{
    const struct verify_output o = output_at(r, at);
    const size_t n = (size_t)o.decision->n, nodes = (size_t)o.decision->nodes;
    to->n = o.decision->n;
    to->empty = o.decision->empty;
    memcpy(to->token, o.token, n * sizeof(int32_t));
    memcpy(to->node, o.node, n * sizeof(int32_t));
    memcpy(to->trial_p, o.trial_p, nodes * sizeof(double));
    memcpy(to->trial_q, o.trial_q, nodes * sizeof(double));
    if (r->on_device == NULL)
        return;
    to->nodes = o.decision->nodes;
    memcpy(to->draft_token, o.draft_token, nodes * sizeof(int32_t));
    memcpy(to->draft_parent, o.draft_parent, nodes * sizeof(int32_t));
    memcpy(to->tag, o.tag, nodes * sizeof(int32_t));
    memcpy(to->proposal, o.proposal, nodes);
}

size_t cuda_verify_bytes(struct backend *b, const struct verify_request *r)
{
    (void)b;
    return offsets_of(r, 1).bytes;
}

void cuda_verify(struct backend *b, const struct verify_request *r, int n)
{
    struct cuda *c = (struct cuda *)b;
    assert(n >= 1);
    for (int i = 0; i < n; i++)
        check(&r[i], r);
    const struct offsets o = offsets_of(r, n);
    uint8_t *device = (uint8_t *)cuda_reserve(c, &c->verify, o.bytes, "verification");
    uint8_t *host = (uint8_t *)cuda_host_reserve(c, &c->verify_result, o.rows, "verification");
    if (device == NULL || host == NULL)
        return;
    struct verify_calls calls = {};
    pack(r, n, o, host, device);
    if (n <= ARGUMENT_CALLS && o.output == o.drafts) // no draft is uploaded
        memcpy(calls.call, host, (size_t)n * sizeof(struct verify_call));
    else {
        calls.uploaded = (const struct verify_call *)device;
        cuda_put(c, device, host, o.output);
    }
    if (c->failed) // addresses may be invalid
        return;
    void (*const rule_kernel)(struct verify_calls) = r->body->kernel;
    const int blocks = cluster_blocks(c);
    QUEUE_CLUSTERS(c, rule_kernel, blocks, n * blocks, CLUSTER_THREADS, r->body->shared, calls);
    cuda_launched(c, "verification");
}

void cuda_verify_wait(struct backend *b, const struct verify_request *r, struct verify_result *to, int n)
{
    struct cuda *c = (struct cuda *)b;
    struct offsets o = offsets_of(r, n);
    uint8_t *host = (uint8_t *)c->verify_result.data;
    for (int i = 0; i < n; i++)
        to[i].n = to[i].empty = to[i].nodes = 0;
    if (!c->failed)
        b->download(b, host + o.output, (uint8_t *)c->verify.data + o.output, o.rows - o.output);
    for (int i = 0; i < n && !c->failed; i++) {
        unpack(&r[i], host + o.output, &to[i]);
        o.output += output_bytes(&r[i]);
    }
}

} // namespace DEVICE_SPACE
