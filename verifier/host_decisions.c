#include <stdlib.h>

#include "core/memory.h"
#include "kernels/backend.h"
#include "verifier/decisions.h"
#include "verifier/device_draft.h"
#include "verifier/logit_rows.h"
#include "verifier/rules/rule.h"

struct host_decisions {
    struct decisions decisions; // first
    struct decisions_setup s;
};

static const struct decisions_setup *setup_of(const struct decisions *d)
{
    return &((const struct host_decisions *)d)->s;
}

static void host_begin(struct decisions *d, const struct scored *s)
{
    (void)d, (void)s; // rows may still be queued
}

static bool host_wait(struct decisions *d, const struct scored *s, struct error *err)
{
    struct backend *b = setup_of(d)->backend;
    for (int i = 0; i < s->n; i++) {
        draft_fetch(b, s->request[i].draft);
        s->request[i].draft->on_device = NULL;
    }
    return b->sync(b, err); // so that the time of the decision does not include the pass
}

static void host_decide(struct decisions *d, const struct scored *s, int i)
{
    const struct decisions_setup *o = setup_of(d);
    const struct request *r = &s->request[i];
    logit_rows_point(o->p, s->logits, s->first[i], r, false);
    o->rule->verify(r->draft, &o->p->rows, o->rule_options, r->rng, &s->decided[i]);
}

static void host_destroy(struct decisions *d)
{
    free(d);
}

struct decisions *host_decisions_create(const struct decisions_setup *s)
{
    struct host_decisions *h = xcalloc(1, sizeof(*h));
    h->decisions = (struct decisions){ host_begin, host_wait, host_decide, host_destroy };
    h->s = *s;
    return &h->decisions;
}

struct decisions *decisions_create(const struct decisions_setup *s)
{
    struct decisions *d = device_decisions_create(s);
    return d != NULL ? d : host_decisions_create(s);
}
