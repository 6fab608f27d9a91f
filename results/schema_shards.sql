-- schema_shards.sql - the parts of a run that are done, if its work is divided over processes with a database each
-- (`speclab run --shard`).
--
-- A run is complete if, for some `shards` and `work`, as many rows are finished as there are `parts`.

CREATE TABLE shard (                    -- the part of a run that one process decodes
    run      INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    shards   INTEGER NOT NULL CHECK (shards >= 2),                  -- the work was divided by this number
    shard    INTEGER NOT NULL CHECK (shard >= 0 AND shard < shards),
    -- hash of the division: positions of the prompts in their file, and the shard of each, in each repeat
    work     TEXT NOT NULL,
    -- number of shards that have some of it; the others have no row
    parts    INTEGER NOT NULL CHECK (parts BETWEEN 1 AND shards),
    finished TEXT,                      -- ISO 8601, UTC; NULL: some prompts of this part are not done
    PRIMARY KEY (run, shards, shard)
) STRICT, WITHOUT ROWID;
