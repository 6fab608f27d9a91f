// evidence.h - evidence on whether a text was sampled from the rows it should have been sampled from.
//
// Each token of the text is compared with the row p of its place. If the text is exact then, whatever precedes it, it
// was sampled from that row. Three kinds of evidence against that accumulate over tokens, steps and sequences:
//
//   uniforms  For any order of the tokens, F(x), the mass before x, plus p(x) times a uniform number u is itself
//             uniform and independent of its predecessors (Rosenblatt 1952, in its randomised form). Three orders are
//             sensitive to three kinds of bias; none is best for all.
//   scores    For a function g, g(x) minus its expectation under p has mean 0 and a variance that p determines: the
//             ratio of the sums is nearly normal.
//   bets      exp(lambda g(x)) divided by its expectation under p has mean 1. The product over the tokens is the
//             capital of a bet at fair odds. The probability that the mean of all bets ever reaches 1 / alpha is at
//             most alpha (Ville 1939): this one may be monitored continuously, the others are evaluated once, at a
//             length fixed in advance.
//
// Every order, every g and every selection of tokens must be PREDICTABLE, i.e. known before the token was sampled: they
// may depend on the text before it, on the rows p and q, on the tokens of DETERMINISTIC draft nodes, and on the number
// of tokens emitted so far in the step. They may not depend on a SAMPLED draft token, nor on which draft tokens were
// accepted: accepted tokens, taken alone, are not distributed as p, nor are replacements of rejected ones. And each
// token's u must be independent of everything else.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A token and the rows of its place.
struct observed_token {
    int vocab;
    const float *p; // (vocab) the target's row at its place
    double p_sum;   // sum of p: 1 up to rounding
    const float *q; // (vocab) the row that SAMPLED draft tokens for this place came from; NULL: none
    double q_sum;
    const int32_t *deterministic; // (n_deterministic) DETERMINISTIC draft tokens for this place, in trial order
    int n_deterministic;
    int32_t token;
    int32_t before; // the token before it; -1: none
    int32_t end;    // the token that ends a text; -1: none
    int index;      // number of tokens of the same step before it
    bool bonus;     // there was no draft token for its place
    double u;       // a number in [0, 1)
};

enum {
    ORDERS = 3,   // ORDER_*
    CELLS = 1024, // cells of the unit interval, for the Kolmogorov-Smirnov test
    COARSE = 32,  // cells for chi-square
    SQUARE = 8,   // cells per side: a uniform number against the next one
    PARTS = 3,    // PART_*
    STAKES = 10,  // values of lambda
};

// ORDER_GUIDED puts last what an inexact rule emits too often: ascending q / p, or ascending p where there is no q.
// DETERMINISTIC draft tokens come at the very end, as if q were 1 at them, the first tried last. The other orders are
// ascending p and ascending id. Ties are broken by id.
enum { ORDER_GUIDED, ORDER_P, ORDER_ID };

// The functions g. The first four need q or deterministic draft tokens, and are evaluated only on tokens that have
// them.
enum score {
    SCORE_LOG_RATIO,     // log q / p, clamped to [-3, 3]
    SCORE_ABOVE,         // indicator of q > p; the following are indicators of events too
    SCORE_Q_ARGMAX,      // the token is the argmax of q
    SCORE_DETERMINISTIC, // it is among the deterministic draft tokens
    SCORE_P_ARGMAX,      // it is the argmax of p
    SCORE_SURPRISAL,     // -log p, at most 8
    SCORE_TAIL,          // the token is in the least probable 1 % of mass: the uniform number of ORDER_P is below .01
    SCORE_END,           // the token ends a text
    SCORE_REPEAT,        // the token repeats the token before it
    SCORES
};

// Events that bets are placed on. The expectation of exp(lambda g) for an event is 1 + p(event) (e^lambda - 1).
enum bet {
    BET_FAVOURED,    // among the deterministic draft tokens, or q > p
    BET_DRAFT_TOKEN, // the first deterministic draft token; without any, the argmax of q
    BET_P_ARGMAX,    // the argmax of p
    BET_TAIL,        // the event of SCORE_TAIL
    BET_HALF,        // the uniform number of ORDER_P is below 1/2: sensitive to a wrong temperature or a cut tail
    BETS
};
extern const double evidence_stakes[STAKES];

// Each bet at each stake is placed on all tokens, on PART_FIRST alone and on PART_BONUS alone.
enum { EVIDENCE_BETS = 3 * BETS * STAKES };

// Parts of the evidence, by place in the step: the first token, later ones, and tokens without a draft token.
enum { PART_FIRST, PART_LATER, PART_BONUS };

struct evidence_part {
    double tokens;
    double guided; // tokens with q or deterministic draft tokens; without them ORDER_GUIDED equals ORDER_P
    double cells[ORDERS][COARSE];
    double seen[SCORES], score[SCORES], variance[SCORES]; // tokens evaluated; sums
    double log_e[BETS][STAKES];
};

// Evidence consists of sums, and of doubles only, so it can be added and stored as it is. Initialise with { 0 }.
struct evidence {
    double impossible; // tokens with p = 0. They prove a bias, and enter none of the other numbers
    double cells[ORDERS][CELLS];
    double squares[ORDERS][SQUARE][SQUARE];
    struct evidence_part part[PARTS];
};

// The uniform numbers that belong to one token.
struct uniforms {
    double order[ORDERS];
};
extern const struct uniforms evidence_start; // the predecessor of a sequence's first token

// Adds one token. last: the result for the token before it. Returns its uniform numbers. It reads each entry of its
// rows once and keeps no pointer.
struct uniforms evidence_add(struct evidence *to, const struct observed_token *t, struct uniforms last);
void evidence_sum(double *to, const double *from, size_t n); // adds from[i] to to[i]
double evidence_tokens(const struct evidence *e);            // including the impossible ones

// Returns the log of the mean of all bets; INFINITY if an impossible token was seen. To monitor it while a text is
// extended, keep its maximum, over sequences joined in an order that does not depend on their outcomes.
double evidence_log_e(const struct evidence *e);

struct exact_test {
    const char *kind; // "impossible", "KS", "chi-square", "pairs", "score"
    const char *of;   // the order or function
    const char *part; // "all", "first", "later", "bonus"
    double statistic; // a count; the largest distance; chi-square; a normal score
    double log10_p;   // log10 of the p-value
    double tokens;
};

// Writes the tests that have enough data, at most `capacity` of them, and returns their number. The Kolmogorov-Smirnov
// test uses cell boundaries only: the largest distance at a boundary is at most the largest of all, which errs towards
// no alarm. "pairs" tests whether a uniform number depends on the one before it. A score's p-value is not the normal
// one. For functions that rarely differ from their usual value it is somewhat larger (evidence.c).
int evidence_tests(const struct evidence *e, struct exact_test *to, int capacity);
enum { MIN_EXPECTED = 5 }; // expected tokens in a cell for its count to be nearly normal
enum { EVIDENCE_TESTS = 1 + ORDERS + ORDERS * (1 + PARTS) + ORDERS + SCORES * (1 + PARTS) }; // maximum number of tests
