-- speedup_by_category.sql - where does drafting help? Speedup over none, (a / b) / (c / d), by category of the prompts. a, b: new tokens and
-- decode time of the run; c, d: of its partners of none. With a batch, of steps in steady state.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
prompts AS (
    SELECT c."group", c.series, c.run, s.prompt, coalesce(s.category, 'no category') AS category,
           iif(r.batch > 1, s.steady_tokens, s.new_tokens) AS a, iif(r.batch > 1, s.steady_ns, s.decode_ns) AS b,
           iif(r.batch > 1, s.none_steady_tokens, s.none_new_tokens) AS c, iif(r.batch > 1, s.none_steady_ns, s.none_decode_ns) AS d
    FROM chosen AS c JOIN run AS r ON r.id = c.run JOIN speed_by_prompt AS s ON s.run = c.run
),
sums AS (
    SELECT "group", 'speedup over none' AS measure, series, category AS x, run, prompt, a, b, c, d FROM prompts
    UNION ALL
    SELECT "group", 'speedup over none', series, 'all prompts', run, prompt, a, b, c, d FROM prompts
)
SELECT "group", measure, series, x AS category, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, count(*) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, count(*) DESC, min(prompt);
