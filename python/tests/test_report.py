"""`report` in Markdown and LaTeX, and its exports: numbers and reviewed texts of the golden files, names of any kind, golden acceptance lengths."""

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess

import pytest
from conftest import ROOT, engine, expect_golden

from speclab import files, tables
from speclab.command import Fault, Misuse
from speclab.exports import golden, write
from speclab.results import Results
from speclab.strict_json import dumps
from speclab.words import report

CASES = ROOT / "tests/cases"
NAMES = ["none", "a|b(path=C:\\x|y\\|z)c", "`tick` _under_ *star* #1 100% $5 a&b~c^d <b>{x}", 'café 漢Ð "quoted" --dash', "tab\tnew\nline\\"]


@pytest.fixture(scope="session")
def expected():
    return json.loads((CASES / "views.json").read_text())


@pytest.fixture
def hostile(frozen_db):
    """Names that mean something to Markdown, LaTeX or a file system."""
    db = sqlite3.connect(frozen_db)
    for i, name in enumerate(NAMES):
        db.execute("UPDATE run SET drafter = ? WHERE id % 5 = ? AND drafter_kind <> 'none'", (name, i))
    db.execute("UPDATE run SET experiment = ?, machine = 'a^b~c {d} $e$ |f| \"g\" <h>', prompts = 'résumé_漢.jsonl'", ("50% & more_of #it\\",))
    db.execute("UPDATE sequence SET category = iif(prompt < 3, 'math_reasoning|&%', '\\input{x}')")
    db.commit()
    db.close()
    return Results(frozen_db)


# ---- tables


def test_the_tables_are_the_reviewed_text(cases):
    """Cells, by category with the two fastest, both forms."""
    report = cases.report
    forms = [tables.markdown(report), tables.markdown(report, 2, True), tables.latex(report), tables.latex(report, None, True)]
    expect_golden("report_tables.txt", "\n----\n\n".join(forms))


def test_the_numbers_by_category_are_those_of_plain_loops(cases, expected):
    runs = {run["run"]: (run, c["categories"]) for c in expected["comparisons"] for run in c["runs"]}
    numbers = 0
    for row in cases.by_category.to_dict("records"):
        run, categories = runs[row["run"]]
        of = run["by_category"][[name for name, _ in categories].index(row["category"])]
        for name, interval in zip(("speedup", "tokens_per_step"), of, strict=True):
            for suffix, x in zip(("", "_low", "_high"), interval, strict=False):
                found = row[name + suffix]
                assert found == pytest.approx(x, rel=1e-9) if x is not None else found != found or found is None, (row["run"], name, suffix)
                numbers += x is not None
    assert numbers > 40


def rows(text):
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ") and not line.startswith("| drafter")]


@pytest.mark.parametrize("by_category", [False, True])
def test_names_of_any_kind_leave_markdown_in_form(hostile, by_category):
    text = tables.markdown(hostile.report, by_category=by_category)
    assert len(rows(text)) == len(hostile.cells) and {len(row) for row in rows(text)} == {7}  # by category: two categories and all
    for part in (r"**50% & more\_of \#it\\ (1 of 2)", r"| a\|b(path=C:\\x\|y\\\|z)c; rejection |", "| `tab new line\\; rejection` |",
                 r"\`tick\` \_under\_ \*star\* \#1 100% \$5 a&b\~c^d \<b>{x}; rejection |"):  # fmt: skip
        assert part in text
    assert not by_category or r"| math\_reasoning\|&% (3): speedup | tokens/step |" in text


@pytest.mark.skipif(not shutil.which("cmark-gfm"), reason="no cmark-gfm")
def test_github_reads_the_markdown(hostile):
    html = subprocess.run(["cmark-gfm", "-e", "table"], input=tables.markdown(hostile.report), capture_output=True, text=True, check=True).stdout
    assert html.count("<td") == 7 * len(hostile.cells) and "<td>a|b(path=C:\\x|y\\|z)c; rejection</td>" in html


