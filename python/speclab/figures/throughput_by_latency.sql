-- throughput_by_latency.sql - what does throughput cost a reader? Tokens/s of all texts together, a / b, against the
-- time per output token of one text (vLLM's TPOT: from its first tokens to its last / tokens after the first), its
-- median and 95th percentile, in ms. One point for each batch.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", m.measure, c.series, iif(m.high, l.p95_ns, l.p50_ns) / 1e6 AS x, r.batch, c.run, s.prompt, s.unit,
           1e9 * s.new_tokens AS a, s.decode_ns AS b, NULL AS c, NULL AS d, s.steps AS e, NULL AS f
    FROM chosen AS c JOIN run AS r ON r.id = c.run JOIN latency AS l ON l.run = c.run AND l.what = 'tpot' JOIN sums_by_slice AS s ON s.run = c.run
    JOIN (SELECT 0 AS high, 'median' AS measure UNION ALL SELECT 1, '95th percentile') AS m
)
SELECT "group", measure, series, x AS ms_per_token, sum(a) / sum(b) AS tokens_per_s, batch, count(DISTINCT prompt) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure DESC, series, batch;
