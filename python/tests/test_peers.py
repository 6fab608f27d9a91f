"""bench: its tables, and other engines beside it: what they are asked, in which order, what is stored and printed, what their failures say. No
time is asserted."""

import json
import os
import sqlite3
import subprocess
import time

import pytest
from conftest import ROOT, expect_golden, process, refused

from speclab.words.bench import Peer, Time, Turns, tables

QUICK = ["--no-probe", "--repeats", "1", "--contexts", "8", "--threads", "1"]
CLOCK = """while read w r; do echo "$w $r" >>{notes}; case $w in open) echo ready clockwork-{took} 1.0;; slots) echo slots;;
           pass|prompt) echo {took};; esac; done"""


def measured():
    """The benches with fixed numbers of tests/cli/test_bench_report.c."""
    text, at = (ROOT / "tests/cases/bench.txt").read_text().strip(), 0
    while at < len(text):
        j, at = json.JSONDecoder().raw_decode(text, at)
        yield j
        at += 1


def test_the_tables_of_fixed_numbers_are_the_golden_file():
    expect_golden("bench_tables.txt", "".join(f"#### {i}\n{tables(j)}" for i, j in enumerate(measured())))


def test_what_is_special_about_a_model_is_said():
    first, mixture = next(measured()), list(measured())[3]
    first["model"]["inflated_from"] = "small.gguf"
    assert "\n            marked as inflated from small.gguf; its speed is not that of a real model\n" in tables(first)
    mixture["text"] = "a.txt"
    assert "\nexperts     2 of 8 for a row, in 3 layers; the rows are the text a.txt\n" in tables(mixture)


def test_bench_alone_prints_tables_and_its_help_has_all_options(speclab, tiny, tmp_path):
    done = speclab("bench", *QUICK, "--rows", "1,2", "--prefill", "16", "--db", "x.db", "--", tiny)
    assert done.status == 0 and "\nPasses of n rows after 8 cached tokens" in done.out and "\nPrompt of 16 tokens: " in done.out, done
    with sqlite3.connect(tmp_path / "x.db") as db:
        assert db.execute("SELECT count(*) FROM bench_time WHERE peer = 0").fetchone()[0] >= 3
    text = speclab("bench", "--help").out
    assert all(
        f"\n  {option} " in text
        for option in ("--rows LIST", "--json", "--db FILE", "--compare", "--peer-option KEY=VALUE", "--peer-command COMMAND")
    )
    refused(speclab("bench", tiny, "--rows", "0"), '"0"', 2)
    refused(speclab("bench"), "missing argument", 2)


class Noted(Peer):
    """A peer without a process: it notes what it is asked."""

    def __init__(self, name, notes):
        self.name, self.notes, self.process = name, notes, subprocess.Popen("true")

    def seconds(self, request):
        self.notes.append(f"{self.name} {request}")
        return 0.25


def clock(folder, took):
    script = folder / f"{took}.sh"
    script.write_text(CLOCK.format(notes=folder / f"notes-{took}", took=took))
    return f"sh {script}"


def test_engines_take_a_measurement_one_after_the_other_and_the_first_rotates():
    notes = []
    turns = Turns([Noted("a", notes), Noted("b", notes)])
    for line in ("round", "pass 1 8 1", "pass 2 8 4", "draft", "prompt 16", "end", "round", "pass 1 8 1", "end"):
        answer = turns.answer(line)
        assert float(answer) >= 0
        notes.append(f"speclab {line}" if line not in ("round", "end") else line)
    assert notes == ["round",
                     "speclab pass 1 8 1", "a pass 1 8", "b pass 1 8",     # speclab, a, b
                     "a pass 2 8 4", "b pass 2 8 4", "speclab pass 2 8 4",  # a, b, speclab
                     "speclab draft",                                       # no peer drafts
                     "speclab prompt 16", "a prompt", "b prompt", "end",    # as the first
                     "round", "a pass 1 8", "b pass 1 8", "speclab pass 1 8 1", "end"]  # fmt: skip
    assert turns.times[2] == Time(0, "pass", 8, 4, 2, 1, 250_000_000)
    assert turns.times[4] == Time(0, "prompt", 0, 1, 16, 1, 250_000_000)


def test_what_peers_used_is_counted():
    busy = Peer(["sh", "-c", "while :; do :; done"], "busy")
    try:
        turns = Turns([busy])
        before = turns.used()
        while turns.used() - before < 0.05:
            assert busy.process.poll() is None
            time.sleep(0.02)
    finally:
        busy.process.kill()
        busy.close()


