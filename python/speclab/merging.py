"""merging - puts the rows of one database into another by ATTACH and INSERT .. SELECT. It needs the standard library
alone.

Ids differ between files: temp.map_TABLE has the id of each row of the other database and its id here, and a column that
has the name of a table refers to that table's ids. A row that both have is recognized by a key that does not depend on
the file, so a second merge adds nothing.

A text that this database has is not taken a second time from another pair (_NEEDED): an experiment asks for repeats by
`repeat`, and two texts of one repeat would give their prompt twice the weight.
"""

import contextlib
import fcntl
import os
import sqlite3
import struct
import tempfile
from typing import NamedTuple

from speclab import database, files
from speclab.command import Fault

# Tables with an id, each after those to which it refers, and the columns that are equal in equal rows; none: every
# column except the id.
_IDENTIFIED = {"run": ("experiment", "cell"), "environment": (), "pair": ("uuid",), "sequence": ("run", "prompt", "turn", "repeat", "pair"),
               "bench": (), "exact": ("experiment", "cell", "revision"), "exact_rule": (), "exact_bits": ()}  # fmt: skip
# Tables whose first column names the row of an identified table to which they belong.
_PARTS = ("step", "step_rule", "step_source", "draft", "trial", "bench_peer", "bench_peak", "bench_round", "bench_time", "cost",
          "exact_stream", "exact_test")  # fmt: skip

# Runs that exclude each other: the same cell by name, or by settings, with other inputs.
_CONFLICT = """SELECT t.id, t.experiment, t.drafter, t.rule, i.value ->> 0, i.value ->> 1, i.value ->> 2
    FROM other.run AS t JOIN main.run AS r ON r.experiment = t.experiment AND (r.cell = t.cell OR (r.settings = t.settings AND NOT EXISTS (
        SELECT 1 FROM main.run AS e WHERE (e.experiment, e.cell) = (t.experiment, t.cell))))
    JOIN json_each(json_array(json_array('settings', r.settings, t.settings), json_array('prompts', r.prompts, t.prompts),
        json_array('weights of the target', r.target_hash, t.target_hash),
        json_array('weights or configuration of the drafter', coalesce(r.drafter_hash, 'none'), coalesce(t.drafter_hash, 'none')),
        json_array('tokenizer of the target', coalesce(r.tokenizer_hash, 'none'), coalesce(t.tokenizer_hash, 'none')),
        json_array('configuration of the target', coalesce(r.config_hash, 'none'), coalesce(t.config_hash, 'none')),
        json_array('cell (inputs as the chat template)', r.cell, t.cell))) AS i WHERE i.value ->> 1 <> i.value ->> 2 ORDER BY t.id, i.key LIMIT 1"""
# Sums over the same sequences cannot be added: the row with more sequences replaces the other.
_REPLACE_EXACT = """DELETE FROM main.exact WHERE EXISTS (SELECT 1 FROM other.exact AS t WHERE (t.experiment, t.cell, t.revision) =
    (exact.experiment, exact.cell, exact.revision) AND (t.sequences > exact.sequences OR (t.sequences = exact.sequences
    AND t.finished IS NOT NULL AND exact.finished IS NULL)))"""
# Texts with equal keys that nevertheless differ.
_CHANGED = """SELECT t.id, q.id FROM temp.map_sequence AS m JOIN other.sequence AS t ON t.id = m.old JOIN main.sequence AS q ON q.id = m.new
    WHERE NOT m.added AND (t.tokens, t.decode_ns, t.wall_ns, t.steps) <> (q.tokens, q.decode_ns, q.wall_ns, q.steps) LIMIT 1"""
# Conversations of each run, here and in the other database, before texts are added. They show whether both together are
# those of a finished run.
_EXTENT = """CREATE TEMP TABLE extent AS SELECT m.new AS run, t.started, t.finished,
    (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM main.sequence WHERE run = m.new)) AS ours,
    (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM other.sequence WHERE run = m.old)) AS theirs
    FROM temp.map_run AS m JOIN other.run AS t ON t.id = m.old"""
