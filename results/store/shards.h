// shards.h - which parts of a run are done: table shard (results/schema_shards.sql).
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;

struct shard_row {
    int shard, shards; // 0 .. shards - 1; shards 0 is 1
    const char *work;  // hash of the division
    int parts;         // shards that have some of the run
};

// In the next three, shard 0 of 1 is the whole run, which has no row: what is done of it is run.finished.
// Finds or makes the row. A row of other work, as after a change of the experiment's file, is not finished.
bool store_shard(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
// The part is done, now or, if it is marked already and `again` is false, then. Finishes the run if that was its last part; else run.finished
// stays as it is.
bool store_shard_finished(struct store *s, int64_t run, const struct shard_row *r, bool again, struct error *err);
// Sequences of it are missing again: nor is the run finished. A run that is decoded as a whole from now on loses its rows.
bool store_shard_unfinished(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
// A row of the experiment with another division: 0 shards if there is none.
bool store_other_shard(struct store *s, const char *experiment, int shard, int shards, struct shard_row *other,
                       struct error *err);
