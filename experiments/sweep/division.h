// division.h - divides the paired runs of an experiment over processes (`speclab run --shard`), a function of the file, its prompts' turns
// and the number of shards.
//
// A paired run is never split: what is compared with each other is decoded by one process, back to back. Paired runs are dealt, the largest
// first, each to the shard that has least so far (Graham 1969), so shards differ by at most one of them; equal ones are dealt in turn, so
// each shard has prompts from all of the file. The cost of one is its turns, times the cells that decode them, over the square root of the
// batch: a pass of b sequences costs between one (a GPU) and b (many rows on a CPU) times as much as a pass of one.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct error;
struct experiment;

struct shard { // index 0 .. of - 1; of 0 or 1: all of the work
    int index, of;
    bool by_slurm; // not given, but found in the environment
};

struct part {          // a paired run, without its cells
    int group, repeat; // group: as group_open's number
    int first, n;      // prompts of the experiment
    int64_t cost;
    int shard;
};

struct division {
    int n;
    struct part *part; // (n) in the order in which they run
    struct {
        char hash[HASH_TEXT]; // the prompts and who decodes them; "": no cells
        int shards;           // that have some of the group
    } * work;                 // (groups)
};

enum { MAX_SHARDS = 1 << 16 };

struct division division_of(const struct experiment *e, int shards); // shards 0 or 1: not divided
void division_free(struct division *d);
int division_count(const struct division *d, int group, int shard); // paired runs of a shard in a group
int64_t division_conversations(const struct division *d, const struct experiment *e, int shard); // in all cells

void parts_deal(struct part *part, int n, int shards); // sets the shard of each, by their costs

// option: "I/N" or "none"; NULL: by Slurm's SLURM_ARRAY_TASK_ID, _COUNT, _MIN and _STEP, if they are set.
bool shard_read(const char *option, struct shard *to, struct error *err);
