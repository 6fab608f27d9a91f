"""`merge`: parts of a database, merged in any order and any number of times, are the database; what cannot be merged changes nothing."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import ROOT, call
from frozen import EXPERIMENT

from speclab import database, merging
from speclab.command import Fault
from speclab.merging import Output, check_input, merge

# What the frozen database leaves empty. The runs are of two machines, pair by pair, and have two rounds.
MORE = """
UPDATE run SET settings = json_set(settings, '$.id', id), drafter_hash = iif(drafter_kind = 'recycling', 'd5', NULL);
DELETE FROM environment;
INSERT INTO environment (run, since, processor, arithmetic, revision, mhz) SELECT run.id, '2026-01-01T00:00:0' || m.value || 'Z',
    'processor ' || m.value, 'avx2, 2 threads', 'r1', 1000.5 * m.value FROM run JOIN json_each('[1, 2]') AS m ORDER BY m.value, run.id;
UPDATE run SET machine = 'processor 1, avx2, 2 threads; processor 2, avx2, 2 threads', revision = 'r1';
UPDATE sequence SET environment = (SELECT id FROM environment AS e WHERE e.run = sequence.run AND e.processor = 'processor ' || (1 + pair % 2));
INSERT INTO draft SELECT sequence, step, step, '[1, ' || step || ']', '[-1, 0]', '[0, 1]', '[5]', NULL, x'0102' FROM step WHERE drafted > 0;
INSERT INTO step_rule SELECT sequence, step, '(bound)', 1, 0.5, 0.25 FROM step WHERE drafted > 0;
INSERT INTO trial SELECT sequence, step, 1, 1, 0, 5, 0, 0.5, NULL, accepted > 0, NULL FROM step WHERE drafted > 0;
INSERT INTO step_source SELECT sequence, step, 'ngram+eagle3', drafted, accepted FROM step WHERE drafted > 0;
INSERT INTO shard SELECT id, 2, 0, 'w', 2, NULL FROM run WHERE id < 4;
INSERT INTO bench (id, target, target_hash, model_type, activations, cache, marked_inflated, weight_bytes, device, machine, threads, revision,
    started) SELECT value, 't', 'h', 'f32', 'f32', 'f32', 0, 1000, 'cpu', 'm' || value, 2, 'r', '2026-01-01T00:00:00Z' FROM json_each('[1, 2]');
INSERT INTO bench_peer SELECT id, 1, 'llama' FROM bench;
INSERT INTO bench_peak SELECT id, 'f32', 'avx2', id * 1e9 FROM bench;
INSERT INTO bench_round (bench, round, counts, placement) SELECT bench.id, value, 1, 'S' FROM bench JOIN json_each('[0, 1]');
INSERT INTO bench_time (bench, round, what, context, n, peer, ns) SELECT bench, round, 'pass', 8, 1 + p.value, p.value, 1000 * bench + round
    FROM bench_round JOIN json_each('[0, 1]') AS p;
INSERT INTO cost (bench, placement, form, a, b, s, n0, d, e, hinge_error, hinge_rms, table_error, table_rms)
    SELECT id, 'S', 'hinge', id, 2, 3, 4, 5, 6, 7, 8, 9, 10 FROM bench;
INSERT INTO exact (id, experiment, cell, settings, target, drafter, rule, lossless, sampling, batch, seed, machine, revision, started, sequences,
    tokens, steps, sums) SELECT id, experiment, cell, settings, target, drafter, rule, lossless, sampling, batch, seed, machine, 'r', started, 10,
    100, 50, x'0011' FROM run;
INSERT INTO exact_stream SELECT exact.id, value, 5, 0.5, 0 FROM exact JOIN json_each('["text", "control"]');
INSERT INTO exact_test SELECT exact, stream, 'KS', 'order', 'all', 5, 0.5, -1.5, -1 FROM exact_stream;
INSERT INTO exact_rule (rule, declared_exact, instances, outcomes, distance, formula_error, verdict, revision, started)
    VALUES ('rejection', 1, 40, 1000, 1e-17, 1e-16, 'exact', 'r', '2026-01-01T00:00:00Z');
