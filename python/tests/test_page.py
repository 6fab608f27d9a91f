"""The page of a report and its figures: numbers are those of the SQL that is shown, no name is markup, nothing is requested, what is missing is a
sentence."""

import contextlib
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT, engine, inside
from pages import Page, many, small_run

import speclab
from speclab import names
from speclab.command import Misuse

sys.path.insert(0, str(ROOT / "tests/cases"))
from interval_numbers import interval, units_interval  # noqa: E402

FIGURES = {"speedup_by_category", "acceptance_by_depth", "speedup_by_length", "sweep", "speedup_by_batch", "time_split", "throughput_by_latency",
           "trees", "acceptance_by_context", "cost_of_pass", "prediction"}  # fmt: skip


def close(a, b, tolerance=1e-9):
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12))


def number(cell):
    return float(cell[1]) if cell[1] else None


@pytest.fixture(scope="session")
def db(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("pages"))


def report(db, to, *options):
    done = inside("report", "--db", db, "--html", to, *options)
    assert (done.status, done.err) == (0, ""), done.err
    return Page(to)


@pytest.fixture(scope="session")
def page(db):
    return report(db, db.parent / "page.html")


def changed(db, to, sql, **parameters):
    shutil.copyfile(db, to)
    with contextlib.closing(sqlite3.connect(to, isolation_level=None)) as c:
        c.execute("PRAGMA foreign_keys = ON")
        for statement in sql.split(";"):
            c.execute(statement, parameters)
    return to


@pytest.fixture(scope="session")
def few(db):
    """Its first runs."""
    return changed(db, db.parent / "few.db", "DELETE FROM run WHERE id > 3")


def query(db, sql):
    with contextlib.closing(sqlite3.connect(db)) as c:
        return c.execute(sql).fetchall()


def expect_numbers_of_the_sql(page, db):
    for name, section in page.sections.items():
        rows = query(db, section["sql"])
        assert len(rows) == len(section["rows"]) > 0, name
        for cell, value in ((c, v) for shown, row in zip(section["rows"], rows, strict=True) for c, v in zip(shown, row, strict=False)):
            if isinstance(value, str):
                assert cell[1] is None and cell[0].split() == names.plain(value).split(), name
            else:
                assert close(number(cell), value, 1e-14) and (value is None or close(float(cell[0]), value, 1e-3)), (name, cell)


def test_numbers_are_those_of_the_sql_that_is_shown(page, db):
    assert set(page.sections) == FIGURES and all(s["pictures"] for s in page.sections.values())
    expect_numbers_of_the_sql(page, db)


def test_intervals_are_those_of_the_sums(page, db):
    """The table `sums` of each figure, and interval_numbers.py."""
    compared = 0
    for name, section in page.sections.items():
        head = section["sql"].partition("\n),\npredicted AS (")[0]
        head = head.rpartition("\n)\nSELECT ")[0] or head
        if "\nsums AS (" not in head:
            continue
        clusters = {}
        for row in query(db, f'{head}\n)\nSELECT "group", measure, series, x, run, a, b, c, d, e, f, prompt, unit FROM sums ORDER BY prompt, unit'):
            clusters.setdefault(tuple(map(str, row[:5])), []).append(row[5:])
        run = [head for head, _ in section["heads"]].index("run")
        for row in section["rows"][::3]:
            texts = [text if exact is None else exact for text, exact in row]
            if (key := (*texts[:4], texts[run])) not in clusters:
                assert name == "prediction" and row[-1][1] == row[-2][1] == "", key  # what is measured has an interval
                continue
            columns = [list(column) for column in zip(*clusters[key], strict=True)]
            kind = "ratios" if columns[2][0] is not None else "rate" if name.startswith("acceptance") else "ratio"
            sums, steps, (prompts, units) = columns[: 4 if kind == "ratios" else 2], columns[4 : 6 if kind == "ratios" else 5], columns[6:]
            value, low, high = interval(kind, *sums) if units[0] is None else units_interval(kind, sums, steps, prompts, units)
            assert close(number(row[4]), value) and close(number(row[-2]), low, 1e-6) and close(number(row[-1]), high, 1e-6), (name, key)
            compared += 1
    assert compared > 60


