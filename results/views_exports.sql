-- views_exports.sql - the numbers that `report --export` writes in the forms of other projects, under their names and
-- by their definitions. docs/results.md names the source files that were read. Acceptance under vLLM's names:
-- vllm_metrics and vllm_positions; Spec-Bench's: spec_bench (views.sql).

CREATE VIEW vllm_bench AS
-- The numbers of `vllm bench serve --save-result`, per run. duration: seconds of prefill and decoding; a server's also
-- includes the time in which no request runs. A request is a text, so each turn of a conversation is one. std: the
-- population's, as in numpy. Times of `latency` are in ms.
SELECT t.*, t.completed / nullif(t.duration, 0) AS request_throughput, t.total_output_tokens / nullif(t.duration, 0) AS output_throughput,
       (t.total_input_tokens + t.total_output_tokens) / nullif(t.duration, 0) AS total_token_throughput,
       l.mean_ttft_ms, l.median_ttft_ms, l.std_ttft_ms, l.p99_ttft_ms, l.mean_tpot_ms, l.median_tpot_ms, l.std_tpot_ms, l.p99_tpot_ms,
       l.mean_itl_ms, l.median_itl_ms, l.std_itl_ms, l.p99_itl_ms
FROM (SELECT run, sum(prefill_ns + decode_ns) / 1e9 AS duration, count(*) AS completed, sum(prompt_tokens) AS total_input_tokens,
             sum(new_tokens) AS total_output_tokens
      FROM sequence GROUP BY run) AS t
LEFT JOIN (SELECT run,
                  max(mean_ns) FILTER (WHERE what = 'ttft') / 1e6 AS mean_ttft_ms, max(p50_ns) FILTER (WHERE what = 'ttft') / 1e6 AS median_ttft_ms,
                  max(sd_ns) FILTER (WHERE what = 'ttft') / 1e6 AS std_ttft_ms, max(p99_ns) FILTER (WHERE what = 'ttft') / 1e6 AS p99_ttft_ms,
                  max(mean_ns) FILTER (WHERE what = 'tpot') / 1e6 AS mean_tpot_ms, max(p50_ns) FILTER (WHERE what = 'tpot') / 1e6 AS median_tpot_ms,
                  max(sd_ns) FILTER (WHERE what = 'tpot') / 1e6 AS std_tpot_ms, max(p99_ns) FILTER (WHERE what = 'tpot') / 1e6 AS p99_tpot_ms,
                  max(mean_ns) FILTER (WHERE what = 'itl') / 1e6 AS mean_itl_ms, max(p50_ns) FILTER (WHERE what = 'itl') / 1e6 AS median_itl_ms,
                  max(sd_ns) FILTER (WHERE what = 'itl') / 1e6 AS std_itl_ms, max(p99_ns) FILTER (WHERE what = 'itl') / 1e6 AS p99_itl_ms
           FROM latency GROUP BY run) AS l ON l.run = t.run;

CREATE VIEW sglang_metrics AS
-- SGLang's names. accept_length (avg_spec_accept_length): tokens / verification steps, including the bonus token and
-- steps without a draft: tokens_per_step. spec_accept_rate: accepted / (steps * speculative_num_draft_tokens without
-- the bonus), as if every step had the longest draft of the run, so it is never above vLLM's. mean_itl_ms: SGLang
-- divides a step's time by its tokens, and counts each. e2e: prefill and decoding of a text, waiting for others
-- included. concurrency: their sum / duration. A run of `none` has no acceptance.
SELECT v.run, CASE WHEN r.drafter_kind <> 'none' THEN s.tokens_per_step END AS accept_length,
       CASE WHEN r.drafter_kind <> 'none' THEN 1.0 * s.accepted_tokens / nullif(s.steps * m.most, 0) END AS spec_accept_rate,
       v.total_input_tokens / nullif(v.duration, 0) AS input_throughput, g.mean_itl_ms, q.e2e / q.texts AS mean_e2e_latency_ms,
       q.e2e / nullif(v.duration * 1e3, 0) AS concurrency
