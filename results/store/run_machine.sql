UPDATE run SET -- This sets machine and revision of run ?1 to lists of every value of its environments.
    machine = (SELECT group_concat(m, '; ') FROM (SELECT processor || ', ' || arithmetic AS m FROM environment
        WHERE run = ?1 GROUP BY m ORDER BY min(id))),
    revision = (SELECT group_concat(revision, ', ') FROM (SELECT revision FROM environment WHERE run = ?1 GROUP BY revision ORDER BY min(id)))
    WHERE id = ?1 AND EXISTS (SELECT 1 FROM environment WHERE run = ?1)
