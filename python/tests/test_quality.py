"""The price of a lossy rule: perplexity, total variation, scores of tasks."""

import json
import math
import sqlite3
import time

import numpy as np
import pytest
from conftest import engine

import speclab
from speclab import quality
from speclab.command import Fault, Misuse
from speclab.rows import Row, unpack

EXPERIMENT = """name: q
target: {model: %s, device: cpu}
threads: 1
prompts: {file: prompts.jsonl, chat: %s}
limits: {new_tokens: 16, context: 300, ignore_end: true}
seed: 3
record: {rows: full, expected: true}
cells:
  sampling: [{temperature: 1, top_k: 20}]
  rule: [rejection, {kind: typical, epsilon: 0.2}, {kind: lenient, lenience: 2}, {kind: synthetic, rate: 0.4}, {kind: blockwise, k: 3}]
  drafter:
    - {kind: none}
    - {kind: small, model: %s, tokens: 1, pick: sampled, temperature: 2}
    - {kind: ngram, shortest: 1, tokens: 1}
"""
PROMPTS = [{"id": "g", "turns": ["How many? one two one two", "And two more? one two"], "answer": "2 + 2 = 4 #### 4"},
           {"id": "m", "category": "math", "prompt": "The cat sat on the mat. The cat", "answer": "\\frac{1}{2}"},
           {"id": "i", "input_ids": [5, 6, 7, 5, 6, 7, 5]}]  # fmt: skip


@pytest.fixture(scope="module", params=["none", "chatml"])
def db(request, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality")
    (folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))
    (folder / "q.yaml").write_text((EXPERIMENT % (tiny, request.param, tiny)).replace(", temperature: 2", ""))
    engine("run", folder / "q.yaml", "--db", folder / "q.db", "--no-probe")
    return folder / "q.db"


def test_acceptance_is_the_engine_s(db):
    """`step.expected` of drafts of one token is the probability that it is accepted, as the engine's rule computes it."""
    compared = {}
    with speclab.open(db) as results:
        found = results.sql("SELECT r.settings, d.*, s.expected FROM draft AS d JOIN step AS s USING (sequence, step) JOIN sequence AS q"
                            " ON q.id = d.sequence JOIN run AS r ON r.id = q.run WHERE s.drafted = 1")  # fmt: skip
        for s in found.itertuples():
            rule = json.loads(s.settings)["cells"]["rule"]
            rows = unpack(s.rows, "x")
            q, token = rows[2] if json.loads(s.proposals)[1] else None, json.loads(s.tokens)[1]
            a = quality.accept_probability(rule, *quality.side_by_side(rows[0], q, token))[token]
            assert a == pytest.approx(s.expected, abs=1e-6)
            compared.setdefault((rule["kind"], q is None), []).append(a)
    assert len(compared) == 10 and all(len(x) >= 3 for x in compared.values()), {k: len(v) for k, v in compared.items()}


def _row(p):
    p = np.asarray(p, float)
    return Row(np.flatnonzero(p), p[p > 0], 0.0)


def test_the_distance_is_that_of_a_plain_double_loop():
    dice = np.random.default_rng(5)
    for _ in range(50):
        p, q = dice.dirichlet(np.ones(6) * 0.5, 2)
        x = int(dice.integers(6))
        for kind, ell in (("rejection", 1.0), ("lenient", 1.7)):
            rule = {"kind": kind, "lenience": ell}
            accepted = [min(q[y], ell * p[y]) for y in range(6)]
            left = [max(p[y] - q[y], 0) for y in range(6)]
            law = [accepted[y] + (1 - sum(accepted)) * left[y] / sum(left) for y in range(6)]  # verifier/rules/rejection.c
            expected = sum(abs(law[y] - p[y]) for y in range(6)) / 2
            assert quality.first_token_distance(rule, _row(p), _row(q), x) == pytest.approx(expected, abs=1e-12)
        assert quality.first_token_distance({"kind": "rejection"}, _row(p), None, x) == pytest.approx(0, abs=1e-12)
        typical = {"kind": "typical", "epsilon": 0.3, "delta": 0.3}
        accepted = p[x] > min(0.3, 0.3 * math.exp(sum(v * math.log(v) for v in p)))
        assert quality.first_token_distance(typical, _row(p), None, x) == pytest.approx(1 - p[x] if accepted else 0)
        blockwise = {"kind": "blockwise", "accept": "top_k", "k": 2, "minimum_block": 1}
        y = x if x in np.argsort(-p)[:2] else int(np.argmax(p))
        assert quality.first_token_distance(blockwise, _row(p), None, x) == pytest.approx(1 - p[y])
        rate = 0.3
        law = [rate * (y == x) + (1 - rate) * (0 if y == x else p[y] / (1 - p[x])) for y in range(6)]
        assert quality.first_token_distance({"kind": "synthetic", "rate": rate}, _row(p), None, x) == pytest.approx(sum(abs(law - p)) / 2)
    assert math.isnan(quality.first_token_distance({"kind": "typical"}, Row(np.array([1]), np.array([0.5]), 0.5), None, 1))


