"""A text as it was decoded: stored rows, what was accepted and why, the page and the terminal's ten lines."""

import json
import re
import sqlite3
import struct
import zlib

import pytest
from conftest import engine

import speclab
from speclab import rows, trace
from speclab.command import Fault, Misuse
from speclab.printable import printable

EXPERIMENT = """name: t
target: {model: %(tiny)s, device: cpu}
threads: 1
prompts: {file: prompts.jsonl, chat: none}
limits: {new_tokens: 24, context: 200, ignore_end: true}
seed: 7
record: {trials: true, rows: %(rows)s}
cells:
  sampling: [{temperature: 0.9}]
  rule: [rejection]
  drafter:
    - {kind: none}
    - {kind: small, model: %(tiny)s, tokens: 4}
    - {kind: small, model: %(tiny)s, widths: [3, 2, 1]}
    - {kind: small, model: %(tiny)s, nodes: 12, pick: greedy}
"""


@pytest.fixture(scope="module", params=["full", 3])
def db(request, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    (folder / "prompts.jsonl").write_text('{"id": "<b>a", "prompt": "The cat sat on the mat. The cat"}\n{"id": "b", "prompt": "One two three one"}\n')
    (folder / "t.yaml").write_text(EXPERIMENT % {"tiny": tiny, "rows": request.param})
    engine("run", folder / "t.yaml", "--db", folder / "t.db", "--no-probe")
    return folder / "t.db"


def test_what_was_accepted_is_what_is_stored(db):
    """`accepted` of the steps, and accepted nodes of the trials, which the engine has written."""
    with speclab.open(db) as results:
        for run in (2, 3, 4):
            shown = trace.of_database(results, run, 1)
            of = " AS t JOIN sequence AS q ON q.id = t.sequence WHERE q.run = ? AND q.prompt = 1 ORDER BY step"
            steps, trials = (results.sql(f"SELECT t.* FROM {table}{of}", (run,)) for table in ("step", "trial"))
            assert [len(s.nodes) - 1 for s in shown.steps] == list(steps.drafted)
            assert [s.accepted for s in shown.steps][:-1] == list(steps.accepted)[:-1]  # the last may be cut
            assert [t for s in shown.steps for t in s.out][: len(shown.text)] == shown.text
            known = {(t.step, t.node): t for t in trials.itertuples()}
            for s in shown.steps:
                for i, n in enumerate(s.nodes[1:], 1):
                    t = known.get((s.number, i))
                    assert (t is not None) == n.tested and (t is None or t.accepted == n.accepted)


def test_p_and_q_of_the_rows_are_those_of_the_first_tests(db):
    """The first sibling is tested with the rows' own numbers: they are the trial's, to the bit of a float."""
    compared = 0
    with speclab.open(db) as results:
        found = results.sql("SELECT d.*, t.node, t.p, t.q, t.token FROM draft AS d JOIN trial AS t USING (sequence, step) WHERE t.rank = 0")
        for t in found.itertuples():
            parents, proposals = json.loads(t.parents), json.loads(t.proposals)
            kept = rows.unpack(t.rows, "x")
            parent = parents[t.node]
            p = kept[parent].of(t.token)
            assert p == pytest.approx(t.p, abs=1e-7)
            if proposals[t.node]:
                sampled = sorted({parents[i] for i in range(1, len(parents)) if proposals[i]})
                assert kept[len(parents) + sampled.index(parent)].of(t.token) == pytest.approx(t.q, abs=1e-7)
                compared += 1
            assert sum(kept[parent].p) + kept[parent].rest == pytest.approx(1, abs=1e-5)
    assert compared > 20


def test_why_follows_from_p_and_q():
    """A root with two children, the second of which is accepted and has a child that is not."""
    n = [trace.Node(1, -1), trace.Node(5, 0, 1, 0.2, 0.8), trace.Node(6, 0, 1, 0.5, 0.4), trace.Node(7, 2, 0, 0.25), trace.Node(8, 1, 1, 0.1, 0.9)]
    step = trace.Step(0, 9, n, [6, 4], {"propose": 1, "verify": 2, "advance": 3})
    trace.explained(step, "rejection")
    assert [x.why for x in n[1:]] == ["rejected: a test of probability p / q = 0.25", "accepted: p >= q",
                                      "rejected: a test of probability p = 0.25", "not tested: its parent was not accepted"]  # fmt: skip
    assert step.accepted == 1
    trace.explained(step, "typical")
    assert n[2].why == "accepted by typical, p = 0.5"


def test_a_step_has_at_most_ten_lines(within, db):
    got = within("trace", db, "--run", 4, "--prompt", 1, "--step", 3)
    lines = got.out.splitlines()
    assert got.status == 0 and 3 < len(lines) <= 10 and lines[0].startswith("step 3 of ") and "more draft tokens" in got.out and "\033" not in got.out
    assert len(within("trace", db, "--run", 2).out.split("\n\n")) >= 5


def test_the_page_has_every_step_and_nothing_from_outside(within, db, tmp_path):
    assert within("trace", db, "--run", 3, "--html", "t.html").status == 0
    page = (tmp_path / "t.html").read_text()
    with sqlite3.connect(db) as c:
        steps, text = c.execute("SELECT steps, new_tokens FROM sequence WHERE run = 3 AND prompt = 0").fetchone()
    assert page.count("<section") == steps and page.count("data-step") == text
    assert not re.search(r"https?:|<link|<img|src=", page) and "&lt;b&gt;a" in page and "<b>a" not in page


def test_a_prompt_is_decoded_into_a_page(within, tiny, tmp_path):
    words = ["generate", tiny, "The cat sat", "--chat", "none", "--tokens", 12, "--drafter", "ngram", "--seed", 3]
    got = within(*words, "--trace-html", "g.html")
    plain = json.loads(engine(*words, "--json"))
    assert got.status == 0 and printable(got.out) == printable(plain["text"]) + "\n"
    assert (tmp_path / "g.html").read_text().count("<section") == len(plain["steps"])


@pytest.mark.parametrize("words, status, says", [
    (["--run", 9], 2, "there is no run 9 in it"),
    (["--run", 2, "--prompt", 7], 2, "run 2 has no text of prompt 7, turn 0, repeat 0"),
    (["--step", 99], 2, "--step: expected a step from 0 to"),
    (["--run", "9" * 20], 2, "--run: expected an integer of at least 1"),
    (["--run", 0], 2, "--run: expected an integer of at least 1"),
    (["--html", "/nowhere/x.html"], 1, "/nowhere/x.html"),
])  # fmt: skip
def test_what_is_missing_is_said(within, db, words, status, says):
    got = within("trace", db, *words)
    assert got.status == status and says in got.err, got.err


def test_generate_helps_with_the_option_as_well(speclab):
    got = speclab("generate", "--trace-html", "x.html", "--help")
    assert got.status == 0 and "Decodes one prompt" in got.out


@pytest.mark.parametrize("words, says", [
    (["--trace-html"], "--trace-html requires a value"),
    (["--trace-html", "a", "--trace-html", "b"], "given twice"),
    (["--trace-html", "a", "--json"], "--json does not go with --trace-html"),
    (["--trace-html=a", "--tokens", "x"], "--tokens: expected an integer"),
])  # fmt: skip
def test_wrong_words_of_generate(within, tiny, words, says):
    got = within("generate", tiny, "a", *words)
    assert got.status == 2 and says in got.err, got.err


def _many_rows():
    """Empty rows: 20 bytes each, far more than a pass has."""
    packed = struct.pack("<II", 20 << 20, 9) + zlib.compress(bytes(20 << 20))
    return f"UPDATE draft SET rows = x'{packed.hex()}'"


def test_runs_without_drafts_and_damaged_ones(db, tmp_path):
    for k, (sql, says) in enumerate([
            ("DELETE FROM draft", "has no recorded drafts"), ("UPDATE draft SET rows = x'00112233'", "rows: expected packed rows"),
            ("UPDATE draft SET rows = x'0000004001000000000000000000000000'", "rows: expected packed rows"),
            ("UPDATE draft SET parents = '[5]'", "its draft is damaged"), ("UPDATE draft SET tokens = 'x'", "its draft is damaged"),
            ("UPDATE draft SET tokens = replace(tokens, '[', '[[],')", "its draft is damaged"),
            ("UPDATE sequence SET tokens = replace(tokens, '[', '[[],')", "a list of tokens"),
            ("UPDATE draft SET parents = replace(parents, '-1', '-2')", "its draft is damaged"),
            (_many_rows(), "rows: expected packed rows")]):  # fmt: skip
        copy = tmp_path / f"{k}.db"
        with sqlite3.connect(db) as c, sqlite3.connect(copy) as to:
            c.backup(to)
            to.execute("PRAGMA ignore_check_constraints = ON")
            to.execute(sql)
        with speclab.open(copy) as results, pytest.raises((Fault, Misuse), match=says):
            trace.of_database(results, 3, 0)
