-- schema_bench.sql - measurements of `speclab bench`, and the fitted cost model, which is computed but stored because
-- predictions refer to it. The view bench_pass has the medians.
--
-- Rounds count from 0. A placement is the way in which the machine's processors share caches and memory
-- (docs/performance.md).

CREATE TABLE bench (                    -- one call of `speclab bench`
    id                INTEGER PRIMARY KEY,
    target            TEXT NOT NULL,
    target_hash       TEXT NOT NULL,    -- hash of its weights
    model_type        TEXT NOT NULL,    -- element type of most of the target's bytes: q4_1
    activations       TEXT NOT NULL,    -- the type to which a matrix product rounds its input: f32, bf16, int8
    cache             TEXT NOT NULL,    -- element type of the target's KV cache: f32, bf16, q8_0
    marked_inflated   INTEGER NOT NULL CHECK (marked_inflated IN (0, 1)),   -- 1: the target was made slower on purpose
    weight_bytes      INTEGER NOT NULL, -- bytes of weights that a pass reads; of a mixture of experts: with all experts
    draft             TEXT,             -- NULL: no draft model
    draft_hash        TEXT,
    draft_activations TEXT,
    device            TEXT NOT NULL,
    machine           TEXT NOT NULL,
    threads           INTEGER NOT NULL CHECK (threads >= 1),
    revision          TEXT NOT NULL,    -- revision of speclab
    started           TEXT NOT NULL,    -- ISO 8601, UTC
    -- time of a step of plain greedy decoding outside its pass: median; NULL: not measured
    overhead_ns       REAL,
    overhead_low_ns   REAL,             -- and quartiles
    overhead_high_ns  REAL
) STRICT;
CREATE INDEX bench_target ON bench (target_hash, activations, cache, threads);

CREATE TABLE bench_peer (               -- other engines that ran the same work in the same rounds
    bench INTEGER NOT NULL REFERENCES bench ON DELETE CASCADE,
    peer  INTEGER NOT NULL CHECK (peer >= 1),
    name  TEXT NOT NULL,                -- includes the version
    PRIMARY KEY (bench, peer)
) STRICT, WITHOUT ROWID;

CREATE TABLE bench_peak (               -- peak rate of multiply-adds, operands in registers
    bench      INTEGER NOT NULL REFERENCES bench ON DELETE CASCADE,
    kind       TEXT NOT NULL,           -- f32, bf16, int8
    isa        TEXT NOT NULL,
    per_second REAL NOT NULL,           -- a product and a sum are two operations
    PRIMARY KEY (bench, kind, isa)
) STRICT, WITHOUT ROWID;

CREATE TABLE bench_round (              -- a round measures everything once
    bench           INTEGER NOT NULL REFERENCES bench ON DELETE CASCADE,
    round           INTEGER NOT NULL CHECK (round >= 0),
    -- 0: disturbed; used for medians only if no round counts
    counts          INTEGER NOT NULL CHECK (counts IN (0, 1)),
    placement       TEXT NOT NULL CHECK (placement IN ('S', 'D', 'other', 'unstable', 'unprobed')),
    foreign_share   REAL,               -- processors used by other processes; NULL: the round was too short to tell
    before_read     REAL,               -- bytes a second, all threads, before the round and after it; NULL: not probed
    before_read_one REAL,               -- bytes a second, one thread
    before_trip_ns  REAL,               -- round trip of a cache line between two processors
    after_read      REAL,
    after_read_one  REAL,
    after_trip_ns   REAL,
    PRIMARY KEY (bench, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE bench_time (               -- one measurement
    bench   INTEGER NOT NULL,
    round   INTEGER NOT NULL,
    what    TEXT NOT NULL CHECK (what IN ('pass', 'draft_step', 'prompt')),
    context INTEGER NOT NULL CHECK (context >= 0),              -- cached tokens of each slot
    n       INTEGER NOT NULL CHECK (n >= 1),                    -- rows of each slot; for a prompt: its tokens
    peer    INTEGER NOT NULL CHECK (peer >= 0),                 -- 0: speclab; else bench_peer.peer
    ns      INTEGER NOT NULL CHECK (ns > 0),                    -- a pass includes the logits of every row
    slots   INTEGER NOT NULL DEFAULT 1 CHECK (slots >= 1),      -- slots of the pass, each with its own sequence
    -- experts that the pass read, over all layers; NULL: not counted (no mixture, no pass, a peer)
    experts INTEGER CHECK (experts >= 1),
    PRIMARY KEY (bench, round, what, context, n, peer, slots),
    FOREIGN KEY (bench, round) REFERENCES bench_round ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- fitted cost of a pass of n rows after c tokens (results/cost.h); the remaining part of a step's cost is
-- bench.overhead_ns
CREATE TABLE cost (
    bench       INTEGER NOT NULL REFERENCES bench ON DELETE CASCADE,
    placement   TEXT NOT NULL,
    form        TEXT NOT NULL CHECK (form IN ('hinge', 'table')),   -- the form that predicts; the table is bench_pass,
                                        -- linearly interpolated
    a           REAL NOT NULL,          -- hinge: ns = a + b n + s max(0, n - n0) + d c + e n c + u x
    b           REAL NOT NULL,
    s           REAL NOT NULL,
    n0          REAL NOT NULL,
    d           REAL NOT NULL,
    e           REAL NOT NULL,
    hinge_error REAL NOT NULL,          -- largest relative error at the points, and the root mean square
    hinge_rms   REAL NOT NULL,
    table_error REAL NOT NULL,          -- errors of the table: each point predicted from its neighbours in n
    table_rms   REAL NOT NULL,
    step_a      REAL,                   -- a draft step after c tokens: ns = step_a + step_d c; NULL: no draft model
    step_d      REAL,
    step_error  REAL,
    u           REAL NOT NULL DEFAULT 0,    -- coefficient of x, the experts that the pass reads (bench_time.experts)
    PRIMARY KEY (bench, placement)
) STRICT, WITHOUT ROWID;
