#include "verifier/decisions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/row_stages.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/verification.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// ---- rows of p: logits that become the probabilities that are sampled from
//
// A row goes through the sampling stages, on its device if that is possible, and is copied to the host when it is first
// read: a rule reads the rows of a path and its children, not those of the whole tree. Where host and device share
// memory, the logits themselves become probabilities. After a pass nothing else is in the caches, and writing 200 KB
// elsewhere would cost more than the work on them. The path before each node is made from the sequence and the draft,
// so that stages that look back see the draft's own tokens.

struct logit_rows {
    struct rows rows; // must be first
    struct backend *backend;
    const struct sampling *sampling;
    int used_vocab;
    // The device makes probabilities of logits by `stages`, for requests without sampling options of their own.
    bool on_device;
    struct row_stages stages;
    bool made;            // the device has made all rows of the draft
    bool has_path;        // path begins with the request's tokens; rows that the device makes need no path
    struct tensor logits; // (all rows of the pass, vocab)
    int first;            // the first row of the draft
    const struct request *request;
    int capacity;  // nodes
    float **row;   // (capacity) probabilities that have been read; NULL: not yet
    float *copy;   // (capacity, vocab) rows downloaded from a device; pages that are not touched take no memory
    int32_t *path; // (length + capacity)
};

// Returns the text up to a node: the sequence, then the draft's tokens on the path from the root.
static struct path path_to(struct logit_rows *r, int node)
{
    const struct draft *d = r->request->draft;
    int n = r->request->n + draft_depth(d, node);
    if (!r->has_path)
        memcpy(r->path, r->request->token, (size_t)r->request->n * sizeof(*r->path));
    r->has_path = true;
    for (int at = node, i = n - 1; d->parent[at] >= 0; at = d->parent[at], i--)
        r->path[i] = d->token[at];
    return (struct path){ n, r->path, r->request->prompt };
}

// Whether the device makes probabilities of the request's logits; *to: by these stages.
static bool stages_of(const struct logit_rows *r, const struct request *request, struct row_stages *to)
{
    *to = r->stages;
    if (request->sampling == NULL)
        return r->on_device;
    return r->backend->step != NULL && sampling_row_stages(request->sampling, to);
}

static bool made_on_device(const struct logit_rows *r, const struct request *request)
{
    struct row_stages own;
    return stages_of(r, request, &own);
}

// Whether each row has one certain token.
static bool is_certain(const struct logit_rows *r, const struct request *request)
{
    struct row_stages own;
    return stages_of(r, request, &own) && own.inverse_temperature == 0;
}

static void make_rows(struct logit_rows *r, const struct request *request, struct tensor logits, struct part_sum *sums)
{
    struct row_stages own;
    const bool on_device = stages_of(r, request, &own);
    assert(on_device);
    (void)on_device;
    r->backend->step->probabilities(r->backend, logits, r->used_vocab, &own, sums);
}

// Returns node's row in the host's memory: the device's own address, or a copy.
static float *fetched(struct logit_rows *r, int node)
{
    void *logits = tensor_rows(r->logits, r->first + node, 1).data;
    float *host = r->backend->host(r->backend, logits);
    if (host != NULL)
        return host;
    host = r->copy + (size_t)node * (size_t)r->rows.vocab;
    r->backend->download(r->backend, host, logits, (size_t)r->rows.vocab * sizeof(*host));
    return host;
}

// The device makes the row, or has already made it.
static const float *device_row(struct rows *self, int node)
{
    struct logit_rows *r = (struct logit_rows *)self;
    assert(node >= 0 && node < r->request->draft->n);
    if (r->row[node] != NULL)
        return r->row[node];
    if (!r->made)
        make_rows(r, r->request, tensor_rows(r->logits, r->first + node, 1), NULL);
    return r->row[node] = fetched(r, node);
}

static const float *host_row(struct rows *self, int node)
{
    struct logit_rows *r = (struct logit_rows *)self;
    assert(node >= 0 && node < r->request->draft->n);
    if (r->row[node] != NULL)
        return r->row[node];
    struct path before = path_to(r, node);
    float *to = fetched(r, node);
    const struct sampling *own = r->request->sampling;
    sampling_row(own != NULL ? own : r->sampling, to, r->rows.vocab, r->used_vocab, &before);
    return r->row[node] = to;
}

static void point_at(struct logit_rows *r, struct tensor logits, int first, const struct request *request, bool made)
{
    r->logits = logits;
    r->first = first;
    r->request = request;
    r->made = made;
    r->rows.row = made_on_device(r, request) ? device_row : host_row;
    memset(r->row, 0, (size_t)r->capacity * sizeof(*r->row));
    r->has_path = false;
}

// ---- decisions

