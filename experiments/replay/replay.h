// replay.h - what a rule decides about the recorded drafts of a run (`record: {rows: ..}`), or about parts of them, without a model.
//
// A text is walked as a run would: a step at the root that the last step led to. A step is *covered* if a run with this rule and these
// drafts would have made it and decided exactly so: all steps before it in its text are covered, a draft was recorded at its root, and
// the rows that its decision depends on are complete. Where the walk leaves what is recorded there is a *gap*, and it goes on at the next
// recorded root. With a limit of depth, a draft that passes through a root is recorded there as well, if the drafter's drafts continue each
// other (CONTINUES, core/draft.h) and enough of it is left. Steps after a gap are decided as they would be at their roots, but a run may not come to these.
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
    GAP_TEXT,    // the rule's tokens are not those of the recorded text
    GAP_ROWS,    // the decision depends on entries of rows that were not recorded
    GAP_TURN,    // an earlier turn of the conversation is not covered to its end, so this one's prompt may be another
    GAP_DRAFTER, // the drafter remembers earlier drafts, and those would have been others
    GAPS
};

struct replay_step {  // for an observer
    int64_t sequence; // id in table sequence
    int position;     // the root's
    bool covered;
    const struct draft *draft; // what was decided about
    int n;                     // tokens of the step
    const int32_t *token;      // (n)
};

struct replay_options {          // borrowed
    const struct settings *rule; // NULL: the run's
    int tokens, nodes;           // most depth, most draft tokens of a draft: its first ones; 0: as recorded
    const struct tree *tree;     // NULL: as recorded; a path's ranks are places among recorded siblings
    void (*step)(void *self, const struct replay_step *s); // may be NULL
    void *self;
};

struct replay_sum {
    int64_t steps, tokens;             // tokens of the texts
    int64_t drafts, drafted, accepted; // steps with a draft; draft tokens; those that are in the texts
    int64_t deeper[MAX_NODES];         // [i]: drafts of which more than i tokens were accepted
    int64_t expected_steps;            // steps of the next
    double expected;                   // sum of E[accepted | draft], of accepted tokens before an end of text cuts them
};

struct replay_result {
    char *drafter, *recorded_rule, *rule, *sampling; // as reports show them
    int64_t entries;                                 // recorded entries of a row; 0: all
    int64_t texts, complete;                         // complete: covered to their end
    int depth;                                       // the deepest draft's
    struct replay_sum covered, beyond;               // beyond: after a gap
    int64_t gaps[GAPS];
    int64_t continued; // steps at roots without a draft of their own, decided about the rest of an earlier one
};

// Replays a run of the database. Call replay_result_free also after failure.
bool replay(struct store *s, int64_t run, const struct replay_options *o, struct replay_result *to, struct error *err);
void replay_result_free(struct replay_result *r);
extern const char *const gap_names[GAPS]; // "no draft was recorded", ...
