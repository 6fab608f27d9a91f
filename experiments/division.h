// division.h - divides the paired runs of an experiment over processes (`speclab run --shard`), a function of the file,
// its prompts' turns and the number of shards (runner.c).
//
// A paired run is never split: one process decodes, back to back, what is compared with each other. Paired runs are
// dealt, the largest first, each to the shard that has least so far (Graham 1969), so shards differ by at most one of
// them. Equal ones are dealt in turn, so each shard has prompts from all of the file. Those of a target are dealt as if
// it were alone, since what a pass of another target costs is not known. The cost of a paired run is its turns, times
// the cells that decode them, over the square root of the batch: a pass of b sequences costs between one (a GPU) and b
// (many rows on a CPU) times as much as a pass of one.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct error;
struct experiment;

struct shard { // index 0 .. of - 1; of 0 or 1: all of the work
    int index, of;
    bool by_slurm; // found in the environment, not given
};

struct part {          // a paired run, without its cells
    int group, repeat; // group: the number in group_open
    int first, n;      // range of the experiment's prompts
    int64_t cost;
    int shard;
};

struct division {
    int n;
    struct part *part; // (n) ordered as they run
    struct {
        char hash[HASH_TEXT]; // hash of the prompts and of who decodes them; "": no cells
        int shards;           // number of shards that have some of the group
    } * work;                 // (groups)
};

enum { MAX_SHARDS = 1 << 16 };

struct division division_of(const struct experiment *e, int shards); // shards 0 or 1: not divided
void division_free(struct division *d);
int division_count(const struct division *d, int group, int shard); // number of paired runs of a shard in a group
int64_t division_conversations(const struct division *d, const struct experiment *e, int shard); // number in all cells

void parts_deal(struct part *part, int n, int shards); // sets the shard of each by their costs