struct decisions {
    struct decisions_setup s;
    struct logit_rows p;
    const struct rule_body *body; // NULL: the host decides all
    double parameter[RULE_PARAMETERS];
    struct part_sum *sums; // (rows, ROW_PARTS) on the device, sums of the rows of p; NULL: no memory, they are computed
    int32_t
        *certain;   // (rows) on the device: the token of each row of p at temperature 0; NULL: no memory, rows are made
    bool rows_made; // the rows of this step were made
    int n;          // number of requests that the device decides
    bool on_device[MAX_SLOTS];      // whether the device decides each request of the step
    struct verify_request *request; // (slots) the requests that the device decides
    struct verify_result *result;   // (slots)
};

int draft_max_nodes(const struct draft *d)
{
    return d->on_device != NULL ? d->on_device->max_nodes : d->n;
}

void draft_fetch(struct backend *b, struct draft *d)
{
    const struct device_draft *t = d->on_device;
    int32_t n = 1;
    if (t == NULL)
        return;
    b->download(b, &n, t->n, sizeof(n));
    d->n = n >= 1 && n <= t->max_nodes ? n : 1; // the next sync reports the device's failure
    const size_t ids = (size_t)d->n * sizeof(int32_t);
    b->download(b, d->token, t->token, ids);
    b->download(b, d->parent, t->parent, ids);
    b->download(b, t->tag_on_host, t->tag, ids);
    b->download(b, d->proposal, t->proposal, (size_t)d->n);
}

static const struct rule_body *body_of(struct backend *b, const struct rule *rule)
{
    return b->step != NULL && rule->device_body != NULL ? b->step->rule_body(b, rule->device_body) : NULL;
}

static size_t sums_bytes(int rows)
{
    return (size_t)rows * ROW_PARTS * sizeof(struct part_sum);
}

static size_t certain_bytes(int rows)
{
    return (size_t)rows * sizeof(int32_t);
}

size_t decisions_bytes(struct backend *b, const struct rule *rule, int slots, int nodes, int vocab)
{
    const struct device_draft largest = { .max_nodes = nodes,
                                          .max_depth = nodes - 1,
                                          .branches = (rule->takes & (TAKES_TREES | TAKES_CHAINS)) != 0 };
    const struct verify_request r = {
        .body = body_of(b, rule), .n = nodes, .on_device = &largest, .p = tensor_of(NULL, F32, nodes, vocab)
    };
    return r.body != NULL ? (size_t)slots * (b->step->verify_bytes(b, &r) + sums_bytes(nodes) + certain_bytes(nodes))
                          : 0;
}

// The rows of q of a draft on the host are on the host as well. A drafter-invariant rule does not read them.
static bool can_decide(const struct decisions *d, const struct request *r)
{
    bool deterministic = true;
    for (int node = 1; node < r->draft->n && r->draft->on_device == NULL; node++)
        deterministic = deterministic && r->draft->proposal[node] == DETERMINISTIC;
    return philox_of(r->rng) != NULL && made_on_device(&d->p, r) && (deterministic || d->s.rule->drafter_invariant);
}

// Returns whether the token of each row of p is enough for the device to decide a draft.
static bool needs_no_rows(const struct decisions *d, const struct request *r)
{
    const struct device_draft *t = r->draft->on_device;
    return d->certain != NULL && is_certain(&d->p, r) &&
           (t == NULL || t->q.data == NULL || d->s.rule->drafter_invariant);
}

// p: the rows of the draft, which are probabilities with their sums if there is no array of certain tokens.
static struct verify_request request_of(const struct decisions *d, const struct request *r, struct tensor p,
                                        const struct part_sum *sums, const int32_t *certain)
{
    const struct philox *rng = philox_of(r->rng);
    struct verify_request to = { .body = d->body,
                                 .n = draft_max_nodes(r->draft),
                                 .token = r->draft->token,
                                 .parent = r->draft->parent,
                                 .proposal = r->draft->proposal,
                                 .on_device = r->draft->on_device,
                                 .p = p,
                                 .p_sums = sums,
                                 .p_certain = certain,
                                 .seed = rng->seed,
                                 .sequence = rng->sequence,
                                 .root = rng->rng.root };
    for (int i = 0; i < RULE_PARAMETERS; i++)
        to.parameter[i] = d->parameter[i];
    return to;
}

static struct verify_result result_of(const struct request *r, const struct verification *v)
{
    const struct draft *d = r->draft;
    struct verify_result to = { .token = v->token, .node = v->node, .trial_p = v->trial_p, .trial_q = v->trial_q };
    if (d->on_device == NULL)
        return to;
    to.draft_token = d->token;
    to.draft_parent = d->parent;
    to.proposal = d->proposal;
    to.tag = d->on_device->tag_on_host;
    return to;
}

