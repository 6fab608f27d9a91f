-- acceptance_by_depth.sql - how deep are drafts accepted? a / b, where a: drafts with at least x accepted tokens. b:
-- all drafts (vLLM's acceptance rate per position), or those of them that had x - 1 accepted tokens and a node at depth
-- x (EAGLE's n-alpha, n = x - 1, for chains).
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", m.measure, c.series, v.depth AS x, c.run, v.prompt, NULL AS unit, v.accepted AS a,
           iif(m.conditional, v.tried, v.drafts) AS b, NULL AS c, NULL AS d, NULL AS e, NULL AS f
    FROM chosen AS c JOIN steps AS s ON s.run = c.run JOIN acceptance_by_prompt AS v ON v.run = c.run AND v.depth <= min(s.max_depth, 16)
    JOIN (SELECT 0 AS conditional, 'share of all drafts' AS measure UNION ALL SELECT 1, 'share, given the depth before') AS m
)
SELECT "group", measure, series, x AS depth, 1.0 * sum(a) / nullif(sum(b), 0) AS rate, sum(a) AS accepted, sum(b) AS tried, count(*) AS prompts, run
FROM sums GROUP BY "group", measure, series, x, run
ORDER BY "group", measure, series, x;
