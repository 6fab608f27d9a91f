-- views.sql - every published number, as a query over the tables of schema.sql. The views of a database are made again
-- when this file changes.
--
-- docs/results.md explains them. For a run of the drafter `none` every acceptance is NULL. Sums come before ratios: a
-- rate is a ratio of sums over all steps or sequences of a run unless its comment says otherwise.

CREATE VIEW outcome AS
-- Number of drafts of a run by prompt, depth and accepted tokens. A draft is a step with at least one draft token. cut:
-- the text ended before the target's own token, so what follows the accepted tokens is not known.
SELECT q.run, q.prompt, t.depth, t.accepted, t.tokens = t.accepted AS cut, count(*) AS drafts,
       sum(t.drafted) AS drafted, sum(t.drafted > t.depth) AS trees
FROM step AS t JOIN sequence AS q ON q.id = t.sequence
WHERE t.drafted > 0
GROUP BY q.run, q.prompt, t.depth, t.accepted, cut;

CREATE VIEW acceptance_by_prompt AS
-- The rows are by prompt and depth, from 1 to the deepest of all runs: the drafts of the prompt, those with a node at
-- this depth, and tried and accepted of the view acceptance. Its rates are ratios of sums of these. A prompt without
-- drafts has no row.
WITH RECURSIVE place(depth) AS (
    -- 512 is the maximum number of nodes of a draft.
    SELECT 1 UNION ALL SELECT depth + 1 FROM place WHERE depth < (SELECT min(max(depth), 512) FROM step)
)
SELECT o.run, o.prompt, p.depth, sum(o.drafts) AS drafts,
       coalesce(sum(o.drafts) FILTER (WHERE o.depth >= p.depth), 0) AS drafts_this_deep,
       coalesce(sum(o.drafts) FILTER (WHERE o.depth >= p.depth AND o.accepted >= p.depth - 1
                                        AND NOT (o.cut AND o.accepted = p.depth - 1)), 0) AS tried,
       coalesce(sum(o.drafts) FILTER (WHERE o.accepted >= p.depth), 0) AS accepted
FROM outcome AS o CROSS JOIN place AS p
GROUP BY o.run, o.prompt, p.depth;

CREATE VIEW acceptance AS
-- The rows are by depth, from 1. accepted: drafts of which at least `depth` tokens were accepted.
--
-- rate = accepted / all drafts of the run (vLLM's; never rises with depth; its sum is the mean of accepted tokens per
-- draft). conditional_rate = accepted / tried; tried: drafts with `depth - 1` tokens accepted that had a node at this
-- depth, except those where the text ended there. In a tree the node need not be a child of the accepted one: see
-- acceptance_by_rank.
SELECT run, depth, sum(drafts) AS drafts, sum(drafts_this_deep) AS drafts_this_deep, sum(tried) AS tried, sum(accepted) AS accepted,
       1.0 * sum(accepted) / sum(drafts) AS rate, 1.0 * sum(accepted) / nullif(sum(tried), 0) AS conditional_rate
FROM acceptance_by_prompt GROUP BY run, depth HAVING sum(drafts_this_deep) > 0;

CREATE VIEW acceptance_by_rank AS
-- Acceptance tests (table trial) by depth (from 1) and by rank among siblings (from 0). In a tree, the rate of rank 1
-- is that of second children whose elder sibling was rejected. mean_p: the target's mean probability of the draft
-- tokens. rejection_rate: their mean acceptance probability under the rule `rejection`: min(1, p / q), or p if
-- deterministic. Draft tokens beyond the end of a text were tested as well, and count.
SELECT q.run, t.depth, t.rank, count(*) AS tried, sum(t.accepted) AS accepted, avg(t.accepted) AS rate, avg(t.p) AS mean_p,
       avg(CASE WHEN t.proposal = 0 THEN t.p ELSE min(1.0, t.p / t.q) END) AS rejection_rate
FROM trial AS t JOIN sequence AS q ON q.id = t.sequence
GROUP BY q.run, t.depth, t.rank;

CREATE VIEW expected AS
-- Accepted tokens against E[accepted | draft], if that was recorded. Both are counted before an end of text cuts them:
-- step.accepted_uncut, or, if that was not recorded, the accepted trials of a cut step. z = (accepted - expected) /
-- sqrt(variance) is N(0, 1) if the rule follows its formula; |z| above 5 is a bug. A run at temperature 0 has no
-- variance and must have no difference.
SELECT run, count(*) AS steps, sum(accepted) AS accepted_tokens, sum(expected) AS expected_tokens, sum(variance) AS variance,
       CASE WHEN sum(variance) > 0 THEN (sum(accepted) - sum(expected)) / sqrt(sum(variance)) END AS z
FROM (SELECT q.run, t.expected, t.variance,
             CASE WHEN t.accepted_uncut IS NOT NULL THEN t.accepted_uncut
                  WHEN t.tokens > t.accepted THEN t.accepted
                  ELSE max(t.accepted, (SELECT count(*) FROM trial AS g
                                        WHERE g.sequence = t.sequence AND g.step = t.step AND g.accepted)) END AS accepted
      FROM step AS t JOIN sequence AS q ON q.id = t.sequence
      WHERE t.drafted > 0 AND t.expected IS NOT NULL)
GROUP BY run;