_FINISH = """UPDATE main.run SET started = min(run.started, e.started), finished = CASE
    WHEN run.finished IS NOT NULL AND (e.finished IS NOT NULL OR e.ours = e.all_of_it) THEN max(run.finished, coalesce(e.finished, ''))
    WHEN e.finished IS NOT NULL AND e.theirs = e.all_of_it THEN e.finished END
    FROM (SELECT *, (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM main.sequence AS q WHERE q.run = extent.run)) AS all_of_it
    FROM extent) AS e WHERE e.run = run.id"""
# Conversations of pairs with a text that is not here yet, or is here without a partner of none under its rule or
# rejection: such a text is missing (experiments/pairs/plan.h). Others would only repeat texts that are here.
_NEEDED = (
    """CREATE TEMP VIEW partner AS SELECT p.sequence FROM main.paired AS p JOIN main.sequence AS q ON q.id = p.none
    JOIN main.run AS n ON n.id = q.run JOIN main.run AS r ON r.id = p.run WHERE n.rule IN (r.rule, 'rejection')""",
    """CREATE TEMP TABLE needed AS SELECT DISTINCT q.pair, q.prompt, q.repeat FROM temp.map_sequence AS m JOIN main.sequence AS q ON q.id = m.new
    WHERE m.added AND NOT EXISTS (SELECT 1 FROM main.sequence AS o WHERE (o.run, o.prompt, o.turn, o.repeat) = (q.run, q.prompt, q.turn,
    q.repeat) AND o.id NOT IN (SELECT new FROM temp.map_sequence WHERE added) AND (
    NOT EXISTS (SELECT 1 FROM temp.partner WHERE sequence = q.id) OR EXISTS (SELECT 1 FROM temp.partner WHERE sequence = o.id)))""",
    """DELETE FROM main.sequence WHERE id IN (SELECT new FROM temp.map_sequence WHERE added)
    AND (pair, prompt, repeat) NOT IN (SELECT * FROM temp.needed)""",
    "DELETE FROM main.pair WHERE id IN (SELECT new FROM temp.map_pair WHERE added) AND id NOT IN (SELECT pair FROM temp.needed)",
    """DELETE FROM main.environment WHERE id IN (SELECT new FROM temp.map_environment WHERE added)
    AND id NOT IN (SELECT environment FROM main.sequence WHERE environment IS NOT NULL)""",
    "UPDATE temp.map_sequence SET added = 0 WHERE added AND new NOT IN (SELECT id FROM main.sequence)")  # fmt: skip
# A pair of which an earlier state is here has new slices.
_SLICES = """INSERT OR IGNORE INTO main.slice (pair, run, round, ns, foreign_load, disturbed)
    SELECT p.new, r.new, t.round, t.ns, t.foreign_load, t.disturbed FROM other.slice AS t JOIN temp.map_pair AS p ON p.old = t.pair
    JOIN temp.map_run AS r ON r.old = t.run WHERE p.new IN (SELECT id FROM main.pair)"""
# An unfinished row is an earlier state of a finished one.
_SHARDS = """INSERT INTO main.shard (run, shards, shard, work, parts, finished) SELECT m.new, t.shards, t.shard, t.work, t.parts, t.finished
    FROM other.shard AS t JOIN temp.map_run AS m ON m.old = t.run WHERE true ON CONFLICT DO UPDATE SET work = excluded.work,
    parts = excluded.parts, finished = excluded.finished WHERE coalesce(excluded.finished, '') > coalesce(shard.finished, '')"""
# SQLite 3.40 reports NULLs where there are none, in tables without rowid whose key is not their first columns. A real
# one is refused here.
_DAMAGE = """SELECT quick_check FROM pragma_quick_check(1000000000) WHERE quick_check <> 'ok' AND quick_check NOT LIKE 'NULL value in %' LIMIT 1"""

_LOCKS = 1 << 48  # an experiment's lock is on one byte far beyond the file's end and SQLite's own locks
                 # (results/store/store_file.c)


class Merged(NamedTuple):
    """What was added, and texts that the database had from another pair."""

    runs: int
    pairs: int
    texts: int
    left_out: int


def _lock(fd: int, call: int, start: int, length: int) -> int:
    """Sets or queries an open file description's lock for writing; returns the type in the kernel's answer."""
    return struct.unpack("h", fcntl.fcntl(fd, call, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))[:2])[0]


def _number(db: sqlite3.Connection, sql: str) -> int:
    return db.execute(sql).fetchone()[0]