def test_acceptance_by_context_is_that_of_plain_loops(page, db):
    steps = {}
    for run, prompt_tokens, sequence in query(db, "SELECT run, prompt_tokens, id FROM sequence"):
        context = max(prompt_tokens - 1, 0)
        for drafted, accepted, tokens in query(db, f"SELECT drafted, accepted, tokens FROM step WHERE sequence = {sequence} ORDER BY step"):
            steps.setdefault(run, []).append((drafted, accepted, context))
            context += tokens
    for row in page.sections["acceptance_by_context"]["rows"]:
        low = int(row[3][1])
        inside = [s for s in steps[int(row[-3][1])] if s[0] > 0 and (0 if low == 32 else low) <= s[2] < 2 * low]
        assert close(number(row[4]), sum(s[1] for s in inside) / sum(s[0] for s in inside))


def test_cells_are_those_of_the_report(page, db):
    cells = {row[0][1]: row for row in page.cells if len(row) == 13}
    others = [json.loads(line) for line in engine("report", "--db", db, "--jsonl").splitlines()]
    assert set(cells) == {str(other["run"]) for other in others}
    for other in others:
        row = cells[str(other["run"])]
        for cell, name in ((5, "tokens_per_s"), (2, "speedup"), (3, "speedup_low"), (4, "tokens_per_step"), (6, "acceptance_rate")):
            assert close(number(row[cell]), other[name]), name
        assert ("LOSSY" in row[8][0]) == (not other["lossless"]) and row[9][0] == other["rule"] and row[7][0] in ("", "12/12", "sampled")


def test_what_varies_in_a_sweep_is_always_shown(page):
    cells = [row[1][0] for row in page.cells if len(row) == 13]
    assert {f"ngram(longest={n}, tokens={t})" for n in (1, 3) for t in (2, 8)} < set(cells)
    assert all("pick=" in c and "tokens=" in c and "nodes=" in c for c in cells if c.startswith("small"))
    assert {(r[2][0], r[3][0]) for r in page.sections["sweep"]["rows"][:4]} == {(f"tokens={t}", f"longest={n}") for n in (1, 3) for t in (2, 8)}


@pytest.mark.parametrize("sweep, full", [
    ({"s(tokens=2)": 2, "s": 4, "s(tokens=8)": 8}, ["s(tokens=2)", "s(tokens=4)", "s(tokens=8)"]),
    ({"s(tokens=2)": 2, "t": 4}, ["s(tokens=2)", "t"]), ({"s(a=1)": 4, "s": 4}, ["s(a=1)", "s"]),
    ({"s(m=x, b=1)": 3, "s(m=x, tokens=5)": 5}, ["s(m=x, tokens=3, b=1)", "s(m=x, tokens=5)"]),
])  # fmt: skip
def test_a_default_that_varies_is_in_the_name(sweep, full):
    assert [*map(str, names.in_full([*map(named, sweep)], [{"m": 0, "tokens": t, "b": 1} for t in sweep.values()]))] == full


def named(drafter):
    """A name whose options have no commas."""
    kind, _, rest = drafter.partition("(")
    return names.Name(kind, dict(o.split("=") for o in rest[:-1].split(", ")) if rest else {})


def test_names_without_options_and_with_what_differs_alone():
    expectations = {"ngram(tokens=4)": "ngram", "ngram(shortest=2, tokens=4)": "ngram(shortest=2)", "s(tokens_of=4)": "s(tokens_of=4)"}
    for drafter, expected in expectations.items():
        assert str(names.without(named(drafter), ["tokens"])) == expected
    drafters = ["eagle3(weights=/a/b/head, tokens=2)", "eagle3(weights=/a/b/head, tokens=3)", "ngram(tokens=8)", "eagle3(weights=/c/other, tokens=2)"]
    drafters = [*map(named, drafters)]
    assert [names.label(d, drafters) for d in drafters] == ["eagle3 weights=head tokens=2", "eagle3 weights=head tokens=3", "ngram",
                                                            "eagle3 weights=other tokens=2"]  # fmt: skip


