// table_population.h - a finite population of prompts, whose texts are decoded from tables, and whose sums have known means.
//
// A prompt is a pair of tables (tests/exact/table_model.h) for p and r, a drafter's closeness to p, a length and clocks. The next token depends on
// the last two. Cells X and Y draft chains of three sampled tokens from rows between r and p, and rejection sampling verifies them. The
// means of acceptance by enumeration: of every draft, outcome and end of text. An experiment samples prompts and decodes a text of each.
#pragma once
#include <stdint.h>

enum { POPULATION = 64, CHAIN = 3, LONGEST_TEXT = 48 };

enum column { // sums over a prompt's text
    NONE_TOKENS,
    NONE_NS,
    NONE_ALL_NS, // prefill included
    X_TOKENS,
    X_NS,
    X_ALL_NS,
    X_TTFT,
    X_TEXTS,
    X_STEPS,
    X_DRAFTED,
    X_ACCEPTED,
    X_EXPECTED, // E[accepted | draft], before the end of the text cuts it
    X_AT,       // drafts with at least 1, 2, 3 tokens accepted
    X_TRIED = X_AT + CHAIN,
    Y_TOKENS = X_TRIED + CHAIN, // and the rest as of X
    Y_COLUMNS = Y_TOKENS - X_TOKENS,
    COLUMNS = Y_TOKENS + Y_COLUMNS
};
#define Y_OF(x) ((x) + Y_COLUMNS)

struct population;
struct population *population_create(uint64_t seed);
void population_destroy(struct population *p);
double population_mean(const struct population *p, enum column c);
// Samples n prompts, decodes a text of each, and adds up. sum (COLUMNS, n)
int population_pick(uint64_t *state); // the number of a prompt
// Decodes a text of the prompt by cell X (0) or Y (1), or by ordinary decoding (-1): tokens (LONGEST_TEXT) has those of each step. Returns
// the number of steps.
int population_decode(const struct population *p, int prompt, int cell, uint64_t *state, uint8_t *tokens);
void population_sample(const struct population *p, uint64_t *state, int n, double *sum);
