// report_words.h - a comparison and its cells in words, as tables of them say it.
#pragma once
#include <stddef.h>

struct comparison;
struct comparisons;
struct tally;

// ---- descriptions; free() the strings

char *report_title(const struct comparisons *all, int which);  // "demo", or "demo (1 of 2)"
char *report_target(const struct comparison *c);               // "smollm2 (weights q4_1, activations int8)"
char *report_prompts(const struct comparison *c);              // "12 of prompts.jsonl, up to 2 turns: code 7, chat 5"
char *report_decoding(const struct comparison *c);             // "batch 1, seed 1, 1 repeat"
char *report_values(const struct comparison *c, size_t field); // the values of a field of struct tally over all cells
char *report_equal(const struct comparison *c,
                   const struct tally *t); // "14/14"; "sampled": other samples; "-": no pairs

// Returns "DISTURBED: other processes used the processors ..", if that was more than a fifth of the time of a cell;
// otherwise "".
char *report_disturbed(const struct comparisons *all);

// The cells of a comparison, named by what differs. Options that all cells of a kind of drafter share, and a rule that
// all cells share, are in `common` instead, as in "rejection; eagle3(quantize=q8_0)".
struct cell_names {
    int n;
    char **name; // (n)
    char *common;
};
void cell_names_make(const struct comparison *c, struct cell_names *to);
void cell_names_free(struct cell_names *names);

// Returns the indices of the cells: none, then lossless ones, then lossy ones, each by speedup, the largest first.
int *report_order(const struct comparison *c); // (n) free() it
