// table_loop.h - the law of the decode loop: enumeration of every outcome of the random source for whole texts, through
// the real loop, verifier, cache and rules, on a target that is a table (tests/exact/table_model.h).
//
// A table instance is small enough for that: prompts, limits, stop conditions, sampling, and the shape of the drafts.
// All of its sequences are decoded to the end, once per outcome; the result is a probability for each combination of
// texts and stop reasons. It is compared with the table's own distribution, token by token under the same stop
// conditions, each sequence separately: so sequences that affect each other are detected too.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "core/draft.h"
#include "tests/exact/table_model.h"
#include "verifier/rules/rule.h"

enum { LOOP_NODES = 5, LOOP_PROMPT = 6, LOOP_SEQUENCES = 3, LOOP_REASONS = 4 };

enum draft_source {
    TABLE,          // drafts come from the drafter's own table
    LOOKUP,         // nodes - 1 tokens of the ngram drafter; the other fields are ignored
    LADDER,         // the ladder of the ngram drafter and of drafts from the table
    UNION,          // the union of drafts from the table and of the ngram drafter
    LADDER_BY_COUNT // the ladder of drafts from the table that have all their nodes, and of the ngram drafter: not exact
};

struct draft_shape { // the shape of drafts
    const char *name;
    const char *
        form; // each node but the root: its parent's number and d, s or w (deterministic, sampled, without replacement)
    enum draft_source source; // LOOKUP: the form tells the number of nodes only
    bool chains;              // several, equally deep
    // Set by draft_shape_of:
    int nodes; // the root included
    int parent[LOOP_NODES];
    uint8_t proposal[LOOP_NODES];
};

struct draft_shape draft_shape_of(struct draft_shape g);
unsigned draft_kinds(const struct draft_shape *g); // enum takes
int draft_nodes(const struct draft_shape *g);      // of a whole draft: a union has more than the table's
bool rule_takes(const struct rule *rule, const struct draft_shape *g);

struct digits { // a text of tokens below 10 as digits
    int n;
    int32_t token[LOOP_PROMPT];
};

struct table_instance {
    int vocab;
    struct {
        const char *text;
        int limit; // new tokens
    } prompt[LOOP_SEQUENCES];
    int slots;            // 0: one
    int length;           // of the context; 0: the maximum
    const char *sampling; // NULL: temperature 1
    const char *ends;     // tokens that end a text
    const char *stop;     // the stop string
    int stay;             // how many of its tokens the text keeps, at least 1
    bool deep;            // drafts are deeper than the request's depth
    bool on_device;       // logits have to be downloaded
    // Set by table_instance_examine:
    int sequences;
    struct digits start[LOOP_SEQUENCES], end, string;
};

struct loop_result { // of one instance, or the worst and the sums of many
    double distance; // total variation between the law of the texts and the table's own
    double lost;     // |1 - the probability of all outcomes together|
    int64_t instances, runs, rows;
    int64_t why[LOOP_REASONS]; // texts by stop reason
    int64_t within, back;      // that ended before the last token of a step; before its first
    int64_t violations;
    int repeated;      // addresses used twice in a run by one sequence
    char message[200]; // the first violation
};

// seed: of both tables. With SLOTS_ARE_NOT_EMPTIED the first violation ends the enumeration, and distance is 0: a run
// would depend on the run before.
struct loop_result table_instance_examine(const struct table_instance *w, const struct draft_shape *g,
                                          const struct rule *rule, const void *options, uint64_t seed, enum flaw flaw);
void loop_result_add(struct loop_result *worst, const struct loop_result *one);