def test_peers_are_stored_and_printed_beside_the_engine(speclab, tiny, tmp_path):
    peers = [word for took in ("0.001", "0.002") for word in ("--peer-command", clock(tmp_path, took))]
    r = speclab("bench", tiny, *QUICK, "--rows", "1,2", "--slots", "1,4", "--prefill", "16", "--db", "x.db", *peers)
    assert r.status == 0, r.err
    assert "Passes of n rows in each slot after 8 cached tokens" in r.out
    assert "beside clockwork-0.001 (the peer), after 8 cached tokens" in r.out and "beside clockwork-0.002 (the peer)" in r.out
    with sqlite3.connect(tmp_path / "x.db") as db:
        assert db.execute("SELECT peer, name FROM bench_peer").fetchall() == [(1, "clockwork-0.001 1.0"), (2, "clockwork-0.002 1.0")]
        rows = db.execute("SELECT what, slots, n, context, median_ns FROM bench_pass WHERE peer = 2 ORDER BY 1, 2, 3").fetchall()
        assert rows == [("pass", s, n, 8, 2e6) for s in (1, 4) for n in (1, 2)] + [("prompt", 1, 16, 0, 2e6)]
        ratios = db.execute("SELECT p.ratio * o.min_ns <= 1.0001e6 AND p.ratio * o.max_ns >= 0.9999e6 FROM bench_pass AS p JOIN bench_pass AS o"
                            " ON (o.what, o.n, o.slots, o.peer) = (p.what, p.n, p.slots, 0) WHERE p.peer = 1").fetchall()  # fmt: skip
        assert ratios == [(1,)] * 5
    opening = (tmp_path / "notes-0.001").read_text().splitlines()[:7]
    assert opening == [f"model {tiny}", "threads 1", "rows 2", "prompt_tokens 16", "contexts 8", "slots 1 4", "open "]


def test_json_has_the_peers(within, tiny, tmp_path):
    r = within("bench", tiny, *QUICK, "--rows", "1,2", "--prefill", "0", "--draft", tiny, "--json", "--peer-command", clock(tmp_path, "0.5"))
    j = json.loads(r.out)
    assert j["peers"] == ["clockwork-0.5 1.0"]
    assert [m.get("peers_ns") for m in j["measured"]] == [[[5e8] * len(j["rounds"])], [[5e8] * len(j["rounds"])], []]
    for m in j["placements"][0]["medians"][:2]:
        (peer,) = m["peers"]
        assert peer["ns"]["median"] == 5e8
        assert len(j["rounds"]) > 1 or peer["ratio"]["median"] == pytest.approx(5e8 / m["ns"]["median"])


@pytest.mark.parametrize("status, says, words", [
    (2, "--peer-option requires --compare", ["--peer-option", "a=b", "--peer-command", "x"]),
    (2, '--peer-option: expected KEY=VALUE, found "ab"', ["--compare", "--peer-option", "ab"]),
    (1, "/nowhere/python: No such file or directory", ["--compare"]),
    (1, "nowhere.gguf", ["--peer-command", "echo ready x; cat >/dev/null", "--draft", "nowhere.gguf"]),
    (1, "the engine to compare with: it is out of order", ["--peer-command", "echo error it is out of order"]),
    (1, 'expected "ready NAME", found "hello"', ["--peer-command", "echo hello"]),
    (1, "several slots (--slots)", ["--peer-command", "echo ready it; cat >/dev/null", "--slots", "2"]),
    (1, "ended without an answer (exit status 3)", ["--peer-command", "read l; exit 3"]),
    (1, "ended without an answer (Killed)", ["--peer-command", "read l; kill -9 $$"]),
    (1, 'expected seconds, found "nan"', ["--peer-command", "echo ready x; while read l; do echo nan; done"]),
])  # fmt: skip
def test_errors_are_one_sentence(tiny, in_process, monkeypatch, capfd, status, says, words):
    monkeypatch.setenv("SPECLAB_PYTHON", "/nowhere/python")
    got, own = in_process("bench", tiny, *QUICK, "--rows", "1", "--prefill", "0", *words), capfd.readouterr()
    refused(got._replace(err=got.err + own.err), says, status)
    assert got.out + own.out == ""


def test_a_peer_ends_with_the_word(tiny, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    word = process("bench", tiny, "--peer-command", f"exec sleep 60 >{tmp_path / 'pipe'}")
    with open(tmp_path / "pipe") as peer:  # it opens when the peer opens it, and ends when the peer does
        word.kill()
        word.wait()
        began = time.monotonic()
        assert peer.read() == "" and time.monotonic() - began < 30
