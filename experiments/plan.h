// plan.h - what is decoded next: a function of what is stored and of nothing else. No model, no file, no database.
//
// It is asked for one occasion (paired_run.h): some conversations, and the cells of a group, each with the `none` by which
// it is measured. It says for every cell and conversation from which turn on it is decoded, to its end, in one new pair.
//
// A turn counts as an answer if it is stored and was decoded behind the answers before it. Pairs have rising numbers
// and a conversation goes on behind the latest answers that it has, so: if its latest sequence is of no earlier pair than
// that of the turn before it. A turn behind a missing one, or behind one that has been decoded again since, is no answer.
// (Of a turn that was decoded several times somebody may delete one sequence and not the others. What was decoded behind
// that one is not found out.)
//
// A cell lacks a turn that is no answer, unless the conversation is over before it: the next turn does not fit the
// context behind the answers so far. And it lacks a turn that never ran beside its `none`, in one pair, unless none's
// own conversation is over before it: a run that ends between the two leaves one without the other, and neither could be
// compared.
//
// What holds of every plan, whatever was interrupted, deleted or added (tests/experiments/test_plan.c carries plans out):
//   - When all of it is stored, nothing is lacking, and the next plan is empty.
//   - Every turn that is decoded is decoded by the cell's `none` in the same pair, unless none's conversation is over
//     before it.
//   - Nothing is started but behind its answers, and nothing that does not fit.
//   - Batch 1: a cell starts with the first turn that it lacks; `none` with the first that it or a cell measured by it
//     lacks. So nothing stored is decoded again but as a partner, or behind a turn that is.
//   - Batch > 1: the time of a pass depends on how many sequences are in it. So all who take part (who lack anything,
//     and their `none`) decode the conversations of which anyone lacks anything, from their first turns on.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "engine/prompts.h"

enum { PLAN_NOTHING = -1 };

struct history { // what the database has of one cell's conversation
    int n_turns; // of the prompt
    struct {
        int64_t pair; // of its latest sequence; 0: there is none
        bool beside;  // a sequence of it has one of the cell's `none` in its pair; `none` stands beside itself
    } turn[MAX_TURNS];
    bool full; // the turn behind its answers does not fit the context
};

int history_answers(const struct history *h);  // so many of its first turns count
bool history_is_over(const struct history *h); // there is no next turn

struct stored {
    int batch, cells, n;           // n: conversations
    const int *none;               // (cells) by which each is measured; `none`: itself
    const struct history *history; // (cells, n)
};

struct due {
    int from;   // decoded from this turn on; PLAN_NOTHING: not decoded
    bool lacks; // for its own sake, not only beside others
};

void plan_turns(const struct stored *s, struct due *due); // due: (cells, n)
