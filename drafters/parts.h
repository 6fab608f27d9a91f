// parts.h - drafters that combine drafters. Their parts are read, opened and informed here; ladder.c, union.c and
// adaptive.c decide what is drafted.
//
// Every part sees every advance. A node of the verified draft has the number that it has in the part's own draft, or -1
// if it is another part's (drafter.h). Each part gets the hidden states that it reads, in its order.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "drafters/drafter.h"

enum { MAX_PARTS = 8 };

struct part {
    const struct drafter_type *type;
    void *options;
    int at_least;              // minimum number of draft tokens for the part to be taken, if the form has the option
    struct settings *settings; // its canonical settings
    struct drafter *drafter;
    int tap[MAX_TAPS];       // the index of each of its hidden states among all
    bool all_taps;           // its states are all of them
    struct tensor features;  // (rows, its taps * width) unless all_taps
    struct advance *advance; // (slots)
    struct request *request; // (slots)
};

struct part_form {
    const char *name; // name of the combining drafter: "ladder"
    const char *what; // the option in messages: "drafter ladder: of"
    bool one;         // it combines one drafter, not a list
    bool at_least;    // parts have this option
    unsigned adds;    // enum takes: kinds of its drafts in addition to those of its parts
    // parts_check and parts_make, by which drafter.c asks about the parts.
    bool (*check)(const struct settings *of, const struct part_form *f, struct error *err);
    unsigned (*makes)(const struct settings *of, const struct part_form *f, enum draft_memory *memory);
};

struct parts {
    struct drafter drafter; // must be first
    const struct part_form *form;
    struct drafter_env env;
    int n;
    struct part part[MAX_PARTS];
    char *name[MAX_PARTS]; // value of drafter.part: "ngram", and "ngram 2" if there was one before
    int64_t width;         // width of the target's states
    int32_t *row;          // (rows * MAX_TAPS)
    int rows;              // capacity of features
    // Sets the nodes, and other fields that part k should see of advance a, in *to, which is a copy of it. NULL:
    // nothing more is set.
    void (*inform)(struct parts *g, int k, const struct advance *a, struct advance *to);
};

// Sets the drafters among which parts are chosen: a list that ends with NULL and stays in place. registry.c calls it.
void parts_choose_among(const struct drafter_type *const *types);

// The argument `of` is the option's value: a list of drafters, or one.
bool parts_check(const struct settings *of, const struct part_form *f, struct error *err);
// Returns the kinds of drafts that any part makes. *memory: the maximum of all parts.
unsigned parts_make(const struct settings *of, const struct part_form *f, enum draft_memory *memory);

// Sets g->drafter. nodes: maximum of its drafts, the root included; 0: the maximum of all parts.
bool parts_open(struct parts *g, const struct drafter_env *env, const struct settings *of, const struct part_form *f,
                int nodes, struct error *err);
void parts_close(struct parts *g); // does not free g
bool parts_advance(struct drafter *d, const struct advance *a, int n, struct error *err);
void parts_attach(struct drafter *d, struct kv_cache *target_cache);
void parts_forget(struct drafter *d, int slot);
// Asks part k for drafts for its requests (g->part[k].request).
bool parts_propose(struct parts *g, int k, int n, struct error *err);
