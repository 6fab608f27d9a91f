// suffix_automaton.h - all substrings of a growing text, with the number of their occurrences and the most recent one.
//
// A suffix automaton (Blumer et al. 1985): a state is a set of substrings that end at the same positions. A token is appended in constant
// amortized time, and at most `depth` counts change with it: those of the substrings of up to `depth` tokens that end there. Counts of longer
// substrings are not kept.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct suffix_state {
    int32_t length; // of its longest substring
    int32_t link;   // the state of the longest suffix that ends at more positions; -1: of the empty string, state 0
    int32_t count;  // occurrences
    int32_t recent; // position after the most recent one
    int32_t edge;   // the first of its edges; -1: none
    int32_t top;    // its first state along links with substrings of up to `depth` tokens, or one before that
};

struct suffix_edge { // `token` may follow the substrings of `from`; then they are among those of `to`
    int32_t from, token, to, next;
};

struct automaton {              // start with automaton_begin
    int depth, last;            // last: the state of the whole text
    int32_t position;           // tokens so far
    struct suffix_state *state; // (states)
    struct suffix_edge *edge;   // (edges)
    int32_t *slot;              // (slots) hash table of edges by state and token; -1: free
    int32_t states, edges, state_capacity, edge_capacity, slots;
};

void automaton_begin(struct automaton *a, int depth);
void automaton_free(struct automaton *a);  // { 0 }: no effect
void automaton_clear(struct automaton *a); // of all tokens; keeps the memory
void automaton_add(struct automaton *a, int32_t token);
int32_t automaton_next(const struct automaton *a, int32_t state, int32_t token); // -1: the token never follows
// The state of the last `length` <= depth tokens or fewer of state s, which has them as a suffix of its longest substring.
int32_t automaton_suffix(struct automaton *a, int32_t state);
