// draft.h - the data that drafters, the verifier and rules exchange. There are four messages:
//
//     request       a sequence to continue                         decode   -> drafter
//     draft         a tree of draft tokens                         drafter  -> verifier
//     verification  the decision about a draft                     rule     -> verifier
//     advance       the accepted nodes and the token after them    verifier -> drafter, results
//
// A draft is a tree (SpecInfer: Miao et al. 2023, arXiv 2305.09781). Node 0 is the root: the last token of the
// sequence, which is already decided. Every other node is a draft token: a candidate for the token after its parent.
// Parents come before their children; siblings are in the order in which a rule tries them. A chain is a tree without
// siblings. A draft of the root alone is ordinary decoding.
//
//     0 the -+- 1 cat -+- 3 sat        node    =  0    1    2    3    4
//            |         `- 4 ran        token   = the  cat  dog  sat  ran
//            `- 2 dog                  parent  = -1    0    0    1    1
//
//     The target produces "cat ran off":   advance.n = 3, token = cat ran off, node = 0 1 4
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct part_sum; // core/grid.h
struct rng;
struct sampling;

enum { MAX_SLOTS = 256, MAX_NODES = 512 };

// Rows of probabilities, one per node of a draft. The rows may be on a device: a row is copied to the host on first
// use, so only the rows that a rule visits are ever copied.
struct rows {
    int vocab;
    const float *(*row)(struct rows *self, int node); // (vocab) borrowed until the rows change
};

enum proposal {    // how a drafter obtained the token of a node
    DETERMINISTIC, // chosen in any way that is not a draw from q (a lookup, the top k, a sample pruned or reordered
                   // afterwards), and independently of a later SAMPLED sibling's token; verified as if q were 1 at this
                   // token, so no q is needed. The default
    SAMPLED,       // drawn from its parent's row of q, independently of its siblings
    SAMPLED_WITHOUT_REPLACEMENT, // drawn from that row without the tokens of its earlier siblings
};

// Kinds of drafts: those that a drafter makes under its options, and those that a rule takes. A draft of the root alone
// has none of these kinds, and a single chain needs neither TAKES_CHAINS nor TAKES_TREES. A cell that pairs a rule with
// drafts it does not take is an error before anything runs.
enum takes {
    TAKES_DETERMINISTIC = 1,
    TAKES_SAMPLED = 2,
    TAKES_WITHOUT_REPLACEMENT = 4, // siblings that are SAMPLED_WITHOUT_REPLACEMENT
    TAKES_CHAINS = 8,              // several chains of equal depth that share only the root
    TAKES_TREES = 16,              // any tree, several chains included
    SHARES_RANDOMNESS =
        32, // the drafter draws tokens at the addresses of a drafter-invariant rule; any rule takes them
    // The drafter continues its own drafts. If a draft is a chain and its tokens are deterministic or the temperature
    // is 0, then the nodes below any node are the beginning of the draft that the drafter would make from that node.
    // Replays rely on it (experiments/replay).
    CONTINUES = 64,
    // The drafter samples at a temperature of its own, so q is not one-hot where the target's temperature is 0.
    OWN_TEMPERATURE = 128,
};
unsigned takes_missing(unsigned takes, unsigned made); // the kinds in `made` that `takes` does not cover

struct draft {
    int n, capacity;   // nodes, the root included
    int32_t *token;    // (capacity)
    int32_t *parent;   // (capacity) parent[0] = -1
    uint8_t *proposal; // (capacity) enum proposal; one draft may mix them
    struct rows *q;    // row i: what the SAMPLED children of node i were drawn from; NULL: no SAMPLED node
    // If not NULL, the drafter left the draft tokens in the memory of the target's device, and the fields above hold
    // the root alone. The verifier fills them in together with its decision, or earlier for an observer, and then sets
    // this to NULL.
    const struct device_draft *on_device;
    uint8_t *source; // (capacity) a bit for each part that proposed the node, if the drafter
                     // combines several; NULL: not requested
};

// A draft in the memory of a device. The host knows an upper bound of the number of nodes, not the nodes.
struct device_draft {
    int max_nodes;                 // max nodes, the root included: the number of rows reserved in the pass
    int max_depth;                 // max levels below the root
    bool branches;                 // nodes may have siblings
    const int32_t *n;              // (1) number of nodes: 1 to max nodes
    const int32_t *token, *parent; // (max nodes) laid out like the host's; after the last node token 0 and parent -1
    const uint8_t *proposal;       // (max nodes)
    struct tensor q;               // (any, vocab) F32; data NULL: no SAMPLED node
    const struct part_sum
        *q_sums;          // (rows of q, ROW_PARTS) their sums (kernels/device_step/device_step.h); NULL: not known
    const int32_t *q_row; // (max nodes) row of q that the children of each node were drawn from
    const int32_t *tag;   // (max nodes) a number per node for the drafter's own use
    int32_t *tag_on_host; // (max nodes) its copy on the host, filled in by the verifier
};