def _is_empty(db: sqlite3.Connection) -> bool:
    return not any(_number(db, sql) for sql in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"))


def check_input(path: str, pages: bool = True) -> None:
    """Raises Fault or Misuse unless this is a database of this version into which no experiment is being run; with
    `pages`, all its pages must be whole."""
    database.check_file(path)
    with database.faults(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # this is closed before SQLite opens the file, whose locks it
                                                       # would drop
        try:
            if _lock(fd, fcntl.F_OFD_GETLK, _LOCKS, 1 << 32) != fcntl.F_UNLCK:
                raise Fault(f"{path}: expected a database that is complete, found one that another process is running an experiment into")
        finally:
            os.close(fd)
        with contextlib.closing(database.open_file(path)[0]) as db:
            database.limit(db, path)
            if _is_empty(db):
                raise Fault(f"{path}: expected a database of speclab, found an empty one")
            database.check(db, path)
            for (damage,) in db.execute(_DAMAGE) if pages else ():
                # The other lines say where SQLite has looked.
                raise Fault(f"{path}: the database is damaged: {damage.splitlines()[-1]}")


class Output:
    """OUT, opened for writing, and made if it does not exist, with this version's views. Raises Fault."""

    def __init__(self, path: str):
        self.path, self.locks = path, -1
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise Fault(f"{path}: there is no folder {folder}")
        if os.path.exists(path) and not (os.path.isfile(path) and os.path.getsize(path) == 0):
            database.check_file(path)
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise Fault(f"{path}: the database is read-only, nothing can be merged into it")
        with database.faults(path):
            self.db = sqlite3.connect(database.uri_of(path), uri=True, isolation_level=None)
            self.db.text_factory = lambda text: text.decode(errors="surrogateescape")
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        db = self.db
        database.limit(db, self.path)
        if not _is_empty(db):
            database.check(db, self.path)
            for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
                raise Fault(f'{self.path}: expected a database as speclab makes it, found the trigger "{name}", which would run')
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        if self._has_views() and _number(db, "PRAGMA user_version") == database.VERSION:
            return
        db.execute("BEGIN IMMEDIATE")  # another process may have made the tables meanwhile
        tables = [files.shared(f"results/{name}").read_text() for name in database.TABLES] if _is_empty(db) else []
        tables += [database.upgrade()] if 0 < _number(db, "PRAGMA user_version") < database.VERSION else []
        for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall():
            if name.lower() in database.view_names():
                db.execute(f"DROP VIEW {name}")
        statement = ""
        for line in "".join(tables + database.view_scripts()).splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                db.execute(statement)
                statement = ""
        db.execute(f"PRAGMA application_id = {database.ID}")
        db.execute("COMMIT")

    def _has_views(self) -> bool:
        """Returns whether it has every view of views*.sql, with exactly this text."""
        texts = "".join(database.view_scripts())
        found = self.db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'").fetchall()
        same = {name for name, sql in found if sql.startswith(f"CREATE VIEW {name} AS") and f"\n{sql};\n" in texts}
        return same.issuperset(database.view_names())

    def lock(self, experiment: str) -> None:
        """Locks the experiment until the file is closed. A run and a merge of one experiment exclude each other: the
        run would decode what the merge brings. Raises Fault."""
        h = 0x811C9DC5  # FNV-1a of the name
        for byte in experiment.encode(errors="surrogateescape"):
            h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
        try:
            self.locks = self.locks if self.locks >= 0 else os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            _lock(self.locks, fcntl.F_OFD_SETLK, _LOCKS + h, 1)
        except BlockingIOError:
            raise Fault(f'{self.path}: another process is running or merging experiment "{experiment}" into it') from None
        except OSError as why:
            raise Fault(f"{self.path}: could not be locked: {why.strerror}") from None

    def close(self) -> None:
        self.db.close()
        if self.locks >= 0:
            os.close(self.locks)  # this comes last: closing also drops SQLite's locks of this process on the file


# ---- rows


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    """Returns the columns of a table, and the value here of each column for a row t of the other database that m maps.
    """
    names = [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))]
    return {n: "m.new" if n == "id" else f"(SELECT new FROM temp.map_{n} WHERE old = t.{n})" if n in _IDENTIFIED else f't."{n}"' for n in names}