INSERT INTO exact_bits (experiment, cell, settings, target, drafter, rule, sampling, machine, revision, started, compared, different, largest,
    ties, argmax_changed, bugs, verdict) VALUES ('e', 'c', '', 't', 'd', 'r', 's', 'm', 'r', '2026-01-01T00:00:00Z', 5, 0, 0, 0, 0, 0, 'same');
"""
# What an id stands for: a row of this table by its values.
MEANING = {
    "run": "(SELECT experiment || cell FROM run WHERE id = t.run)", "pair": "(SELECT uuid FROM pair WHERE id = t.pair)",
    "sequence": "(SELECT format('%s %s %d %d %d', cell, uuid, prompt, turn, repeat) FROM sequence AS q JOIN run ON run.id = q.run"
                " JOIN pair ON pair.id = q.pair WHERE q.id = t.sequence)",
    "environment": "(SELECT processor || mhz FROM environment WHERE id = t.environment)",
    "bench": "(SELECT machine FROM bench WHERE id = t.bench)", "exact": "(SELECT cell || revision FROM exact WHERE id = t.exact)"}  # fmt: skip


def change(path, script):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA foreign_keys = ON;" + script)


def one(path, sql):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchone()[0]


def dump(path, facts=False):
    """Every row. facts: what ids stand for, without what depends on which databases were merged."""
    rows = {}
    with contextlib.closing(sqlite3.connect(path)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall():
            names = [n for (n,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            if facts:
                left_out = {"id"} | ({"started", "finished", "machine", "revision"} if table == "run" else set())
                names = [MEANING.get(n, n) for n in names if n not in left_out]
            rows[table] = sorted(map(repr, db.execute(f"SELECT {', '.join(names)} FROM {table} AS t")))
    return rows


def copy(path, name, table="run", where="false", script=""):
    """A copy without the rows that `where` selects, changed by a script."""
    to = path.parent / name
    shutil.copy(path, to)
    change(to, f"DELETE FROM {table} WHERE {where};{script}")
    return to


def put(out, *sources):
    """Opens OUT and merges sources; what the last one added."""
    merged = None
    with contextlib.closing(Output(str(out))) as o:
        for source in sources:
            check_input(str(source))
            merged = merge(o, str(source))
    return merged


def refused(out, source, says):
    before = dump(out)
    with pytest.raises(Fault) as raised:
        put(out, source)
    said = str(raised.value)
    assert said.startswith(f"{source}: ") and says in said and "\n" not in said
    assert dump(out) == before


@pytest.fixture
def whole(frozen_db):
    change(frozen_db, MORE)
    return frozen_db


def test_a_database_merged_into_a_new_one_is_copied_whole(whole, tmp_path):
    out = tmp_path / "out.db"
    assert all(dump(whole).values())
    put(out, whole)
    assert dump(out, facts=True) == dump(whole, facts=True)
    once = dump(out)
    assert put(out, whole) == merging.Merged(0, 0, 0, 0) and dump(out) == once
    shown = call("merge", out, whole, cwd=tmp_path)
    assert shown.status == 0 and f"{whole}: added: runs 0, pairs 0, texts 0\n{out}: runs " in shown.out and "  texts " in shown.out


@pytest.mark.parametrize("trial", range(6))
def test_parts_are_merged_to_the_whole_in_any_order(whole, tmp_path, trial):
    """Every pair is in one part or more. A part may be of an earlier time: the last texts are missing, and the last pair is not complete."""
    dice = random.Random(trial)
    n, out = dice.choice((2, 3, 4)), tmp_path / "out.db"
    parts = [copy(whole, f"part-{i}.db", "pair", f"id % {n} <> {i} AND (id * {dice.randint(1, 4)} + {i}) % 3 > 0",
                  "DELETE FROM run WHERE id > 4 AND id NOT IN (SELECT run FROM sequence)") for i in range(n)]  # fmt: skip
    early = copy(whole, "early.db", "sequence", f"id > {dice.randint(5, 45)}", """DELETE FROM slice WHERE (pair, run) NOT IN (SELECT pair, run
        FROM sequence) OR round > (SELECT max(t.round) FROM step AS t JOIN sequence AS q ON q.id = t.sequence WHERE (q.pair, q.run) =
        (slice.pair, slice.run))""")  # fmt: skip
    dice.shuffle(parts)
    put(out, *([early] if trial % 2 else []), *parts)
    assert dump(out, facts=True) == dump(whole, facts=True)
    once = dump(out)
    put(out, *parts, early, whole)
    assert dump(out) == once


def test_machines_and_times_are_those_of_all_parts(whole, tmp_path):
    a = copy(whole, "a.db", "pair", "id % 2 = 0", "DELETE FROM environment WHERE processor = 'processor 1';"
             "UPDATE run SET started = '2025-05-05T05:05:05Z', machine = 'x', revision = 'x'")  # fmt: skip
    b = copy(whole, "b.db", "pair", "id % 2 = 1", "DELETE FROM environment WHERE processor = 'processor 2'; UPDATE environment SET revision = 'r2'")
    put(tmp_path / "out.db", b, a)
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as db:
        rows = set(db.execute("SELECT machine, revision, started FROM run WHERE id IN (SELECT run FROM environment GROUP BY 1 HAVING count(*) > 1)"))
        assert len(rows) == 1
        machine, revision, started = rows.pop()
        assert set(machine.split("; ")) == {"processor 1, avx2, 2 threads", "processor 2, avx2, 2 threads"}
        assert (revision, started) == ("r2, r1", "2025-05-05T05:05:05Z")


def test_conversations_that_are_stored_already_are_left_out(whole, tmp_path):
    """Another machine has decoded them in other pairs. A text without a partner of none is in no speedup, and gets the pair that has both."""
    again = copy(whole, "again.db", script="UPDATE pair SET uuid = lower(hex(randomblob(16))); UPDATE environment SET processor = 'another';"
                 "UPDATE sequence SET decode_ns = decode_ns + 1")  # fmt: skip
    alone = copy(whole, "alone.db", "sequence", "run IN (SELECT id FROM run WHERE drafter_kind = 'none') AND prompt = 1")
    half, out, n = copy(whole, "half.db", "pair", "id > 6"), tmp_path / "out.db", one(whole, "SELECT count(*) FROM sequence")
    before = dump(whole)
    assert put(whole, again) == merging.Merged(0, 0, 0, n) and dump(whole) == before
    put(out, half)
    had = one(out, "SELECT count(*) FROM sequence")
    merged = put(out, again)
    assert (merged.texts, merged.left_out) == (n - had, had)
    assert one(out, "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY run, prompt, turn, repeat HAVING count(*) > 1)") == 0
    last = one(alone, "SELECT max(id) FROM sequence")
    assert one(alone, "SELECT count(*) FROM paired WHERE none IS NULL") > 0
    put(alone, again)
    assert one(alone, f"SELECT count(*) FROM sequence WHERE id > {last} AND prompt <> 1") == 0
    assert one(alone, """SELECT count(*) FROM (SELECT 1 FROM paired JOIN sequence AS q ON q.id = sequence JOIN run ON run.id = q.run
        WHERE run.rule = 'rejection' GROUP BY q.run, prompt, turn, q.repeat HAVING count(none) = 0)""") == 0  # fmt: skip


@pytest.mark.parametrize("ours, theirs, missing_ours, missing_theirs, expected", [
    ("'2026-01-02'", "'2026-01-03'", "false", "false", "2026-01-03"),
    ("'2026-01-02'", "NULL", "false", "prompt > 0", "2026-01-02"),  # a part of a finished run
    ("NULL", "'2026-01-03'", "prompt > 0", "false", "2026-01-03"),
    ("'2026-01-02'", "NULL", "prompt > 0", "prompt = 0", None),  # a later file has more prompts, which are not done
    ("NULL", "'2026-01-03'", "prompt = 0", "prompt > 0", None),
    ("'2026-01-02'", "'2026-01-03'", "prompt > 0", "prompt = 0", "2026-01-03"),
    ("NULL", "NULL", "prompt > 0", "prompt = 0", None),
])  # fmt: skip
def test_a_run_is_finished_if_all_of_it_is_stored(whole, ours, theirs, missing_ours, missing_theirs, expected):
    change(whole, "DELETE FROM shard")
    a = copy(whole, "a.db", "sequence", missing_ours, f"UPDATE run SET finished = {ours}")
    b = copy(whole, "b.db", "sequence", missing_theirs, f"UPDATE run SET finished = {theirs}")
    for _ in range(2):
        put(a, b)
        assert one(a, "SELECT json_group_array(DISTINCT finished) FROM run") == f"[{f'{chr(34)}{expected}{chr(34)}' if expected else 'null'}]"


def test_shards_finish_a_run_when_the_last_is_merged(whole, tmp_path):
    out = tmp_path / "out.db"
    for i in range(4):
        shard = copy(whole, f"{i}.db", "pair", f"id % 4 <> {i}", f"DELETE FROM shard; UPDATE run SET finished = NULL;"
                     f"INSERT INTO shard SELECT id, 4, {i}, 'w', 4, '2026-01-0{9 - i}T00:00:00Z' FROM run")  # fmt: skip
        early = copy(shard, "early.db", script="UPDATE shard SET finished = NULL")
        put(out, early)
        assert one(out, "SELECT count(finished) FROM run") == 0
        put(out, shard, early)
    assert one(out, "SELECT group_concat(DISTINCT finished) FROM run") == "2026-01-09T00:00:00Z"
    assert one(out, "SELECT count(*) FROM shard") == 4 * one(out, "SELECT count(*) FROM run")


def test_sums_of_more_sequences_replace_others(whole):
    more = copy(whole, "more.db", "exact", "id > 3", "UPDATE exact SET sequences = 20, tokens = 200, sums = x'0022', finished = '2026-01-05';"
                "DELETE FROM exact_stream WHERE stream = 'control'")  # fmt: skip
    fewer, n = copy(whole, "fewer.db"), one(whole, "SELECT count(*) FROM exact")
    for _ in range(2):
        put(whole, more, fewer)
        assert one(whole, "SELECT sum(sequences) FROM exact") == 3 * 20 + (n - 3) * 10
        assert one(whole, "SELECT count(*) FROM exact_stream") == 3 * 1 + (n - 3) * 2


@pytest.mark.parametrize("script, says", [
    ("UPDATE run SET target_hash = 'ffff' WHERE id = 2", "run 2 (frozen, drafter ngram"),
    ("UPDATE run SET target_hash = 'ffff', cell = 'new' WHERE id = 2", "expected weights of the target "),
    ("UPDATE run SET drafter_hash = 'ffff' WHERE drafter_hash IS NOT NULL", "expected weights or configuration of the drafter "),
    ("UPDATE run SET drafter_hash = NULL, cell = 'new' || cell WHERE drafter_hash IS NOT NULL", ", found none"),
    ("UPDATE run SET config_hash = 'ffff'", "expected configuration of the target "),
    ("UPDATE run SET tokenizer_hash = 'ffff', cell = 'new' || cell", "expected tokenizer of the target "),
    ("UPDATE run SET prompts = 'p.jsonl 4567', cell = 'new' || cell", ", found p.jsonl 4567"),
    ("UPDATE run SET settings = '{}' WHERE id = 3", "run 3 (frozen, drafter "),
    ("UPDATE run SET cell = 'new' WHERE id = 1", "expected cell (inputs as the chat template) "),
    ("UPDATE sequence SET decode_ns = 5 WHERE id = 1", "sequence 1: expected the text and times of sequence 1 of "),
    ("DROP TABLE trial", "could not be merged into "),
    ("ALTER TABLE draft DROP COLUMN entries", "could not be merged into "),
    ("PRAGMA user_version = 14", "found 14: run again into a new file"),
    ("PRAGMA user_version = 99", "found 99: a newer speclab wrote it"),
    ("PRAGMA application_id = 7", "an SQLite database of another program"),
    ("ALTER TABLE run RENAME TO kept; CREATE VIEW run AS SELECT * FROM kept", 'expected tables as speclab makes them, found the view "run"'),
    ("DROP TABLE trial; CREATE TABLE trial (sequence, step)", 'expected tables as speclab makes them, found the table "trial"'),
    ("ALTER TABLE pair ADD COLUMN \"a b\" TEXT", 'table pair: expected columns as speclab makes them, found "a b"'),
    ("UPDATE run SET target = printf('%.*c', 1048577, 'x') WHERE id = 2",
     "table run, row id 2, column target: expected at most 1048576 bytes, found 1048577"),
    ("UPDATE run SET rule = printf('%.*c', 16777217, 'x') WHERE id = 1", "column rule: expected at most 16777216 bytes, found 16777217"),
])  # fmt: skip
def test_other_inputs_of_a_cell_and_other_files_are_refused(whole, tmp_path, script, says):
    put(tmp_path / "out.db", whole)
    refused(tmp_path / "out.db", copy(whole, "changed.db", script=script), says)


def version_15(path):
    """The same database as version 15 had it."""
    change(path, "ALTER TABLE run DROP COLUMN drafter_options; PRAGMA user_version = 15")
    return path


def test_a_database_of_version_15_is_merged_as_one_of_this_version(whole, tmp_path):
    """As an input, which stays as it is, and as OUT."""
    options = "SELECT json_group_array(json(drafter_options)) FROM (SELECT * FROM run ORDER BY cell)"
    expected, old = one(whole, options), version_15(copy(whole, "old.db"))
    assert expected.count('"longest"') > 1
    put(tmp_path / "new.db", old)
    assert one(tmp_path / "new.db", options) == expected and one(old, "PRAGMA user_version") == 15
    before = one(old, "SELECT count(*) FROM step")
    put(old, whole)
    assert one(old, options) == expected and one(old, "PRAGMA user_version") == database.VERSION and one(old, "SELECT count(*) FROM step") == before
    with contextlib.closing(database.connect(str(version_15(copy(whole, "read.db"))))) as db:
        assert db.execute(options).fetchone()[0] == expected


def test_what_is_no_database_is_refused(whole, tmp_path):
    (tmp_path / "text.db").write_text("no database " * 99)
    (tmp_path / "empty.db").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    out = tmp_path / "out.db"
    put(out, whole)
    for name, says in (("text.db", "not an SQLite database"), ("empty.db", "expected a database of speclab, found an empty file"),
                       ("folder", "is a folder, not a database"), ("none.db", "no such database"),
                       ("pipe", "is not a regular file")):  # fmt: skip
        refused(out, tmp_path / name, says)
    for words, status, says in (((out, "none.db"), 2, "none.db: no such database"), ((out,), 2, "missing argument"),
                                ((out, tmp_path / "./out.db"), 2, "expected other databases than OUT, found OUT itself"),
                                (("no/out.db", whole), 1, "no/out.db: there is no folder no"),
                                (("text.db", whole), 1, "text.db: not an SQLite database")):  # fmt: skip
        shown = call("merge", *words, cwd=tmp_path)
        assert shown.status == status and says in shown.err and shown.err.count("\n") == 1


def test_triggers_and_views_of_other_people_do_not_run(whole, tmp_path):
    """Those of an input are not read; a trigger of OUT is refused; its views are replaced."""
    evil = "CREATE TRIGGER evil AFTER INSERT ON run BEGIN DELETE FROM pair; END; DROP VIEW paired; CREATE VIEW paired AS SELECT 1 AS sequence;"
    source, out = copy(whole, "evil.db", script=evil), tmp_path / "out.db"
    put(out, source)
    assert dump(out, facts=True) == dump(whole, facts=True)
    with pytest.raises(Fault, match='out: expected a database as speclab makes it, found the trigger "evil"'):
        Output(str(shutil.copy(source, tmp_path / "out")))
    change(source, "DROP TRIGGER evil")
    put(source, whole)
    assert one(source, "SELECT count(*) FROM paired") == one(whole, "SELECT count(*) FROM paired")


def test_a_damaged_file_is_refused(whole, tmp_path):
    """Cut, or with bytes changed where SQLite keeps its trees: refused, or merged if the change is in what a row says."""
    dice, found, out, data = random.Random(3), 0, tmp_path / "out.db", whole.read_bytes()
    put(out, whole)
    for trial in range(9):
        damaged = bytearray(data[: len(data) // 4096 * 4096 * (trial + 1) // 4] if trial < 3 else data)
        for at in range(4096, len(data), 7 * 4096) if trial >= 3 else ():
            damaged[at + dice.randrange(8)] = dice.randrange(256)
        (tmp_path / "damaged.db").write_bytes(damaged)
        try:
            put(out, tmp_path / "damaged.db")
        except Fault as why:
            found += "damaged" in str(why)
    assert found >= 7
    torn = data.replace(b"CREATE TABLE run (", b"CREATE TABLE run `", 1)
    for content, says in ((data[:-1], "its last page is cut off"), (torn, "malformed database schema")):
        (tmp_path / "damaged.db").write_bytes(content)
        with pytest.raises(Fault, match=f"the database is damaged: .*{says}") as raised:
            put(out, tmp_path / "damaged.db")
        assert "\n" not in str(raised.value)
    with contextlib.closing(sqlite3.connect(out)) as db:
        assert all("NULL value in" in line or line == "ok" for (line,) in db.execute("PRAGMA integrity_check"))


def test_runs_and_merges_exclude_each_other(whole, tmp_path, tiny):
    """The engine knows this lock, whose byte is made of the experiment's name."""
    out = tmp_path / "out.db"
    with contextlib.closing(Output(str(out))) as o:
        o.lock("frozen")
        merge(o, str(whole))
        assert 'another process is running or merging experiment "frozen" into it' in call("merge", out, whole, cwd=tmp_path).err
        with pytest.raises(Fault, match="expected a database that is complete, found one that another process is running an experiment into"):
            check_input(str(out))
        (tmp_path / "frozen.yaml").write_text(EXPERIMENT.format(model=tiny, prompts=ROOT / "experiments/data/smoke.jsonl"))
        said = call("run", "frozen.yaml", "--db", out, "--no-probe", cwd=tmp_path)
        assert said.status == 1 and "another process is running experiment" in said.err


