// selection.h - which of a dataset's prompts are written: without repetitions, the first ones or a random sample.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "commands/import/made_prompt.h"

struct error;

struct candidate {
    struct made_prompt p;
    char *place;    // in its file, for messages
    int64_t number; // of the entry, over all files
    uint64_t rank;  // the smallest are taken
};

struct selection { // initialize with { 0 }
    size_t n, capacity;
    struct candidate *candidate; // (n) in the order of the files
};

void selection_add(struct selection *s, struct made_prompt p, char *place, int64_t number); // owns both
// Entries with the id or the text of an earlier one. collected: they are removed, and *repeated counts them; otherwise an id twice is
// an error, and *repeated counts texts that are there again, and kept.
bool selection_check(struct selection *s, bool collected, int64_t *repeated, struct error *err);
// Keeps per_category prompts of each category and of these limit ones (0: all); seed < 0: the first ones. Entry i has the rank that
// splitmix64 started at `seed` gives at its call i + 1 (core/splitmix.h), and the smallest ranks are taken: so a smaller sample is
// part of a larger one.
void selection_limit(struct selection *s, int64_t per_category, int64_t limit, int64_t seed);
void selection_free(struct selection *s);
