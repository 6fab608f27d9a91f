"""database - reads a database of results, and checks that it is speclab's, has this version, and has nothing but tables
where speclab has tables.

The program makes the same checks when it opens one (results/store/store_schema.c). This file needs the standard library
alone.
"""

import contextlib
import os
import re
import sqlite3
import stat
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from speclab import files
from speclab.command import Fault, Misuse

VERSION = int(re.search(r"PRAGMA user_version = (\d+)", files.shared("results/schema.sql").read_text())[1])
OLDEST = 15  # results/store/from_15.sql makes VERSION of it
ID = 0x5350434C  # "SPCL"
TABLES = ("schema.sql", "schema_shards.sql", "schema_bench.sql", "schema_exact.sql")
VIEWS = ("views.sql", "views_prediction.sql", "views_exports.sql")  # ordered as they are made

_OPERATIONS = 1 << 20  # steps of SQLite's virtual machine between two looks at the clock
_LEAST, _PER_BYTE = 1 << 24, 1000  # a query that takes more steps is interrupted (results/store.c)

# STRICT is at the end of a table's text, which has no comment there. Without it a column of numbers may have text.
_ODD = r"""SELECT type, name FROM sqlite_schema WHERE lower(name) IN ({}) AND (type <> 'table' OR sql NOT LIKE 'CREATE TABLE %'
    OR (sql NOT LIKE '%) STRICT' AND sql NOT LIKE '%) STRICT, WITHOUT ROWID') OR instr(sql, '/*')
    OR instr(substr(sql, 1 + length(rtrim(sql, replace(sql, char(10), '')))), '--'))
    OR lower(name) IN ('json_each', 'json_tree') OR lower(name) LIKE 'pragma\_%' ESCAPE '\' LIMIT 1"""
# Names are sorted, compared and laid out, so a long one keeps a report busy. Values that are not names may have the
# size of their file, or of a text.
_LENGTHS = """SELECT name, iif(name IN ('settings', 'file', 'sampling', 'drafter', 'drafter_options', 'rule'),
 16 << 20, 1 << 20) FROM pragma_table_info(?)
    WHERE type NOT IN ('INTEGER', 'INT', 'REAL') AND name NOT IN ('tokens', 'text', 'parents', 'proposals', 'out', 'rows', 'sums')"""
_STRANGE = """SELECT t.name, iif(c.hidden <> 0, 'the computed ', '') || '"' || c.name || '"' FROM sqlite_schema AS t
    JOIN pragma_table_xinfo(t.name) AS c WHERE t.type = 'table' AND lower(t.name) IN ({})
    AND (c.hidden <> 0 OR c.name GLOB '*[^a-z_0-9]*') LIMIT 1"""


def table_names() -> list[str]:
    """Returns the names of the tables of results/schema*.sql."""
    return [name for file in TABLES for name in re.findall(r"^CREATE TABLE (\w+)", files.shared(f"results/{file}").read_text(), re.M)]


def view_scripts() -> list[str]:
    """Returns the texts of results/views*.sql, in the order in which they are made."""
    return [files.shared(f"results/{file}").read_text() for file in VIEWS]


def view_names() -> list[str]:
    """Returns the names of the views of results/views*.sql, in the order in which they are made."""
    return [name for text in view_scripts() for name in re.findall(r"^CREATE VIEW (\w+)", text, re.M)]


@contextlib.contextmanager
def faults(path: str):
    """Turns SQLite's errors into sentences with the file's name."""
    try:
        yield
    except sqlite3.Error as why:
        code = getattr(why, "sqlite_errorcode", 0) & 0xFF
        said = " ".join(str(why).split())  # the message may quote lines of the schema
        known = {sqlite3.SQLITE_NOTADB: "not an SQLite database", sqlite3.SQLITE_CORRUPT: f"the database is damaged: {said}",
                 sqlite3.SQLITE_FULL: "could not be written: no space left on the disk",
                 sqlite3.SQLITE_IOERR: "could not be read or written: disk I/O error (is it full, over a limit, or broken?)",
                 sqlite3.SQLITE_INTERRUPT: "a query was given up, as it took more than any on a database of its size should",
                 # fmt: skip.
                 sqlite3.SQLITE_READONLY: "the database is only read", sqlite3.SQLITE_BUSY: "another process keeps the database busy"}
        raise Fault(f"{path}: {known.get(code, said)}") from None
    except UnicodeDecodeError as why:  # SQLite's message quotes the file
        raise Fault(f"{path}: the database is damaged: {bytes(why.object).decode(errors='replace')}") from None


def check_file(path: str) -> None:
    try:
        found = os.stat(path)
    except OSError as why:
        missing = isinstance(why, FileNotFoundError)
        raise Misuse(f"{path}: no such database; `speclab run FILE.yaml --db {path}` creates it" if missing else f"{path}: {why.strerror}") from None
    if stat.S_ISDIR(found.st_mode):
        raise Fault(f"{path}: is a folder, not a database")
    if not stat.S_ISREG(found.st_mode):
        raise Fault(f"{path}: is not a regular file")
    if found.st_size == 0:
        raise Fault(f"{path}: expected a database of speclab, found an empty file")
    if found.st_size < 512:  # SQLite would take one byte for an empty database
        raise Fault(f"{path}: not an SQLite database: found {found.st_size} bytes")
    if found.st_size % 512 and files.is_database(path):  # SQLite would take zeros for the rest of a page
        raise Fault(f"{path}: the database is damaged: its last page is cut off")


