// draft.h - what drafters, verifier and rules say to one another. There are three sentences:
//
//     request  "here is a sequence; what might come next?"    decode   -> drafter
//     draft    "perhaps this"                                 drafter  -> verifier
//     advance  "it went this far, along these nodes"          verifier -> drafter, results
//
// A draft is a tree. Node 0 is the root: the sequence's last token, which is certain. Every other
// node is a guess at the token after its parent. Parents stand before their children; siblings
// stand in the order in which they are to be tried. A chain is a tree without siblings, and a
// draft of the root alone is ordinary decoding.
//
//     0 the -+- 1 cat -+- 3 sat        node    =  0    1    2    3    4
//            |         `- 4 ran        token   = the  cat  dog  sat  ran
//            `- 2 dog                  parent  = -1    0    0    1    1
//
//     The target says "cat ran off":   advance.n = 3, token = cat ran off, node = 0 1 4
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct rng;

enum { MAX_SLOTS = 256, MAX_NODES = 512 };

// Rows of probabilities, one per node of a draft. They may live on a device: a row comes to the
// host when it is first asked for, so only the rows that a rule visits ever do.
struct rows {
    int vocab;
    const float *(*row)(struct rows *self, int node);            // (vocab) borrowed until the rows change
    void (*want)(struct rows *self, const int32_t *node, int n); // these are about to be asked for; may be NULL
};

enum proposal {                  // how a node's token came from its parent's row of q
    DETERMINISTIC,               // any way at all (a lookup, the k likeliest, a sample later pruned or
                                 // reordered) that does not look at what a SAMPLED sibling came out as; judged as
                                 // a certainty, needs no q, and is the default
    SAMPLED,                     // at random from that very row, independently of its siblings
    SAMPLED_WITHOUT_REPLACEMENT, // at random from that row without the tokens of its earlier siblings
};

// Kinds of drafts: what a drafter makes under its options, what a rule takes. A draft of the root alone is of no kind,
// a single chain is of no shape. A cell that pairs a rule with drafts it does not take is an error before anything
// runs.
enum takes {
    TAKES_DETERMINISTIC = 1,
    TAKES_SAMPLED = 2,
    TAKES_DISTINCT = 4, // siblings that are SAMPLED_WITHOUT_REPLACEMENT
    TAKES_CHAINS = 8,   // several chains, which part at the root and are equally deep
    TAKES_TREES = 16,   // any tree, such chains included
    SHARES_RANDOMNESS =
        32, // of what is made: tokens picked by the very draws by which `match` will pick; any rule may take them
};
unsigned takes_beyond(unsigned takes, unsigned made); // of the kinds that are made, those that are not taken

struct draft {
    int n, capacity;   // nodes there are, and may be
    int32_t *token;    // (room)
    int32_t *parent;   // (room) parent[0] = -1
    uint8_t *proposal; // (room) enum proposal; one draft may mix them
    struct rows *q;    // row i: what the SAMPLED children of node i were drawn from; NULL: nothing was drawn
    // Not NULL: the guesses are in the memory of the target's device, where the drafter made them, and the host has not seen
    // them; here is the root alone. The verifier brings them with its decision, or before it for whoever looks on, fills in the
    // fields above, and sets this to NULL when all is decided.
    const struct device_draft *there;
};

// A draft on a device. The host knows how many nodes it can have, not what they are.
struct device_draft {
    int most;                      // nodes, the root included: as many rows does it get in the pass
    int max_depth;                 // levels below the root, at most
    bool branches;                 // nodes may have siblings
    const int32_t *n;              // (1) nodes there are: 1 to most
    const int32_t *token, *parent; // (most) as above; behind the last node token 0 and parent -1
    const uint8_t *proposal;       // (most)
    struct tensor q;               // (any, vocab) F32; data NULL: nothing was drawn
    const int32_t *q_row;          // (most) which row of q the children of a node were drawn from
    const int32_t *tag;            // (most) a number that the drafter wants to know of each node
    int32_t *tag_here;             // (most) on the host: filled in by the verifier too
};

int draft_add(struct draft *d, int parent, int32_t token, enum proposal how); // the new node; -1: no room
int draft_next_child(const struct draft *d, int parent, int after); // the first child behind node `after`; -1: no more
int draft_depth(const struct draft *d, int node);                   // 0 for the root
int draft_max_depth(const struct draft *d);                         // depth of the deepest node
// Whether node, token (n), as in struct advance, go from the root down, each token the next node's, the last one free.
bool draft_is_path(const struct draft *d, const int32_t *node, const int32_t *token, int n, int vocab);

// What a text says next, for a drafter that is asked how well it would have guessed (`speclab heads`): its draft is then
// this very chain, as far as its drafts go and have room, and of each token it says how many others it found likelier.
enum { RANK_NOT_REQUESTED = -1 };
struct forced {
    int n;
    const int32_t *token; // (n) behind the root
    int *rank;            // (n) 0: the likeliest, of equals the lowest id; the vocabulary's size: it has no such token
};

struct request {
    int slot; // which of the sequences being decoded; keys any state of theirs
    int n;
    const int32_t *token;        // (n) the whole sequence, the root last
    struct rng *rng;             // the only source of chance, the drafter's included
    struct draft *draft;         // holds the root; the drafter grows it
    int depth;                   // a guess deeper than this cannot be used: the text would be over. May be 0
    const struct forced *forced; // NULL, but for a drafter that is examined; one without rows of its own lets rank be
};

// token[i] came after draft node node[i], and row i of features is the target's hidden state at
// that node: the very state that predicted token[i]. Hence node[0] = 0, node[1..n) are the accepted
// nodes, token[n-1] is the target's own, and `node` is also the list of cache rows to keep.
// A prompt is announced in the same words, with node = NULL: there was no draft. Its token 0 is never announced, as
// no state predicted it; whoever needs it finds it in sequence.
struct advance {
    int slot;
    int n;
    const int32_t *token; // (n)
    const int32_t *node;  // (n)
    // (n, width) on the backend, borrowed until the next pass; empty when the drafter asked for none.
    struct tensor features;
    // (length) the whole text up to and with these tokens, borrowed for the call; of a verifier's advance NULL: the
    // decode loop fills it in before it tells the drafter.
    const int32_t *sequence;
    int length;
};
