-- by_category.sql - where drafting helps: speedup over none (ratio of sums over paired texts) and new tokens per step,
-- for each experiment, category and run.
--                      sqlite3 -box results.db < results/by_category.sql
WITH lengths AS (
    SELECT run, category, 1.0 * sum(new_tokens) / sum(steps) AS tokens_per_step
    FROM sequence GROUP BY run, category
)
SELECT r.experiment, r.sampling, r.batch, s.category, r.drafter, r.rule, count(*) AS prompts,
       round((1.0 * sum(s.new_tokens) / sum(s.decode_ns)) / (1.0 * sum(s.none_new_tokens) / sum(s.none_decode_ns)), 3) AS speedup,
       round(l.tokens_per_step, 3) AS tokens_per_step
FROM speed_by_prompt AS s JOIN run AS r ON r.id = s.run
LEFT JOIN lengths AS l ON l.run = s.run AND l.category IS s.category
GROUP BY r.id, s.category
ORDER BY r.experiment, r.peers, min(s.prompt), r.id;
