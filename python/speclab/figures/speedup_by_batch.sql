-- speedup_by_batch.sql - what remains of the speedup in a batch? (a / b) / (c / d), by number of texts decoded at a
-- time.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'speedup over none' AS measure, c.series, r.batch AS x, c.run, s.prompt, s.unit, s.new_tokens AS a, s.decode_ns AS b,
           s.none_new_tokens AS c, s.none_decode_ns AS d, s.steps AS e, s.none_steps AS f
    FROM chosen AS c JOIN run AS r ON r.id = c.run JOIN speed_by_slice AS s ON s.run = c.run
)
SELECT "group", measure, series, x AS batch, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, count(DISTINCT prompt) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, x;
