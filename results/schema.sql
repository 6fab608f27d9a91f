-- schema.sql - the tables of `speclab run`: what was run, and what happened, step by step. Nothing here is computed:
-- every published number is a view (views.sql), so that its definition can be read and questioned.
--
-- Times are integer nanoseconds of a monotonic clock (_ns). Tokens are the target's. prompt, turn, repeat, step and
-- rank count from 0; depth counts from 1, the root of a draft being 0.

PRAGMA user_version = 16;               -- the schema's version: raise it with every change of a table

CREATE TABLE run (                      -- one cell of an experiment, with everything that is needed to run it again
    id              INTEGER PRIMARY KEY,
    experiment      TEXT NOT NULL,
    cell            TEXT NOT NULL,      -- hash of `settings`
    -- hash of the settings without drafter and rule: runs that share it can be paired
    peers           TEXT NOT NULL,
    -- the cell as JSON, with every default filled in and resolved: a file that `speclab run` reads; by key: view
    -- setting
    settings        TEXT NOT NULL CHECK (json_valid(settings)),
    file            TEXT,               -- the file as given, on one line without comments. NULL: not known
    folder          TEXT,               -- the file's folder, in which relative paths begin, absolute; NULL: not known
    model_path      TEXT,
    prompts_path    TEXT,
    target          TEXT NOT NULL,
    target_hash     TEXT NOT NULL,      -- hash of its weights
    config_hash     TEXT,               -- hash of its weights and configuration; NULL: not known
    tokenizer_hash  TEXT,               -- NULL: not known, or it has none
    model_type      TEXT NOT NULL,      -- element type of most of the target's bytes: q4_1
    activations     TEXT NOT NULL,      -- the type to which a matrix product rounds its input: f32, bf16, int8
    cache           TEXT NOT NULL,      -- element type of the target's KV cache: f32, bf16, q8_0
    drafter         TEXT NOT NULL,      -- ngram(longest=3, tokens=8)
    drafter_kind    TEXT NOT NULL,      -- ngram; "none" is the baseline
    drafter_hash    TEXT,               -- hash of its weights; NULL: it has none
    rule            TEXT NOT NULL,
    -- 0: the rule changes the output distribution
    lossless        INTEGER NOT NULL CHECK (lossless IN (0, 1)),
    -- 1: the rule's text is the same for every drafter
    drafter_invariant INTEGER NOT NULL CHECK (drafter_invariant IN (0, 1)),
    marked_inflated INTEGER NOT NULL CHECK (marked_inflated IN (0, 1)),     -- 1: the target was made slower on purpose
    sampling        TEXT NOT NULL,
    prompts         TEXT NOT NULL,      -- name and hash of the file
    seed            INTEGER NOT NULL,   -- 64 bits, stored as signed
    batch           INTEGER NOT NULL CHECK (batch >= 1),
    device          TEXT NOT NULL,
    machine         TEXT NOT NULL,      -- machine and revision list every value of table `environment`
    revision        TEXT NOT NULL,      -- revision of speclab
    started         TEXT NOT NULL,      -- ISO 8601, UTC
    finished        TEXT,               -- NULL: some prompts are not done
    -- JSON: the options in the name `drafter`, which are not at their defaults, each as the name shows it: {"longest":
    -- "3", "tokens": "8"}; typed, and all: view setting
    drafter_options TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(drafter_options)),
    UNIQUE (experiment, cell)
) STRICT;
CREATE INDEX run_peers ON run (peers, drafter_kind);

-- where the texts of a run were decoded. A run usually has one row. It has more if it was resumed under another
-- processor with the same bits, or with `speclab run --mix`, or if databases were merged
CREATE TABLE environment (
    id         INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    since      TEXT NOT NULL,           -- ISO 8601, UTC: when the pair of its first text began
    processor  TEXT NOT NULL,           -- "AMD EPYC 7B13"
    -- "avx2, 2 threads", or a GPU: what bits may depend on, in addition to the revision
    arithmetic TEXT NOT NULL,
    -- revision of speclab; a build with uncommitted changes adds a hash of the program
    revision   TEXT NOT NULL,
    -- all threads read memory. These four are probes before the first of these texts (`speclab run`); NULL: not
    -- measured
    read_bytes_per_s     REAL,
    read_one_bytes_per_s REAL,          -- one thread reads memory
    round_trip_ns        REAL,          -- time of a cache line between two processors
    mhz                  REAL           -- clock of a processor, reported by the kernel
) STRICT;
CREATE INDEX environment_run ON environment (run);

