// shards.h - which parts of a run are done: table shard (results/schema_shards.sql).
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;

struct shard_row {
    int shard, shards; // 0 .. shards - 1
    const char *work;  // hash of the division
    int parts;         // shards that have some of the run
};

// Finds or makes the row. A row of other work, as after a change of the experiment's file, is not finished.
bool store_shard(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
// The part is done. Finishes the run if that was its last part; else run.finished stays as it is.
bool store_shard_finished(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
bool store_shard_unfinished(struct store *s, int64_t run, const struct shard_row *r,
                            struct error *err); // nor is the run
bool store_shard_is_finished(struct store *s, int64_t run, const struct shard_row *r, bool *finished,
                             struct error *err);
// The run is decoded without a division from now on: what its shards have done of it is no longer kept.
bool store_shards_forget(struct store *s, int64_t run, struct error *err);
// Sets run.finished, if NULL, to the time of the last part, if all parts are done.
bool store_shards_complete(struct store *s, int64_t run, struct error *err);
// A row of the experiment with another division: 0 shards if there is none.
bool store_other_shard(struct store *s, const char *experiment, int shard, int shards, struct shard_row *other,
                       struct error *err);
