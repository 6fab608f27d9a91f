#!/usr/bin/env python3
"""test_report_page.py BUILD - `speclab report --html, --svg, --pdf`: a page's numbers are those of the SQL that it shows, no name is markup and no request
leaves it, and what a database lacks is a sentence. Exit status 77: no gnuplot or no sqlite3."""
import math
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import xml.etree.ElementTree

from report_pages import HERE, command, must, query, read_page, small_run

sys.path.insert(0, os.path.join(HERE, "..", "cases"))
from interval_numbers import interval  # noqa: E402

RATES = {"acceptance_by_depth", "acceptance_by_context"}
FIGURES = {"speedup_by_category", "acceptance_by_depth", "speedup_by_length", "speedup_by_batch", "time_split", "throughput_by_latency", "trees",
           "acceptance_by_context", "cost_of_pass", "prediction"}


def close(a, b, tolerance=1e-9):
    return a is None and b is None or a is not None and b is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)


def same_text(x):
    """A key as text: SQLite's programs print numbers with 15 to 17 digits."""
    try:
        return f"{float(x):.12g}"
    except ValueError:
        return x


def report(speclab, db, page, *options):
    must(speclab, "report", "--db", db, "--html", page, *options)
    return read_page(page)


def numbers_are_those_of_the_sql_that_is_shown(page, db):
    for name, section in page.sections.items():
        rows = query(db, section["sql"])
        assert len(rows) == len(section["rows"]) > 0, name
        for shown, row in zip(section["rows"], rows):
            for (text, exact), value in zip(shown, row):
                if isinstance(value, str):
                    assert exact is None and text.split() == value.split(), (name, text, value)
                else:
                    assert close(float(exact) if exact else None, value, 1e-14), (name, exact, value)
                    assert not exact or close(float(text), value, 1e-3), (name, text, value)


def intervals_are_those_of_the_sums(page, db):
    """The table `sums` of each figure, and interval_numbers.py."""
    compared = 0
    for name, section in page.sections.items():
        sql = section["sql"]
        if "\nsums AS (" not in sql:
            continue
        head = sql[:sql.index("\n),\npredicted AS (") if "\npredicted AS (" in sql else sql.rindex("\n)\nSELECT ")]
        clusters = {}
        for *key, a, b, c, d in query(db, f'{head}\n)\nSELECT "group", measure, series, x, run, a, b, c, d FROM sums ORDER BY prompt'):
            clusters.setdefault(tuple(same_text(str(k)) for k in key), []).append((a, b, c, d))
        names = re.findall(r"<button type=\"button\">([^<]*)", page.text[page.text.index(f'<section id="{name}"'):].split("</thead>")[0])
        for row in section["rows"]:
            texts = [same_text(text if exact is None else exact) for text, exact in row]
            key = (*texts[:4], texts[names.index("run")])
            if key not in clusters:
                assert name == "prediction" and row[-1][1] == row[-2][1] == "", key  # only what is measured has an interval
                continue
            columns = [list(column) for column in zip(*clusters[key])]
            kind = "rate" if name in RATES else "ratio" if columns[2][0] is None else "ratios"
            value, low, high = interval(kind, *columns[:4 if kind == "ratios" else 2])
            assert value is None or close(float(row[4][1]), value), (name, key)
            # A resample in floats may differ from C's by rounding where many are alike.
            for (text, exact), other in zip(row[-2:], (low, high)):
                assert close(float(exact) if exact else None, other, 1e-6), (name, key, exact, other, len(columns[0]))
            compared += 1
    assert compared > 100


def numbers_are_those_of_plain_loops(page, db):
    """Some figures again, from the rows of the tables, in Python."""
    facts = sqlite3.connect(db)
    runs = {str(row[0]): row[1:] for row in facts.execute("SELECT id, settings, batch FROM run")}
    steps = {}
    for run, prompt, category, prompt_tokens, sequence in facts.execute("SELECT run, prompt, category, prompt_tokens, id FROM sequence"):
        context = max(prompt_tokens - 1, 0)
        for drafted, depth, accepted, tokens in facts.execute("SELECT drafted, depth, accepted, tokens FROM step WHERE sequence = ? ORDER BY step", [sequence]):
            steps.setdefault(str(run), []).append((drafted, depth, accepted, tokens, context))
            context += tokens
    for row in page.sections["acceptance_by_context"]["rows"]:
        run, low = row[2][0].split()[0], int(row[3][1])
        inside = [s for s in steps[run] if s[0] > 0 and (0 if low == 32 else low) <= s[4] < 2 * low]
        assert close(float(row[4][1]), sum(s[2] for s in inside) / sum(s[0] for s in inside)), row
    for row in page.sections["acceptance_by_depth"]["rows"]:
        run, depth = row[2][0].split()[0], int(row[3][1])
        drafts = [s for s in steps[run] if s[0] > 0]
        if row[1][0] == "share of all drafts":
            assert close(float(row[4][1]), sum(s[2] >= depth for s in drafts) / len(drafts)), row
    checked = 0
    chosen = re.findall(r"\n    \('((?:[^']|'')*)', '((?:[^']|'')*)', (\d+)\)", page.sections["speedup_by_length"]["sql"])
    for group, series, run in chosen:
        length = re.search(r"drafter: \{.*?, tokens: (\d+)", runs[run][0]).group(1)
        for row in page.sections["speedup_by_length"]["rows"]:
            if row[1][0] == "tokens per step" and (row[0][0], row[2][0], row[3][1]) == (group, series, length):
                assert close(float(row[4][1]), sum(s[3] for s in steps[run]) / len(steps[run])), row
                checked += 1
    assert checked == len(chosen) > 0


