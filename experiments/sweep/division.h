// division.h - divides the paired runs of an experiment over processes (`speclab run --shard`), a function of the file and the number of
// shards alone.
//
// A paired run is never split: what is compared with each other is decoded by one process, back to back. Each shard gets, of every group of
// cells, the same number of turns up to one paired run, whatever a group costs beside another; what is left over goes to the shards that
// have least of all groups. So shards take about the same time, and each has prompts from all of the file.
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
    int64_t turns;     // of these
    int shard;
};

struct division {
    int n;
    struct part *part; // (n) in the order in which they run
    char work[HASH_TEXT];
};

enum { MAX_SHARDS = 1 << 16 };

struct division division_of(const struct experiment *e, int shards); // shards 0 or 1: not divided
void division_free(struct division *d);
int division_count(const struct division *d, int group, int shard); // paired runs of a shard in a group
int64_t division_conversations(const struct division *d, const struct experiment *e, int shard); // of all cells
int division_shards(const struct division *d, int group); // shards that have some of a group

// Sets the shard of each part; those of a group are adjacent. cells: (groups) number of each.
void parts_deal(struct part *part, int n, const int *cells, int shards);

// option: "I/N" or "none"; NULL: by Slurm's SLURM_ARRAY_TASK_ID, _COUNT, _MIN and _STEP, if they are set.
bool shard_read(const char *option, struct shard *to, struct error *err);
