-- prediction.sql - which speedups were to be expected? Measured, (a / b) / (c / d) over paired texts, next to the view
-- prediction: `replay` (each recorded step at its cost), by position, and Leviathan et al. 2023, theorem 3.8. Costs of
-- passes are those of bench if the database has them, otherwise those of the steps themselves.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'speedup over none' AS measure, 'measured' AS series, c.series AS x, c.run, s.prompt, s.unit,
           s.new_tokens AS a, s.decode_ns AS b, s.none_new_tokens AS c, s.none_decode_ns AS d, s.steps AS e, s.none_steps AS f
    FROM chosen AS c JOIN speed_by_slice AS s ON s.run = c.run
),
predicted AS (
    SELECT run, source, replay, by_position, leviathan, row_number() OVER (PARTITION BY run ORDER BY source <> 'bench') AS choice
    FROM prediction WHERE run IN (SELECT run FROM chosen)
)
SELECT * FROM (
    SELECT "group", measure, series, x AS label, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, NULL AS cost_from, run
    FROM sums GROUP BY "group", measure, series, x, run
    UNION ALL
    SELECT c."group", 'speedup over none', k.kind, c.series,
           CASE k.kind WHEN 'replayed' THEN p.replay WHEN 'by position' THEN p.by_position ELSE p.leviathan END, p.source, c.run
    FROM chosen AS c JOIN predicted AS p ON p.run = c.run AND p.choice = 1
    JOIN (SELECT 'replayed' AS kind UNION ALL SELECT 'by position' UNION ALL SELECT 'Leviathan et al.') AS k
)
ORDER BY "group", run, series <> 'measured', series DESC;
