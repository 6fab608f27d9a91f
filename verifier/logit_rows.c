#include "verifier/logit_rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/backend.h"
#include "sampling/sampling.h"

// The text up to a node: the sequence, and behind its root the draft's tokens on the way.
static struct path path_to(struct logit_rows *r, int node)
{
    const struct draft *d = r->request->draft;
    int n = r->request->n + draft_depth(d, node);
    for (int at = node, i = n - 1; d->parent[at] >= 0; at = d->parent[at], i--)
        r->path[i] = d->token[at];
    return (struct path){ n, r->path };
}

// Where the host has node's logits: on their device, or brought here from it.
static float *fetched(struct logit_rows *r, int node)
{
    void *logits = tensor_rows(r->logits, r->first + node, 1).data;
    float *here = r->backend->host(r->backend, logits);
    if (here != NULL)
        return here;
    here = r->copy + (size_t)node * (size_t)r->rows.vocab;
    r->backend->download(r->backend, here, logits, (size_t)r->rows.vocab * sizeof(*here));
    return here;
}

static const float *row(struct rows *self, int node)
{
    struct logit_rows *r = (struct logit_rows *)self;
    assert(node >= 0 && node < r->request->draft->n);
    if (r->row[node] != NULL)
        return r->row[node];
    if (r->on_device) {
        if (!r->made)
            r->backend->probabilities(r->backend, tensor_rows(r->logits, r->first + node, 1), r->used_vocab,
                                      &r->stages);
        return r->row[node] = fetched(r, node);
    }
    struct path before = path_to(r, node);
    float *to = fetched(r, node);
    sampling_row(r->sampling, to, r->rows.vocab, r->used_vocab, &before);
    return r->row[node] = to;
}

void logit_rows_create(struct logit_rows *r, struct backend *b, const struct sampling *s, int used_vocab, int vocab,
                       int nodes, int length)
{
    *r = (struct logit_rows){
        .rows = { vocab, row, NULL }, .backend = b, .sampling = s, .used_vocab = used_vocab, .capacity = nodes
    };
    r->on_device = b->probabilities != NULL && sampling_stages(s, &r->stages);
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

void logit_rows_make(struct logit_rows *r, struct tensor logits)
{
    assert(r->on_device);
    r->backend->probabilities(r->backend, logits, r->used_vocab, &r->stages);
}

void logit_rows_point(struct logit_rows *r, struct tensor logits, int first, const struct request *request, bool made)
{
    r->logits = logits;
    r->first = first;
    r->request = request;
    r->made = made;
    memset(r->row, 0, (size_t)r->capacity * sizeof(*r->row));
    memcpy(r->path, request->token, (size_t)request->n * sizeof(*r->path));
}