def test_a_name_is_its_kind_and_options_as_the_run_has_them():
    """A name that they do not make, in a stranger's database, is a kind without options."""
    nested = '{"of": "[{kind: ngram, tokens: 4}]", "tokens": "3"}'
    assert names.of_run("ladder(of=[{kind: ngram, tokens: 4}], tokens=3)", "ladder", nested).options["tokens"] == "3"
    for kind, options in (("a", '{"b": 2}'), ("a", "[]"), ("a", "{"), ("c", '{"b": "1"}'), ("a", "null"), ("a", '{"b": "1", "c": "2"}')):
        assert names.of_run("a(b=1)", kind, options) == names.Name("a(b=1)", {})


def test_characters_that_hide_others_and_long_texts_are_replaced():
    assert names.plain("a\nb\x7f\u202ec") == "a b \ufffdc" and names.plain("äöüß", 3) == "äö…"


def test_a_bench_is_a_group_of_its_own(few, tmp_path):
    copy = shutil.copy(few, tmp_path / "benches.db")
    changes = {"threads": 4, "machine": "another", "cache": "q8_0", "target_hash": "0123456789", "activations": "bf16", "device": "cuda"}
    with contextlib.closing(sqlite3.connect(copy)) as c:
        for new, change in enumerate(changes.items(), 100):
            for table, key in (("bench", "id"), ("bench_round", "bench"), ("bench_time", "bench"), ("cost", "bench")):
                row = {key: new} | (dict([change]) if table == "bench" else {})
                columns = [name for _, name, *_ in c.execute(f"PRAGMA table_info({table})")]
                c.execute(f"INSERT INTO {table} SELECT {', '.join('?' if k in row else k for k in columns)} FROM {table} WHERE {key} = 1",
                          [row[k] for k in columns if k in row])  # fmt: skip
        c.commit()
    groups = {row[0][0] for row in report(copy, tmp_path / "benches.html").sections["cost_of_pass"]["rows"]}
    for words in (", 4 threads", ", another", ", cache q8_0", ", weights 01234567", ", bf16", ", cuda"):
        assert len(groups) == 7 and sum(words in g for g in groups) == 1, words


def test_a_notebook_has_the_pictures(few):
    with speclab.open(few) as results:
        picture = results.plot("time_split")[0]
        assert results.plot("acceptance_by_depth")._repr_html_().count("<svg") == 2 * len(results.comparisons)
        picture.axes[0].set_xlabel("milliseconds")
        shown = picture._repr_html_()
        assert shown.startswith("<svg") and "milliseconds" in shown and "Where the time goes" in shown
        for name, says in (("trees", "trees: needs two cells of one drafter"), ("x", "plot: expected one of speedup_by_category, ")):
            with pytest.raises(Misuse, match=says):
                results.plot(name)


def expect_no_request(page):
    rest = page.text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    assert not [w for w in ("http:", "https:", "src=", "@import", "//cdn", "fetch(", "XMLHttpRequest") if w in rest]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) and {to.removeprefix("#") for to in re.findall(r"url\((.*?)\)", rest)} <= set(ids)
    for tag, attributes in page.tags:
        for name in {"href", "xlink:href", "action", "data", "poster", "srcset"} & set(attributes):
            assert attributes[name].startswith("#") or (tag, attributes[name]) == ("link", "data:,")
    assert any("default-src 'none'" in attributes.get("content", "") for tag, attributes in page.tags if tag == "meta")


def test_no_request_leaves_it(page):
    expect_no_request(page)


