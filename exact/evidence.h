// evidence.h - whether a text was drawn from the rows it should have been drawn from.
//
// Each token of the text is put beside the row p of its place. If the text is exact then, whatever came before it, it
// was drawn from that row; three kinds of evidence against that add up over tokens, steps and sequences:
//
//   uniforms  Put the tokens in any order. F(x), the mass before x, and p(x) times a uniform number u add up to a
//             number that is uniform itself and independent of those before it (Rosenblatt 1952, in its randomised
//             form). Three orders look for three kinds of bias; none is best at all of them.
//   scores    For a function g, g(x) less what p expects of it has mean 0 and a variance that p knows: sums of both
//             make a number that is nearly normal.
//   bets      exp(lambda g(x)) divided by what p expects of it has mean 1. The product over the tokens is what a bet at
//             fair odds has grown to. That the mean of all the bets ever comes up to 1 / alpha has a chance of at most
//             alpha (Ville 1939): this one may be watched all the time, and the others looked at once, at a length that
//             was fixed before.
//
// All this needs every order, every g and every choice of tokens to be PREDICTABLE, which means known before the token
// was drawn: they may look at the text before it, at the rows p and q, at the tokens of DETERMINISTIC guesses, and at how many
// tokens the step has given so far. They may not look at what a SAMPLED guess came out as, nor at which guesses stood:
// tokens that stood, taken alone, are not drawn from p, nor are those that replaced fallen ones. And each token's u
// must be independent of all else.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A token, beside what it must have come from.
struct token_seen {
    int vocab;
    const float *p; // (vocab) the target's row at its place
    double p_sum;   // what p sums to: 1, but for rounding
    const float *q; // (vocab) the row that SAMPLED guesses for this place came from; NULL: there was none
    double q_sum;
    const int32_t *
        chosen; // (n_deterministic) tokens of DETERMINISTIC guesses for this place, in the order in which they were tried
    int n_deterministic;
    int32_t token;
    int32_t before; // the text's token before it; -1: none
    int32_t end;    // the token that ends a text; -1: none
    int index;      // how many tokens of the same step came before it
    bool bonus;     // no guess was made for its place
    double u;       // in [0, 1)
};

enum {
    ORDERS = 3,   // ORDER_*
    CELLS = 1024, // of the unit interval, for Kolmogorov and Smirnov's test
    COARSE = 32,  // and for chi-square
    SQUARE = 8,   // to a side: a uniform number beside the next one
    PARTS = 3,    // PART_*
    STAKES = 10,  // lambdas
};

// GUIDED has last what an inexact rule gives too often: ascending q / p, without q ascending p; a DETERMINISTIC guess counts
// as one that q is sure of, so these come at the very end, the first tried last. The others: ascending p, and by id.
// Ties are broken by id.
enum { ORDER_GUIDED, ORDER_P, ORDER_ID };

// The functions g. The first three need q or chosen tokens, and see no other tokens.
enum score {
    SCORE_LOG_RATIO,     // log q / p, cut off at -3 and 3
    SCORE_ABOVE,         // 1 if q > p, else 0; and so on
    SCORE_Q_BEST,        // the likeliest under q
    SCORE_DETERMINISTIC, // among the DETERMINISTIC
    SCORE_P_BEST,        // the likeliest under p
    SCORE_SURPRISE,      // -log p, cut off at 8
    SCORE_BOTTOM,        // among the least likely 1 % of mass: the uniform number of ORDER_P is below .01
    SCORE_END,           // the token that ends a text
    SCORE_REPEAT,        // the token before it again
    SCORES
};

// What bets are made on: events, since for an event what p expects of exp(lambda g) is 1 + p(event) (e^lambda - 1).
enum bet {
    BET_LIKED,       // among the DETERMINISTIC, or q > p
    BET_DRAFT_TOKEN, // the first of the DETERMINISTIC; where none was chosen the likeliest under q
    BET_P_BEST,      // the likeliest under p
    BET_BOTTOM,      // as SCORE_BOTTOM
    BET_HALF, // the uniform number of ORDER_P is below 1/2: what a wrong temperature or a cut-off tail gets wrong
    BETS
};
extern const double evidence_stakes[STAKES];

// Each bet at each stake is made on all tokens, on PART_FIRST alone and on PART_BONUS alone.
enum { EVIDENCE_BETS = 3 * BETS * STAKES };

// By its place in the step: the first, not the first, and those for which no guess was made.
enum { PART_FIRST, PART_LATER, PART_BONUS };

struct evidence_part {
    double tokens;
    double guided; // of them with q or chosen tokens: where there are none ORDER_GUIDED says what ORDER_P says
    double cells[ORDERS][COARSE];
    double seen[SCORES], score[SCORES], variance[SCORES]; // tokens it was asked about; sums
    double log_e[BETS][STAKES];
};

// Sums, and nothing but doubles: evidences can be added and kept as they are. Start with { 0 }.
struct evidence {
    double impossible; // tokens with p = 0. They are proof, and in none of the other numbers
    double cells[ORDERS][CELLS];
    double squares[ORDERS][SQUARE][SQUARE];
    struct evidence_part part[PARTS];
};
enum { EVIDENCE_DOUBLES = sizeof(struct evidence) / sizeof(double) };

// The uniform numbers of one token.
struct uniforms {
    double order[ORDERS];
};
extern const struct uniforms evidence_start; // stands for those of a token before a sequence's first

// last: those of the token before it. Returns its own. Looks at each entry of its rows once; keeps nothing.
struct uniforms evidence_add(struct evidence *to, const struct token_seen *t, struct uniforms last);
void evidence_join(struct evidence *to, const struct evidence *from);
void evidence_sum(double *to, const double *from, size_t n); // the same of any such sums: to[i] += from[i]
double evidence_tokens(const struct evidence *e);            // the impossible ones too

// log of the mean of all bets; INFINITY if something impossible was seen. To watch it while a text grows keep the
// greatest it has been, over sequences joined in an order that does not depend on how they came out.
double evidence_log_e(const struct evidence *e);

struct exact_test {
    const char *kind; // "impossible", "KS", "chi-square", "pairs", "score"
    const char *of;   // the order or function
    const char *part; // "all", "first", "later", "bonus"
    double statistic; // a count; the greatest distance; chi-square; normal scores
    double p, log10_p;
    double tokens;
};

// The tests there is data for, at most room of them: returns how many there are. Kolmogorov and Smirnov's looks at the
// boundaries of cells only: the greatest distance there is at most the greatest of all, which errs towards no alarm.
// "pairs" asks if a uniform number depends on the one before it. A score's p-value is not the normal one but, when
// functions are seldom other than they mostly are, somewhat greater (evidence.c).
int evidence_tests(const struct evidence *e, struct exact_test *to, int capacity);
enum { LEAST_EXPECTED = 5 }; // of tokens in a cell, for its count to be called nearly normal
enum { EVIDENCE_TESTS = 1 + ORDERS + ORDERS * (1 + PARTS) + ORDERS + SCORES * (1 + PARTS) }; // there are at most