def test_a_log_of_a_killed_process_is_read(whole, tmp_path):
    code = f"""import os, sqlite3; db = sqlite3.connect({str(whole)!r}); db.execute("UPDATE pair SET started = '2020-01-01'"); db.commit()
os.kill(os.getpid(), 9)"""
    subprocess.run([sys.executable, "-c", code])
    assert (tmp_path / f"{whole.name}-wal").stat().st_size > 0
    put(tmp_path / "out.db", whole)
    assert one(tmp_path / "out.db", "SELECT count(*) FROM pair WHERE started = '2020-01-01'") > 0


@pytest.mark.slow
def test_a_killed_merge_leaves_whole_inputs(whole, tmp_path):
    parts = [copy(whole, f"{i}.db", "pair", f"id % 3 <> {i}") for i in range(3)]
    texts = [0]
    for part in parts:
        texts.append(texts[-1] + one(part, "SELECT count(*) FROM sequence"))
    dice, found, length = random.Random(9), [], 0.0
    for kill in range(16):
        for old in tmp_path.glob("out.db*"):
            old.unlink()
        began = time.monotonic()
        words = [sys.executable, "-B", "-m", "speclab", "merge", "out.db", *map(str, parts)]
        child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
        if kill > 0:
            time.sleep(length * dice.uniform(0.2, 1))
            child.send_signal(signal.SIGKILL)
        child.wait()
        length = length or time.monotonic() - began
        put(tmp_path / "out.db")
        found.append(one(tmp_path / "out.db", "SELECT count(*) FROM sequence"))
        assert found[-1] in texts
        assert one(tmp_path / "out.db", "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)") == 0
        put(tmp_path / "out.db", *parts)
        assert dump(tmp_path / "out.db", facts=True) == dump(whole, facts=True)
    assert len(set(found)) > 2