void decisions_begin(struct decisions *d, const struct scored *s)
{
    struct backend *b = d->s.backend;
    bool together = true; // all rows are made at once
    d->n = 0;
    d->rows_made = false;
    for (int i = 0; i < s->n; i++) {
        d->n += d->on_device[i] = d->body != NULL && can_decide(d, &s->request[i]);
        together = together && d->on_device[i] && s->request[i].sampling == NULL;
        d->rows_made = d->rows_made || (d->on_device[i] && !needs_no_rows(d, &s->request[i]));
    }
    if (d->n == 0)
        return;
    if (!d->rows_made)
        b->step->certain(b, s->logits, d->p.used_vocab, d->certain);
    else if (together)
        make_rows(&d->p, &s->request[0], s->logits, d->sums);
    for (int i = 0, at = 0; i < s->n; i++) {
        const struct request *r = &s->request[i];
        if (!d->on_device[i])
            continue;
        const struct tensor p = tensor_rows(s->logits, s->first[i], draft_max_nodes(r->draft));
        struct part_sum *sums = d->sums != NULL && d->rows_made ? d->sums + (size_t)s->first[i] * ROW_PARTS : NULL;
        if (d->rows_made && !together)
            make_rows(&d->p, r, p, sums);
        d->request[at] = request_of(d, r, p, sums, d->rows_made ? NULL : d->certain + s->first[i]);
        d->result[at++] = result_of(r, &s->decided[i]);
    }
    b->step->verify(b, d->request, d->n);
}

bool decisions_wait(struct decisions *d, const struct scored *s, struct error *err)
{
    struct backend *b = d->s.backend;
    if (d->n > 0)
        b->step->verify_wait(b, d->request, d->result, d->n);
    for (int i = 0, at = 0; i < s->n; i++) {
        if (!d->on_device[i])
            continue;
        struct draft *draft = s->request[i].draft;
        const struct verify_result *from = &d->result[at++];
        if (from->n == 0)
            return b->sync(b, err) ? fail(err, "the device did not verify a draft") : false;
        s->decided[i].n = from->n;
        s->decided[i].empty = from->empty;
        if (draft->on_device != NULL)
            draft->n = from->nodes;
        draft->on_device = NULL;
    }
    for (int i = 0; i < s->n; i++) {
        draft_fetch(b, s->request[i].draft);
        s->request[i].draft->on_device = NULL;
    }
    return d->n == s->n || b->sync(b, err); // the sync keeps the pass out of the time of the host's decision
}

bool decisions_decide(struct decisions *d, const struct scored *s, int i, struct error *err)
{
    const struct request *r = &s->request[i];
    point_at(&d->p, s->logits, s->first[i], r, d->on_device[i] && d->rows_made);
    if (!d->on_device[i])
        d->s.rule->verify(d->s.rule, r->draft, &d->p.rows, d->s.rule_options, r->rng, &s->decided[i]);
    return s->decided[i].failed == NULL || fail_plugin(err, "%s (rule %s)", s->decided[i].failed, d->s.rule->name);
}

struct rows *decisions_rows(struct decisions *d)
{
    return &d->p.rows;
}

void decisions_destroy(struct decisions *d)
{
    d->s.backend->release(d->s.backend, d->sums);
    d->s.backend->release(d->s.backend, d->certain);
    free(d->p.copy);
    free(d->p.row);
    free(d->p.path);
    free(d->request);
    free(d->result);
    free(d);
}

static void create_rows(struct logit_rows *r, const struct decisions_setup *s)
{
    *r = (struct logit_rows){
        .backend = s->backend, .sampling = s->sampling, .used_vocab = s->used_vocab, .capacity = s->nodes
    };
    r->on_device = s->backend->step != NULL && sampling_row_stages(s->sampling, &r->stages);
    r->rows.vocab = s->vocab;
    r->copy = xcalloc((size_t)s->nodes * (size_t)s->vocab, sizeof(*r->copy));
    r->row = xcalloc((size_t)s->nodes, sizeof(*r->row));
    r->path = xcalloc((size_t)(s->length + s->nodes), sizeof(*r->path));
}

struct decisions *decisions_create(const struct decisions_setup *s)
{
    struct decisions *d = xcalloc(1, sizeof(*d));
    d->s = *s;
    create_rows(&d->p, s);
    d->body = d->p.on_device ? body_of(s->backend, s->rule) : NULL;
    if (d->body == NULL)
        return d;
    if (s->rule->device_parameters != NULL)
        s->rule->device_parameters(s->rule_options, d->parameter);
    d->sums = s->backend->alloc(s->backend, sums_bytes(s->slots * s->nodes));
    d->certain = s->backend->alloc(s->backend, certain_bytes(s->slots * s->nodes));
    d->request = xcalloc((size_t)s->slots, sizeof(*d->request));
    d->result = xcalloc((size_t)s->slots, sizeof(*d->result));
    return d;
}