def test_perplexity_is_that_of_the_steps_own_rows(db, tiny):
    """Of `none` without top_k the drawn tokens' p are in `score`; texts are found with their prompts, token by token."""
    with speclab.open(db) as results:
        found = quality.texts(results, 1)
        assert found.ids.notna().all() and [len(i) for i in found.ids] == list(found.prompt_tokens)
        got = quality.perplexity(results, 1, found)
        assert got["scored_texts"] == 4 and got["perplexity_low"] < got["perplexity"] < got["perplexity_high"]
    with sqlite3.connect(db) as c:
        ids = json.loads(c.execute("SELECT tokens FROM sequence WHERE run = 1 AND prompt = 2").fetchone()[0])
    line = PROMPTS[2]["input_ids"] + ids
    scored = json.loads(engine("inspect", "--score", tiny, stdin=json.dumps({"ids": line}) + "\n"))["logprobs"][-len(ids) :]
    alone = quality.perplexity(results := speclab.open(db), 1, quality.texts(results, 1).query("prompt == 2"))
    assert alone["perplexity"] == pytest.approx(math.exp(-np.mean(scored)), rel=1e-6)


@pytest.mark.parametrize("lines, says", [
    ('{"id": "g"}\n', r"prompts: expected prompt 0 with turn ., which run 1 has answered, found none: has it changed\?"),
    ("[]\n", "prompts:1: expected an object, found a list"), ('{"turns": [1]}\n', "prompts: expected prompt 0"),
    ("{" * 100000, "prompts:1:2: not valid JSON"), ('{"turns": ["a\u2028b"]}\n{"turns": []}\n', "prompts: expected prompt 0 with turn 1"),
])  # fmt: skip
def test_prompts_that_have_changed_are_one_sentence(db, tmp_path, lines, says):
    (tmp_path / "prompts").write_text(lines)
    with sqlite3.connect(db) as c, sqlite3.connect(tmp_path / "x.db") as to:
        c.backup(to)
        to.execute("UPDATE run SET prompts_path = ?", (str(tmp_path / "prompts"),))
    with speclab.open(tmp_path / "x.db") as results, pytest.raises(Fault, match=says):
        quality.texts(results, 1)


def test_damaged_drafts_and_settings_are_one_sentence(db, tmp_path):
    for k, (sql, says) in enumerate([("UPDATE draft SET tokens = '5'", "its draft is damaged"),
                                     ("UPDATE run SET settings = '{}'", "the rule of its cell"), ("UPDATE sequence SET tokens = '[[]]'", "tokens")]):
        with sqlite3.connect(db) as c, sqlite3.connect(tmp_path / f"{k}.db") as to:
            c.backup(to)
            to.execute("PRAGMA ignore_check_constraints = ON")
            to.execute(sql)
        with speclab.open(tmp_path / f"{k}.db") as results, pytest.raises(Fault, match=says):
            quality.table(results)


def test_a_long_unit_takes_no_time():
    began = time.monotonic()
    assert not quality.math_500("5", "\\boxed{5\\text{" + "a" * 60 + "!}}") and time.monotonic() - began < 5


@pytest.mark.parametrize("answer, text, right", [
    ("so 1,234 #### 1234", "The total is $1,234.", True), ("#### 18", "18 + 2 = 20", False), ("#### 18", "#### 18.00 dollars", True),
    ("#### -3", "It is -3", True), ("#### 18", "none", False),
])  # fmt: skip
def test_gsm8k(answer, text, right):
    assert quality.gsm8k(answer, text) == right