CREATE VIEW by_rule AS
-- Tokens that each rule would accept per draft, for the same recorded drafts (record: {expected: true}). first:
-- probability that at least one draft token is accepted; the row (bound) is its upper bound for exact rules (known:
-- number of drafts for which it is known). The drafts come from texts decoded with this run's own rule; another rule
-- would have led to other drafts.
SELECT q.run, x.rule, x.lossless, count(*) AS drafts, avg(x.accepted) AS accepted, avg(x.first) AS first, count(x.first) AS known
FROM step_rule AS x JOIN sequence AS q ON q.id = x.sequence
GROUP BY q.run, x.rule, x.lossless;

CREATE VIEW by_source AS
-- Draft tokens of a drafter that combines several (ladder, union), by the parts that proposed them. A token that
-- several proposed is counted once, under all their names. steps: steps with such a draft token. rate = accepted /
-- drafted. share: share of the run's accepted draft tokens.
SELECT run, source, steps, drafted, accepted, 1.0 * accepted / drafted AS rate,
       1.0 * accepted / nullif(sum(accepted) OVER (PARTITION BY run), 0) AS share
FROM (SELECT q.run, x.source, count(*) AS steps, sum(x.drafted) AS drafted, sum(x.accepted) AS accepted
      FROM step_source AS x JOIN sequence AS q ON q.id = x.sequence
      GROUP BY q.run, x.source);

CREATE VIEW steps AS
-- Sums over all steps of a run; tokens_per_step = new tokens / steps is the mean accepted length, the target's own
-- token included. drafts: steps with at least one draft token; trees: drafts that are not chains. Times are the
-- sequences' shares: a step's time / its batch.
SELECT q.run, count(*) AS steps, sum(t.drafted > 0) AS drafts, sum(t.drafted) AS drafted_tokens,
       sum(t.accepted) AS accepted_tokens, sum(t.tokens) AS new_tokens, 1.0 * sum(t.tokens) / count(*) AS tokens_per_step,
       max(t.depth) AS max_depth, sum(t.drafted > t.depth) AS trees,
       sum(1.0 * t.propose_ns / t.batch) AS propose_ns, sum(1.0 * t.verify_ns / t.batch) AS verify_ns,
       sum(1.0 * t.advance_ns / t.batch) AS advance_ns
FROM step AS t JOIN sequence AS q ON q.id = t.sequence
GROUP BY q.run;

CREATE VIEW timing AS
-- Shares of decode_ns (prefill excluded) by phase; they sum to 1. other: time outside the three phases.
-- verify_ns_per_step is the sequence's share of a pass, so propose / verify is c of Leviathan's formula.
SELECT s.run, q.decode_ns, s.propose_ns, s.verify_ns, s.advance_ns,
       q.decode_ns - s.propose_ns - s.verify_ns - s.advance_ns AS other_ns,
       s.propose_ns / nullif(q.decode_ns, 0) AS propose_share, s.verify_ns / nullif(q.decode_ns, 0) AS verify_share,
       s.advance_ns / nullif(q.decode_ns, 0) AS advance_share,
       1.0 - (s.propose_ns + s.verify_ns + s.advance_ns) / nullif(q.decode_ns, 0) AS other_share,
       s.propose_ns / s.steps AS propose_ns_per_step, s.verify_ns / s.steps AS verify_ns_per_step,
       s.advance_ns / s.steps AS advance_ns_per_step
FROM steps AS s JOIN (SELECT run, sum(decode_ns) AS decode_ns FROM sequence GROUP BY run) AS q ON q.run = s.run;

CREATE VIEW paired AS
-- Each sequence of a run that is not `none`, and the sequence of `none` with which to compare it (NULL: none exists):
-- same pair, prompt, turn and repeat, of a run with the same peers. If several runs of `none` with different rules
-- match, it is the one with the same rule if it exists, otherwise that with `rejection`, the baseline of most rules,
-- otherwise the first.
SELECT q.run, q.id AS sequence,
       (SELECT id FROM (SELECT b.id, (n.rule <> r.rule) * (1 + (n.rule <> 'rejection')) AS other_rule, n.id AS run
                        FROM run AS n CROSS JOIN sequence AS b -- the order of the join matters: of 1,000 cells in a
                                                               -- pair, few are none
                        WHERE b.run = n.id AND b.pair = q.pair AND b.prompt = q.prompt AND b.turn = q.turn AND b.repeat = q.repeat
                          AND n.drafter_kind = 'none' AND n.peers = r.peers)
        ORDER BY other_rule, run LIMIT 1) AS none
FROM sequence AS q JOIN run AS r ON r.id = q.run
WHERE r.drafter_kind <> 'none';

CREATE VIEW text_rounds AS
-- Each text's part in each round of its pair. decode_ns is the text's time, in proportion to its steps' times;
-- prefill_ns belongs to the round of its first step. disturbed: other processes used the machine in this slice (table
-- slice), so that its times say little.
SELECT run, sequence, pair, prompt, round, steps, new_tokens, iif(step_ns = all_ns, 1.0, step_ns / all_ns) * decode_ns AS decode_ns,
       iif(first = 0, prefill_ns, 0) AS prefill_ns, disturbed
