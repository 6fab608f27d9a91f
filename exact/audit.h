// audit.h - who asked for which draw. A source of chance that answers as Philox does and writes everything down; and
// what can be seen from the log of whole texts, each under its own name and decoded in some batch:
//
//   - no address comes twice in a text, and no drafter and rule have a purpose in common;
//   - a draw's position is the root's place in its text, a token's own is behind the root (sampling/rng.h);
//   - no counter of Philox serves two draws, in one text or in two;
//   - what a text asks, and what it is answered, is the same in every batch, slot and order.
//
// A rule that is exact to every enumeration can fail in each of these. Races at FOR_TOKEN are the exception that is
// meant: a drafter may run the very race that the target will run (`match`), as often as it likes, if it calls what
// came out DETERMINISTIC; such draws are counted apart.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "sampling/rng.h"

enum asker { ASKED_BY_DRAFTER, ASKED_BY_RULE };

struct asked {
    int64_t text;
    enum asker who;
    struct address at;
    int32_t root; // where it is, whatever the source was told
    int n;        // weights of a pick; 0: a coin
    int answer;
    uint64_t stream; // Philox's sequence
};

struct audit {           // begins as { 0 }
    struct asked *asked; // (room) owned
    int n, capacity;
};
void audit_free(struct audit *a);

struct listening {
    struct rng rng; // first
    struct philox of;
    struct audit *audit; // borrowed
    struct asked asked;  // what all have in common
};
// One party at one root of one text. The source is copied, with the root that it was told.
struct listening audit_listen(struct audit *a, const struct philox *of, int64_t text, int32_t root, enum asker who);

struct audited {
    int draws, coupled; // coupled: a drafter's races at FOR_TOKEN
    int repeated;       // draws whose address the same text had before
    int shared;         // counters that served before, whichever text they served
    int mixed;          // draws for a purpose that both parties have
    int misplaced;      // draws whose position is not what it should be
};
struct audited audit_examine(struct audit *a); // the log is sorted afterwards

// Draws of one that the other has not, or that were answered in another way there. Both are sorted afterwards.
int audit_differences(struct audit *a, struct audit *b);
