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

static const float *row(struct rows *self, int node)
{
    struct logit_rows *r = (struct logit_rows *)self;
    assert(node >= 0 && node < r->request->draft->n);
    size_t bytes = (size_t)r->rows.vocab * sizeof(float);
    if (r->ready[node])
        return r->buffer[node];
    if (r->buffer[node] == NULL)
        r->buffer[node] = xmalloc(bytes);
    struct path before = path_to(r, node);
    r->backend->download(r->backend, r->buffer[node], tensor_rows(r->logits, r->first + node, 1).data, bytes);
    sampling_row(r->sampling, r->buffer[node], r->rows.vocab, r->live, &before);
    r->ready[node] = true;
    return r->buffer[node];
}

void logit_rows_create(struct logit_rows *r, struct backend *b, const struct sampling *s, int live, int vocab,
                       int nodes, int length)
{
    *r = (struct logit_rows){ .rows = { vocab, row, NULL }, .backend = b, .sampling = s, .live = live, .room = nodes };
    r->buffer = xcalloc((size_t)nodes, sizeof(*r->buffer));
    r->ready = xcalloc((size_t)nodes, sizeof(*r->ready));
    r->path = xcalloc((size_t)(length + nodes), sizeof(*r->path));
}

void logit_rows_destroy(struct logit_rows *r)
{
    for (int i = 0; i < r->room; i++)
        free(r->buffer[i]);
    free(r->buffer);
    free(r->ready);
    free(r->path);
    *r = (struct logit_rows){ 0 };
}

void logit_rows_point(struct logit_rows *r, struct tensor logits, int first, const struct request *request)
{
    r->logits = logits;
    r->first = first;
    r->request = request;
    memset(r->ready, 0, (size_t)r->room * sizeof(*r->ready));
    memcpy(r->path, request->token, (size_t)request->n * sizeof(*r->path));
}