FROM (SELECT q.run, q.id AS sequence, q.pair, q.prompt, t.round, count(*) AS steps, sum(t.tokens) AS new_tokens, q.decode_ns, q.prefill_ns,
             min(t.step) AS first, sum(1.0 * (t.propose_ns + t.verify_ns + t.advance_ns) / t.batch) AS step_ns,
             sum(sum(1.0 * (t.propose_ns + t.verify_ns + t.advance_ns) / t.batch)) OVER (PARTITION BY q.id) AS all_ns,
             max(coalesce(s.disturbed, 0)) AS disturbed
      FROM sequence AS q JOIN step AS t ON t.sequence = q.id LEFT JOIN slice AS s ON (s.pair, s.run, s.round) = (q.pair, q.run, t.round)
      GROUP BY q.id, t.round);

CREATE VIEW sums_by_slice AS
-- A run's steps, tokens and times by prompt and unit, which is a round of a pair. Speeds of a run, and the units of
-- their intervals, are made of these. Only slices that were not disturbed count, or all if all of a run's were
-- disturbed.
SELECT run, prompt, pair * 1048576 + round AS unit, sum(steps) AS steps, sum(new_tokens) AS new_tokens, sum(decode_ns) AS decode_ns,
       sum(prefill_ns) AS prefill_ns
FROM (SELECT *, min(disturbed) OVER (PARTITION BY run) AS all_disturbed FROM text_rounds)
WHERE disturbed = all_disturbed
GROUP BY run, prompt, unit;

CREATE VIEW gap AS
-- Times between a reader's tokens, one row for each step that added some. first: time to first token, from the
-- beginning of the prefill; otherwise the time since the step before it (vLLM's inter-token latency: tokens of one step
-- arrive together). Prefills of other slots are included.
SELECT run, sequence, step, step = 0 AS first, tokens, at_ns + prefill_ns - coalesce(before + prefill_ns, 0) AS ns
FROM (SELECT q.run, q.prefill_ns, t.*, lag(t.at_ns) OVER (PARTITION BY t.sequence ORDER BY t.step) AS before
      FROM step AS t JOIN sequence AS q ON q.id = t.sequence)
WHERE tokens > 0;

