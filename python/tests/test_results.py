"""speclab.open: frames of tables and views with the program's numbers; other files are refused with a sentence."""

import json
import os
import re
import shutil
import sqlite3

import pytest
from conftest import ROOT, engine

import speclab
from speclab import database
from speclab.command import Fault, Misuse


def change(path, script):
    """What a stranger may do to a database."""
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()


def test_cells_have_the_numbers_of_the_report(frozen_db):
    lines = [json.loads(line) for line in engine("report", "--db", frozen_db, "--jsonl").splitlines()]
    with speclab.open(frozen_db) as results:
        cells = results.cells.set_index("run")
        assert len(cells) == len(lines) == len(results.runs)
        for line in lines:
            for key in ("speedup", "speedup_low", "tokens_per_s_high", "acceptance_rate", "acceptance_by_position"):
                found = cells.at[line["run"], key]
                assert found == line[key] or (line[key] is None and found != found), key
        first = results.comparisons[0]["cells"]
        assert [c["name"] for c in first if c["baseline"]] == ["none; rejection"]
        assert [c["lossless"] for c in first] == sorted((c["lossless"] for c in first), reverse=True)
        assert set(results.by_category.category) == {"conversation", "repetition", "ids"}
        html = results._repr_html_()
        assert html.count("<tr") == len(cells) + len(results.comparisons) and "frozen (1 of 2)" in html
        assert "ngram(tokens=3); typical *" in html
        assert set(results.against(2)["against"]) == {2}


def test_tables_and_every_view_are_frames(frozen_db):
    with speclab.open(frozen_db) as results:
        assert results.steps.tokens.sum() == results.texts.new_tokens.sum() == results.sql("SELECT sum(new_tokens) FROM sequence").iat[0, 0]
        for name in results.views:
            assert list(results.view(name).columns), name
        speed = results.view("speed").set_index("run").speedup
        assert (results.cells.set_index("run").speedup.dropna().sort_index() == speed.dropna()).all()
        with pytest.raises(Misuse, match='expected one of .*speed.*, found "sped"'):
            results.view("sped")


def test_an_experiment_alone(frozen_db):
    change(frozen_db, "UPDATE run SET experiment = 'other' WHERE id > 4; UPDATE pair SET experiment = 'other'")
    with speclab.open(frozen_db, "other") as results:
        for frame in (results.runs, results.cells, results.texts, results.steps.rename(columns={"run": "id"}), results.view("speed")):
            assert frame.get("run", frame.get("id")).min() > 4
    with speclab.open(frozen_db, "none such") as results, pytest.raises(Misuse, match="no experiment"):
        _ = results.cells


def test_it_only_reads(frozen_db):
    before = frozen_db.read_bytes()
    with speclab.open(frozen_db) as results:
        for query in ("DELETE FROM run", "CREATE TABLE x (a)", "CREATE TEMP TABLE x (a)"):
            with pytest.raises(Fault, match="only read"):
                results.sql(query)
        with pytest.raises(Fault, match="no such column"):
            results.sql("SELECT nope FROM run")
    assert frozen_db.read_bytes() == before and os.listdir(frozen_db.parent) == ["frozen.db"]


def test_a_file_that_cannot_be_written_to_is_read(frozen_db):
    frozen_db.chmod(0o444)
    frozen_db.parent.chmod(0o555)
    try:
        with speclab.open(frozen_db) as results:
            assert len(results.runs) == len(results.view("speed"))
    finally:
        frozen_db.parent.chmod(0o755)


@pytest.mark.parametrize("script, says", [
    ("PRAGMA user_version = 3", r"expected schema version \d+, found 3: run again into a new file"),
    ("PRAGMA user_version = 99", r"found 99: a newer speclab wrote it"),
    ("PRAGMA application_id = 1", "an SQLite database of another program"),
    ("ALTER TABLE step RENAME TO kept; CREATE VIEW step AS SELECT * FROM kept", 'found the view "step"'),
    ("CREATE VIEW pragma_table_info AS SELECT 1", 'found the view "pragma_table_info"'),
    ("ALTER TABLE run ADD COLUMN more INT AS (1)", 'table run: expected columns as speclab makes them, found the computed "more"'),
    ('ALTER TABLE run ADD COLUMN "a b" TEXT', 'found "a b"'),
    ("DROP TABLE step; CREATE TABLE step (sequence, step)", 'found the table "step"'),
])  # fmt: skip
def test_other_schemas_are_refused(frozen_db, script, says):
    change(frozen_db, script)
    with pytest.raises(Fault, match=says):
        speclab.open(frozen_db)


def test_views_of_the_file_are_not_read(frozen_db):
    change(frozen_db, "DROP VIEW speed; CREATE VIEW speed AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS run FROM n")
    with speclab.open(frozen_db) as results:
        assert "speedup" in results.view("speed")


def test_a_query_without_an_end_is_given_up(frozen_db, monkeypatch):
    monkeypatch.setattr(database, "_PER_BYTE", 1)
    with speclab.open(frozen_db) as results:
        with pytest.raises(Fault, match="given up"):
            results.sql("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n")
        assert len(results.runs)  # the next query begins anew


def test_what_is_no_database_is_refused(tmp_path):
    for name, content, says in (("text", b"x" * 600, "not an SQLite database"), ("short", b"x", "found 1 bytes"), ("empty", b"", "an empty file"),
                                ("torn", b"SQLite format 3\0" * 33, "its last page is cut off")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Fault, match=says):
            speclab.open(tmp_path / name)
    with pytest.raises(Misuse, match="no such database; `speclab run"):
        speclab.open(tmp_path / "missing")
    with pytest.raises(Fault, match="is a folder"):
        speclab.open(tmp_path)


def test_the_version_is_the_program_s(frozen_db):
    assert int(re.search(r"OLDEST_VERSION = (\d+)", (ROOT / "results/store.c").read_text())[1]) == database.OLDEST
    assert [name for name in database.VIEWS if not (ROOT / "results" / name).is_file()] == []
    copy = shutil.copy(frozen_db, frozen_db.with_name("copy.db"))
    with sqlite3.connect(copy) as db:
        of_file = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")}
        assert of_file == set(database.view_names())


def test_the_examples_on_the_page_run(frozen_db, monkeypatch):
    page = (ROOT / "docs/results.md").read_text().split("\n## In a notebook\n")[1].split("\n## ")[0]
    monkeypatch.chdir(frozen_db.parent)
    frozen_db.rename("demo.db")
    exec("\n".join(re.findall(r"^    (.*)", page, re.M)), {})
    assert len((frozen_db.parent / "best.csv").read_text().splitlines()) == 4


def test_a_damaged_file_is_a_sentence(frozen_db):
    content = frozen_db.read_bytes()
    frozen_db.write_bytes(content.replace(b"JOIN sequence AS n", b"\xbaOIN sequence AS n", 1))
    with pytest.raises(Fault, match="the database is damaged: malformed database schema"):
        speclab.open(frozen_db)
