-- bench_cost.sql - the cost of a pass of n rows in each slot relative to a pass of one row in one slot, in speclab and
-- in its peers. It reads the latest bench of each model, precision and machine; ratio: the engine's time / speclab's,
-- the median over rounds and its quartiles.
--                      sqlite3 -box bench.db < results/bench_cost.sql
WITH latest AS (
    SELECT max(id) AS id FROM bench GROUP BY target_hash, activations, cache, device, machine, threads
)
SELECT b.target, b.marked_inflated AS inflated, b.model_type AS type, b.activations, b.threads, p.placement, p.context, p.slots, p.n,
       coalesce(substr(e.name, 1, instr(e.name || ' ', ' ') - 1), 'speclab') AS engine, p.rounds,
       round(p.median_ns / 1e6, 2) AS ms, round(p.median_ns / one.median_ns, 2) AS c,
       round(iif(p.peer > 0, p.ratio, NULL), 2) AS ratio, round(iif(p.peer > 0, p.ratio_low, NULL), 2) AS ratio_low,
       round(iif(p.peer > 0, p.ratio_high, NULL), 2) AS ratio_high
FROM latest AS l JOIN bench AS b ON b.id = l.id JOIN bench_pass AS p ON p.bench = b.id AND p.what = 'pass'
LEFT JOIN bench_peer AS e ON e.bench = b.id AND e.peer = p.peer
LEFT JOIN bench_pass AS one ON one.what = 'pass' AND one.n = 1 AND one.slots = 1
      AND (one.bench, one.placement, one.context, one.peer) = (p.bench, p.placement, p.context, p.peer)
ORDER BY b.target, b.id, p.placement, p.context, p.slots, p.n, p.peer;
