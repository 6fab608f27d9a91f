#include "verifier/logit_rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"
#include "sampling/sampling.h"

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
        logit_rows_make(r, r->request, tensor_rows(r->logits, r->first + node, 1), NULL);
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

void logit_rows_create(struct logit_rows *r, struct backend *b, const struct sampling *s, int used_vocab, int vocab,
                       int nodes, int length)
{
    *r = (struct logit_rows){ .backend = b, .sampling = s, .used_vocab = used_vocab, .capacity = nodes };
    r->on_device = b->step != NULL && sampling_row_stages(s, &r->stages);
    r->rows.vocab = vocab;
    r->copy = xcalloc((size_t)nodes * (size_t)vocab, sizeof(*r->copy));
    r->row = xcalloc((size_t)nodes, sizeof(*r->row));
    r->path = xcalloc((size_t)(length + nodes), sizeof(*r->path));
}

void logit_rows_destroy(struct logit_rows *r)
{
    free(r->copy);
    free(r->row);
    free(r->path);
    *r = (struct logit_rows){ 0 };
}

static bool stages_of(const struct logit_rows *r, const struct request *request, struct row_stages *to)
{
    *to = r->stages;
    if (request->sampling == NULL)
        return r->on_device;
    return r->backend->step != NULL && sampling_row_stages(request->sampling, to);
}

bool logit_rows_on_device(const struct logit_rows *r, const struct request *request)
{
    struct row_stages own;
    return stages_of(r, request, &own);
}

bool logit_rows_certain(const struct logit_rows *r, const struct request *request)
{
    struct row_stages own;
    return stages_of(r, request, &own) && own.inverse_temperature == 0;
}

void logit_rows_make(struct logit_rows *r, const struct request *request, struct tensor logits, struct part_sum *sums)
{
    struct row_stages own;
    const bool on_device = stages_of(r, request, &own);
    assert(on_device);
    (void)on_device;
    r->backend->step->probabilities(r->backend, logits, r->used_vocab, &own, sums);
}

void logit_rows_point(struct logit_rows *r, struct tensor logits, int first, const struct request *request, bool made)
{
    r->logits = logits;
    r->first = first;
    r->request = request;
    r->made = made;
    r->rows.row = logit_rows_on_device(r, request) ? device_row : host_row;
    memset(r->row, 0, (size_t)r->capacity * sizeof(*r->row));
    r->has_path = false;
}
