// expectation.h - E[accepted | draft] of a draft under the cell's rule and under every other rule that takes such
// drafts, and an upper bound for exact rules.
#pragma once
#include "results/store.h"

struct verified;
struct rule;

enum { MAX_EXPECTATIONS = 16 }; // rules of verifier/rules/registry.c, and the bound

struct expectation {
    double accepted, variance; // E and Var under the cell's rule; NAN: not known
    int accepted_uncut;        // accepted draft tokens before an end of text cuts them
    int n;
    // (n) includes the cell's rule, and "(bound)": what no exact rule can exceed (verifier/exact/law.h), which has only
    // `first`.
    struct expected_row by[MAX_EXPECTATIONS];
};

struct expecter;
// Creates an expecter. Borrows rule and options. made: kinds of drafts (enum takes) that the drafter makes; nodes:
// maximum nodes of a draft.
struct expecter *expecter_create(const struct rule *rule, const void *options, unsigned made, int nodes, int vocab);
void expecter_destroy(struct expecter *e); // NULL: no effect
void expect(struct expecter *e, const struct verified *j, struct expectation *to);
