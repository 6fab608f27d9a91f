// audit.h - a log of random draws: a random source that returns what Philox returns and records every draw, and checks
// of the log of whole texts, each decoded under its own name in some batch:
//
//   - no address is used twice in a text, and drafter and rule use disjoint purposes;
//   - the position of a draw is the root's place in its text, that of a FOR_TOKEN draw is after the root
//   (sampling/rng.h);
//   - no Philox counter serves two draws, in one text or in two;
//   - the draws of a text and their results are the same in every batch, slot and order.
//
// A rule that is exact by enumeration can fail each of these. Races at FOR_TOKEN are the intended exception: a drafter
// may run the same race as the target (`match`), any number of times, if it declares the result DETERMINISTIC; such
// draws are counted separately.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "sampling/rng.h"

enum consumer { CONSUMER_DRAFTER, CONSUMER_RULE };

struct draw_record {
    int64_t text;
    enum consumer consumer;
    struct address at;
    int32_t root; // the actual place of the root, whatever rng.root is
    int n;        // number of weights of a pick; 0: an acceptance test
    int result;
    uint64_t stream; // Philox's sequence
};

struct audit {                // initialised as { 0 }
    struct draw_record *draw; // (capacity) owned
    int n, capacity;
};
void audit_free(struct audit *a);

struct auditing_rng {
    struct rng rng; // first
    struct philox of;
    struct audit *audit;       // borrowed
    struct draw_record common; // the fields that all its records share
};
// A source for one consumer at one root of one text. `of` is copied, including its root.
struct auditing_rng audit_rng(struct audit *a, const struct philox *of, int64_t text, int32_t root,
                              enum consumer consumer);

struct audit_result {
    int draws, coupled; // coupled: a drafter's races at FOR_TOKEN
    int repeated;       // draws whose address was used before in the same text
    int shared;         // counters used before, in any text
    int mixed;          // draws for a purpose that both consumers use
    int misplaced;      // draws with a wrong position
};
struct audit_result audit_examine(struct audit *a); // sorts the log

// Number of draws in one log that the other lacks or that have another result there. Sorts both logs.
int audit_differences(struct audit *a, struct audit *b);