@pytest.mark.slow
def test_pictures_are_files(db, tmp_path):
    out = inside("report", "--db", db, "--svg", "svg", "--pdf", "pdf", cwd=tmp_path).out.split()
    assert sorted(out) == sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*"))
    assert {p.stem for p in tmp_path.glob("svg/*")} == {p.stem for p in tmp_path.glob("pdf/*")} >= {f"{name}-1" for name in FIGURES}
    for path in tmp_path.glob("svg/*"):
        assert "prefers-color-scheme" in "".join(xml.etree.ElementTree.parse(path).getroot().itertext())
    assert all(p.read_bytes().startswith(b"%PDF-") for p in tmp_path.glob("pdf/*"))


@pytest.mark.slow
def test_names_are_no_markup(db, page, tmp_path):
    """Names that would be markup, SQL, mathematics or commands of a shell: the same tags with the same attributes as on a plain page."""
    hostile = many(db, tmp_path / "hostile.db", 60, "--hostile")
    found = report(hostile, tmp_path / "hostile.html", "--svg", tmp_path / "svg")
    assert {p.name for p in tmp_path.iterdir()} == {"hostile.db", "hostile.html", "svg"}
    assert {(tag, tuple(sorted(a))) for tag, a in found.tags} <= {(tag, tuple(sorted(a))) for tag, a in page.tags}
    assert found.text.count("<script") == found.text.count("</script") == 1 and "alert(1)" in found.words
    expect_numbers_of_the_sql(found, hostile)
    expect_no_request(found)
    assert all(xml.etree.ElementTree.parse(p) for p in tmp_path.glob("svg/*"))


def test_a_damaged_database_has_a_page(few, tmp_path):
    report(changed(few, tmp_path / "d.db", "UPDATE run SET drafter = CAST(x'00ff80c3286e67' AS TEXT), sampling = '' WHERE id = 2;"
                   "UPDATE run SET settings = '[]', drafter = :deep, rule = '' WHERE id = 3;"
                   "UPDATE sequence SET category = CAST(x'ff3c' AS TEXT) WHERE prompt = 1", deep="(" * 20000 + '"'), tmp_path / "d.html")  # fmt: skip


@pytest.mark.parametrize("sql, lacks, says", [
    ("DELETE FROM run WHERE drafter_kind = 'none' OR id > 6; DELETE FROM bench",
     {"speedup_by_category", "speedup_by_batch", "sweep", "cost_of_pass", "prediction"}, "needs `speclab bench MODEL --db FILE` into this database."),
    ("UPDATE run SET finished = NULL; DELETE FROM run WHERE batch > 1 OR id > 8; UPDATE sequence SET category = NULL",
     {"speedup_by_batch", "speedup_by_category", "throughput_by_latency"}, "needs cells of two batches (YAML key `batch: [1, 4]`), with none."),
    ("DELETE FROM sequence; DELETE FROM bench", FIGURES, "needs a run with decoded texts."),
    ("DELETE FROM run WHERE id > 8; UPDATE sequence SET decode_ns = 0, wall_ns = 0, prefill_ns = 0;"
     "UPDATE step SET propose_ns = 0, verify_ns = 0, advance_ns = 0, at_ns = 0", {"speedup_by_category", "sweep", "prediction"}, ""),
])  # fmt: skip
def test_what_is_missing_is_a_sentence(db, tmp_path, sql, lacks, says):
    page = report(changed(db, tmp_path / "c.db", sql), tmp_path / "c.html")
    assert FIGURES - set(page.sections) >= lacks and says in page.words and ("UNFINISHED" in page.text) == ("finished" in sql)


OWN = """from speclab.figures import Figure
FIGURE = Figure(name="own", title="Mine", about="Mine.", {more} sql='''WITH chosen("group", series, run) AS (SELECT sampling, drafter, id FROM run)
SELECT "group", 'tokens', series, prompt, avg(new_tokens), run FROM chosen JOIN sequence USING (run) GROUP BY 1, 3, 4, run ORDER BY 6, 4''')
"""
DRAW = "def draw(axes, panel):\n    axes.plot([{} / r.value for r in panel.rows])\n" + OWN.replace("{more}", "style=draw,")


