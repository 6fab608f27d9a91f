-- views_prediction.sql - predicted speedups next to measured ones (docs/results.md, "Prediction"): views over those of
-- views.sql and the tables of bench (schema_bench.sql).

CREATE VIEW pass AS
-- A step, with the variables that the cost of its pass depends on. context: cached tokens before it. rows: rows of the
-- whole pass; in a batch, the steps of one pass are those of a pair with equal times. draft_ns: the drafter's time,
-- propose and advance.
SELECT run, sequence, step, batch, drafted, depth, accepted, tokens, context, propose_ns + advance_ns AS draft_ns, verify_ns,
       CASE WHEN batch = 1 THEN 1.0 * (drafted + 1) ELSE 1.0 * batch * sum(drafted + 1) OVER same / count(*) OVER same END AS rows
FROM (SELECT q.run, q.pair, t.sequence, t.step, t.batch, t.drafted, t.depth, t.accepted, t.tokens, t.propose_ns AS propose_ns, t.advance_ns, t.verify_ns,
             max(q.prompt_tokens - 1, 0) + coalesce(sum(t.tokens) OVER before, 0) AS context
      FROM step AS t JOIN sequence AS q ON q.id = t.sequence
      WINDOW before AS (PARTITION BY t.sequence ORDER BY t.step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WINDOW same AS (PARTITION BY run, pair, batch, propose_ns, verify_ns, advance_ns);

CREATE VIEW bench_of_run AS
-- The fitted cost that predicts a run: that of the latest bench with its target, precision, device and machine, in the
-- placement in which most rounds count. A drafter on another device is named after the machine. For a mixture of
-- experts the table predicts: the hinge has a term for experts, whose number does not follow from the rows of a pass.
SELECT run, bench, placement, iif(u <> 0, 'table', form) AS form, a, b, s, n0, d, e, overhead_ns
FROM (SELECT r.id AS run, k.*, o.overhead_ns, row_number() OVER (PARTITION BY r.id ORDER BY o.id DESC, (
                 SELECT sum(m.counts) FROM bench_round AS m WHERE (m.bench, m.placement) = (k.bench, k.placement)) DESC, k.placement) AS choice
      FROM run AS r JOIN bench AS o ON (o.target_hash, o.activations, o.cache, o.device) = (r.target_hash, r.activations, r.cache, r.device)
           AND (o.machine = r.machine OR instr(r.machine, o.machine || '; drafter on ') = 1)
      JOIN cost AS k ON k.bench = o.id)
WHERE choice = 1;

CREATE VIEW bench_piece AS
-- bench_of_run in pieces: a pass of n rows in (above_rows, to_rows], after c cached tokens in (above_context,
-- to_context], takes a + b n + d c + e n c. The hinge has two pieces. Those of the table are linear between its points
-- and beyond them.
WITH fit AS MATERIALIZED (SELECT * FROM bench_of_run), point AS MATERIALIZED (
    SELECT f.run, 1.0 * p.n AS rows, 1.0 * p.context AS context, p.median_ns AS ns
    FROM fit AS f JOIN bench_pass AS p ON (p.bench, p.placement) = (f.bench, f.placement)
    WHERE f.form = 'table' AND p.what = 'pass' AND p.peer = 0 AND p.slots = 1
), row AS (
    SELECT run, rows AS low, coalesce(lead(rows) OVER up, rows) AS high, row_number() OVER up AS k, count(*) OVER (PARTITION BY run) AS n
    FROM (SELECT DISTINCT run, rows FROM point) WINDOW up AS (PARTITION BY run ORDER BY rows)
), place AS (
    SELECT run, context AS low, coalesce(lead(context) OVER up, context) AS high, row_number() OVER up AS k, count(*) OVER (PARTITION BY run) AS n
    FROM (SELECT DISTINCT run, context FROM point) WINDOW up AS (PARTITION BY run ORDER BY context)
), slope AS (
    SELECT r.run, iif(r.k = 1, -1e18, r.low) AS above_rows, iif(r.k >= r.n - 1, 1e18, r.high) AS to_rows,
           iif(p.k = 1, -1e18, p.low) AS above_context, iif(p.k >= p.n - 1, 1e18, p.high) AS to_context, r.low AS n, p.low AS c, o.ns,
           (more.ns - o.ns) / max(r.high - r.low, 1e-9) AS b, (later.ns - o.ns) / max(p.high - p.low, 1e-9) AS d,
           (far.ns - more.ns - later.ns + o.ns) / max(r.high - r.low, 1e-9) / max(p.high - p.low, 1e-9) AS e
    FROM row AS r JOIN place AS p ON p.run = r.run
    JOIN point AS o ON (o.run, o.rows, o.context) = (r.run, r.low, p.low)
    JOIN point AS more ON (more.run, more.rows, more.context) = (r.run, r.high, p.low)
    JOIN point AS later ON (later.run, later.rows, later.context) = (r.run, r.low, p.high)
    JOIN point AS far ON (far.run, far.rows, far.context) = (r.run, r.high, p.high)
    WHERE (r.k < r.n OR r.n = 1) AND (p.k < p.n OR p.n = 1)
)
SELECT run, above_rows, to_rows, above_context, to_context, ns - b * n - d * c + e * n * c AS a, b - e * c AS b, d - e * n AS d, e FROM slope
UNION ALL
SELECT run, -1e18, n0, -1e18, 1e18, a, b, d, e FROM fit WHERE form = 'hinge'
UNION ALL
SELECT run, n0, 1e18, -1e18, 1e18, a - s * n0, b + s, d, e FROM fit WHERE form = 'hinge';

CREATE VIEW cost_piece AS
-- The cost of a pass in the pieces of bench_piece. source `bench`: these pieces. source `steps`: the cost from the
-- passes of all runs with the same peers, which needs no bench, but has seen what it predicts. It is the mean verify_ns
-- of each number of rows with 8 passes or more (if there is none, of each), linear between these. If there is a bench,
-- its numbers of rows are points as well, at its cost times measured / predicted at the numbers around.
WITH kind AS MATERIALIZED (
    SELECT *, max(passes) OVER same AS most, sum(passes * context) OVER same / sum(passes) OVER same AS mean_context
    FROM (SELECT g.peers, p.rows, count(*) AS passes, avg(p.verify_ns) AS ns, avg(p.context) AS context
          FROM pass AS p JOIN run AS g ON g.id = p.run GROUP BY g.peers, p.rows)
    WINDOW same AS (PARTITION BY peers)
), piece AS MATERIALIZED (SELECT * FROM bench_piece), place AS (
    SELECT r.id AS run, m.rows, m.ns, m.context FROM run AS r JOIN kind AS m ON m.peers = r.peers WHERE m.passes >= min(8, m.most)
    UNION ALL
    SELECT f.run, 1.0 * p.n, NULL, m.mean_context
    FROM bench_of_run AS f JOIN bench_pass AS p ON (p.bench, p.placement) = (f.bench, f.placement) JOIN run AS r ON r.id = f.run
    JOIN kind AS m ON m.peers = r.peers
    WHERE p.what = 'pass' AND p.peer = 0 AND p.slots = 1
), priced AS ( -- context: that of the row with ns, if there is one
    SELECT p.run, p.rows, p.ns, k.a + k.b * p.rows + (k.d + k.e * p.rows) * p.context AS bench_ns
    FROM (SELECT run, rows, max(ns) AS ns, context FROM place GROUP BY run, rows) AS p
    LEFT JOIN piece AS k ON k.run = p.run AND p.rows > k.above_rows AND p.rows <= k.to_rows AND p.context > k.above_context AND p.context <= k.to_context
), counted AS ( -- a number of rows without ns has the `low` of the last one with ns before it, and the `high` of the
                -- next one
    SELECT *, count(ns) OVER (PARTITION BY run ORDER BY rows) AS low, count(ns) OVER (PARTITION BY run ORDER BY rows DESC) AS high FROM priced
), around AS (
    SELECT run, rows, ns, bench_ns, max(ns / bench_ns) OVER below AS low_factor, max(iif(ns IS NULL, NULL, rows)) OVER below AS low_rows,
           max(ns / bench_ns) OVER above AS high_factor, max(iif(ns IS NULL, NULL, rows)) OVER above AS high_rows
    FROM counted WINDOW below AS (PARTITION BY run, low), above AS (PARTITION BY run, high)
), point AS (
    SELECT run, rows, coalesce(ns, bench_ns * CASE WHEN low_rows IS NULL THEN high_factor WHEN high_rows IS NULL THEN low_factor
                                              ELSE low_factor + (high_factor - low_factor) * (rows - low_rows) / (high_rows - low_rows) END) AS ns
    FROM around
), step AS (
    SELECT run, rows, ns, coalesce((lead(ns) OVER up - ns) / (lead(rows) OVER up - rows), 0) AS b, lead(rows) OVER up AS next,
           row_number() OVER up AS k, count(*) OVER (PARTITION BY run) AS n
    FROM point WINDOW up AS (PARTITION BY run ORDER BY rows)
)
SELECT run, 'bench' AS source, above_rows, to_rows, above_context, to_context, a, b, d, e FROM piece
UNION ALL
SELECT run, 'steps', iif(k = 1, -1e18, rows), iif(k >= n - 1, 1e18, next), -1e18, 1e18, ns - b * rows, b, 0.0, 0.0 FROM step WHERE k < n OR n = 1;

CREATE VIEW predicted_time AS
-- Sums over the steps of a run's paired sequences, and none_*: those of their partners of none. pass_ns: by the pieces
-- of `source`; in a batch, a sequence's share of one slot's pass with the rows of all. rows, context: means over
-- passes; batch: mean sequences of a pass, as recorded. overhead_ns: time of a step outside its pass: bench's,
-- otherwise none's. perfect_tokens: the tokens if every draft were accepted.
WITH piece AS MATERIALIZED (SELECT * FROM cost_piece), replayed AS MATERIALIZED (
    SELECT p.run, k.source, p.sequence, count(*) AS steps, sum(p.tokens) AS tokens, sum(p.depth) AS depth, sum(p.accepted) AS accepted,
           sum((k.a + k.b * p.rows + k.d * p.context + k.e * p.rows * p.context) / p.batch) AS pass_ns,
           sum(1.0 * p.verify_ns / p.batch) AS verify_ns, sum(1.0 * p.draft_ns / p.batch) AS draft_ns, sum(p.rows) AS rows,
           sum(1.0 * p.context) AS context, sum(1.0 / p.batch) AS passes
    FROM pass AS p JOIN piece AS k ON k.run = p.run AND p.rows > k.above_rows AND p.rows <= k.to_rows
         AND p.context > k.above_context AND p.context <= k.to_context
    GROUP BY p.sequence, k.source
)
SELECT w.run, o.source, iif(o.source = 'bench', f.bench, NULL) AS bench, sum(o.steps) AS steps, sum(o.tokens) AS tokens, sum(o.depth) AS depth,
       sum(o.accepted) AS accepted, sum(o.depth) + sum(o.steps) AS perfect_tokens, sum(q.decode_ns) AS decode_ns,
       sum(o.verify_ns) AS verify_ns, sum(o.draft_ns) AS draft_ns, sum(o.pass_ns) AS pass_ns, sum(o.rows) / sum(o.steps) AS rows,
       sum(o.context) / sum(o.steps) AS context, sum(o.steps) / sum(o.passes) AS batch, sum(n.steps) AS none_steps,
       sum(n.tokens) AS none_tokens, sum(m.decode_ns) AS none_decode_ns, sum(n.verify_ns) AS none_verify_ns, sum(n.pass_ns) AS none_pass_ns, sum(n.rows) / sum(n.steps) AS none_rows,
       sum(n.context) / sum(n.steps) AS none_context,
       coalesce(iif(o.source = 'bench', f.overhead_ns, NULL), (sum(m.decode_ns) - sum(n.verify_ns)) / sum(n.steps)) AS overhead_ns
FROM paired AS w JOIN replayed AS o ON o.sequence = w.sequence JOIN replayed AS n ON (n.sequence, n.source) = (w.none, o.source)
JOIN sequence AS q ON q.id = w.sequence JOIN sequence AS m ON m.id = w.none LEFT JOIN bench_of_run AS f ON f.run = w.run
GROUP BY w.run, o.source;

CREATE VIEW prediction_by_length AS
-- The recorded steps again with drafts cut to `length` tokens (0: none), for runs whose drafts are all chains. length
-- NULL: every draft, including trees, is only as long as its accepted part. Passes cost what they cost after the run's
-- mean context, a draft its own time in proportion to its depth. tokens_per_step excludes the recorded ends of texts
-- that a shorter draft moves.
WITH RECURSIVE base AS MATERIALIZED (SELECT * FROM predicted_time), piece AS MATERIALIZED (SELECT * FROM cost_piece),
drafted AS MATERIALIZED (
    SELECT q.run, t.drafted, t.accepted, t.tokens, max(t.drafted > t.depth) OVER (PARTITION BY q.run) AS tree,
           max(min(t.depth, 256)) OVER (PARTITION BY q.run) AS longest, count(*) AS steps
    FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN paired AS w ON w.sequence = q.id AND w.none IS NOT NULL
    GROUP BY q.run, t.drafted, t.depth, t.accepted, t.tokens
), choice(run, length, longest) AS (
    SELECT run, NULL, NULL FROM drafted GROUP BY run
    UNION ALL
    SELECT run, 0, longest FROM drafted WHERE NOT tree GROUP BY run
    UNION ALL
    SELECT run, length + 1, longest FROM choice WHERE length < longest
), cut AS (
    SELECT d.run, c.length, min(d.drafted, coalesce(c.length, d.accepted)) AS drafted, min(d.tokens, coalesce(c.length, d.accepted) + 1) AS tokens,
           sum(d.steps) AS steps
    FROM drafted AS d JOIN choice AS c ON c.run = d.run GROUP BY 1, 2, 3, 4
)
SELECT run, source, length, tokens_per_step, step_ns, tokens_per_step / step_ns * none_ns AS speedup
FROM (SELECT c.run, b.source, c.length, 1.0 * sum(c.steps * c.tokens) / sum(c.steps) AS tokens_per_step,
             sum(c.steps * (k.a + k.d * b.context + (k.b + k.e * b.context) * b.batch * (c.drafted + 1)) / b.batch) / sum(c.steps)
                 + coalesce(b.draft_ns / nullif(b.depth, 0), 0) * sum(c.steps * c.drafted) / sum(c.steps) + b.overhead_ns AS step_ns,
             (b.none_pass_ns + b.overhead_ns * b.none_steps) / nullif(b.none_tokens, 0) AS none_ns
      FROM cut AS c JOIN base AS b ON b.run = c.run
      JOIN piece AS k ON (k.run, k.source) = (b.run, b.source) AND b.batch * (c.drafted + 1) > k.above_rows
           AND b.batch * (c.drafted + 1) <= k.to_rows AND b.context > k.above_context AND b.context <= k.to_context
      GROUP BY c.run, b.source, c.length);

CREATE VIEW prediction AS
-- Speedup as measured (view speed), and as predicted, over all steps of paired sequences; time_factor, verify_factor
-- and overhead_factor are over all of them as well. leviathan: (1 - alpha^(gamma+1)) / (1 - alpha) / (gamma c + 1),
-- alpha = accepted / tested draft tokens, gamma = mean depth, gamma c = the drafter's time of a step / a step of none
-- (Leviathan et al. 2023, theorem 3.8: a pass of any number of rows costs the same). by_position: sum of rates by depth
-- over a pass of the mean rows. replay: the recorded steps, each at its cost. speedup = replay * none_time_factor /
-- time_factor if no slice was disturbed, where a factor is measured / predicted.
--
-- The last columns are for the same steps with the best single length of drafts (best_length, chains), with drafts of
-- exactly their accepted part (perfect_length), with drafts accepted whole (perfect_drafter), and with 1 + depth *
-- first tokens a step, which no exact rule exceeds (perfect_rule; if (bound) is recorded).
WITH base AS MATERIALIZED (
    SELECT p.*, p.pass_ns + p.draft_ns + p.overhead_ns * p.steps AS predicted_ns,
           p.none_pass_ns + p.overhead_ns * p.none_steps AS none_predicted_ns
    FROM predicted_time AS p
), length AS MATERIALIZED (SELECT * FROM prediction_by_length), alpha AS (
    SELECT run, coalesce(1.0 * sum(accepted) / nullif(sum(tried), 0), 0) AS alpha FROM acceptance GROUP BY run
), bound AS (
    SELECT q.run, avg(t.depth * x.first) AS accepted
    FROM step_rule AS x JOIN step AS t ON (t.sequence, t.step) = (x.sequence, x.step) JOIN sequence AS q ON q.id = t.sequence
    WHERE x.rule = '(bound)' GROUP BY q.run
), mean AS (
    SELECT b.run, b.source, (k.a + k.b * b.rows + k.d * b.context + k.e * b.rows * b.context) / b.batch AS pass_ns
    FROM base AS b JOIN cost_piece AS k ON (k.run, k.source) = (b.run, b.source) AND b.rows > k.above_rows AND b.rows <= k.to_rows
         AND b.context > k.above_context AND b.context <= k.to_context
)
SELECT b.run, b.source, b.bench, v.speedup,
       iif(a.alpha = 1, 1.0 * b.depth / b.steps + 1, coalesce((1 - pow(a.alpha, 1.0 * b.depth / b.steps + 1)) / (1 - a.alpha), 1))
           / (1 + b.draft_ns / b.steps / nullif(1.0 * b.none_decode_ns / b.none_steps, 0)) AS leviathan,
       (1.0 + 1.0 * b.accepted / b.steps) / (m.pass_ns + b.draft_ns / b.steps + b.overhead_ns)
           * (b.none_predicted_ns / nullif(b.none_tokens, 0)) AS by_position,
       (b.tokens / b.predicted_ns) / (b.none_tokens / b.none_predicted_ns) AS replay,
       b.decode_ns / b.predicted_ns AS time_factor, b.none_decode_ns / b.none_predicted_ns AS none_time_factor,
       b.verify_ns / b.pass_ns AS verify_factor, b.none_verify_ns / b.none_pass_ns AS none_verify_factor,
       (b.decode_ns - b.verify_ns - b.draft_ns) / b.steps / nullif(b.overhead_ns, 0) AS overhead_factor,
       b.draft_ns / b.predicted_ns AS draft_share,
       (SELECT l.length FROM length AS l WHERE (l.run, l.source) = (b.run, b.source) AND l.length IS NOT NULL
        ORDER BY l.speedup DESC, l.length LIMIT 1) AS best_length,
       (SELECT max(l.speedup) FROM length AS l WHERE (l.run, l.source) = (b.run, b.source) AND l.length IS NOT NULL) AS best_length_speedup,
       (SELECT l.speedup FROM length AS l WHERE (l.run, l.source) = (b.run, b.source) AND l.length IS NULL) AS perfect_length,
       (b.perfect_tokens / b.predicted_ns) / (b.none_tokens / b.none_predicted_ns) AS perfect_drafter,
       ((b.steps + x.accepted * s.drafts * b.steps / s.steps) / b.predicted_ns) / (b.none_tokens / b.none_predicted_ns) AS perfect_rule
FROM base AS b JOIN steps AS s ON s.run = b.run JOIN speed AS v ON v.run = b.run LEFT JOIN mean AS m ON (m.run, m.source) = (b.run, b.source)
LEFT JOIN alpha AS a ON a.run = b.run LEFT JOIN bound AS x ON x.run = b.run;
