-- time_split.sql - where does the time go? Decode time of each phase / new tokens, of all steps; a batch's time is
-- split evenly among its texts.
WITH chosen("group", series, run) AS (SELECT sampling || ', batch ' || batch, drafter || '; ' || rule, id FROM run)
SELECT c."group", 'milliseconds per token' AS measure, c.series, p.phase,
       CASE p.phase WHEN 'propose' THEN t.propose_ns WHEN 'verify' THEN t.verify_ns WHEN 'advance' THEN t.advance_ns
                    ELSE max(t.other_ns, 0) END / 1e6 / s.new_tokens AS ms_per_token, s.new_tokens, c.run
FROM chosen AS c JOIN timing AS t ON t.run = c.run JOIN steps AS s ON s.run = c.run AND s.new_tokens > 0
JOIN (SELECT 1 AS place, 'propose' AS phase UNION ALL SELECT 2, 'verify' UNION ALL SELECT 3, 'advance' UNION ALL SELECT 4, 'other') AS p
ORDER BY c."group", c.run, p.place;