@pytest.mark.parametrize("text, says", [
    (DRAW.format(1), ""), (DRAW.format("x"), "own.py:2: NameError: name 'x' is not defined"), ("x = = 1", "own.py:1: SyntaxError"),
    ("x = 1", "own.py: expected a variable FIGURE, a speclab.figures.Figure, found NoneType"),
    (OWN.format(more="").replace("own", "trees"), "figure trees: expected a name that no other figure has"),
    (OWN.format(more="").replace("avg(", "avgs("), "no such function: avgs"),
    (OWN.format(more="choose='all',"), "expected choose of none, sweep, every"),
])  # fmt: skip
def test_a_figure_of_one_s_own_is_a_file(few, tmp_path, text, says):
    (tmp_path / "own.py").write_text(text)
    done = inside("report", "--db", few, "--html", "x.html", "--figure", "own.py", cwd=tmp_path)
    assert done.status == (1 if says else 0) and says in done.err and len(done.err.splitlines()) == (1 if says else 0), done.err
    assert (tmp_path / "x.html").exists() == (not says) and (says or Page(tmp_path / "x.html").sections["own"]["pictures"] == 1)


@pytest.mark.parametrize("words, status, says", [
    (["--html", "x.html", "--latex"], 2, "exclude each other"),
    (["--experiment", "other", "--html", "x.html"], 2, 'no experiment "other" in it'),
    (["--html", "no/folder/x.html"], 1, "cannot be written"), (["--svg", "small.db/x"], 1, "small.db/x: could not be created"),
    (["--pdf", "small.db"], 1, "small.db: could not be created: File exists"),
    (["--figure", "own.py"], 2, "--figure goes with --html, --svg and --pdf"),
])  # fmt: skip
def test_bad_input_is_a_sentence(few, tmp_path, words, status, says):
    shutil.copy(few, tmp_path / "small.db")
    done = inside("report", "--db", "small.db", *words, cwd=tmp_path)
    assert (done.status, len(done.err.splitlines())) == (status, 1) and says in done.err and not (tmp_path / "x.html").exists(), done.err


@pytest.mark.parametrize("line, says", [
    ('{"of": "mean", "a": [1]}', '"of": expected rate, ratio, ratio_of_ratios, difference or change, found "mean"'),
    ("[1]", "expected a JSON object"),
    ('{"of": "ratio", "a": [1]}', '"b": expected a list of numbers, found nothing'), ("{", ":2:"),
    ('{"of": "ratio", "a": [1], "b": [1, 2]}', '"b": expected 1 numbers'),
    ('{"of": "ratio", "a": ["x"], "b": [1]}', '"a": expected numbers, found a text'),
    ('{"of": "ratio", "a": [1], "b": [1], "unit": [1.5], "prompt": [1]}', '"unit": expected integers'),
])  # fmt: skip
def test_sums_that_are_none_are_refused_with_their_line(tmp_path, line, says):
    (tmp_path / "sums").write_text(f'{{"of": "rate", "a": [1, 2], "b": [2, 5]}}\n{line}\n')
    done = subprocess.run([os.environ["SPECLAB_PROGRAM"], "report", "--intervals", tmp_path / "sums"], capture_output=True, text=True)
    assert done.returncode == 1 and "sums:2:" in done.stderr and says in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("cells, most", [(200, 3e6), (1000, 6e6)])
def test_many_cells_are_one_small_file(db, tmp_path, cells, most):
    less = changed(db, tmp_path / "less.db", f"DELETE FROM sequence WHERE prompt >= {2400 // cells}")
    page = report(many(less, tmp_path / "many.db", cells), tmp_path / "many.html")
    assert len([row for row in page.cells if len(row) == 13]) == cells and len(page.text) < most
    assert max(s["pictures"] for s in page.sections.values()) <= 8 and "The table of all cells has the others." in page.words
    expect_numbers_of_the_sql(page, tmp_path / "many.db")
