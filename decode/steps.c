#include "decode/steps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static void create_record(struct sequence_record *to, size_t nodes)
{
    to->draft.token = xcalloc(nodes, sizeof(int32_t));
    to->draft.parent = xcalloc(nodes, sizeof(int32_t));
    to->draft.proposal = xcalloc(nodes, sizeof(uint8_t));
    to->draft.source = xcalloc(nodes, sizeof(uint8_t));
    to->verification.token = xcalloc(nodes, sizeof(int32_t));
    to->verification.node = xcalloc(nodes, sizeof(int32_t));
    to->verification.trial_p = xcalloc(nodes, sizeof(double));
    to->verification.trial_q = xcalloc(nodes, sizeof(double));
}

static void destroy_record(struct sequence_record *n)
{
    free(n->draft.token);
    free(n->draft.parent);
    free(n->draft.proposal);
    free(n->draft.source);
    free(n->verification.token);
    free(n->verification.node);
    free(n->verification.trial_p);
    free(n->verification.trial_q);
}

void steps_create(struct steps *s, int slots, int nodes)
{
    *s = (struct steps){ .slots = slots };
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        s->step[i].number = i;
        s->step[i].of = xcalloc((size_t)slots, sizeof(struct sequence_record));
        for (int k = 0; k < slots; k++)
            create_record(&s->step[i].of[k], (size_t)nodes);
    }
}

void steps_destroy(struct steps *s)
{
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        for (int k = 0; k < s->slots; k++)
            destroy_record(&s->step[i].of[k]);
        free(s->step[i].of);
    }
    *s = (struct steps){ 0 };
}

struct step_record *steps_current(struct steps *s)
{
    assert(s->n < MAX_PENDING_STEPS);
    return &s->step[(s->first + s->n) % MAX_PENDING_STEPS];
}

void steps_push(struct steps *s)
{
    assert(s->n < MAX_PENDING_STEPS);
    s->n++;
}

const struct step_record *steps_oldest(const struct steps *s)
{
    assert(s->n > 0);
    return &s->step[s->first];
}

void steps_pop(struct steps *s)
{
    assert(s->n > 0);
    s->first = (s->first + 1) % MAX_PENDING_STEPS;
    s->n--;
}

void record_verification(struct sequence_record *to, const struct verification *j)
{
    const size_t n = (size_t)j->n, nodes = (size_t)to->draft.n;
    to->verification.n = j->n;
    to->verification.empty = j->empty;
    memcpy(to->verification.token, j->token, n * sizeof(*j->token));
    memcpy(to->verification.node, j->node, n * sizeof(*j->node));
    memcpy(to->verification.trial_p, j->trial_p, nodes * sizeof(*j->trial_p));
    memcpy(to->verification.trial_q, j->trial_q, nodes * sizeof(*j->trial_q));
}
