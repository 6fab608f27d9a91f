#include "verifier/device_draft.h"

#include <stddef.h>

#include "kernels/backend.h"

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
    d->n = n >= 1 && n <= t->max_nodes ? n : 1; // the next sync reports a device that failed
    const size_t ids = (size_t)d->n * sizeof(int32_t);
    b->download(b, d->token, t->token, ids);
    b->download(b, d->parent, t->parent, ids);
    b->download(b, t->tag_on_host, t->tag, ids);
    b->download(b, d->proposal, t->proposal, (size_t)d->n);
}
