-- losing_prompts.sql - the prompts on which a run is slower than none, and by how much, worst first.
--                         sqlite3 -box results.db < results/losing_prompts.sql
SELECT r.experiment, r.drafter, r.rule, s.prompt_id, s.category, s.sequences, round(s.speedup, 3) AS speedup
FROM speed_by_prompt AS s JOIN run AS r ON r.id = s.run
WHERE s.speedup < 1
ORDER BY s.speedup
LIMIT 40;
