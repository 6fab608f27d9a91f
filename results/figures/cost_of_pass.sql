-- cost_of_pass.sql - what does a pass of n rows cost? c(n) = its median time / the median of a pass of one row behind as many cached tokens, with
-- quartiles over the rounds that count; beside it the fitted cost. The latest bench of each model, precision and machine.
WITH latest AS (
    SELECT max(id) AS id FROM bench GROUP BY target_hash, activations, cache, device, machine, threads
),
pass AS (
    SELECT replace(b.target, rtrim(b.target, replace(b.target, '/', '')), '') || ', ' || b.activations || ', ' || b.device || ', placement ' || p.placement AS "group", p.context, p.n, p.median_ns / one.median_ns AS c,
           p.low_ns / one.median_ns AS low, p.high_ns / one.median_ns AS high, f.hinge_ns / one.median_ns AS fitted, p.rounds
    FROM latest AS l JOIN bench AS b ON b.id = l.id
    JOIN bench_pass AS p ON p.bench = b.id AND p.what = 'pass' AND p.peer = 0 AND p.slots = 1
    JOIN bench_pass AS one ON (one.bench, one.placement, one.context) = (p.bench, p.placement, p.context) AND one.what = 'pass'
         AND one.peer = 0 AND one.slots = 1 AND one.n = 1
    JOIN cost_of_pass AS f ON (f.bench, f.placement, f.context, f.n) = (p.bench, p.placement, p.context, p.n)
)
SELECT "group", 'c(n)' AS measure, 'measured, context ' || context AS series, n, c, low, high, rounds FROM pass
UNION ALL
SELECT "group", 'c(n)', 'fitted, context ' || context, n, fitted, NULL, NULL, rounds FROM pass WHERE fitted IS NOT NULL
ORDER BY 1, 2, 3, 4;