def cells_are_those_of_the_csv(page, speclab, db):
    import csv
    import io
    rows = {row["run"]: row for row in csv.DictReader(io.StringIO(must(speclab, "report", "--db", db, "--csv")))}
    cells = [row for row in page.cells if len(row) == 13]
    assert {row[0][1] for row in cells} == set(rows)
    for row in cells:
        other = rows[row[0][1]]
        steady = "steady_" if int(other["batch"]) > 1 else ""
        assert (row[1][0], row[9][0], row[10][0], row[11][1]) == (other["drafter"], other["rule"], other["sampling"], other["batch"])
        for cell, name in ((5, steady + "tokens_per_s"), (2, steady + "speedup"), (3, steady + "speedup_low"), (4, "tokens_per_step"), (6, "acceptance_rate")):
            expected = float(other[name]) if other[name] and other["drafter"] != "none" or cell in (4, 5) else None
            assert close(float(row[cell][1]) if row[cell][1] else None, expected, 1e-8), (row, name)
        if "/" in row[7][0]:  # texts equal
            assert close(float(row[7][1]), int(row[7][0].split("/")[0]) / int(row[7][0].split("/")[1])), row
        else:
            assert row[7] == (("" if other["drafter"] == "none" else "sampled" if "temperature=0" not in other["sampling"] else "-"), ""), row
        assert ("LOSSY" in row[8][0]) == (other["lossless"] == "0")


def a_bench_is_a_group_of_its_own(speclab, db, folder):
    """Benches that differ in one setting: none shares a line with another one."""
    shutil.copyfile(db, f"{folder}/benches.db")
    facts = sqlite3.connect(f"{folder}/benches.db")
    new = facts.execute("SELECT max(id) FROM bench").fetchone()[0]
    for change in ({"threads": 4}, {"machine": "another"}, {"cache": "q8_0"}, {"target_hash": "0123456789"}, {"activations": "bf16"}, {"device": "cuda"}):
        new += 1
        for table, key in (("bench", "id"), ("bench_round", "bench"), ("bench_time", "bench"), ("cost", "bench")):
            row = dict({"id" if table == "bench" else "bench": new}, **(change if table == "bench" else {}))
            columns = [name for _, name, *_ in facts.execute(f"PRAGMA table_info({table})")]
            facts.execute(f"INSERT INTO {table} SELECT {', '.join('?' if c in row else c for c in columns)} FROM {table} WHERE {key} = 1",
                          [row[c] for c in columns if c in row])
    facts.commit()
    facts.close()
    rows = report(speclab, f"{folder}/benches.db", f"{folder}/benches.html").sections["cost_of_pass"]["rows"]
    groups = {row[0][0] for row in rows}
    assert len(groups) == 7 and len({tuple(cell[0] for cell in row[:4]) for row in rows}) == len(rows), groups
    for words in (", 4 threads", ", another", ", cache q8_0", ", weights 01234567", ", bf16", ", cuda"):
        assert sum(words in group for group in groups) == 1, (words, groups)


