"""`compare`: the rows of files in the forms of nine programs (tests/cases/make_compare.py), which rows get a speedup, the printed table, mistakes."""

import csv
import json
import sqlite3

import pytest
from conftest import ROOT, expect_golden

from speclab import exports
from speclab.command import Misuse
from speclab.results import Results
from speclab.words import compare

CASES = ROOT / "tests/cases/compare"
FILES = ["vllm_serve.jsonl", "vllm_plain.json", "vllm_latency.json", "vllm_throughput.json", "sglang.jsonl", "llama_server.jsonl", "spec_bench.jsonl",
         "spec_bench_plain.jsonl", "profile.json", "llama_bench.json", "llama_bench.jsonl", "llama_bench.csv"]  # fmt: skip
SERVE = '{"output_throughput": 1, "total_token_throughput": 2'
RESPONSE = '{"timings": {"predicted_n": 5, "predicted_ms": 9, "prompt_n": 1, '
PAPERS = """method,target,dataset,temperature,tau,speedup,source
EAGLE-3,Vicuna-13B,MT-bench,0,6.65,5.58,arXiv:2503.01840 table 1
"Lookahead, W=15",Vicuna-13B,MT-bench,0,,1.64,"arXiv:2402.02057, table 2"
"""


@pytest.fixture
def said(capsys, monkeypatch):
    """What `compare` prints, called in the folder of the cases."""
    monkeypatch.chdir(CASES)

    def call(*words):
        assert compare.main([str(word) for word in words]) == 0
        return capsys.readouterr().out

    return call


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


# ---- rows


def test_rows_equal_those_that_plain_loops_make(said):
    rows, expected = lines_of(said("--jsonl", *FILES)), json.loads((CASES / "expected.json").read_text())
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        for key, x in wanted.items():
            number = isinstance(x, (int, float)) or (isinstance(x, list) and x)
            assert row[key] == (pytest.approx(x, rel=1e-9) if number else x), (wanted["file"], key)


def test_printed_comparisons_are_the_reviewed_text(said):
    commands = ["vllm_serve.jsonl vllm_plain.json sglang.jsonl vllm_latency.json --baseline plain",
                "spec_bench.jsonl spec_bench_plain.jsonl llama_bench.json profile.json llama_server.jsonl --baseline 2",
                "vllm_serve.jsonl vllm_plain.json --baseline vllm_plain.json --markdown", "spec_bench.jsonl --csv"]  # fmt: skip
    text = "".join(f"$ speclab compare {words}\n{said(*words.split())}\n" for words in commands)
    expect_golden("compare.txt", text.replace("\r", ""))


def test_a_database_is_compared_within_its_pairs(frozen_db, said):
    """A pair has a `none`; the speedup of a run within pairs is over that one, and over no other."""
    with sqlite3.connect(frozen_db) as db:
        db.execute("UPDATE run SET batch = 2 WHERE id = 14")
    speed = Results(frozen_db).view("speed").set_index("run").speedup
    rows = lines_of(said(frozen_db, "--jsonl", "--baseline", 1))
    assert len(rows) == len(speed) == 14
    first = {run: row for run, row in enumerate(rows, 1) if row["sampling"] == rows[0]["sampling"] and run > 1}
    assert first and all(row["speedup_in_pairs"] and row["speedup"] == pytest.approx(speed[run], rel=1e-12) for run, row in first.items())
    others = [row for run, row in enumerate(rows, 1) if run not in first and run > 1]
    assert others and all(row["speedup"] is None and row["differs"] == "sampling" for row in others[:-1])
    assert rows[13]["differs"] == "sampling, batch"
    again = lines_of(said(frozen_db, "--jsonl", "--baseline", 2))
    assert not again[2]["speedup_in_pairs"] and again[2]["not_stated"] == "the machine's state (not in pairs)"


def test_exports_are_read_back(frozen_db, said, tmp_path):
    results = Results(frozen_db)
    lengths = {"spec-bench": "mean_accepted_tokens FROM spec_bench", "vllm": "acceptance_length FROM vllm_metrics",
               "sglang": "accept_length FROM sglang_metrics", "nvidia": "round(mean_accept_length, 6) FROM nvidia_profile"}  # fmt: skip
    for form, length in lengths.items():
        name = next(name for name in exports.write(results, form, str(tmp_path / form)) if "-run2-" in name and not name.endswith(".prom"))
        (row,) = lines_of(said("--jsonl", name))
        assert row["acceptance_length"] == pytest.approx(results.sql(f"SELECT {length} WHERE run = 2").iat[0, 0], rel=1e-9)


# ---- published numbers


