-- schema_exact.sql - findings of `speclab exact`: rules enumerated over small instances, and statistical tests of texts
-- of real pairs.
--
-- p-values are stored as log10, because many are smaller than the smallest double.

CREATE TABLE exact_rule (               -- a rule, enumerated over many small instances (verifier/exact/law.h)
    id             INTEGER PRIMARY KEY,
    rule           TEXT NOT NULL,
    declared_exact INTEGER NOT NULL CHECK (declared_exact IN (0, 1)),   -- the rule's own declaration (struct rule)
    instances      INTEGER NOT NULL,
    outcomes       INTEGER NOT NULL,    -- random outcomes enumerated, over all instances
    distance       REAL NOT NULL,       -- largest total variation from the target's distribution
    formula_error  REAL NOT NULL,       -- largest difference from rule.end_probabilities
    verdict        TEXT NOT NULL,       -- exact; exact, though it declares lossless: false; lossy, as declared; wrong
    revision       TEXT NOT NULL,
    started        TEXT NOT NULL        -- ISO 8601, UTC
) STRICT;

-- one cell of an experiment, with an observer of its steps (verifier/exact/observer.h)
CREATE TABLE exact (
    id         INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    cell       TEXT NOT NULL,           -- see run.cell
    settings   TEXT NOT NULL,           -- see run.settings
    target     TEXT NOT NULL,
    drafter    TEXT NOT NULL,
    rule       TEXT NOT NULL,
    lossless   INTEGER NOT NULL CHECK (lossless IN (0, 1)),
    sampling   TEXT NOT NULL,
    batch      INTEGER NOT NULL CHECK (batch >= 1),
    seed       INTEGER NOT NULL,        -- 64 bits, stored as signed
    machine    TEXT NOT NULL,
    revision   TEXT NOT NULL,
    started    TEXT NOT NULL,
    finished   TEXT,                    -- NULL: not finished; the same command resumes it
    sequences  INTEGER NOT NULL,        -- number of sequences in the sums: 0 .. sequences - 1
    tokens     INTEGER NOT NULL,
    steps      INTEGER NOT NULL,
    max_log_e  REAL,                    -- largest log e-value of the text's bet so far
    sums       BLOB NOT NULL,           -- struct observed, doubles in this machine's format
    -- this and the following are set at the end: probability of a false alarm that the tests allow
    level      REAL,
    accepted   REAL,                    -- draft tokens accepted a step
    expected   REAL,                    -- E[accepted | draft] a step
    z_accepted REAL,                    -- (accepted - expected) in standard deviations
    detectable REAL,                    -- smallest total variation that the tests detect with power 0.999
    verdict    TEXT,                    -- no bias found, bias found, no verdict
    UNIQUE (experiment, cell, revision) -- sums of another revision may have another meaning
) STRICT;

CREATE TABLE exact_stream (             -- what is tested: the text, the control, the drafter, and each negative control
    exact  INTEGER NOT NULL REFERENCES exact ON DELETE CASCADE,
    stream TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    log_e  REAL,                        -- log e-value of its bet; Inf: an outcome of probability 0 was seen
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
    log10_adjusted REAL,                -- p after Holm's correction
    PRIMARY KEY (exact, stream, kind, "of", part)
) STRICT, WITHOUT ROWID;

-- logits of verification passes against those of one-token passes (commands/exact/bits_run.h)
CREATE TABLE exact_bits (
    id             INTEGER PRIMARY KEY,
    experiment     TEXT NOT NULL,
    cell           TEXT NOT NULL,       -- see run.cell
    settings       TEXT NOT NULL,
    target         TEXT NOT NULL,
    drafter        TEXT NOT NULL,
    rule           TEXT NOT NULL,
    sampling       TEXT NOT NULL,
    machine        TEXT NOT NULL,
    revision       TEXT NOT NULL,
    started        TEXT NOT NULL,
    compared       INTEGER NOT NULL,    -- number of rows
    different      INTEGER NOT NULL,    -- number of rows that are not equal in every bit
    largest        REAL NOT NULL,       -- largest difference between two logits
    -- different rows whose two largest logits are closer than twice the row's largest difference
    ties           INTEGER NOT NULL,
    argmax_changed INTEGER NOT NULL,    -- different rows with another argmax
    bugs           INTEGER NOT NULL,    -- rows with another argmax that are no ties
    verdict        TEXT NOT NULL
) STRICT;