def check(db: sqlite3.Connection, path: str) -> None:
    """Raises Fault unless it is a database of this version, with tables where speclab has them."""
    if db.execute("PRAGMA application_id").fetchone()[0] != ID:
        raise Fault(f"{path}: an SQLite database of another program")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION or version < OLDEST:
        why = "a newer speclab wrote it" if version > VERSION else "run again into a new file"
        raise Fault(f"{path}: expected schema version {VERSION}, found {version}: {why}")
    names = ", ".join(f"'{name}'" for name in table_names())
    for kind, name in db.execute(_ODD.format(names)):
        raise Fault(f'{path}: expected tables as speclab makes them, found the {kind} "{name}"')
    for table, column in db.execute(_STRANGE.format(names)):
        raise Fault(f"{path}: table {table}: expected columns as speclab makes them, found {column}")
    for table in table_names():
        _check_lengths(db, path, table)


def _check_lengths(db: sqlite3.Connection, path: str, table: str) -> None:
    tested = {f'length(CAST("{name}" AS BLOB))': (name, most) for name, most in db.execute(_LENGTHS, (table,))}
    if not tested:
        return
    first = db.execute("SELECT name FROM pragma_table_info(?) LIMIT 1", (table,)).fetchone()[0]
    where = " OR ".join(f"{length} > {most}" for length, (_, most) in tested.items())
    for row, *found in db.execute(f'SELECT "{first}", {", ".join(tested)} FROM {table} WHERE {where} LIMIT 1'):
        name, most, n = next((name, most, n) for (name, most), n in zip(tested.values(), found, strict=True) if (n or 0) > most)
        raise Fault(f"{path}: table {table}, row {first} {row}, column {name}: expected at most {most} bytes, found {n}")


def uri_of(path: str) -> str:
    """Returns the file's URI, so that the name itself may begin with "file:"."""
    return f"file:{quote(os.fsencode(os.path.abspath(path)))}"


def open_file(path: str) -> tuple[sqlite3.Connection, str]:
    """Returns a connection, and the URI that ATTACH takes. Raises sqlite3.Error."""
    uri = uri_of(path)
    db = sqlite3.connect(uri, uri=True, check_same_thread=False)  # a file that cannot be written to is opened for
                                                                 # reading
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        # A folder that cannot be written to can have no -shm file. Without a log next to it the file is complete.
        if os.access(path, os.W_OK) or (os.path.exists(path + "-wal") and os.path.getsize(path + "-wal") > 0):
            raise
        db.close()
        uri += "?immutable=1"
        db = sqlite3.connect(uri, uri=True, check_same_thread=False)
    db.text_factory = lambda text: text.decode(errors="surrogateescape")
    return db, uri


def raised(db: sqlite3.Connection, to: str = "") -> sqlite3.Connection:
    """Returns the database if it has this version; otherwise closes it and returns a copy that has it. to: the copy's
    file. Raises sqlite3.Error."""
    if db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return db
    copy = sqlite3.connect(to, check_same_thread=False)  # "": a temporary one
    copy.text_factory = db.text_factory
    db.backup(copy)
    db.close()
    for (name,) in copy.execute("SELECT replace(name, '\"', '\"\"') FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        copy.execute(f'DROP TRIGGER "{name}"')  # a stranger's would run
    copy.executescript(f"BEGIN; {upgrade()} COMMIT")
    return copy


def upgrade() -> str:
    """What brings a database of version OLDEST to VERSION."""
    return files.shared("results/store/from_15.sql").read_text()


def limit(db: sqlite3.Connection, *paths: str) -> None:
    """Interrupts a query that takes longer than any query on a database of this size should."""
    done = 0

    def give_up() -> bool:
        nonlocal done
        done += _OPERATIONS
        parts = [path + end for path in paths for end in ("", "-wal")]
        return done > _LEAST and done - _LEAST > _PER_BYTE * sum(os.path.getsize(p) for p in parts if os.path.exists(p))

    def begin(_: str) -> None:
        nonlocal done
        done = 0

    db.set_progress_handler(give_up, _OPERATIONS)
    db.set_trace_callback(begin)


def dicts(db: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Returns the rows of a query by the names of their columns. Raises sqlite3.Error."""
    found = db.execute(query, values)
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def _distrust(db: sqlite3.Connection, path: str) -> None:
    db.execute("PRAGMA trusted_schema = OFF")
    limit(db, path)


def connect(path: str) -> sqlite3.Connection:
    """Returns a connection that only reads, with this version's views in place of the file's. Raises Fault, Misuse.

    The views are temporary: those of the file, which may be anything, are not read. A stranger's triggers and functions
    do not run, and a query that takes longer than any query on a database of this size should is interrupted.
    Interrupting the process interrupts a query.
    """
    check_file(path)
    with faults(path):
        db, _ = open_file(path)
        try:
            _distrust(db, path)
            check(db, path)
            db = raised(db)
            _distrust(db, path)
            for text in view_scripts():
                db.executescript(text.replace("\nCREATE VIEW ", "\nCREATE TEMP VIEW "))
            db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
    return db
