-- trees.sql - which draft tree pays? Tokens a step, a / b (new tokens, steps), and speedup over none, (a / b) / (c /
-- d), against x, the mean number of draft tokens of a draft: chains, fixed trees and best-first trees of one drafter.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'tokens per step' AS measure, c.series, 1.0 * t.drafted_tokens / t.drafts AS x, c.run, s.prompt, NULL AS unit, s.step_tokens AS a,
           s.steps AS b, NULL AS c, NULL AS d, NULL AS e, NULL AS f
    FROM chosen AS c JOIN steps AS t ON t.run = c.run AND t.drafts > 0 JOIN sums_by_prompt AS s ON s.run = c.run
    UNION ALL
    SELECT c."group", 'speedup over none', c.series, 1.0 * t.drafted_tokens / t.drafts, c.run, s.prompt, s.unit, s.new_tokens, s.decode_ns,
           s.none_new_tokens, s.none_decode_ns, s.steps, s.none_steps
    FROM chosen AS c JOIN steps AS t ON t.run = c.run AND t.drafts > 0 JOIN speed_by_slice AS s ON s.run = c.run
)
SELECT s."group", s.measure, s.series, s.x AS draft_tokens, 1.0 * sum(s.a) / sum(s.b) / coalesce(1.0 * sum(s.c) / sum(s.d), 1) AS value,
       count(DISTINCT s.prompt) AS prompts, s.run, r.drafter
FROM sums AS s JOIN run AS r ON r.id = s.run GROUP BY s."group", s.measure, s.series, s.x, s.run
ORDER BY s."group", s.measure DESC, s.series, s.x;
