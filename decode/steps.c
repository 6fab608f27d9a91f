#include "decode/steps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static void create_note(struct note *to, size_t nodes)
{
    to->draft.token = xcalloc(nodes, sizeof(int32_t));
    to->draft.parent = xcalloc(nodes, sizeof(int32_t));
    to->draft.proposal = xcalloc(nodes, sizeof(uint8_t));
    to->verification.token = xcalloc(nodes, sizeof(int32_t));
    to->verification.node = xcalloc(nodes, sizeof(int32_t));
    to->verification.trial_p = xcalloc(nodes, sizeof(double));
    to->verification.trial_q = xcalloc(nodes, sizeof(double));
}

static void destroy_note(struct note *n)
{
    free(n->draft.token);
    free(n->draft.parent);
    free(n->draft.proposal);
    free(n->verification.token);
    free(n->verification.node);
    free(n->verification.trial_p);
    free(n->verification.trial_q);
}

void steps_create(struct steps *s, int slots, int nodes)
{
    *s = (struct steps){ .slots = slots };
    for (int i = 0; i < STEPS_NOTED; i++) {
        s->step[i].number = i;
        s->step[i].of = xcalloc((size_t)slots, sizeof(struct note));
        for (int k = 0; k < slots; k++)
            create_note(&s->step[i].of[k], (size_t)nodes);
    }
}

void steps_destroy(struct steps *s)
{
    for (int i = 0; i < STEPS_NOTED; i++) {
        for (int k = 0; k < s->slots; k++)
            destroy_note(&s->step[i].of[k]);
        free(s->step[i].of);
    }
    *s = (struct steps){ 0 };
}

struct noted_step *steps_at_hand(struct steps *s)
{
    assert(s->n < STEPS_NOTED);
    return &s->step[(s->first + s->n) % STEPS_NOTED];
}

void steps_note(struct steps *s)
{
    assert(s->n < STEPS_NOTED);
    s->n++;
}

const struct noted_step *steps_oldest(const struct steps *s)
{
    assert(s->n > 0);
    return &s->step[s->first];
}

void steps_drop(struct steps *s)
{
    assert(s->n > 0);
    s->first = (s->first + 1) % STEPS_NOTED;
    s->n--;
}

void note_verification(struct note *to, const struct verification *j)
{
    const size_t n = (size_t)j->n, nodes = (size_t)to->draft.n;
    to->verification.n = j->n;
    to->verification.empty = j->empty;
    memcpy(to->verification.token, j->token, n * sizeof(*j->token));
    memcpy(to->verification.node, j->node, n * sizeof(*j->node));
    memcpy(to->verification.trial_p, j->trial_p, nodes * sizeof(*j->trial_p));
    memcpy(to->verification.trial_q, j->trial_q, nodes * sizeof(*j->trial_q));
}
