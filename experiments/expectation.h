// expectation.h - what a draft was worth before chance was asked: E[accepted | draft] under the rule that judged it,
// under every other rule that takes such drafts, and the most that any could have had.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct verified;
struct rule;

enum { MAX_EXPECTATIONS = 16 }; // rules of verifier/rules/registry.c, and one

struct expected_by {
    bool lossless;
    const char *rule;       // "(bound)": what no exact rule can surpass (exact/transport.h)
    double accepted, first; // E[accepted]; the chance that anything of it stands. The bound is on `first` alone
};

struct expectation {
    double accepted, variance; // under the rule that judged it
    int accepted_uncut;        // accepted before an end of text cut it
    int n;
    struct expected_by by[MAX_EXPECTATIONS]; // (n) that rule among them
};

struct expecter;
// Borrows rule and options. made: kinds of drafts (enum takes) that the drafter makes; nodes: most of a draft.
struct expecter *expecter_create(const struct rule *rule, const void *options, unsigned made, int nodes, int vocab);
void expecter_destroy(struct expecter *e); // NULL is fine
void expect(struct expecter *e, const struct verified *j, struct expectation *to);