def test_published_numbers_stand_beside_measured_ones(said, frozen_db, tmp_path):
    (tmp_path / "papers.csv").write_text(PAPERS)
    rows = list(csv.DictReader(PAPERS.splitlines()))
    numbers = [row | {"temperature": 0, "speedup": float(row["speedup"]), "tau": float(row["tau"] or 0) or None} for row in rows]
    (tmp_path / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    text = said(tmp_path / "papers.csv", frozen_db, "--baseline", 3)
    assert ["1", "EAGLE-3", "-", "-", "6.650", "-", "-", "-", "5.580!"] in map(str.split, text.splitlines()) and "prompts: MT-bench" in text
    assert "!: published speedups, over the baseline of their source, by row: 1:" in text and "arXiv:2402.02057, table 2." in text.replace("\n", " ")
    for name in ("papers.csv", "papers.jsonl"):
        first, second = lines_of(said(tmp_path / name, "--jsonl"))
        assert (first["speedup"], first["acceptance_length"], first["sampling"]) == (5.58, 6.65, "temperature=0")
        assert first["source"] == "arXiv:2503.01840 table 1"
        assert second["acceptance_length"] is None and second["method"] == "Lookahead, W=15" and second["speedup_in_pairs"] is False
    assert said(tmp_path / "papers.csv", "--csv").splitlines()[0].count("source") == 1
    assert "| 5.580! |" in said(tmp_path / "papers.csv", "--markdown")


# ---- layout


def test_names_in_markdown_are_escaped(said, tmp_path):
    path = tmp_path / "caf\udce9|.json"
    path.write_text('{"output_throughput": 2, "total_token_throughput": 3, "model_id": "m\\\\|_\\u001b[1m",'
                    ' "speclab": {"drafter": "a<b>`x|y", "lossless": false}}')  # fmt: skip
    assert "caf\ufffd\\|.json | speclab, vLLM's form | m\\\\\\|\\_ \\[1m | a\\<b>\\`x\\|y\\* | - |" in said("--markdown", path)


# ---- mistakes


@pytest.mark.parametrize("text, says", [
    ('{"timings": 1}\n', ": an object with other keys"),
    ("", ": not JSON; expected results of vllm bench serve"),
    (SERVE + ', "max_concurrency": 1e30}', ": max_concurrency: expected a count up to 10^15, found 1e+30"),
    ('{"output_throughput": NaN, "total_token_throughput": "NaN"}', ": output_throughput: expected a number of at least 0, found none"),
    ("[]", ": no results; expected results of"),
    ("[1]", ": not an object; expected results of"),
    ('{\n "output_throughput": 3,\n "total_token_throughput": }', ":3:28: not valid JSON"),
    ('{"question_id": 1, "choices": []}\n{"question_id": 2\n', ":2:18: not valid JSON"),
    ('{"a": 1, "a": 2}', ':1:1: not valid JSON: duplicate object key "a"'),
    ("[" * 100000, "nested too deeply"),
    ('{"question_id": 1, "choices": [{}]}', ": choices[0].new_tokens: expected an array of numbers"),
    ('{"question_id": 1, "choices": [{"new_tokens": [3], "wall_time": [0], "accept_lengths": [3]}]}',
     ": choices[0].wall_time: expected seconds above 0"),
    ('{"question_id": 1, "choices": [{"new_tokens": ["3"], "wall_time": [1], "accept_lengths": []}]}',
     "new_tokens[0]: expected a number of at least 0"),
    ('{"avg_latency": 1, "latencies": []}\n{"elapsed_time": 1, "tokens_per_second": 2}\n',
     ":2: expected results of vllm bench latency as before, found those of vllm bench throughput"),
    ('{"output_throughput": -1, "total_token_throughput": 2}', ": output_throughput: expected a number of at least 0, found a number below 0"),
    (SERVE + ', "spec_decode_per_position_acceptance_rates": [0.5, 7]}', "rates[1]: expected a number from 0 to 1"),
    ('{"timings": {"predicted_n": 5}}', ": predicted_ms: expected a number of at least 0, found none"),
    ('{"timings": {"predicted_n": 5, "predicted_ms": 0, "prompt_n": 1}}', ": predicted_ms: expected a time above 0"),
    (RESPONSE + '"draft_n": 7, "draft_n_accepted": 60}}', ": draft_n_accepted: expected a number from 0 to 7, found 60"),
    (RESPONSE + '"draft_n": 3, "draft_n_accepted": 3}}\n' + RESPONSE + '"draft_n": 3, "draft_n_accepted": 4}}',
     ":2: draft_n_accepted: expected a number"),
    (SERVE + ', "spec_decode_acceptance_rate": 140}', ": spec_decode_acceptance_rate: expected a number from 0 to 100, found 140"),
    (SERVE + ', "completed": 3.5}', ": completed: expected a count up to 10^15, found 3.5"),
    ('{"schema_version": 1, "marginal_accept_rates": [], "mean_accept_length": 0.5}',
     ": mean_accept_length: expected a number of at least 1, found 0.5"),
    ('build_commit,avg_ts\n"a","1","2"\n', ":2: expected 2 fields, found more"),
    ('build_commit,avg_ts\n"a"\n', ":2: expected 2 fields, found 1"),
    ('build_commit,avg_ts\n"a","1"\n', ":2: n_prompt: expected a number of at least 0, found none"),
    ("| model | size |\n", ": a Markdown table cannot be read: run llama-bench with -o json, jsonl or csv"),
    (PAPERS.replace(",source", "").replace(",arXiv:2503.01840 table 1", "").replace(',"arXiv:2402.02057, table 2"', ""),
     ":2: source: expected it beside method, target, dataset, temperature, tau, speedup, found none"),
    (PAPERS.replace("5.58", "fast"), ":2: speedup: expected a number of at least 0, found a text"),
    (PAPERS.replace("6.65", "0.5"), ":2: tau: expected a number of at least 1, found 0.5"),
    (PAPERS.replace("EAGLE-3", ""), ":2: method: expected a text, found nothing"),
    ('{"method": "m", "target": "t", "dataset": "d", "tau": 2}', ": temperature: expected it beside method, target, dataset, tau, found none"),
    ("GGUF\0\0\0", ": a binary file; expected"),
])  # fmt: skip
def test_wrong_files_are_named_with_line_and_key(tmp_path, text, says):
    (tmp_path / "wrong").write_text(text)
    with pytest.raises(Misuse) as raised:
        compare.main([str(tmp_path / "wrong")])
    assert str(raised.value).startswith(str(tmp_path / "wrong")) and says in str(raised.value)


def test_a_profile_stays_one_whatever_keys_it_has_besides(said, tmp_path):
    (tmp_path / "p.json").write_text('{"schema_version": 1, "marginal_accept_rates": [0.5], "speclab": {"drafter": "d"}}')
    (row,) = lines_of(said(tmp_path / "p.json", "--jsonl"))
    assert (row["tool"], row["method"]) == ("speculation profile", None)


@pytest.mark.parametrize("text, expected", [
    (RESPONSE + '"draft_n": 4, "draft_n_accepted": 2}}', {"acceptance_length": 2, "acceptance_rate": 0.5, "method": "drafted"}),
    (RESPONSE + '"draft_n": 4, "draft_n_accepted": 2}}\n' + RESPONSE + '"predicted_per_second": 1}}',
     {"acceptance_length": None, "acceptance_rate": None, "method": "drafted"}),
    (RESPONSE + '"draft_n": 4}}', {"acceptance_length": None, "acceptance_rate": None, "method": "drafted"}),
    (RESPONSE + '"predicted_per_second": 1}}', {"acceptance_length": None, "method": "none"}),
    (SERVE + ', "accept_length": null}', {"acceptance_length": None, "requests": None}),
    ('{"schema_version": 1, "marginal_accept_rates": []}', {"acceptance_length": None}),
    ('{"build_commit": "a", "avg_ts": 1, "n_prompt": 4, "n_gen": 0, "cpu_info": "c", "backends": "CPU"}', {"machine": "c, CPU"}),
])  # fmt: skip
def test_missing_counters_are_not_known(said, tmp_path, text, expected):
    (tmp_path / "some.json").write_text(text)
    (row,) = lines_of(said("--jsonl", tmp_path / "some.json"))
    assert {key: row[key] for key in expected} == expected


@pytest.mark.parametrize("words, says", [
    ("nowhere.json", "nowhere.json: No such file or directory"), ("/", "/: expected a file, found a folder"), ("", "missing argument"),
    ("profile.json --csv --jsonl", "--csv, --jsonl and --markdown exclude each other"),
    ("profile.json --baseline 9", "--baseline 9: expected the number of a row (1 to 1), a file with one row, or a part of one method: no row"),
    ("vllm_serve.jsonl profile.json --baseline eagle3", "--baseline eagle3: expected the number of a row (1 to 3)"),
    ("vllm_serve.jsonl --baseline vllm_serve.jsonl", "several rows have this"),
])  # fmt: skip
def test_mistakes_are_refused(said, words, says):
    with pytest.raises(Misuse) as raised:
        said(*words.split())
    assert says in str(raised.value)