CREATE VIEW latency AS
-- Percentiles over a run, interpolated linearly between measurements (numpy's and vLLM's method). what: ttft (time to
-- first token), itl (between steps of a text), tpot (a text's time from its first tokens to its last over the tokens
-- after the first one, vLLM's definition). sd_ns: standard deviation of the population.
WITH measured AS (
    SELECT run, CASE WHEN first THEN 'ttft' ELSE 'itl' END AS what, ns FROM gap
    UNION ALL
    SELECT q.run, 'tpot', 1.0 * (max(t.at_ns) - min(t.at_ns)) / (q.new_tokens - 1)
    FROM sequence AS q JOIN step AS t ON t.sequence = q.id WHERE q.new_tokens > 1 GROUP BY q.id
), ranked AS (
    SELECT *, count(*) OVER same AS n, avg(ns) OVER same AS mean, row_number() OVER (same ORDER BY ns) AS k
    FROM measured WINDOW same AS (PARTITION BY run, what)
), placed AS (
    SELECT *, 1 + (n - 1) * 0.5 AS middle, 1 + (n - 1) * 0.95 AS high, 1 + (n - 1) * 0.99 AS highest FROM ranked
)
SELECT run, what, n, avg(ns) AS mean_ns, sqrt(avg((ns - mean) * (ns - mean))) AS sd_ns, sum(ns * max(0, 1 - abs(k - middle))) AS p50_ns,
       sum(ns * max(0, 1 - abs(k - high))) AS p95_ns, sum(ns * max(0, 1 - abs(k - highest))) AS p99_ns
FROM placed GROUP BY run, what;

CREATE VIEW sums_by_text AS
-- Sums over the steps of each text. expected_tokens and expected_drafted are sums over the drafts with a recorded
-- E[accepted | draft]. first_tokens: 1 if its first step has tokens, and ttft_ns the time to them, prefill included.
SELECT q.run, q.id AS sequence, q.pair, q.prompt, q.turn, q.repeat, q.prompt_id, q.category, q.new_tokens, q.decode_ns, q.prefill_ns,
       count(t.step) AS steps, coalesce(sum(t.tokens), 0) AS step_tokens, coalesce(sum(t.drafted), 0) AS drafted_tokens,
       coalesce(sum(t.accepted), 0) AS accepted_tokens, coalesce(sum(t.expected) FILTER (WHERE t.drafted > 0), 0.0) AS expected_tokens,
       coalesce(sum(t.drafted) FILTER (WHERE t.expected IS NOT NULL), 0) AS expected_drafted,
       count(t.step) FILTER (WHERE t.step = 0 AND t.tokens > 0) AS first_tokens,
       coalesce(sum(t.at_ns + q.prefill_ns) FILTER (WHERE t.step = 0 AND t.tokens > 0), 0) AS ttft_ns
FROM sequence AS q LEFT JOIN step AS t ON t.sequence = q.id
GROUP BY q.id;

CREATE VIEW sums_by_prompt AS
-- Sums over the texts of a run by prompt, all turns, repeats and pairs together: the unit of every interval except
-- those of speeds. Ratios of their sums are acceptance_rate = accepted_tokens / drafted_tokens, expected_rate =
-- expected_tokens / expected_drafted (its Rao-Blackwell form, before ends of texts cut it), tokens_per_step =
-- step_tokens / steps, mean ttft = ttft_ns / first_tokens. Acceptance by depth: acceptance_by_prompt; tokens_per_s:
-- sums_by_slice; speedups: speed_by_slice.
SELECT run, prompt, min(prompt_id) AS prompt_id, min(category) AS category, count(*) AS sequences, sum(new_tokens) AS new_tokens,
       sum(decode_ns) AS decode_ns, sum(prefill_ns) AS prefill_ns, sum(steps) AS steps, sum(step_tokens) AS step_tokens,
       sum(drafted_tokens) AS drafted_tokens, sum(accepted_tokens) AS accepted_tokens, sum(expected_tokens) AS expected_tokens,
       sum(expected_drafted) AS expected_drafted, sum(first_tokens) AS first_tokens, sum(ttft_ns) AS ttft_ns
FROM sums_by_text GROUP BY run, prompt;

CREATE VIEW against_by_prompt AS
-- Any two runs of the same prompts, prompt by prompt: sums of the run, and against_*, those of the other. in_pairs = 1:
-- over texts that both have in the same pair, prompt, turn and repeat; 0: over all texts of the prompt on each side.
-- Speeds: against_by_slice.
WITH pairs AS (
    SELECT x.run, y.run AS against, x.prompt, 1 AS in_pairs, x.first_tokens, x.ttft_ns, x.steps, x.step_tokens, x.drafted_tokens,
           x.accepted_tokens, y.first_tokens AS y_first_tokens, y.ttft_ns AS y_ttft_ns, y.steps AS y_steps, y.step_tokens AS y_step_tokens,
           y.drafted_tokens AS y_drafted_tokens, y.accepted_tokens AS y_accepted_tokens
    FROM sums_by_text AS x JOIN sums_by_text AS y ON (y.pair, y.prompt, y.turn, y.repeat) = (x.pair, x.prompt, x.turn, x.repeat) AND y.run <> x.run
    UNION ALL
    SELECT x.run, y.run, x.prompt, 0, x.first_tokens, x.ttft_ns, x.steps, x.step_tokens, x.drafted_tokens, x.accepted_tokens,
           y.first_tokens, y.ttft_ns, y.steps, y.step_tokens, y.drafted_tokens, y.accepted_tokens
    FROM sums_by_prompt AS x JOIN sums_by_prompt AS y ON y.prompt = x.prompt AND y.run <> x.run
    JOIN run AS r ON r.id = x.run JOIN run AS s ON s.id = y.run AND s.prompts = r.prompts
)
SELECT run, against, in_pairs, prompt, sum(first_tokens) AS first_tokens, sum(ttft_ns) AS ttft_ns, sum(steps) AS steps,
       sum(step_tokens) AS step_tokens, sum(drafted_tokens) AS drafted_tokens, sum(accepted_tokens) AS accepted_tokens,
       sum(y_first_tokens) AS against_first_tokens, sum(y_ttft_ns) AS against_ttft_ns, sum(y_steps) AS against_steps,
       sum(y_step_tokens) AS against_step_tokens, sum(y_drafted_tokens) AS against_drafted_tokens,
       sum(y_accepted_tokens) AS against_accepted_tokens
FROM pairs GROUP BY run, against, in_pairs, prompt;

CREATE VIEW against_by_slice AS
-- The sums from which the ratio of speeds of any two runs is computed (against_by_prompt), with prompt and unit
-- (sums_by_slice); rows are to be summed. in_pairs = 1 has a row for each text (sequence) and round, without rounds in
-- which a slice of either was disturbed, so that the machine's state cancels. All rounds count if in every round that
-- both have one of the slices was disturbed.
WITH both AS NOT MATERIALIZED ( -- a condition on `against` must reach each part: 1,000 cells have 1,000,000 pairs of
                                -- runs
    SELECT x.run, y.run AS against, x.id AS sequence, y.id AS other FROM sequence AS x
    JOIN sequence AS y ON (y.pair, y.prompt, y.turn, y.repeat) = (x.pair, x.prompt, x.turn, x.repeat) AND y.run <> x.run
), parts AS NOT MATERIALIZED (
    SELECT b.run, b.against, t.sequence, t.prompt, t.pair, t.round, t.steps, t.new_tokens, t.decode_ns, 0 AS y_steps, 0 AS y_tokens, 0.0 AS y_ns
    FROM both AS b CROSS JOIN text_rounds AS t ON t.sequence = b.sequence
    UNION ALL
    SELECT b.run, b.against, t.sequence, t.prompt, t.pair, t.round, 0, 0, 0.0, t.steps, t.new_tokens, t.decode_ns
    FROM both AS b CROSS JOIN text_rounds AS t ON t.sequence = b.other
), least AS NOT MATERIALIZED (
    SELECT x.run, y.run AS against, min(max(x.disturbed, y.disturbed)) AS all_disturbed
    FROM slice AS x JOIN slice AS y ON (y.pair, y.round) = (x.pair, x.round) AND y.run <> x.run GROUP BY x.run, y.run
), common AS NOT MATERIALIZED (
    SELECT DISTINCT x.run, y.run AS against, x.prompt FROM sequence AS x JOIN sequence AS y ON y.prompt = x.prompt AND y.run <> x.run
    JOIN run AS r ON r.id = x.run JOIN run AS s ON s.id = y.run AND s.prompts = r.prompts
)
SELECT p.run, p.against, 1 AS in_pairs, p.sequence, p.prompt, p.pair * 1048576 + p.round AS unit, p.steps, p.new_tokens, p.decode_ns,
       p.y_steps AS against_steps, p.y_tokens AS against_new_tokens, p.y_ns AS against_decode_ns
FROM parts AS p LEFT JOIN slice AS x ON (x.pair, x.run, x.round) = (p.pair, p.run, p.round)
LEFT JOIN slice AS y ON (y.pair, y.run, y.round) = (p.pair, p.against, p.round)
LEFT JOIN least AS l ON (l.run, l.against) = (p.run, p.against)
WHERE max(coalesce(x.disturbed, 0), coalesce(y.disturbed, 0)) <= coalesce(l.all_disturbed, 0)
UNION ALL
SELECT c.run, c.against, 0, NULL, c.prompt, s.unit, iif(s.run = c.run, s.steps, 0), iif(s.run = c.run, s.new_tokens, 0),
       iif(s.run = c.run, s.decode_ns, 0.0), iif(s.run = c.run, 0, s.steps), iif(s.run = c.run, 0, s.new_tokens), iif(s.run = c.run, 0.0, s.decode_ns)
FROM common AS c JOIN sums_by_slice AS s ON s.prompt = c.prompt AND s.run IN (c.run, c.against);

CREATE VIEW speed_by_slice AS
-- The sums from which speedups are computed: over the paired sequences of a run, its tokens and times and those of
-- their partners of `none`, by prompt and unit (sums_by_slice). Rounds in which a slice of either was disturbed are
-- excluded. all_disturbed = 1: that holds for every round that both have, and all count.
WITH parts AS (
    SELECT p.run, n.run AS none_run, t.prompt, t.pair, t.round, t.steps, t.new_tokens, t.decode_ns, t.prefill_ns, 0 AS none_steps,
           0 AS none_new_tokens, 0.0 AS none_decode_ns, 0 AS none_prefill_ns
    FROM paired AS p JOIN sequence AS n ON n.id = p.none CROSS JOIN text_rounds AS t ON t.sequence = p.sequence
    UNION ALL
    SELECT p.run, n.run, t.prompt, t.pair, t.round, 0, 0, 0.0, 0, t.steps, t.new_tokens, t.decode_ns, t.prefill_ns
    FROM paired AS p JOIN sequence AS n ON n.id = p.none CROSS JOIN text_rounds AS t ON t.sequence = p.none
), rounds AS (
    SELECT p.*, max(coalesce(x.disturbed, 0), coalesce(y.disturbed, 0)) AS either, x.run + y.run IS NOT NULL AS of_both
    FROM parts AS p LEFT JOIN slice AS x ON (x.pair, x.run, x.round) = (p.pair, p.run, p.round)
    LEFT JOIN slice AS y ON (y.pair, y.run, y.round) = (p.pair, p.none_run, p.round)
)
SELECT run, prompt, pair * 1048576 + round AS unit, sum(steps) AS steps, sum(new_tokens) AS new_tokens, sum(decode_ns) AS decode_ns,
       sum(prefill_ns) AS prefill_ns, sum(none_steps) AS none_steps, sum(none_new_tokens) AS none_new_tokens,
       sum(none_decode_ns) AS none_decode_ns, sum(none_prefill_ns) AS none_prefill_ns, all_disturbed
FROM (SELECT *, coalesce(min(either) FILTER (WHERE of_both) OVER (PARTITION BY run), 0) AS all_disturbed FROM rounds)
WHERE either <= all_disturbed
GROUP BY run, prompt, unit;

CREATE VIEW speed_by_prompt AS
-- Sums of speed_by_slice by prompt, all turns and repeats together; sequences: number of all its pairs with `none`. A
-- prompt that was disturbed throughout has no row. speedup = (new_tokens / decode_ns) / (none_new_tokens /
-- none_decode_ns); end_to_end adds prefill_ns to both times.
WITH parts AS (
    SELECT run, prompt, NULL AS prompt_id, NULL AS category, NULL AS sequence, new_tokens, decode_ns, prefill_ns, none_new_tokens, none_decode_ns,
           none_prefill_ns, all_disturbed
    FROM speed_by_slice
    UNION ALL
    SELECT p.run, q.prompt, q.prompt_id, q.category, q.id, 0, 0.0, 0, 0, 0.0, 0, NULL
    FROM paired AS p JOIN sequence AS q ON q.id = p.sequence WHERE p.none IS NOT NULL
)
SELECT run, prompt, min(prompt_id) AS prompt_id, min(category) AS category, count(sequence) AS sequences, sum(new_tokens) AS new_tokens,
       sum(decode_ns) AS decode_ns, sum(prefill_ns) AS prefill_ns, sum(none_new_tokens) AS none_new_tokens,
       sum(none_decode_ns) AS none_decode_ns, sum(none_prefill_ns) AS none_prefill_ns,
       (1.0 * sum(new_tokens) / nullif(sum(decode_ns), 0)) / (1.0 * sum(none_new_tokens) / nullif(sum(none_decode_ns), 0)) AS speedup,
       (1.0 * sum(new_tokens) / nullif(sum(decode_ns + prefill_ns), 0))
           / (1.0 * sum(none_new_tokens) / nullif(sum(none_decode_ns + none_prefill_ns), 0)) AS end_to_end_speedup, max(all_disturbed) AS all_disturbed
FROM parts GROUP BY run, prompt HAVING count(all_disturbed) > 0;

CREATE VIEW speed AS
-- tokens_per_s = new tokens / decode time of the run; end_to_end_tokens_per_s includes the prefill in the time. With
-- batch > 1 that is the throughput of the whole batch; the speed of one text is sequence_tokens_per_s (over wall_ns).
--
-- speedup: ratio of sums over paired sequences, (tokens / decode_ns) of the run over (tokens / decode_ns) of `none`.
-- speedup_geometric: geometric mean over prompts of each prompt's ratio. unpaired: sequences without a pair with
-- `none`, which are not used. These five are over slices that were not disturbed (sums_by_slice, speed_by_slice);
-- disturbed_share: share of the run's time in slices that were. speedup_disturbed: 1 if in every round a slice of the
-- run or of `none` was disturbed, so that the speedups are over all. The columns from sequences to prefill_ns are over
-- all sequences. speed_prompts, paired_prompts: prompts that entered tokens_per_s and the speedups.
SELECT a.run, a.sequences, a.prompts, a.new_tokens, a.decode_ns, a.prefill_ns, d.tokens_per_s, d.end_to_end_tokens_per_s,
       a.new_tokens * 1e9 / nullif(a.wall_ns, 0) AS sequence_tokens_per_s, d.prompts AS speed_prompts,
       (SELECT 1.0 * sum(ns * disturbed) / nullif(sum(ns), 0) FROM slice AS s WHERE s.run = a.run) AS disturbed_share,
       b.speedup, b.speedup_geometric, b.end_to_end_speedup, b.speedup_disturbed, b.prompts AS paired_prompts, c.sequences AS paired_sequences,
       CASE WHEN r.drafter_kind <> 'none' THEN a.sequences - coalesce(c.sequences, 0) END AS unpaired_sequences
FROM (SELECT run, count(*) AS sequences, count(DISTINCT prompt) AS prompts, sum(new_tokens) AS new_tokens,
             sum(decode_ns) AS decode_ns, sum(prefill_ns) AS prefill_ns, sum(wall_ns) AS wall_ns
      FROM sequence GROUP BY run) AS a
JOIN run AS r ON r.id = a.run
LEFT JOIN (SELECT run, count(DISTINCT prompt) AS prompts, sum(new_tokens) * 1e9 / nullif(sum(decode_ns), 0) AS tokens_per_s,
                  sum(new_tokens) * 1e9 / nullif(sum(decode_ns + prefill_ns), 0) AS end_to_end_tokens_per_s
           FROM sums_by_slice GROUP BY run) AS d ON d.run = a.run
LEFT JOIN (SELECT run, count(none) AS sequences FROM paired GROUP BY run HAVING count(none) > 0) AS c ON c.run = a.run
LEFT JOIN (SELECT run, count(*) AS prompts,
                  (1.0 * sum(new_tokens) / nullif(sum(decode_ns), 0))
                      / (1.0 * sum(none_new_tokens) / nullif(sum(none_decode_ns), 0)) AS speedup,
                  (1.0 * sum(new_tokens) / nullif(sum(decode_ns + prefill_ns), 0))
                      / (1.0 * sum(none_new_tokens) / nullif(sum(none_decode_ns + none_prefill_ns), 0)) AS end_to_end_speedup,
                  exp(avg(ln(speedup))) AS speedup_geometric, max(all_disturbed) AS speedup_disturbed
           FROM speed_by_prompt GROUP BY run) AS b ON b.run = a.run;

CREATE VIEW texts AS
-- Each sequence compared with its paired sequence of `none`, token by token. first_difference: the first position (from
-- 0) at which they differ; if one is a prefix of the other, the length of the shorter.
-- A lossless run must be equal everywhere at temperature 0, and under a drafter-invariant rule at any; otherwise texts
-- are other samples. On a device `cublas`, whose bits depend on the pass (see run.machine), it may differ from none's
-- where two tokens tie. Turns after one that differs have another history. same_rule: that run of `none` had the same
-- rule.
SELECT p.run, q.id AS sequence, q.prompt, q.prompt_id, q.turn, q.repeat, n.id AS none, m.rule = r.rule AS same_rule,
       q.tokens = n.tokens AS equal,
       CASE WHEN q.tokens <> n.tokens THEN
           coalesce((SELECT min(key) FROM (SELECT key, value FROM json_each(q.tokens)
                                           EXCEPT SELECT key, value FROM json_each(n.tokens))), q.new_tokens)
       END AS first_difference
FROM paired AS p JOIN sequence AS q ON q.id = p.sequence JOIN sequence AS n ON n.id = p.none
JOIN run AS r ON r.id = q.run JOIN run AS m ON m.id = n.run;

CREATE VIEW setting AS
-- One row per run and key of its settings: drafter.tokens, sampling.temperature, limits.new_tokens. A list is one
-- value, as JSON; true and false are 1 and 0. So a sweep pivots by max(value) FILTER (WHERE key = 'drafter.tokens').
SELECT r.id AS run, replace(replace(substr(t.fullkey, 3), '"', ''), 'cells.', '') AS key, t.value
FROM run AS r, json_tree(iif(json_valid(r.settings), r.settings, '{}')) AS t
WHERE t.type <> 'object' AND t.key IS NOT NULL AND t.path NOT GLOB '*[[]*' AND typeof(t.key) = 'text';

CREATE VIEW run_summary AS
-- One row per run: its settings, and its main numbers from the views steps, speed, timing and texts. `equal_texts` of
-- `compared_texts` equal those of `none`; whether they must depends on sampling and rule (see texts).
SELECT r.id AS run, r.experiment, r.peers, r.target, r.model_type, r.activations, r.cache, r.drafter, r.drafter_kind, r.rule,
       r.lossless, r.marked_inflated, r.sampling, r.prompts AS prompt_file, r.seed, r.batch, r.device, r.machine, r.revision,
       r.finished IS NOT NULL AS finished, v.sequences, v.prompts, v.new_tokens, s.steps, s.tokens_per_step, s.max_depth, s.trees,
       CASE WHEN r.drafter_kind <> 'none' THEN s.drafts END AS drafts,
       CASE WHEN r.drafter_kind <> 'none' THEN s.drafted_tokens END AS drafted_tokens,
       CASE WHEN r.drafter_kind <> 'none' THEN s.accepted_tokens END AS accepted_tokens,
       CASE WHEN r.drafter_kind <> 'none' THEN 1.0 * s.accepted_tokens / nullif(s.drafted_tokens, 0) END AS acceptance_rate,
       v.decode_ns, v.prefill_ns, v.tokens_per_s, v.end_to_end_tokens_per_s, v.sequence_tokens_per_s, v.speedup,
       v.speedup_geometric, v.end_to_end_speedup, v.disturbed_share, v.speedup_disturbed, v.speed_prompts, v.paired_prompts, v.paired_sequences, v.unpaired_sequences,
       t.propose_share, t.verify_share, t.advance_share, t.other_share, e.compared_texts, e.equal_texts
FROM run AS r
LEFT JOIN speed AS v ON v.run = r.id
LEFT JOIN steps AS s ON s.run = r.id
LEFT JOIN timing AS t ON t.run = r.id
LEFT JOIN (SELECT p.run, count(*) AS compared_texts, sum(q.tokens = n.tokens) AS equal_texts
           FROM paired AS p JOIN sequence AS q ON q.id = p.sequence JOIN sequence AS n ON n.id = p.none
           GROUP BY p.run) AS e ON e.run = r.id;

-- ---- the same numbers under the names of other projects ----

CREATE VIEW vllm_metrics AS
-- vLLM's names. num_drafts: steps with at least one draft token. num_draft_tokens, num_accepted_tokens: without the
-- bonus token; the draft tokens of a tree are its nodes. acceptance_rate = accepted / draft tokens (a fraction; vLLM
-- prints percent). acceptance_length = 1 + accepted / num_drafts: it excludes steps without a draft, so it can exceed
-- tokens_per_step. Tokens past the end of a text are not counted. A run of `none` has NULLs. By position:
-- vllm_positions.
SELECT r.id AS run, s.drafts AS num_drafts, s.drafted_tokens AS num_draft_tokens, s.accepted_tokens AS num_accepted_tokens,
       1.0 * s.accepted_tokens / nullif(s.drafted_tokens, 0) AS acceptance_rate,
       1.0 + 1.0 * s.accepted_tokens / nullif(s.drafts, 0) AS acceptance_length
FROM run AS r LEFT JOIN steps AS s ON s.run = r.id AND r.drafter_kind <> 'none';

CREATE VIEW vllm_positions AS
-- vLLM's num_accepted_tokens_per_pos, position from 0: drafts of which at least position + 1 tokens were accepted;
-- acceptance_rate = that / num_drafts.
SELECT run, depth - 1 AS position, accepted AS num_accepted_tokens, drafts AS num_drafts, rate AS acceptance_rate
FROM acceptance;

CREATE VIEW answer AS
-- One sequence for each prompt, turn and repeat of a run: that of the earliest pair. It is the content of an answer
-- file in Spec-Bench's format. wall_ns: prefill and decoding; with batch > 1, waiting for other sequences included.
SELECT q.id AS sequence, q.run, q.prompt, q.prompt_id, q.category, q.turn, q.repeat, q.new_tokens, q.steps, q.text,
       q.prefill_ns + CASE WHEN r.batch = 1 THEN q.decode_ns ELSE q.wall_ns END AS wall_ns
FROM sequence AS q JOIN run AS r ON r.id = q.run
WHERE q.pair = (SELECT min(e.pair) FROM sequence AS e
                WHERE e.run = q.run AND e.prompt = q.prompt AND e.turn = q.turn AND e.repeat = q.repeat);

CREATE VIEW spec_bench AS
-- The numbers that Spec-Bench's evaluation/speed.py prints for the exported answer files: it reads the first choice
-- (repeat 0) only. mean_accepted_tokens (#MAT) = new tokens / steps, pooled over all steps. tokens_per_s = mean over
-- questions of (new tokens / wall time, prefill included). Its speedup is the quotient of two such means; ours is in
-- speed.
SELECT a.run, count(*) AS questions, sum(a.new_tokens) AS new_tokens, 1.0 * sum(a.new_tokens) / nullif(sum(a.steps), 0)
           AS mean_accepted_tokens, avg(a.new_tokens * 1e9 / a.wall_ns) AS tokens_per_s
FROM (SELECT run, prompt, sum(new_tokens) AS new_tokens, sum(steps) AS steps, sum(wall_ns) AS wall_ns
      FROM answer WHERE repeat = 0 GROUP BY run, prompt) AS a
GROUP BY a.run;

CREATE VIEW eagle AS
-- The EAGLE papers' names. tau: new tokens / steps, the target's own token included. alpha_n (their n-alpha):
-- acceptance of the token after n draft tokens, given that those were accepted; for chains only: NULL if any draft was
-- a tree.
SELECT r.id AS run, s.tokens_per_step AS tau,
       max(a.conditional_rate) FILTER (WHERE a.depth = 1) AS alpha_0,
       max(a.conditional_rate) FILTER (WHERE a.depth = 2) AS alpha_1,
       max(a.conditional_rate) FILTER (WHERE a.depth = 3) AS alpha_2,
       max(a.conditional_rate) FILTER (WHERE a.depth = 4) AS alpha_3,
       max(a.conditional_rate) FILTER (WHERE a.depth = 5) AS alpha_4
FROM run AS r LEFT JOIN steps AS s ON s.run = r.id AND r.drafter_kind <> 'none'
LEFT JOIN acceptance AS a ON a.run = r.id AND s.trees = 0
GROUP BY r.id;

CREATE VIEW medusa AS
-- The Medusa paper's names (Cai et al. 2024, section 3), over paired sequences. acceleration_rate: new tokens / steps.
-- overhead: time of a step / time of a step of `none`. speedup = acceleration_rate / overhead.
SELECT run, acceleration_rate, overhead, acceleration_rate / overhead AS speedup
FROM (SELECT p.run, 1.0 * sum(q.new_tokens) / nullif(sum(q.steps), 0) AS acceleration_rate,
             (1.0 * sum(q.decode_ns) / nullif(sum(q.steps), 0)) / (1.0 * sum(n.decode_ns) / nullif(sum(n.steps), 0)) AS overhead
      FROM paired AS p JOIN sequence AS q ON q.id = p.sequence JOIN sequence AS n ON n.id = p.none
      GROUP BY p.run);

-- ---- the cost of passes ----

CREATE VIEW bench_pass AS
-- Measurements of `bench` for speclab (peer 0) and each peer, over the rounds that count in each placement (over all
-- rounds of a bench in which none counts): median, quartiles and extremes of the time, median and quartiles of the
-- ratio to speclab's time in the same round. experts: the experts that the pass read, over all layers of a mixture.
-- Quartiles interpolate linearly between measurements, by the weights 1 - |k - place|.
WITH counted AS (
    SELECT t.bench, r.placement, t.what, t.context, t.n, t.peer, t.slots, t.ns, t.experts, 1.0 * t.ns / o.ns AS ratio
    FROM bench_time AS t JOIN bench_round AS r ON r.bench = t.bench AND r.round = t.round
    JOIN bench_time AS o
         ON (o.bench, o.round, o.what, o.context, o.n, o.peer, o.slots) = (t.bench, t.round, t.what, t.context, t.n, 0, t.slots)
    WHERE r.counts OR NOT EXISTS (SELECT * FROM bench_round AS o WHERE o.bench = t.bench AND o.counts)
), ranked AS (
    SELECT *, count(*) OVER same AS rounds, row_number() OVER (same ORDER BY ns) AS k,
           row_number() OVER (same ORDER BY ratio) AS ratio_k
    FROM counted WINDOW same AS (PARTITION BY bench, placement, what, context, n, peer, slots)
), placed AS (
    SELECT *, 1 + (rounds - 1) / 4.0 AS low, 1 + (rounds - 1) / 2.0 AS middle, 1 + (rounds - 1) * 3 / 4.0 AS high FROM ranked
)
SELECT bench, placement, what, context, n, peer, rounds, sum(ns * max(0, 1 - abs(k - middle))) AS median_ns,
       sum(ns * max(0, 1 - abs(k - low))) AS low_ns, sum(ns * max(0, 1 - abs(k - high))) AS high_ns, min(ns) AS min_ns,
       max(ns) AS max_ns,
       sum(ratio * max(0, 1 - abs(ratio_k - middle))) AS ratio, sum(ratio * max(0, 1 - abs(ratio_k - low))) AS ratio_low,
       sum(ratio * max(0, 1 - abs(ratio_k - high))) AS ratio_high, slots, max(experts) AS experts
FROM placed GROUP BY bench, placement, what, context, n, peer, slots;

CREATE VIEW cost_of_pass AS
-- A pass of n rows in one slot after `context` tokens: its median, c = median / median of a pass of one row, the
-- prediction of the fitted hinge and its relative error. `form`: which of the two predicts.
SELECT p.bench, p.placement, p.context, p.n, p.rounds, p.median_ns, p.median_ns / one.median_ns AS c, k.form,
       k.a + k.b * p.n + k.s * max(0, p.n - k.n0) + k.d * p.context + k.e * p.n * p.context + k.u * coalesce(p.experts, 0) AS hinge_ns,
       (k.a + k.b * p.n + k.s * max(0, p.n - k.n0) + k.d * p.context + k.e * p.n * p.context + k.u * coalesce(p.experts, 0))
           / p.median_ns - 1 AS hinge_error, p.experts
FROM bench_pass AS p
LEFT JOIN bench_pass AS one ON one.what = 'pass' AND one.n = 1 AND one.peer = 0 AND one.slots = 1
      AND (one.bench, one.placement, one.context) = (p.bench, p.placement, p.context)
LEFT JOIN cost AS k ON k.bench = p.bench AND k.placement = p.placement
WHERE p.what = 'pass' AND p.peer = 0 AND p.slots = 1;