def _map(db: sqlite3.Connection, table: str, key: tuple[str, ...]) -> None:
    """Fills temp.map_TABLE: rows that are not here get the next ids, in their order."""
    columns = _columns(db, table)
    equal = " AND ".join(f'h."{n}" IS {columns[n]}' for n in key or columns if n != "id")
    db.execute(f"CREATE TEMP TABLE map_{table} (old INTEGER PRIMARY KEY, new INTEGER, added INTEGER)")
    db.execute(f"""INSERT INTO temp.map_{table} SELECT old, coalesce(new, top + sum(new IS NULL) OVER (ORDER BY old)), new IS NULL FROM (
        SELECT t.id AS old, (SELECT min(h.id) FROM main.{table} AS h WHERE {equal}) AS new,
        (SELECT coalesce(max(id), 0) FROM main.{table}) AS top FROM other.{table} AS t)""")


def _insert(db: sqlite3.Connection, table: str) -> None:
    """Adds the rows that are not here, or those of a part of such rows."""
    columns = _columns(db, table)
    key, names = next(iter(columns)), ", ".join(f'"{n}"' for n in columns)
    db.execute(f"""INSERT INTO main.{table} ({names}) SELECT {", ".join(columns.values())} FROM temp.map_{table if key == "id" else key} AS m
        CROSS JOIN other.{table} AS t ON t.{key} = m.old WHERE m.added""")


def _merge_rows(db: sqlite3.Connection, path: str, source: str) -> Merged:
    for run, experiment, drafter, rule, what, ours, theirs in db.execute(_CONFLICT):
        raise Fault(f"{source}: run {run} ({experiment}, drafter {drafter}, {rule}): expected {what} {ours}, as in {path}, found {theirs}")
    db.execute(_REPLACE_EXACT)
    for table, key in _IDENTIFIED.items():
        if table == "sequence":
            db.execute(_EXTENT)
        _map(db, table, key)
        _insert(db, table)
    for theirs, ours in db.execute(_CHANGED):
        raise Fault(f"{source}: sequence {theirs}: expected the text and times of sequence {ours} of {path}, which has its pair, found others")
    found = _number(db, "SELECT count(*) FROM temp.map_sequence WHERE added")
    for sql in _NEEDED:
        db.execute(sql)
    for table in _PARTS:
        _insert(db, table)
    for sql in (_SLICES, _FINISH, _SHARDS):
        db.execute(sql)
    scripts = [files.shared(f"results/store/{name}.sql").read_text() for name in ("run_machine", "shards_complete")]
    for (run,) in db.execute("SELECT new FROM temp.map_run ORDER BY new").fetchall():
        for script in scripts:
            db.execute(script, (run,))
    texts = _number(db, "SELECT count(*) FROM temp.map_sequence WHERE added")
    pairs = _number(db, "SELECT count(*) FROM temp.map_pair WHERE added AND new IN (SELECT id FROM main.pair)")
    merged = Merged(_number(db, "SELECT count(*) FROM temp.map_run WHERE added"), pairs, texts, found - texts)
    for what in ("VIEW temp.partner", "TABLE temp.extent", "TABLE temp.needed", *(f"TABLE temp.map_{table}" for table in _IDENTIFIED)):
        db.execute(f"DROP {what}")
    return merged


def merge(out: Output, source: str) -> Merged:
    """Merges a database in one transaction. Raises Fault, which names the file; then OUT is unchanged."""
    db = out.db
    check_input(source, pages=False)  # the check is repeated, since the file's turn may come much later
    try:
        with database.faults(out.path), tempfile.TemporaryDirectory() as folder:
            other, uri = database.open_file(source)
            copy = database.raised(other, f"{folder}/copy.db")
            uri = uri if copy is other else f"{folder}/copy.db"
            copy.close()
            database.limit(db, out.path, source)
            db.execute("ATTACH ? AS other", (uri,))
            try:
                for (experiment,) in db.execute("SELECT DISTINCT experiment FROM other.run").fetchall():
                    out.lock(experiment)
                db.execute("BEGIN IMMEDIATE")
                merged = _merge_rows(db, out.path, source)
                db.execute("COMMIT")
            finally:
                with contextlib.suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    db.execute("DETACH other")
    except Fault as why:
        if str(why).startswith(f"{source}: "):
            raise
        raise Fault(f"{source}: could not be merged into {out.path}: {str(why).removeprefix(f'{out.path}: ')}") from None
    return merged
