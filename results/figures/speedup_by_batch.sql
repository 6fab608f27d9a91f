-- speedup_by_batch.sql - what remains of the speedup in a batch? (a / b) / (c / d), of steps in steady state, by number of texts decoded at a time.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'speedup over none' AS measure, c.series, r.batch AS x, c.run, s.prompt, iif(r.batch > 1, s.steady_tokens, s.new_tokens) AS a,
           iif(r.batch > 1, s.steady_ns, s.decode_ns) AS b, iif(r.batch > 1, s.none_steady_tokens, s.none_new_tokens) AS c,
           iif(r.batch > 1, s.none_steady_ns, s.none_decode_ns) AS d
    FROM chosen AS c JOIN run AS r ON r.id = c.run JOIN speed_by_prompt AS s ON s.run = c.run
)
SELECT "group", measure, series, x AS batch, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, count(*) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, x;
