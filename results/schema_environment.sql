-- schema_environment.sql - under what the texts of a run were decoded, since version 6. One row as a rule; more where a run was gone
-- on with elsewhere: under another processor alone, whose bits are the same, or with `speclab run --mix`.
CREATE TABLE environment (
    id         INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    since      TEXT NOT NULL,           -- ISO 8601, UTC: pairs from then on (pair.started), until the run's next row
    processor  TEXT NOT NULL,           -- "AMD EPYC 7B13"
    arithmetic TEXT NOT NULL,           -- "avx2, 2 threads", or a GPU: what bits may depend on, with the revision
    revision   TEXT NOT NULL            -- of speclab; of a program with changes that no revision has, a hash of the program, too
) STRICT;
CREATE INDEX environment_run ON environment (run);
