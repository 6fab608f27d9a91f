UPDATE run SET -- This finishes run ?1 with the last part, if all parts of a division are done.
    finished = done.finished FROM (SELECT max(finished) AS finished FROM shard WHERE run = ?1
        GROUP BY shards, work, parts HAVING count(finished) = parts ORDER BY 1 DESC LIMIT 1) AS done
    WHERE id = ?1 AND run.finished IS NULL