@pytest.mark.parametrize("answer, text, right", [
    ("\\frac{1}{2}", "so \\boxed{\\dfrac12}.", True), ("\\left( 3, \\frac{\\pi}{2} \\right)", "\\boxed{(3,\\frac{\\pi}{2})}", True),
    ("1000", "\\boxed{1,000}", True), ("5", "\\boxed{4} no, \\boxed{5\\text{ cm}}", True), ("5", "5", False), ("x^2+1", "\\boxed{{x^2}+1}", False),
    ("0.5", "\\boxed{0.50}", True), ("90", "\\boxed{90^\\circ}", True),
])  # fmt: skip
def test_math_500(answer, text, right):
    assert quality.math_500(answer, text) == right


ENTRY = {"task_id": "HumanEval/0", "prompt": "from typing import List\n\n\ndef double(x: int) -> int:\n    'twice'\n", "entry_point": "double",
         "test": "def check(f):\n    assert f(2) == 4\n    assert f(-1) == -2\n"}  # fmt: skip


@pytest.mark.parametrize("text, right", [
    ("    return 2 * x\n\ndef other():\n", True), ("    return x\n", False), ("```python\ndef double(x):\n    return x + x\n```", True), ("", False),
    ("    while True: pass\n", False), ("    return 'x' * (1 << 34)\n", False),
    ("    open('big', 'wb').write(b'0' * (2 << 20)); return 2 * x\n", False), ("    import sys; sys.exit(1)\n", False),
])  # fmt: skip
def test_humaneval_runs_in_a_process_with_limits(monkeypatch, text, right):
    monkeypatch.setattr(quality, "_LIMITS", quality._LIMITS.replace("CPU=10", "CPU=1"))
    assert quality.humaneval(ENTRY, text) == right


def test_what_a_program_starts_ends_with_it(tmp_path):
    late = f"import os, time\nif os.fork() == 0:\n    time.sleep(1)\n    open({str(tmp_path / 'late')!r}, 'w')\n"
    assert quality.passes(late)
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_the_table_has_prices_beside_speedups(within, db, tmp_path):
    got = within("quality", db, "--json", "--svg", "p.svg")
    rows = [json.loads(line) for line in got.out.splitlines()]
    assert got.status == 0 and len(rows) == 12, got.err
    for r in rows:
        assert r["perplexity"] > 1 and r["score_prompts"] == 2 and r["task"] == "gsm8k+math-500"
        assert r["tv"] == 0 if r["lossless"] else r["tv"] is None or 0 <= r["tv"] < 1
    assert sum((r["tv"] or 0) > 0.01 for r in rows) >= 4
    assert sum(not r["lossless"] for r in rows) >= 8 and "<svg" in (tmp_path / "p.svg").read_text()
    table = within("quality", db, "--run", 2)
    assert table.status == 0 and "perplexity" in table.out and len(within("quality", db, "--csv").out.splitlines()) == 13


def test_answers_by_their_ids(within, db, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "g", "answer": "#### 7"}\n')
    with __import__("speclab").open(db) as results:
        assert quality.task_score(results, 1, quality.texts(results, 1), str(tmp_path / "a.jsonl"))["score_prompts"] == 1
        (tmp_path / "b.jsonl").write_text('{"id": "zz", "answer": "#### 7"}\n')
        with pytest.raises(Misuse, match="expected entries with the ids"):
            quality.task_score(results, 1, quality.texts(results, 1), str(tmp_path / "b.jsonl"))
    assert "b.jsonl:1:2: not valid JSON: Expecting property name" in within("quality", db, "--answers", _bad(tmp_path)).err


def _bad(folder):
    (folder / "b.jsonl").write_text("{")
    return "b.jsonl"


@pytest.mark.parametrize("words, status, says", [
    (["--run", "\u00b2"], 2, "--run: expected an integer"), (["--run", "9" * 30], 2, "--run: expected an integer"),
    (["--run", "x"], 2, '--run: expected an integer of at least 1, found "x"'), (["--run", "99"], 2, "expected runs 99, found none of them"),
    (["--json", "--csv"], 2, "expected one of them"), (["--answers", "/nowhere"], 1, "/nowhere"),
])  # fmt: skip
def test_what_is_wrong_is_said(within, db, words, status, says):
    got = within("quality", db, *words)
    assert got.status == status and says in got.err, got.err
