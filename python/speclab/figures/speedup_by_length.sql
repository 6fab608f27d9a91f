-- speedup_by_length.sql - how long should a draft be? Tokens a step, a / b (new tokens, steps), and speedup over none,
-- (a / b) / (c / d), of runs that differ in the drafter's option `tokens` alone.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
length AS (
    SELECT id AS run, json_extract(settings, '$.cells.drafter.tokens') AS length FROM run
),
sums AS (
    SELECT c."group", 'tokens per step' AS measure, c.series, l.length AS x, c.run, s.prompt, NULL AS unit, s.step_tokens AS a, s.steps AS b,
           NULL AS c, NULL AS d, NULL AS e, NULL AS f
    FROM chosen AS c JOIN length AS l ON l.run = c.run JOIN sums_by_prompt AS s ON s.run = c.run
    UNION ALL
    SELECT c."group", 'speedup over none', c.series, l.length, c.run, s.prompt, s.unit, s.new_tokens, s.decode_ns, s.none_new_tokens,
           s.none_decode_ns, s.steps, s.none_steps
    FROM chosen AS c JOIN length AS l ON l.run = c.run JOIN speed_by_slice AS s ON s.run = c.run
)
SELECT "group", measure, series, x AS length, 1.0 * sum(a) / sum(b) / coalesce(1.0 * sum(c) / sum(d), 1) AS value, count(DISTINCT prompt) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure DESC, series, x;
