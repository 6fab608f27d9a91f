-- sweep.sql - what do two options do together? Speedup over none, (a / b) / (c / d), of the cells of a drafter by two
-- of its options: series and x.
WITH chosen("group", series, run, x) AS (SELECT sampling || ', batch ' || batch || ', ' || drafter_kind || '; ' || rule, 'nodes=' || coalesce(settings ->> '$.cells.drafter.nodes', 0), id, 'tokens=' || coalesce(settings ->> '$.cells.drafter.tokens', 0) FROM run),
sums AS (
    SELECT c."group", 'speedup over none' AS measure, c.series, c.x, c.run, s.prompt, s.unit, s.new_tokens AS a, s.decode_ns AS b,
           s.none_new_tokens AS c, s.none_decode_ns AS d, s.steps AS e, s.none_steps AS f
    FROM chosen AS c JOIN speed_by_slice AS s ON s.run = c.run
)
SELECT "group", measure, series, x AS other, (1.0 * sum(a) / sum(b)) / (1.0 * sum(c) / sum(d)) AS speedup, count(DISTINCT prompt) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, x;
