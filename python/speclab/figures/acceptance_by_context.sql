-- acceptance_by_context.sql - does acceptance fall as texts grow? Accepted / drafted tokens, a / b, by cached tokens
-- before the step: x is the lower end of a range that ends at 2 x; the first begins at 0.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'acceptance rate' AS measure, c.series, CAST(pow(2, floor(log2(max(p.context, 32)))) AS INTEGER) AS x, c.run, q.prompt,
           NULL AS unit, sum(p.accepted) AS a, sum(p.drafted) AS b, NULL AS c, NULL AS d, NULL AS e, NULL AS f
    FROM chosen AS c JOIN pass AS p ON p.run = c.run AND p.drafted > 0 JOIN sequence AS q ON q.id = p.sequence
    GROUP BY c."group", c.series, x, c.run, q.prompt
)
SELECT "group", measure, series, x AS cached_tokens, 1.0 * sum(a) / sum(b) AS acceptance_rate, sum(a) AS accepted, sum(b) AS drafted,
       count(*) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, x;