CREATE TABLE pair (                     -- a paired run: runs with the same peers decoded the same prompts back to back
    id         INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    started    TEXT NOT NULL,
    -- random, from /dev/urandom: identifies the pair in every database into which it was merged
    uuid       TEXT NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16)))) CHECK (length(uuid) = 32)
) STRICT;

-- the cells of a pair take turns: a part of the time of one cell. Without a batch a slice has the whole time of its
-- text
CREATE TABLE slice (
    pair         INTEGER NOT NULL REFERENCES pair ON DELETE CASCADE,
    run          INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    round        INTEGER NOT NULL CHECK (round >= 0),       -- each cell has one slice in a round, in alternating order
    -- time from its beginning to its end, with everything that is not part of decoding
    ns           INTEGER NOT NULL CHECK (ns >= 0),
    -- processors that other processes used meanwhile; short slices are measured together; NULL: the last ones, which
    -- were too short
    foreign_load REAL CHECK (foreign_load >= 0),
    -- 1: they used more than a measurement allows; speeds exclude it
    disturbed    INTEGER NOT NULL CHECK (disturbed IN (0, 1)),
    PRIMARY KEY (pair, run, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE sequence (                 -- one text: one turn of a prompt, decoded once
    id            INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    pair          INTEGER NOT NULL REFERENCES pair ON DELETE CASCADE,
    prompt        INTEGER NOT NULL CHECK (prompt >= 0),
    prompt_id     TEXT NOT NULL,        -- its id in the prompt file
    category      TEXT,                 -- NULL: the file has none
    turn          INTEGER NOT NULL CHECK (turn >= 0),
    repeat        INTEGER NOT NULL CHECK (repeat >= 0),
    prompt_tokens INTEGER NOT NULL CHECK (prompt_tokens >= 0),      -- earlier turns included
    new_tokens    INTEGER NOT NULL CHECK (new_tokens >= 0),         -- a token that ends the text included
    steps         INTEGER NOT NULL CHECK (steps >= 0),              -- rows of `step`
    -- prompt tokens whose rows an earlier text of this pair had computed; prefill_ns includes the time that took
    shared_tokens INTEGER NOT NULL CHECK (shared_tokens BETWEEN 0 AND prompt_tokens),
    prefill_ns    INTEGER NOT NULL CHECK (prefill_ns >= 0),
    -- its share of the time in steps: a batch's is split evenly
    decode_ns     INTEGER NOT NULL CHECK (decode_ns >= 0),
    -- time from the end of its prefill to its end, prefills of other slots included
    wall_ns       INTEGER NOT NULL CHECK (wall_ns >= 0),
    tokens        TEXT NOT NULL CHECK (json_array_length(tokens) = new_tokens),      -- JSON: [464, 3290]
    text_hash     TEXT NOT NULL,        -- FNV-1a, 64 bits, over the new tokens as little-endian int32
    text          TEXT,                 -- UTF-8; NULL: the model has no tokenizer
    stop          TEXT NOT NULL,        -- end, string, limit, context
    environment   INTEGER REFERENCES environment ON DELETE SET NULL,        -- where it was decoded; NULL: not known
    UNIQUE (run, prompt, turn, repeat, pair)
) STRICT;
CREATE INDEX sequence_pair ON sequence (pair, prompt, turn, repeat);

CREATE TABLE step (                     -- one pass of the target and what it added to this sequence
    sequence       INTEGER NOT NULL REFERENCES sequence ON DELETE CASCADE,
    step           INTEGER NOT NULL CHECK (step >= 0),
    drafted        INTEGER NOT NULL CHECK (drafted >= 0),                       -- draft tokens: nodes without the root
    -- depth of the deepest node; = drafted: a chain
    depth          INTEGER NOT NULL CHECK (depth BETWEEN 0 AND drafted),
    -- accepted draft tokens that are in the text
    accepted       INTEGER NOT NULL CHECK (accepted BETWEEN 0 AND depth),
    -- new tokens, the target's own token included; tokens = accepted: the text ended before it
    tokens         INTEGER NOT NULL CHECK (tokens BETWEEN accepted AND accepted + 1),
    -- E[accepted | draft] under the run's rule, before an end of text cuts it; NULL: not recorded (`record: {expected:
    -- true}`)
    expected       REAL,
    variance       REAL,                -- Var[accepted | draft]; NULL: not recorded
    accepted_uncut INTEGER,             -- accepted draft tokens before an end of text cut them; NULL: not recorded
    -- these three times are those of the whole batch
    propose_ns     INTEGER NOT NULL CHECK (propose_ns >= 0),
    verify_ns      INTEGER NOT NULL CHECK (verify_ns >= 0),
    advance_ns     INTEGER NOT NULL CHECK (advance_ns >= 0),
    -- time from the end of the prefill until its tokens were known, prefills of other slots included
    at_ns          INTEGER NOT NULL CHECK (at_ns >= 0),
    -- sequences in the pass, fillers included: run.batch
    batch          INTEGER NOT NULL CHECK (batch >= 1),
    -- round of the slice in which it was taken
    round          INTEGER NOT NULL CHECK (round >= 0),
    -- experts that the pass read, for the whole batch and over all layers; NULL: the target is no mixture of experts
    experts        INTEGER CHECK (experts >= 1),
    PRIMARY KEY (sequence, step)
) STRICT, WITHOUT ROWID;

-- recorded by `record: {expected: true}`: the step's draft under every rule that takes such drafts
CREATE TABLE step_rule (
    sequence INTEGER NOT NULL,
    step     INTEGER NOT NULL,
    -- includes its defaults; all rules except the run's own; (bound): what no exact rule can exceed
    rule     TEXT NOT NULL,
    lossless INTEGER NOT NULL CHECK (lossless IN (0, 1)),
    accepted REAL,                      -- E[accepted | draft]; NULL: not known
    first    REAL,                      -- probability that at least one draft token is accepted; NULL: not known
    PRIMARY KEY (sequence, step, rule),
    FOREIGN KEY (sequence, step) REFERENCES step ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- recorded by `record: {rows: ..}`: what the rule read of a step, and what it decided
CREATE TABLE draft (
    sequence  INTEGER NOT NULL,
    step      INTEGER NOT NULL,
    -- position of the root, in the prompt and the text, from 0
    position  INTEGER NOT NULL CHECK (position >= 0),
    tokens    TEXT NOT NULL,            -- JSON, like the next two: values of the nodes, the root first
    parents   TEXT NOT NULL,            -- the root's is -1
    proposals TEXT NOT NULL,            -- numbers as in `trial`
    out       TEXT NOT NULL,            -- JSON: the tokens of the step, before an end of text cuts them
    -- entries of a row that are kept, with `top_k`; NULL: all
    entries   INTEGER CHECK (entries >= 1),
    -- compressed (experiments/replay/packed_rows.h): p of every node, then q of every node with sampled children
    rows      BLOB NOT NULL,
    PRIMARY KEY (sequence, step),
    FOREIGN KEY (sequence, step) REFERENCES step ON DELETE CASCADE
) STRICT;

CREATE TABLE trial (                    -- recorded by `record: {trials: true}`: one acceptance test of one draft token
    sequence INTEGER NOT NULL,
    step     INTEGER NOT NULL,
    node     INTEGER NOT NULL CHECK (node >= 1),
    depth    INTEGER NOT NULL CHECK (depth >= 1),
    rank     INTEGER NOT NULL CHECK (rank >= 0),                            -- rank among its siblings
    token    INTEGER NOT NULL,
    -- 0 deterministic, 1 sampled, 2 sampled without replacement
    proposal INTEGER NOT NULL CHECK (proposal BETWEEN 0 AND 2),
    p        REAL,                      -- the target's probability in the test; NULL: the rule reports none
    q        REAL,                      -- the drafter's; NULL: deterministic
    accepted INTEGER NOT NULL CHECK (accepted IN (0, 1)),
    source   TEXT,                      -- the source in step_source; NULL: the drafter has no parts
    PRIMARY KEY (sequence, step, node),
    FOREIGN KEY (sequence, step) REFERENCES step ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- A step's draft tokens by the parts that proposed them, if the drafter combines several (ladder, union).
CREATE TABLE step_source (
    sequence INTEGER NOT NULL,
    step     INTEGER NOT NULL,
    source   TEXT NOT NULL,             -- "ngram", or "ngram+eagle3" for draft tokens that both proposed
    drafted  INTEGER NOT NULL CHECK (drafted >= 1),
    accepted INTEGER NOT NULL CHECK (accepted BETWEEN 0 AND drafted),           -- those that are in the text
    PRIMARY KEY (sequence, step, source),
    FOREIGN KEY (sequence, step) REFERENCES step ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
