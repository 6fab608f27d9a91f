// cell_part.h - one cell's part of a paired run: its conversations in the slots of its decoder.
//
// With several slots all of them decode until the part is over: where no conversation waits for a slot, a filler has it, another prompt of the
// experiment whose text is not stored. So every stored step has a text in every slot, and no text is decoded in a smaller batch than others.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct cell_runner;
struct conversation;
struct due;
struct error;
struct paired_run;
struct runner;

struct cell_part {
    struct runner *r;
    struct cell_runner *c;
    struct conversation *conversation; // (o->n)
    const struct paired_run *o;
    char *label;     // for progress: drafter, rule and sampling; owned
    int missing;     // conversations that the cell itself lacks
    int fillers;     // that were started
    int64_t earlier; // tokens that the cell had decoded before this part
    bool over;       // no conversation waits or is under way
};

// The prompt of a filler (0, 1, ..): the paired run's, then those of earlier ones, the last ones first. Never one that is still to come: a drafter that
// remembers other texts would have its answer.
int filler_prompt(const struct paired_run *o, int number);
// Selects the random numbers of a text. prompt: its position in the file.
int64_t sequence_number(int64_t prompt, int turn, int repeat);
// Restarts each conversation at its due turn; those that are not due are over. Borrows everything. Call cell_part_close also after failure.
bool cell_part_open(struct cell_part *p, const struct due *due, struct error *err);
// Fills free slots, takes one step and stores the texts that ended; sets `over`.
bool cell_part_step(struct cell_part *p, struct error *err);
int64_t cell_part_tokens(const struct cell_part *p); // decoded so far, those of fillers included
void cell_part_close(struct cell_part *p);           // drops fillers
// Decodes a few tokens of a prompt, which are discarded, before a cell's first paired run.
bool cell_warm_up(struct runner *r, struct cell_runner *c, int prompt, struct error *err);
