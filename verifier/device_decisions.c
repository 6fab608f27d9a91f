// device_decisions.c - decisions where the logits are, in one launch and one wait. A request that the device cannot decide goes to
// the host's implementation: its random source is not Philox, or tokens were sampled from rows that only the host has.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "device_step/device_step.h"
#include "device_step/verification.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "verifier/decisions.h"
#include "verifier/device_draft.h"
#include "verifier/logit_rows.h"
#include "verifier/rules/rule.h"

struct device_decisions {
    struct decisions decisions; // first
    struct decisions_setup s;
    struct decisions *host;
    const struct rule_body *body;
    double parameter[RULE_PARAMETERS];
    struct part_sum *sums;     // (rows, ROW_PARTS) on the device, of the rows of p; NULL: no memory, they are computed
    int n;                     // requests that the device decides
    bool on_device[MAX_SLOTS]; // which of the step's they are
    struct verify_request *request; // (slots) those
    struct verify_result *result;   // (slots)
};

static const struct rule_body *body_of(struct backend *b, const struct rule *rule)
{
    return b->step != NULL && rule->device_body != NULL ? b->step->rule_body(b, rule->device_body) : NULL;
}

static size_t sums_bytes(int rows)
{
    return (size_t)rows * ROW_PARTS * sizeof(struct part_sum);
}

size_t device_decisions_bytes(struct backend *b, const struct rule *rule, int slots, int nodes, int vocab)
{
    const struct device_draft largest = { .max_nodes = nodes,
                                          .max_depth = nodes - 1,
                                          .branches = (rule->takes & (TAKES_TREES | TAKES_CHAINS)) != 0 };
    const struct verify_request r = {
        .body = body_of(b, rule), .n = nodes, .on_device = &largest, .p = tensor_of(NULL, F32, nodes, vocab)
    };
    return r.body != NULL ? (size_t)slots * (b->step->verify_bytes(b, &r) + sums_bytes(nodes)) : 0;
}

// Rows of q of a draft on the host are on the host, too; a drafter-invariant rule does not read them.
static bool can_decide(const struct device_decisions *d, const struct request *r)
{
    bool deterministic = true;
    for (int node = 1; node < r->draft->n && r->draft->on_device == NULL; node++)
        deterministic = deterministic && r->draft->proposal[node] == DETERMINISTIC;
    return philox_of(r->rng) != NULL && logit_rows_on_device(d->s.p, r) &&
           (deterministic || d->s.rule->drafter_invariant);
}

// p: the draft's rows of probabilities, with their sums.
static struct verify_request request_of(const struct device_decisions *d, const struct request *r, struct tensor p,
                                        const struct part_sum *sums)
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

static void device_begin(struct decisions *self, const struct scored *s)
{
    struct device_decisions *d = (struct device_decisions *)self;
    struct backend *b = d->s.backend;
    bool together = true; // all rows are made at once
    d->n = 0;
    for (int i = 0; i < s->n; i++) {
        d->n += d->on_device[i] = can_decide(d, &s->request[i]);
        together = together && d->on_device[i] && s->request[i].sampling == NULL;
    }
    if (d->n == 0)
        return;
    if (together)
        logit_rows_make(d->s.p, &s->request[0], s->logits, d->sums);
    for (int i = 0, at = 0; i < s->n; i++) {
        const struct request *r = &s->request[i];
        if (!d->on_device[i])
            continue;
        const struct tensor p = tensor_rows(s->logits, s->first[i], draft_max_nodes(r->draft));
        struct part_sum *sums = d->sums != NULL ? d->sums + (size_t)s->first[i] * ROW_PARTS : NULL;
        if (!together)
            logit_rows_make(d->s.p, r, p, sums);
        d->request[at] = request_of(d, r, p, sums);
        d->result[at++] = result_of(r, &s->decided[i]);
    }
    b->step->verify(b, d->request, d->n);
}

static bool device_wait(struct decisions *self, const struct scored *s, struct error *err)
{
    struct device_decisions *d = (struct device_decisions *)self;
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
    return d->n == s->n || d->host->wait(d->host, s, err);
}

static void device_decide(struct decisions *self, const struct scored *s, int i)
{
    struct device_decisions *d = (struct device_decisions *)self;
    if (d->on_device[i])
        logit_rows_point(d->s.p, s->logits, s->first[i], &s->request[i], true);
    else
        d->host->decide(d->host, s, i);
}

static void device_destroy(struct decisions *self)
{
    struct device_decisions *d = (struct device_decisions *)self;
    d->host->destroy(d->host);
    d->s.backend->release(d->s.backend, d->sums);
    free(d->request);
    free(d->result);
    free(d);
}

struct decisions *device_decisions_create(const struct decisions_setup *s)
{
    const struct rule_body *body = body_of(s->backend, s->rule);
    if (body == NULL || !s->p->on_device)
        return NULL;
    struct device_decisions *d = xcalloc(1, sizeof(*d));
    d->decisions = (struct decisions){ device_begin, device_wait, device_decide, device_destroy };
    d->s = *s;
    d->host = host_decisions_create(s);
    d->body = body;
    if (s->rule->device_parameters != NULL)
        s->rule->device_parameters(s->rule_options, d->parameter);
    d->sums = s->backend->alloc(s->backend, sums_bytes(s->slots * s->nodes));
    d->request = xcalloc((size_t)s->slots, sizeof(*d->request));
    d->result = xcalloc((size_t)s->slots, sizeof(*d->result));
    return &d->decisions;
}
