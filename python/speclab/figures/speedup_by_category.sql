-- speedup_by_category.sql - where does drafting help? Speedup over none, (a / b) / (c / d), by category of the prompts.
-- a, b: new tokens and decode time of the run; c, d: those of its partners of none.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
slices AS (
    SELECT c."group", c.series, c.run, s.prompt, s.unit, coalesce(p.category, 'no category') AS category, s.new_tokens AS a, s.decode_ns AS b,
           s.none_new_tokens AS c, s.none_decode_ns AS d, s.steps AS e, s.none_steps AS f
    FROM chosen AS c JOIN speed_by_slice AS s ON s.run = c.run JOIN speed_by_prompt AS p ON p.run = s.run AND p.prompt = s.prompt
),
sums AS (
    SELECT "group", 'speedup over none' AS measure, series, category AS x, run, prompt, unit, a, b, c, d, e, f FROM slices
    UNION ALL
    SELECT "group", 'speedup over none', series, 'all prompts', run, prompt, unit, a, b, c, d, e, f FROM slices
)
SELECT "group", measure, series, x AS category, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, count(DISTINCT prompt) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, count(DISTINCT prompt) DESC, min(prompt);