@pytest.mark.parametrize("by_category", [False, True])
def test_names_of_any_kind_leave_latex_in_form(hostile, by_category):
    text = tables.latex(hostile.report, by_category=by_category)
    plain = re.sub(r"\\[a-zA-Z]+|\\.|^%.*|\$\^\{\*\}\$", "", text, flags=re.M).replace(" & ", "")  # without commands, comments and columns
    assert not re.search('[\\\\#%~"|<>`_^$&]', plain) and plain.count("{") == plain.count("}")
    assert set(filter(lambda c: c > "\x7f", text)) == {"é"} and "café U+6F22U+00D0" in text
    assert text.count("\\begin{") == text.count("\\end{") and text.count("\\toprule") == text.count("\\bottomrule")
    assert ("\\label{tab:50-more-of-it-2-of-2-categories}" if by_category else "\\label{tab:50-more-of-it-1-of-2-cells}") in text
    assert text.count("}$^{*}$ &") == (~hostile.cells.lossless).sum() * (1 + 0 * by_category)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex")
def test_latex_compiles(hostile, tmp_path):
    body = tables.latex(hostile.report) + tables.latex(hostile.report, by_category=True)
    (tmp_path / "t.tex").write_text("\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + body + "\\end{document}")
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_of_many_cells_those_that_fit_a_page_are_shown(frozen_db):
    results = Results(frozen_db)
    first = results.comparisons[0]
    cell = next(cell for cell in first["cells"] if not cell["baseline"])
    none = [cell for cell in first["cells"] if cell["baseline"]]
    many = [cell | {"run": i, "speedup": 15 - i / 10, "lossless": i <= 101} for i in range(2, 121)]
    results.__dict__["report"] = {"disturbed": "", "comparisons": [first | {"cells": none + many}]}
    assert len(rows(tables.markdown(results.report))) == 120
    assert tables.latex(results.report).count("\\raggedright") == 31 and tables.latex(results.report, 0).count("\\raggedright") == 120
    assert "Left out: 116 more cells, 19 of them lossy, with speedups from 14.5 down to 3.00." in tables.latex(results.report, 3)
    assert tables.latex(results.report, 3).count("\\raggedright") == 4


# ---- exports


def exported(results, form, tmp_path):
    """The contents of the files by their names."""
    return {os.path.basename(name): open(name).read() for name in write(results, form, str(tmp_path / form))}


def test_answer_files_are_those_of_plain_loops(cases, expected, tmp_path):
    found = exported(cases, "spec-bench", tmp_path)
    for name, lines in expected["answer_files"].items():
        assert [json.loads(line) for line in found.get(f"{name}.jsonl", "").splitlines()] == lines, name
    assert len(found) == sum(bool(lines) for lines in expected["answer_files"].values())


def test_vllm_files_have_the_numbers_of_its_views(frozen_db, tmp_path):
    results = Results(frozen_db)
    found, speed = exported(results, "vllm", tmp_path), results.view("speed").set_index("run")
    metrics = results.view("vllm_metrics").set_index("run")
    keys = {f"{s}_{w}_ms" for s in ("mean", "median", "std", "p99") for w in ("ttft", "tpot", "itl")} | {
        "date", "backend", "label", "model_id", "num_prompts", "request_rate", "max_concurrency", "completed", "request_goodput", "output_throughput"}
    drafted = 0
    for name, text in found.items():
        run = int(re.search(r"run(\d+)-", name)[1])
        if name.endswith(".json"):
            line = json.loads(text)
            assert keys <= line.keys() and line["output_throughput"] == pytest.approx(speed.end_to_end_tokens_per_s[run])
            if rates := line.get("spec_decode_per_position_acceptance_rates"):
                drafted += 1
                assert line["spec_decode_acceptance_length"] == pytest.approx(1 + sum(rates))  # a property of their definitions
        else:  # as vLLM's fetch_spec_decode_metrics reads it
            values = re.findall(r"^vllm:spec_decode_(\w+)_total\{(?:position=\"\d+\",)?model_name=.*\} (\S+)$", text, re.M)
            assert len(values) + text.count("#") == len(text.splitlines())
            by_position = sum(float(x) for key, x in values if key == "num_accepted_tokens_per_pos")
            assert float(dict(values)["num_accepted_tokens"]) == by_position
            assert float(dict(values)["num_drafts"]) == metrics.num_drafts.fillna(0)[run]
    assert drafted > 2 and not any(name.endswith("none-rejection.prom") for name in found)


def test_sglang_files_have_the_keys_of_bench_serving(cases, tmp_path):
    found, lengths = exported(cases, "sglang", tmp_path), cases.view("steps").set_index("run").tokens_per_step
    keys = {"tag", "backend", "dataset_name", "request_rate", "completed", "total_throughput", "mean_e2e_latency_ms", "concurrency", "server_info"}
    lines = {int(re.search(r"run(\d+)-", name)[1]): json.loads(text) for name, text in found.items() if name.endswith(".jsonl")}
    for run, line in lines.items():
        assert keys <= line.keys()
        assert line["accept_length"] == (None if line["speclab"]["drafter"] == "none" else lengths.get(run))
        assert (f"{line['tag']}.prom" in found) == (line["accept_length"] is not None)


def test_a_speculation_profile_follows_from_its_histogram(cases, tmp_path):
    for rule in ("rejection", "block"):
        if rule == "block":
            path = cases.path
            with sqlite3.connect(path) as db:
                db.execute("UPDATE run SET rule = 'block'")
            cases = Results(path)
        found = exported(cases, "nvidia", tmp_path)
        assert found and not any("-none-" in name for name in found)
        for text in found.values():
            profile = json.loads(text)
            steps = {int(k): n for k, n in profile["acceptance_length_histogram"].items()}
            shares = [sum(n for k, n in steps.items() if k >= i + 2) / sum(steps.values()) for i in range(profile["num_speculative_tokens"])]
            if profile["verification_method"] == "longest_prefix":
                assert profile["marginal_accept_rates"] == pytest.approx(shares, abs=1e-6)
                before = [1, *shares[:-1]]
                assert profile["conditional_accept_rates"] == pytest.approx([b and a / b for a, b in zip(shares, before, strict=True)], abs=1e-6)
                assert profile["validation"]["mean_consistency"]["passed"]
            else:
                assert profile["marginal_accept_rates"] is None and profile["vectors_unavailable_reason"]
            assert profile["mean_accept_length"] == pytest.approx(1 + sum(shares), abs=1e-6)


@pytest.mark.parametrize("experiment", ["plain", "--a -- b!?c_d.e--", "(in brackets)", ".hidden/../x", "x" * 200, "\u00e4"])
def test_files_have_plain_names(frozen_db, tmp_path, experiment):
    with sqlite3.connect(frozen_db) as db:
        db.execute("UPDATE run SET experiment = ?, drafter = 'x' || substr('" + "y" * 99 + "', 1, id * 9)", (experiment,))
    names = exported(Results(frozen_db), "spec-bench", tmp_path)
    assert len(names) == 14
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*\.jsonl", name) and len(name) <= 126


def test_files_that_cannot_be_written_are_a_sentence(frozen_db, tmp_path):
    results = Results(frozen_db)
    for folder, says in ((tmp_path / "no/such", "could not be created: No such file"), ("/dev/null", "/dev/null: could not be created")):
        with pytest.raises(Fault, match=says):
            write(results, "spec-bench", str(folder))
    first = write(results, "spec-bench", str(tmp_path / "a"))[0]
    os.unlink(first)
    os.symlink("/dev/full", first)
    with pytest.raises(Fault, match=f"{first}: cannot be written: No space left"):
        write(results, "spec-bench", str(tmp_path / "a"))


EXAMPLE = re.search(r"^```python\n(# speeds\.py.*?)^```$", (ROOT / "docs/results.md").read_text(), re.M | re.S)[1]


def test_an_export_of_one_s_own_is_a_file(frozen_db, within):
    """The example in docs/results.md."""
    assert len(EXAMPLE.splitlines()) <= 40
    folder = frozen_db.parent
    (folder / "speeds.py").write_text(EXAMPLE)
    done = within("report", "--db", frozen_db, "--export", "speeds.py", "out")
    assert done.status == 0 and done.out == "out/speeds.csv\n", done.err
    table = list(csv.reader(io.StringIO((folder / "out/speeds.csv").read_text())))
    assert len(table) == 15


@pytest.mark.parametrize("source, says", [
    ("def files(results):\n    yield 'x', results.nothing\n", "own.py:2: AttributeError: "),
    ("def files(results)\n", "own.py:1: SyntaxError: "),
    ("import nowhere\n", "own.py:1: ModuleNotFoundError: "),
    ("def files(results):\n    raise SystemExit(0)\n    yield\n", "own.py:2: SystemExit: 0"),
    ("raise ValueError('a\\n\\nb')\n", "own.py:1: ValueError: a b"),
    ("class E(Exception):\n    def __str__(self):\n        return 5\nraise E()\n", "own.py:4: E: (which has no text)"),
    ("x = 1\n", "own.py: expected a function files(results)"),
    ("def files(results):\n    return []\n", "nothing to write"),
])  # fmt: skip
def test_an_export_that_fails_is_named_with_its_line(frozen_db, monkeypatch, source, says):
    monkeypatch.chdir(frozen_db.parent)
    files.write("own.py", source)
    with pytest.raises(Fault) as raised:
        report.main(["--db", str(frozen_db), "--export", "own.py", "out"])
    assert says in str(raised.value)


def test_json_is_written_as_the_program_writes_it():
    numbers = '{"a":[0.10000000000000001,1.0,9.9999999999999995e-8,1e22,3,true,null,null]}'
    assert dumps({"a": [0.1, 1.0, 1e-7, 1e22, 3, True, None, float("nan")]}) == numbers
    assert dumps('\x1f\\u001f"\n\u00e4/') == r'"\u001F\\u001f\"\n' + '\u00e4/"'


# ---- golden acceptance lengths


def checked(results, tmp_path, content, capsys):
    (tmp_path / "checked.json").write_text(content if isinstance(content, str) else json.dumps(content))
    within = golden.check(results, str(tmp_path / "checked.json"))
    return within, capsys.readouterr().out


def test_golden_lengths_hold_for_their_own_runs(frozen_db, tmp_path, capsys):
    with sqlite3.connect(frozen_db) as db:  # a rate below what four digits say
        db.execute("UPDATE step SET accepted = min(accepted, 2), tokens = min(accepted, 2) + 1")
        db.execute("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 29999) INSERT INTO step SELECT sequence, 1000 + n.i,"
                   " 3, 3, i % 15000 = 1, 1, NULL, NULL, NULL, 1, 1, 1, 1, 1, 0, NULL FROM step JOIN sequence ON id = sequence JOIN n"
                   " WHERE run = 2 AND turn = 0 AND prompt = 0 AND step = 0")  # fmt: skip
    results = Results(frozen_db)
    text = exported(results, "golden", tmp_path)["golden.json"]
    content = json.loads(text)
    small = [x for entry in content["acceptance_lengths"] for x in entry["acceptance_lengths_per_pos"] if 0 < x < 0.0005]
    assert small and len(content["acceptance_lengths"]) == 12
    within, said = checked(results, tmp_path, text, capsys)
    assert within and "OUTSIDE" not in said and "position" not in said
    content["acceptance_lengths"][0] |= {"acceptance_length": 9, "acceptance_lengths_per_pos": [1]}
    within, said = checked(results, tmp_path, content, capsys)
    assert not within and said.count("OUTSIDE") == 1 and "position 1: expected at least 0.9500, found" in said


@pytest.mark.parametrize("content, says", [
    ("{}", "acceptance_lengths: expected an array with entries"),
    ('{"acceptance_lengths": [3]}', r"acceptance_lengths\[0\]: expected an object"),
    ('{"acceptance_lengths": [{}]}', r"\[0\]: acceptance_length: expected a number of at least 1, found none"),
    ('{"acceptance_lengths": [{"acceptance_length": 0.5}]}', "acceptance_length: expected a number of at least 1"),
    ('{"acceptance_lengths": [{"acceptance_length": 2, "draft": "x"}]}', r"\[0\]: draft: no such key"),
    ('{"acceptance_lengths": [{"acceptance_length": 2, "drafter": 1}]}', r"\[0\]: drafter: expected a text"),
    ('{"acceptance_lengths": [{"acceptance_length": 2, "acceptance_lengths_per_pos": [2]}]}', r"per_pos\[0\]: expected a number from 0 to 1"),
    ("[", "checked.json:1"),
    ('{"a": 1,\n "a": 2}', "checked.json:1:1: not valid JSON: duplicate object key"),
    ("[" * 100000, "nested too deeply"),
])  # fmt: skip
def test_golden_files_are_checked(cases, tmp_path, capsys, content, says):
    with pytest.raises(Fault, match=says):
        checked(cases, tmp_path, content, capsys)


def test_an_entry_without_a_run_is_outside(cases, tmp_path, capsys):
    within, said = checked(cases, tmp_path, {"acceptance_lengths": [{"acceptance_length": 2, "drafter": "nobody"}]}, capsys)
    assert not within and "NO RUN        nobody" in said


def test_without_drafts_nothing_is_golden(frozen_db, tmp_path):
    with sqlite3.connect(frozen_db) as db:
        db.execute("UPDATE run SET drafter_kind = 'none'")
    with pytest.raises(Fault, match="no run has drafts"):
        write(Results(frozen_db), "golden", str(tmp_path / "g"))


# ---- the word


@pytest.mark.parametrize("words, says", [
    ("--latex --golden x", "exclude each other"), ("--export vllm", "expected a folder"),
    ("--export vlm out", "--export: expected one of spec-bench|vllm|sglang|nvidia|golden, or a file FORM.py"),
    ("--by-category", "--by-category goes with --markdown or --latex"), ("--latex --against 2", "--against goes with --csv and --jsonl"),
    ("--golden x --top 3", "--top is of tables"), ("--markdown x", "x: a folder is for --export only"),
    ("--markdown --details", "--details is of the terminal"),
])  # fmt: skip
def test_options_that_do_not_go_together(frozen_db, words, says):
    with pytest.raises(Misuse) as raised:
        report.main(["--db", str(frozen_db), *words.split()])
    assert says in str(raised.value)


def test_rows_for_a_machine_are_the_engine_s(frozen_db, speclab):
    """CSV has the numbers of JSON Lines, and names in quotation marks as Python's reader takes them."""
    with sqlite3.connect(frozen_db) as db:
        db.execute("UPDATE run SET drafter = 'a \"quoted\"' || char(13, 10) || 'and, folded', finished = NULL WHERE id = 2")
    lines = [json.loads(line) for line in speclab("report", "--db", frozen_db, "--jsonl").out.splitlines()]
    table = list(csv.DictReader(io.StringIO(engine("report", "--db", frozen_db, "--csv"), newline="")))
    for row, line in zip(table, lines, strict=True):
        for name in row.keys() & line.keys():
            found, expected = row[name], line[name]
            if isinstance(expected, (int, float)):
                assert float(found) == pytest.approx(float(expected)), name
            else:
                assert found.replace("\n", "\r\n") == (expected or ""), name
        rates = [float(row[f"acceptance_{i}"]) for i in range(1, 9) if row[f"acceptance_{i}"]]
        assert rates == pytest.approx(line["acceptance_by_position"])
    assert lines[1]["drafter"].endswith("and, folded") and "--jsonl" in speclab("report", "--help").out
    assert speclab("report", "--db", frozen_db, "--latex", "--by-category", "--top", "1").out.count("\\raggedright") == 4
