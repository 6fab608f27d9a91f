-- cost_of_pass.sql - what does a pass of n rows cost? c(n) = its median time / the median of a pass of one row after
-- as many cached tokens, with quartiles over the rounds that count, and the fitted cost. The latest bench of each
-- model, precision, machine and number of threads, in the placement in which most of its rounds count. Each is a group;
-- its label has the cache where caches differ, and the hash of the weights where files of one name do.
WITH latest AS (
    SELECT max(id) AS id FROM bench GROUP BY target_hash, activations, cache, device, machine, threads
),
named AS (
    SELECT b.id, b.activations, b.device, b.threads, b.machine, replace(b.target, rtrim(b.target, replace(b.target, '/', '')), '') AS name, b.target_hash,
           iif(min(b.cache) OVER () <> max(b.cache) OVER (), ', cache ' || b.cache, '') AS cache
    FROM bench AS b JOIN latest AS l ON l.id = b.id
),
label AS (
    SELECT id, name || ', ' || activations || cache
           || iif(min(target_hash) OVER same <> max(target_hash) OVER same, ', weights ' || substr(target_hash, 1, 8), '')
           || ', ' || device || ', ' || threads || iif(threads = 1, ' thread', ' threads') AS head, machine
    FROM named WINDOW same AS (PARTITION BY name)
),
placed AS (
    SELECT bench, placement FROM (
        SELECT l.id AS bench, m.placement, row_number() OVER (PARTITION BY l.id ORDER BY sum(m.counts) DESC, count(*) DESC, m.placement) AS choice
        FROM latest AS l JOIN bench_round AS m ON m.bench = l.id GROUP BY l.id, m.placement)
    WHERE choice = 1
),
pass AS (
    SELECT b.head || ', placement ' || p.placement || ', ' || b.machine AS "group", p.context, p.n, p.median_ns / one.median_ns AS c,
           p.low_ns / one.median_ns AS low, p.high_ns / one.median_ns AS high, f.hinge_ns / one.median_ns AS fitted, p.rounds
    FROM placed AS l JOIN label AS b ON b.id = l.bench
    JOIN bench_pass AS p ON (p.bench, p.placement) = (l.bench, l.placement) AND p.what = 'pass' AND p.peer = 0 AND p.slots = 1
    JOIN bench_pass AS one ON (one.bench, one.placement, one.context) = (p.bench, p.placement, p.context) AND one.what = 'pass'
         AND one.peer = 0 AND one.slots = 1 AND one.n = 1
    JOIN cost_of_pass AS f ON (f.bench, f.placement, f.context, f.n) = (p.bench, p.placement, p.context, p.n)
)
SELECT "group", 'c(n)' AS measure, 'measured, context ' || context AS series, n, c, low, high, rounds FROM pass
UNION ALL
SELECT "group", 'c(n)', 'fitted, context ' || context, n, fitted, NULL, NULL, rounds FROM pass WHERE fitted IS NOT NULL
ORDER BY 1, 2, 3, 4;