// Appends a node and returns it; -1: the draft is full.
int draft_add(struct draft *d, int parent, int32_t token, enum proposal how);
// Returns the first child of `parent` with a number above `after`; -1: there is none.
int draft_next_child(const struct draft *d, int parent, int after);
int draft_child(const struct draft *d, int parent, int32_t token); // the first child with this token; -1: there is none
int draft_depth(const struct draft *d, int node);                  // 0 for the root
int draft_rank(const struct draft *d, int node);                   // earlier siblings
int draft_max_depth(const struct draft *d);                        // depth of the deepest node
// Returns whether node and token (n), as in struct advance, form a path from the root: token[i] is the token of node[i
// + 1], and the last token is any id below vocab.
bool draft_is_path(const struct draft *d, const int32_t *node, const int32_t *token, int n, int vocab);

// The decision of a rule about one draft.
struct verification {
    int n;                     // tokens emitted: the accepted ones and the target's own
    int32_t *token, *node;     // (nodes) the first n are set: token[i] follows draft node node[i], as in struct advance
    int empty;                 // residuals that had no mass left after a rejection: caused by rounding only
    double *trial_p, *trial_q; // (nodes) p and q of each node's trial; NAN: the node was not tried
    double *work;              // (2 nodes + 1, vocab) scratch rows of the rule
    const char *failed;        // NULL, or why a plugin's rule could not decide: what it emitted is of no use then
};

struct verification verification_create(int nodes, int vocab); // owns its arrays
void verification_destroy(struct verification *v);
void verification_clear(struct verification *v, int nodes); // no tokens and no trials, for a draft of `nodes` nodes
void verification_add(struct verification *v, int node, int32_t token); // appends `token`, which follows `node`
// Sets the whole result: the path of d from the root to node `last`, followed by `token`.
void verification_path(struct verification *v, const struct draft *d, int last, int32_t token);

// Teacher forcing, for measuring a drafter against a given continuation (`speclab heads`). The draft becomes this
// chain, as deep as the drafter and the capacity of the draft allow, and rank[i] is the number of tokens that the
// drafter ranks above token[i].
enum { RANK_NOT_REQUESTED = -1 };
struct forced {
    int n;
    const int32_t *token; // (n) the tokens after the root
    int *rank;            // (n) 0: the argmax; ties rank by lower id; vocabulary size: the drafter has no such token
    float *confidence;    // (n) probability of the argmax at temperature 1, over the drafter's tokens; NULL: not wanted
};

struct request {
    int slot; // index of the sequence in the batch; keys the drafter's state
    int n;
    int prompt;                  // how many tokens of the sequence are its prompt
    const int32_t *token;        // (n) the whole sequence, the root last
    struct rng *rng;             // the only random source, for the drafter as well
    struct draft *draft;         // holds the root; the drafter adds nodes
    int depth;                   // max depth of a draft token: the text ends before any deeper one. May be 0
    const struct forced *forced; // NULL except under teacher forcing; a drafter without logits leaves rank untouched
    // The stages that the target's rows go through. NULL: the verifier's stages, which drafters use in any case.
    const struct sampling *sampling;
    double least; // a node whose path has a smaller probability under q gets no children; 0:
                  // no limit. Drafters without q ignore it
};

// token[i] follows draft node node[i], and row i of features is the target's hidden state at that node: the state that
// predicted token[i]. Hence node[0] = 0, node[1..n) are the accepted nodes, token[n-1] is the target's own token, and
// `node` is also the list of cache rows to keep.
// A prompt is reported in the same form with node = NULL, as it has no draft. Token 0 of a prompt is never reported,
// because no state predicted it; it is in `sequence`.
struct advance {
    int slot;
    int n;
    const int32_t *token; // (n)
    const int32_t *node;  // (n)
    // (n, width) on the backend, borrowed until the next pass; empty if the drafter requested no hidden states.
    struct tensor features;
    // The draft that was verified, and the target's most probable tokens after each of its nodes, ordered by logit (if
    // the drafter asks for them: drafter.top): (draft->n, top_k), borrowed for the call. NULL: a prompt.
    const struct draft *draft;
    const int32_t *top;
    int top_k; // 0: not requested
    // (length) the whole text up to and including these tokens, borrowed for the call. NULL in the verifier's advance:
    // the decode loop fills it in before it calls the drafter.
    const int32_t *sequence;
    int length;
};