def no_request_leaves_it(page):
    rest = page.text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    for word in ("http:", "https:", "src=", "@import", "url(", "//cdn", "fetch(", "XMLHttpRequest"):
        assert word not in rest, word
    for tag, attributes in page.tags:
        for name in ("href", "xlink:href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith("#") or (tag, attributes[name]) == ("link", "data:,"), (tag, attributes)
    assert any("default-src 'none'" in attributes.get("content", "") for tag, attributes in page.tags if tag == "meta")
    ids = [attributes["id"] for tag, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), sorted(i for i in ids if ids.count(i) > 1)[:5]
    names = {attributes[name][1:] for tag, attributes in page.tags for name in ("href", "xlink:href") if attributes.get(name, "").startswith("#")}
    assert names <= set(ids), names - set(ids)


def tables_can_be_sorted_by_keys(page):
    heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", page.text)
    assert heads and all(head.startswith("<button type=\"button\">") for head in heads)
    assert "aria-sort" in page.text


def pictures_are_files(speclab, db, folder):
    out = must(speclab, "report", "--db", db, "--svg", f"{folder}/svg", "--pdf", f"{folder}/pdf").split()
    assert sorted(out) == sorted(f"{folder}/{kind}/{name}" for kind in ("svg", "pdf") for name in os.listdir(f"{folder}/{kind}"))
    assert len(os.listdir(f"{folder}/svg")) == len(os.listdir(f"{folder}/pdf")) >= len(FIGURES)
    for name in os.listdir(f"{folder}/svg"):
        root = xml.etree.ElementTree.parse(f"{folder}/svg/{name}").getroot()
        assert root.tag.endswith("svg") and "prefers-color-scheme" in "".join(root.itertext()), name
    for name in os.listdir(f"{folder}/pdf"):
        with open(f"{folder}/pdf/{name}", "rb") as f:
            assert f.read(5) == b"%PDF-", name


def names_are_no_markup(speclab, db, folder, plain):
    """Names that would be markup, SQL, commands of gnuplot or of a shell: the same tags with the same attributes as on a plain page."""
    must(sys.executable, f"{HERE}/make_many_cells.py", db, f"{folder}/hostile.db", 60, "--hostile")
    before = set(os.listdir(folder))
    page = report(speclab, f"{folder}/hostile.db", f"{folder}/hostile.html")
    assert set(os.listdir(folder)) - before == {"hostile.html"} and not os.path.exists("hostile")
    assert {(tag, tuple(sorted(a))) for tag, a in page.tags} <= {(tag, tuple(sorted(a))) for tag, a in plain.tags}
    assert page.text.count("<script") == page.text.count("</script") == 1 and not any(a.startswith("on") for _, more in page.tags for a in more)
    assert "alert(1)" in "".join(page.words)
    numbers_are_those_of_the_sql_that_is_shown(page, f"{folder}/hostile.db")
    no_request_leaves_it(page)
    must(speclab, "report", "--db", f"{folder}/hostile.db", "--svg", f"{folder}/hostile", "--pdf", f"{folder}/hostile")
    for name in os.listdir(f"{folder}/hostile"):
        assert name.endswith(".pdf") or xml.etree.ElementTree.parse(f"{folder}/hostile/{name}").getroot() is not None
    damaged = sqlite3.connect(f"{folder}/hostile.db")  # no text, and too much
    damaged.execute("UPDATE run SET drafter = CAST(x'00ff80c3286e67' AS TEXT), sampling = '' WHERE id = 2")
    damaged.execute("UPDATE run SET settings = 'x', drafter = ?, rule = '' WHERE id = 3", ["((((" * 5000 + '"'])
    damaged.execute("UPDATE sequence SET category = CAST(x'ff3c' AS TEXT) WHERE prompt = 1")
    damaged.commit()
    damaged.close()
    report(speclab, f"{folder}/hostile.db", f"{folder}/damaged.html")


def many_cells_are_one_small_file(speclab, db, folder):
    for cells, most, prompts in ((200, 3e6, 12), (1000, 6e6, 2)):
        shutil.copyfile(db, f"{folder}/few.db")
        few = sqlite3.connect(f"{folder}/few.db")
        few.executescript(f"PRAGMA foreign_keys = ON; DELETE FROM sequence WHERE prompt >= {prompts}")
        few.close()
        must(sys.executable, f"{HERE}/make_many_cells.py", f"{folder}/few.db", f"{folder}/many.db", cells)
        page = report(speclab, f"{folder}/many.db", f"{folder}/many.html")
        assert len([row for row in page.cells if len(row) == 13]) == cells
        assert os.path.getsize(f"{folder}/many.html") < most
        assert max(section["panels"] for section in page.sections.values()) <= 8
        assert "The table of all cells has the others." in "".join(page.words)
        numbers_are_those_of_the_sql_that_is_shown(page, f"{folder}/many.db")


def what_is_missing_is_a_sentence(speclab, db, folder):
    def changed(sql):
        shutil.copyfile(db, f"{folder}/changed.db")
        facts = sqlite3.connect(f"{folder}/changed.db")
        facts.execute("PRAGMA foreign_keys = ON")
        facts.executescript(sql)
        facts.close()
        page = report(speclab, f"{folder}/changed.db", f"{folder}/changed.html")
        return page, "".join(page.words)

    page, words = changed("DELETE FROM run WHERE drafter_kind = 'none'; DELETE FROM bench;")
    assert set(page.sections) == FIGURES - {"speedup_by_category", "speedup_by_batch", "cost_of_pass", "prediction"}
    assert "needs `speclab bench MODEL --db FILE` into this database." in words
    page, words = changed("UPDATE run SET finished = NULL; DELETE FROM run WHERE batch > 1; UPDATE sequence SET category = NULL;")
    assert "UNFINISHED" in page.text and "speedup_by_batch" not in page.sections and "speedup_by_category" not in page.sections
    assert "needs cells of two batches (YAML key `batch: [1, 4]`), with none." in words
    page, words = changed("DELETE FROM sequence; DELETE FROM bench;")
    assert page.sections == {} and words.count("needs ") == len(FIGURES)
    page, words = changed("DELETE FROM run WHERE drafter_kind <> 'none'; DELETE FROM bench; DELETE FROM step WHERE step > 0")
    assert set(page.sections) == {"time_split", "throughput_by_latency"} or set(page.sections) == {"time_split"}
    page, words = changed("UPDATE sequence SET decode_ns = 0, wall_ns = 0, prefill_ns = 0; UPDATE step SET propose_ns = 0, verify_ns = 0, advance_ns = 0, at_ns = 0")
    assert "acceptance_by_depth" in page.sections


def bad_input_is_a_sentence(speclab, db, folder):
    def fails(words, *options, **more):
        done = command(speclab, "report", *options, **more)
        assert done.returncode != 0 and words in done.stderr and len(done.stderr.strip().splitlines()) <= 2, (options, done.stderr)

    sqlite3.connect(f"{folder}/empty.db").close()
    fails("expected a database of speclab, found an empty file", "--db", f"{folder}/empty.db", "--html", f"{folder}/x.html")
    fails("no such database", "--db", f"{folder}/none.db", "--html", f"{folder}/x.html")
    fails('no experiment "other" in it', "--db", db, "--experiment", "other", "--html", f"{folder}/x.html")
    fails("--html, --svg, --pdf exclude", "--db", db, "--html", f"{folder}/x.html", "--csv")
    fails("gnuplot, which draws the figures, cannot be started; on Debian: apt install gnuplot-nox", "--db", db, "--html", f"{folder}/x.html",
          env={"PATH": folder})
    with open(f"{folder}/gnuplot", "w") as f:
        f.write("#!/bin/sh\necho 'no such terminal' >&2\nexit 3\n")
    os.chmod(f"{folder}/gnuplot", 0o755)
    fails("gnuplot, which draws the figures, ended with status 3: no such terminal", "--db", db, "--html", f"{folder}/x.html", env={"PATH": folder})
    os.remove(f"{folder}/gnuplot")
    assert not os.path.exists(f"{folder}/x.html")
    fails("could not be created", "--db", db, "--html", f"{folder}/no/folder/x.html")
    fails("could not be created", "--db", db, "--svg", f"{folder}/small.db/x")
    fails("small.db: could not be created: File exists", "--db", db, "--pdf", f"{folder}/small.db")
    os.symlink("/dev/full", f"{folder}/full")
    fails("full: could not be written: No space left on device", "--db", db, "--html", f"{folder}/full")
    assert os.path.exists(f"{folder}/full") and os.path.exists("/dev/full")  # what is no file of ours is not removed


def main():
    if not shutil.which("gnuplot") or not shutil.which("sqlite3"):
        print("no gnuplot, or no sqlite3")
        sys.exit(77)
    speclab = f"{os.path.abspath(sys.argv[1])}/speclab"
    with tempfile.TemporaryDirectory() as folder:
        db = small_run(os.path.abspath(sys.argv[1]), folder)
        page = report(speclab, db, f"{folder}/page.html")
        assert set(page.sections) == FIGURES, FIGURES - set(page.sections)
        for test, *arguments in ((numbers_are_those_of_the_sql_that_is_shown, page, db), (intervals_are_those_of_the_sums, page, db),
                                 (numbers_are_those_of_plain_loops, page, db), (cells_are_those_of_the_csv, page, speclab, db), (no_request_leaves_it, page),
                                 (a_bench_is_a_group_of_its_own, speclab, db, folder),
                                 (tables_can_be_sorted_by_keys, page), (pictures_are_files, speclab, db, folder), (names_are_no_markup, speclab, db, folder, page),
                                 (what_is_missing_is_a_sentence, speclab, db, folder), (bad_input_is_a_sentence, speclab, db, folder),
                                 (many_cells_are_one_small_file, speclab, db, folder)):
            test(*arguments)
            print(f"ok {test.__name__}", flush=True)


main()
