-- verify_cost.sql - the cost of a pass over a draft: mean verification time by number of draft tokens, as a multiple of
-- a step without draft tokens on the same target and machine. Drafting pays if new tokens per step exceed it. Batch 1
-- only: a pass over several texts has the nodes of all of them.
--                      sqlite3 -box results.db < results/verify_cost.sql
WITH passes AS (
    SELECT r.target, r.target_hash, r.activations, r.cache, r.device, r.machine, t.drafted, count(*) AS steps,
           avg(t.verify_ns) AS verify_ns, avg(t.tokens) AS tokens_per_step
    FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run
    WHERE t.batch = 1
    GROUP BY r.target, r.target_hash, r.activations, r.cache, r.device, r.machine, t.drafted
)
SELECT p.target, p.activations, p.cache, p.device, p.machine, p.drafted, p.steps, round(p.verify_ns / 1e6, 3) AS verify_ms,
       round(p.verify_ns / one.verify_ns, 3) AS times_a_plain_step, round(p.tokens_per_step, 3) AS tokens_per_step
FROM passes AS p LEFT JOIN passes AS one
  ON one.drafted = 0 AND (one.target, one.target_hash, one.activations, one.cache, one.device, one.machine)
                       = (p.target, p.target_hash, p.activations, p.cache, p.device, p.machine)
ORDER BY p.target, p.activations, p.cache, p.machine, p.drafted;
