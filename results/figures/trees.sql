-- trees.sql - which draft tree pays? Tokens a step, a / b (new tokens, steps), and speedup over none, (a / b) / (c / d), against x, the mean
-- number of draft tokens of a draft: chains, fixed trees and best-first trees of one drafter.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run),
sums AS (
    SELECT c."group", 'tokens per step' AS measure, c.series, 1.0 * t.drafted_tokens / t.drafts AS x, c.run, s.prompt, s.step_tokens AS a, s.steps AS b,
           NULL AS c, NULL AS d
    FROM chosen AS c JOIN steps AS t ON t.run = c.run AND t.drafts > 0 JOIN sums_by_prompt AS s ON s.run = c.run
    UNION ALL
    SELECT c."group", 'speedup over none', c.series, 1.0 * t.drafted_tokens / t.drafts, c.run, s.prompt,
           iif(r.batch > 1, s.steady_tokens, s.new_tokens), iif(r.batch > 1, s.steady_ns, s.decode_ns),
           iif(r.batch > 1, s.none_steady_tokens, s.none_new_tokens), iif(r.batch > 1, s.none_steady_ns, s.none_decode_ns)
    FROM chosen AS c JOIN steps AS t ON t.run = c.run AND t.drafts > 0 JOIN run AS r ON r.id = c.run JOIN speed_by_prompt AS s ON s.run = c.run
)
SELECT s."group", s.measure, s.series, s.x AS draft_tokens, 1.0 * sum(s.a) / sum(s.b) / coalesce(1.0 * sum(s.c) / sum(s.d), 1) AS value,
       count(*) AS prompts, s.run, r.drafter
FROM sums AS s JOIN run AS r ON r.id = s.run GROUP BY s."group", s.measure, s.series, s.x, s.run
ORDER BY s."group", s.measure DESC, s.series, s.x;
