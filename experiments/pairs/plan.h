// plan.h - decides what is decoded next, from what is stored only: no model, no file, no database.
//
// A plan is for one paired run (paired_run.h): some conversations, and the cells of a group, each with its baseline
// `none`. For every cell and conversation it gives the turn from which it is decoded, to its end, in one new pair.
//
// A stored turn is valid if it was decoded after valid answers to all earlier turns. Pair numbers increase, and a
// conversation continues its latest answers. So a turn is valid if its latest sequence is in no earlier pair than that
// of the turn before it. A turn after a missing one, or after one that was decoded again later, is not valid. (If a
// turn was decoded several times and one of its sequences is deleted, later turns that continued that one are not
// detected.)
//
// A cell lacks a turn that is not valid, unless the conversation is over before it: the next turn does not fit the
// context after the answers so far. It also lacks a turn that is in no pair with its `none`, unless none's own
// conversation is over before it: an interruption between the two leaves one without the other, and neither could be
// compared.
//
// Properties of every plan, after any interruption, deletion or addition (tests/experiments/test_plan.c executes
// plans):
//
// - When the planned turns are stored, nothing is missing, and the next plan is empty.
// - Every decoded turn is also decoded by the cell's `none` in the same pair, unless none's conversation is over before
//     it.
// - A turn is decoded only after valid answers, and only if it fits.
// - A cell starts at the first turn that it lacks; `none` at the first that it or a cell compared with it lacks. So a
//     stored turn is decoded again only as a partner, or after a turn that is.
//
// The number of slots does not affect a plan: slots are refilled, and fillers have those for which no conversation is
// left (paired_run.c).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "engine/prompts.h"

enum { PLAN_NOTHING = -1 };

struct history { // the stored turns of one conversation in one cell
    int n_turns; // turns of the prompt
    struct {
        int64_t pair; // pair of its latest sequence; 0: not stored
        bool paired;  // one of its sequences is in a pair with one of the cell's `none`; true for `none`
    } turn[MAX_TURNS];
    bool full; // the turn after its valid ones does not fit the context
};

int history_answers(const struct history *h); // number of valid turns

struct stored {
    int cells, n;                  // n: number of conversations
    const int *none;               // (cells) the baseline of each; for `none`: itself
    const struct history *history; // (cells, n)
};

struct due {
    int from;     // first decoded turn; PLAN_NOTHING: not decoded
    bool missing; // the cell itself lacks a turn; false: decoded as a partner only
};

void plan_turns(const struct stored *s, struct due *due); // due: (cells, n)
