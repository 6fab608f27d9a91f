-- schema_exact.sql - what `speclab exact` found: rules walked through, and texts of real pairs put to the test.
--
-- p-values are kept as log10, as many are smaller than a number can be.

CREATE TABLE exact_rule (               -- a rule, enumerated over many small worlds (exact/law.h)
    id        INTEGER PRIMARY KEY,
    rule      TEXT NOT NULL,
    claimed   INTEGER NOT NULL CHECK (claimed IN (0, 1)),  -- it says that it is exact
    instances INTEGER NOT NULL,
    outcomes  INTEGER NOT NULL,         -- of chance, over all instances
    distance  REAL NOT NULL,            -- worst total variation from the target's law
    law_error REAL NOT NULL,            -- worst difference from what rule.law says
    found     TEXT NOT NULL,            -- exact, lossy as it says, wrong
    revision  TEXT NOT NULL,
    started   TEXT NOT NULL             -- ISO 8601, UTC
) STRICT;

CREATE TABLE exact (                    -- one cell of an experiment, watched (exact/observer.h)
    id         INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    cell       TEXT NOT NULL,           -- as run.cell
    settings   TEXT NOT NULL,           -- as run.settings
    target     TEXT NOT NULL,
    drafter    TEXT NOT NULL,
    rule       TEXT NOT NULL,
    lossless   INTEGER NOT NULL CHECK (lossless IN (0, 1)),
    sampling   TEXT NOT NULL,
    batch      INTEGER NOT NULL CHECK (batch >= 1),
    seed       INTEGER NOT NULL,        -- 64 bits, read as signed
    machine    TEXT NOT NULL,
    revision   TEXT NOT NULL,
    started    TEXT NOT NULL,
    finished   TEXT,                    -- NULL: it is not; the same command goes on
    sequences  INTEGER NOT NULL,        -- that the sums hold: numbers 0 .. sequences - 1
    tokens     INTEGER NOT NULL,
    steps      INTEGER NOT NULL,
    most_log_e REAL,                    -- the greatest that the text's bet has been
    sums       BLOB NOT NULL,           -- struct observed, doubles of this machine
    level      REAL,                    -- these from the end on: chance of a false alarm that was allowed for
    accepted   REAL,                    -- tokens of drafts a step
    expected   REAL,                    -- E[accepted | draft] a step
    z_accepted REAL,                    -- accepted less expected, in standard deviations
    visible    REAL,                    -- smallest total variation that the tests would have shown with power 0.999
    verdict    TEXT,                    -- no bias found, bias found, no verdict
    UNIQUE (experiment, cell, revision) -- sums of another revision may be other sums
) STRICT;

CREATE TABLE exact_stream (             -- the text, the control, the drafter, and what was planted
    exact  INTEGER NOT NULL REFERENCES exact ON DELETE CASCADE,
    stream TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    log_e  REAL,                        -- of its bet; Inf: something impossible was seen
    alarm  INTEGER NOT NULL CHECK (alarm IN (0, 1)),
    PRIMARY KEY (exact, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE exact_test (
    exact          INTEGER NOT NULL REFERENCES exact ON DELETE CASCADE,
    stream         TEXT NOT NULL,
    kind           TEXT NOT NULL,       -- KS, chi-square, pairs, score, acceptance, independence, impossible
    "of"           TEXT NOT NULL,       -- order or function
    part           TEXT NOT NULL,       -- all, first, later, bonus
    tokens         INTEGER NOT NULL,
    statistic      REAL,
    log10_p        REAL,                -- -Inf: p is 0
    log10_adjusted REAL,                -- after Holm's correction
    PRIMARY KEY (exact, stream, kind, "of", part)
) STRICT, WITHOUT ROWID;

CREATE TABLE exact_bits (               -- logits of verifying passes beside those of one token at a time (commands/exact/bits_run.h)
    id         INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    cell       TEXT NOT NULL,           -- as run.cell
    settings   TEXT NOT NULL,
    target     TEXT NOT NULL,
    drafter    TEXT NOT NULL,
    rule       TEXT NOT NULL,
    sampling   TEXT NOT NULL,
    machine    TEXT NOT NULL,
    revision   TEXT NOT NULL,
    started    TEXT NOT NULL,
    compared   INTEGER NOT NULL,        -- rows
    different  INTEGER NOT NULL,        -- of these, not the same in every bit
    largest    REAL NOT NULL,           -- difference between two logits
    ties       INTEGER NOT NULL,        -- of the different: the first two are nearer than twice the row's largest difference
    turned     INTEGER NOT NULL,        -- of the different: the likeliest token is another
    bugs       INTEGER NOT NULL,        -- of the turned: no ties
    verdict    TEXT NOT NULL
) STRICT;

-- With `record: {expected: true}`: what a step's draft was worth. Beside step.expected and step.variance, which are of the rule
-- that judged it.

ALTER TABLE step ADD COLUMN stood INTEGER;      -- drafted tokens that stood, before an end of text cut them; NULL: not recorded

CREATE TABLE step_rule (                -- the same draft under every rule that takes such drafts
    sequence INTEGER NOT NULL,
    step     INTEGER NOT NULL,
    rule     TEXT NOT NULL,             -- with its defaults, but for the run's own; (bound): what no exact rule can surpass
    lossless INTEGER NOT NULL CHECK (lossless IN (0, 1)),
    accepted REAL,                      -- E[accepted | draft]; NULL: not known
    first    REAL,                      -- the chance that anything of it stands
    PRIMARY KEY (sequence, step, rule),
    FOREIGN KEY (sequence, step) REFERENCES step ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
