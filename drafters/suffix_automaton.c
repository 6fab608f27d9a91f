#include "drafters/suffix_automaton.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void automaton_begin(struct automaton *a, int depth)
{
    *a = (struct automaton){ .depth = depth, .slots = 256 };
    a->slot = xmalloc((size_t)a->slots * sizeof(*a->slot));
    automaton_clear(a);
}

void automaton_free(struct automaton *a)
{
    free(a->state);
    free(a->edge);
    free(a->slot);
    *a = (struct automaton){ 0 };
}

static int32_t add_state(struct automaton *a, struct suffix_state s)
{
    array_reserve(a->state, a->state_capacity, a->states + 1);
    a->state[a->states] = s;
    return a->states++;
}

void automaton_clear(struct automaton *a)
{
    memset(a->slot, 0xFF, (size_t)a->slots * sizeof(*a->slot)); // all -1
    a->states = a->edges = 0;
    a->position = 0;
    a->last = add_state(a, (struct suffix_state){ .link = -1, .edge = -1 });
}

// ---- edges

static uint32_t hash_of(int32_t state, int32_t token)
{
    const uint64_t key = (uint64_t)(uint32_t)state << 32 | (uint32_t)token;
    return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32); // Fibonacci hashing
}

// The slot of the edge, or the free one for it. The table is at most half full.
static int32_t *slot_of(const struct automaton *a, int32_t state, int32_t token)
{
    for (uint32_t i = hash_of(state, token);; i++) {
        int32_t *slot = &a->slot[i & (uint32_t)(a->slots - 1)];
        if (*slot < 0 || (a->edge[*slot].from == state && a->edge[*slot].token == token))
            return slot;
    }
}

static void enlarge_slots(struct automaton *a)
{
    a->slots *= 2;
    a->slot = xrealloc(a->slot, (size_t)a->slots * sizeof(*a->slot));
    memset(a->slot, 0xFF, (size_t)a->slots * sizeof(*a->slot));
    for (int32_t e = 0; e < a->edges; e++)
        *slot_of(a, a->edge[e].from, a->edge[e].token) = e;
}

static void add_edge(struct automaton *a, int32_t from, int32_t token, int32_t to)
{
    array_reserve(a->edge, a->edge_capacity, a->edges + 1);
    if (2 * (a->edges + 1) > a->slots)
        enlarge_slots(a);
    *slot_of(a, from, token) = a->edges;
    a->edge[a->edges] = (struct suffix_edge){ from, token, to, a->state[from].edge };
    a->state[from].edge = a->edges++;
}

int32_t automaton_next(const struct automaton *a, int32_t state, int32_t token)
{
    const int32_t e = *slot_of(a, state, token);
    return e < 0 ? -1 : a->edge[e].to;
}

// ---- states

// State q is divided: a new state has its substrings of up to `length` tokens.
static int32_t divide(struct automaton *a, int32_t q, int32_t length)
{
    struct suffix_state part = a->state[q];
    part.length = length;
    part.edge = -1;
    const int32_t to = add_state(a, part);
    a->state[to].top = to;
    for (int32_t e = a->state[q].edge; e >= 0; e = a->edge[e].next)
        add_edge(a, to, a->edge[e].token, a->edge[e].to);
    a->state[q].link = to;
    return to;
}

// The link of a new state, which the token leads to from the suffixes of the text before it.
static int32_t link_for(struct automaton *a, int32_t added, int32_t token)
{
    int32_t p = a->last;
    for (; p >= 0 && automaton_next(a, p, token) < 0; p = a->state[p].link)
        add_edge(a, p, token, added);
    if (p < 0)
        return 0;
    const int32_t q = automaton_next(a, p, token);
    if (a->state[q].length == a->state[p].length + 1)
        return q;
    const int32_t part = divide(a, q, a->state[p].length + 1);
    for (int32_t e; p >= 0 && (e = *slot_of(a, p, token)) >= 0 && a->edge[e].to == q; p = a->state[p].link)
        a->edge[e].to = part;
    return part;
}

// A state between a state and its `top` may have been divided since: the first along links whose own link is shorter than the depth.
int32_t automaton_suffix(struct automaton *a, int32_t state)
{
    int32_t top = a->state[state].top;
    while (top != 0 && a->state[a->state[top].link].length >= a->depth)
        top = a->state[a->state[top].link].top;
    a->state[state].top = top;
    return top;
}

void automaton_add(struct automaton *a, int32_t token)
{
    const int32_t added =
        add_state(a, (struct suffix_state){ .length = a->position + 1, .edge = -1, .top = a->states });
    const int32_t link = link_for(a, added, token);
    a->state[added].link = link;
    if (a->state[link].length >= a->depth)
        a->state[added].top = a->state[link].top;
    a->last = added;
    a->position++;
    for (int32_t s = automaton_suffix(a, added); s > 0; s = a->state[s].link) {
        a->state[s].count++;
        a->state[s].recent = a->position;
    }
}
