// replay.h - the decisions of a rule about the recorded drafts of a run (`record: {rows: ..}`), or about parts of them,
// without a model.
//
// A text is walked as a run would decode it: each step is at the root to which the last step led. A step is *covered*
// if a run with this rule and these drafts would have made it and decided exactly so: all steps before it in its text
// are covered, a draft was recorded at its root, and the rows on which its decision depends are complete. If the walk
// leaves what is recorded there is a *gap*, and it continues at the next recorded root. With a limit of depth, a draft
// that passes through a root is recorded there as well, if the drafter's drafts continue each other (CONTINUES,
// core/draft.h) and enough of it is left. Steps after a gap are decided as they would be at their roots, but a run may
// not reach these roots.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"

struct error;
struct settings;
struct store;
struct tree;

enum gap {
    GAP_ROOT,    // no draft was recorded at the root, and none continues there
    GAP_TEXT,    // the rule's tokens differ from those of the recorded text
    GAP_ROWS,    // the decision depends on entries of rows that were not recorded
    GAP_TURN,    // an earlier turn of the conversation is not covered to its end, so this one's prompt may differ
    GAP_DRAFTER, // the drafter remembers earlier drafts, which would have differed
    GAPS
};

struct replay_step {  // a step for an observer
    int64_t sequence; // id in table sequence
    int position;     // position of the root
    bool covered;
    const struct draft *draft; // the draft that was decided about
    int n;                     // number of tokens of the step
    const int32_t *token;      // (n)
};

struct replay_options {          // borrowed
    const struct settings *rule; // NULL: the run's rule
    int tokens, nodes;       // maximum depth and maximum draft tokens of a draft, from its beginning; 0: as recorded
    const struct tree *tree; // NULL: as recorded; the ranks of a path are places among recorded siblings
    void (*step)(void *self, const struct replay_step *s); // may be NULL
    void *self;
};

struct replay_sum {
    int64_t steps, tokens;             // tokens: number of tokens of the texts
    int64_t drafts, drafted, accepted; // steps with a draft; draft tokens; those that are in the texts
    int64_t deeper[MAX_NODES];         // [i]: number of drafts of which more than i tokens were accepted
    int64_t expected_steps;            // number of steps in `expected`
    double expected;                   // sum of E[accepted | draft] of accepted tokens before an end of text cuts them
};

struct replay_result {
    char *drafter, *recorded_rule, *rule, *sampling; // texts in the form of reports
    int64_t entries;                                 // number of recorded entries of a row; 0: all
    int64_t texts, complete;                         // complete: number of texts that are covered to their end
    int depth;                                       // depth of the deepest draft
    struct replay_sum covered, beyond;               // beyond: steps after a gap
    int64_t gaps[GAPS];
    int64_t continued; // steps at roots without a recorded draft, decided with the rest of an earlier one
};

// Replays a run of the database. Call replay_result_free in any case, also after failure.
bool replay(struct store *s, int64_t run, const struct replay_options *o, struct replay_result *to, struct error *err);
void replay_result_free(struct replay_result *r);
extern const char *const gap_names[GAPS]; // "no draft was recorded", ...
