-- Version 16 has the options in a drafter's name as JSON. Only this migration parses a name: it takes each key of the
-- settings that occurs in it, up to the next.
ALTER TABLE run ADD COLUMN drafter_options TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(drafter_options));
UPDATE run SET drafter_options = (
    SELECT coalesce(json_group_object(key, substr(drafter, begins, ends - begins)), '{}') FROM (
        SELECT key, at + length(key) + 1 AS begins, lead(at - 2, 1, length(drafter)) OVER (ORDER BY at) AS ends FROM (
            SELECT key, coalesce(nullif(instr(drafter, '(' || key || '='), 0) + 1, nullif(instr(drafter, ', ' || key || '='), 0) + 2) AS at
            FROM json_each(iif(json_valid(settings), settings, '{}'), '$.cells.drafter') WHERE key IS NOT NULL)
        WHERE at IS NOT NULL ORDER BY at));
PRAGMA user_version = 16;
