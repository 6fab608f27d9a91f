-- answers.sql - the target's own answers: the lines of the prompt file, each with the greedy answers of `none` to its
-- turns (of the first such run in the database) as "answer". This is the input of `speclab inspect MODEL
-- --score --answers`. Run it where the prompt file has this path:
--                      sqlite3 results.db < results/answers.sql > answers.jsonl
WITH answers AS (
    SELECT prompt, text FROM answer
    WHERE run = (SELECT min(id) FROM run WHERE drafter_kind = 'none' AND sampling = 'temperature=0') AND repeat = 0
    ORDER BY prompt, turn
)
SELECT json_set(line.value, '$.answer', json(a.texts))
FROM json_each('[' || replace(trim(CAST(readfile('experiments/data/prompts.jsonl') AS TEXT), char(10)), char(10), ',') || ']') AS line
JOIN (SELECT prompt, json_group_array(text) AS texts FROM answers GROUP BY prompt) AS a ON a.prompt = line.key
ORDER BY line.key;
