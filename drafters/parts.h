// parts.h - drafters made of drafters: their parts are read, opened and informed here. ladder.c, union.c and adaptive.c say what is drafted.
//
// Every part sees every advance. A node of the draft that was verified has a number of its own in a part's draft, or -1 if it was
// another's (drafter.h). Each part gets the hidden states that it reads, in its order.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "drafters/drafter.h"

enum { MAX_PARTS = 8 };

struct part {
    const struct drafter_type *type;
    void *options;
    int at_least;              // draft tokens that it must have to be taken, where the form has it
    struct settings *settings; // canonical
    struct drafter *drafter;
    int tap[MAX_TAPS];       // of each of its hidden states: its index in those of all
    bool all_taps;           // they are those of all
    struct tensor features;  // (rows, its taps * width) unless all_taps
    struct advance *advance; // (slots)
    struct request *request; // (slots)
};

struct part_form {
    const char *name; // of the drafter: "ladder"
    const char *what; // for messages: "drafter ladder: of"
    bool one;         // of one drafter, not of a list
    bool at_least;    // parts have this option
    unsigned adds;    // enum takes: kinds of its drafts besides those of its parts
};

struct parts {
    struct drafter drafter; // first
    const struct part_form *form;
    struct drafter_env env;
    int n;
    struct part part[MAX_PARTS];
    char *name[MAX_PARTS]; // drafter.part: "ngram", and "ngram 2" if there was one before
    int64_t width;         // of the target's states
    int32_t *row;          // (rows * MAX_TAPS)
    int rows;              // capacity of features
    // Sets node, and what else part k should see of advance a, in *to, which is a copy of it. NULL: no more.
    void (*inform)(struct parts *g, int k, const struct advance *a, struct advance *to);
};

// The argument `of` is the option: a list of drafters, or one.
bool parts_check(const struct settings *of, const struct part_form *f, struct error *err);
// Kinds of drafts of any part; *memory: the most of any part.
unsigned parts_make(const struct settings *of, const struct part_form *f, enum draft_memory *memory);

// Sets g->drafter. nodes: of its drafts, the root included; 0: the most of any part.
bool parts_open(struct parts *g, const struct drafter_env *env, const struct settings *of, const struct part_form *f,
                int nodes, struct error *err);
void parts_close(struct parts *g); // not g itself
bool parts_advance(struct drafter *d, const struct advance *a, int n, struct error *err);
void parts_attach(struct drafter *d, struct kv_cache *target_cache);
void parts_forget(struct drafter *d, int slot);
// Asks part k for drafts of its requests (g->part[k].request).
bool parts_propose(struct parts *g, int k, int n, struct error *err);