FROM vllm_bench AS v JOIN run AS r ON r.id = v.run
JOIN (SELECT run, count(*) AS texts, sum(prefill_ns + wall_ns) / 1e6 AS e2e FROM sequence GROUP BY run) AS q ON q.run = v.run
LEFT JOIN steps AS s ON s.run = v.run
LEFT JOIN (SELECT q.run, max(t.drafted) AS most FROM step AS t JOIN sequence AS q ON q.id = t.sequence GROUP BY q.run) AS m ON m.run = v.run
LEFT JOIN (SELECT run, sum(ns) / 1e6 / sum(tokens) AS mean_itl_ms FROM gap WHERE NOT first GROUP BY run) AS g ON g.run = v.run;

CREATE VIEW nvidia_lengths AS
-- acceptance_length_histogram of NVIDIA's speculation profile: steps by the tokens that they added to the text, the
-- bonus token included. Steps without a draft count, as a listener to the tokens cannot tell them from steps whose
-- draft was rejected. No rows for `none`.
SELECT q.run, t.tokens AS length, count(*) AS steps
FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run
WHERE r.drafter_kind <> 'none' AND t.tokens > 0
GROUP BY q.run, t.tokens;

CREATE VIEW nvidia_positions AS
-- The vectors of that profile, by position from 0 up to the deepest draft of the run. marginal: share of steps with at
-- least position + 2 tokens (vLLM's synthetic acceptance takes these). conditional: the marginal / that of the position
-- before (nextn_accept_rates of Dynamo and AIConfigurator); 0 after a 0.
WITH RECURSIVE place(run, position, most) AS (
    SELECT s.run, 0, s.max_depth FROM steps AS s JOIN run AS r ON r.id = s.run WHERE r.drafter_kind <> 'none' AND s.max_depth > 0
    UNION ALL
    SELECT run, position + 1, most FROM place WHERE position + 1 < min(most, 512) -- maximum nodes of a draft
), marginal AS (
    SELECT p.run, p.position, 1.0 * coalesce(sum(l.steps) FILTER (WHERE l.length >= p.position + 2), 0) / sum(l.steps) AS rate
    FROM place AS p JOIN nvidia_lengths AS l ON l.run = p.run GROUP BY p.run, p.position
)
SELECT run, position, rate AS marginal,
       coalesce(rate / nullif(lag(rate, 1, 1.0) OVER (PARTITION BY run ORDER BY position), 0), 0.0) AS conditional
FROM marginal;

CREATE VIEW nvidia_profile AS
-- The other numbers of NVIDIA's speculation profile (Model-Optimizer, schema 1.0). num_speculative_tokens: depth of the
-- deepest draft. mean_accept_length: tokens / steps; _per_request: the mean of that over texts.
-- implied_mean_accept_length = 1 + the sum of the marginals.
SELECT l.run, p.num_speculative_tokens, l.mean_accept_length, q.mean_accept_length_per_request, 1 + p.marginals AS implied_mean_accept_length
FROM (SELECT run, 1.0 * sum(length * steps) / sum(steps) AS mean_accept_length FROM nvidia_lengths GROUP BY run) AS l
JOIN (SELECT run, count(*) AS num_speculative_tokens, sum(marginal) AS marginals FROM nvidia_positions GROUP BY run) AS p ON p.run = l.run
JOIN (SELECT run, avg(length) AS mean_accept_length_per_request
      FROM (SELECT q.run, 1.0 * sum(t.tokens) / count(*) AS length
            FROM step AS t JOIN sequence AS q ON q.id = t.sequence WHERE t.tokens > 0 GROUP BY q.id)
      GROUP BY run) AS q ON q.run = l.run;

CREATE VIEW nvidia_categories AS
-- per_category of that profile: tokens / steps of the texts of a category.
SELECT q.run, q.category, 1.0 * sum(t.tokens) / count(*) AS mean_accept_length
FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run
WHERE r.drafter_kind <> 'none' AND t.tokens > 0 AND q.category IS NOT NULL
GROUP BY q.run, q.category;
