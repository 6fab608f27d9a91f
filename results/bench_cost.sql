-- bench_cost.sql - what does a pass of n rows cost, in passes of one row, and what does a peer's? The latest bench of each
-- model, precision and machine; ratio: the peer's time / ours, the median of rounds and its quartiles.
--                      sqlite3 -box bench.db < results/bench_cost.sql
WITH latest AS (
    SELECT max(id) AS id FROM bench GROUP BY target_hash, activations, cache, device, machine, threads, peer
)
SELECT b.target, b.model_type AS type, b.activations, b.threads, p.placement, p.context, p.n, p.rounds,
       round(p.median_ns / 1e6, 2) AS ms, round(p.c, 2) AS c, round(t.peer_median_ns / 1e6, 2) AS peer_ms,
       round(t.peer_median_ns / one.peer_median_ns, 2) AS peer_c, round(t.ratio, 2) AS ratio,
       round(t.ratio_low, 2) AS ratio_low, round(t.ratio_high, 2) AS ratio_high
FROM latest AS l JOIN bench AS b ON b.id = l.id JOIN cost_of_pass AS p ON p.bench = b.id
JOIN bench_pass AS t ON t.what = 'pass' AND (t.bench, t.placement, t.context, t.n) = (p.bench, p.placement, p.context, p.n)
LEFT JOIN bench_pass AS one ON one.what = 'pass' AND one.n = 1
      AND (one.bench, one.placement, one.context) = (p.bench, p.placement, p.context)
ORDER BY b.target, b.id, p.placement, p.context, p.n;
