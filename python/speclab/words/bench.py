"""bench - with other engines: llama.cpp, or any that speaks the protocol of peer_llama.py, takes each measurement in the rounds of the engine's.

The engine measures, and prints its table; the peers' times go into the database beside its own, whose view bench_pass has the ratios.
Standard library alone.
"""
# with --compare --peer-option --peer-command

import json
import os
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from speclab import database, files
from speclab.command import Misuse, Options
from speclab.peers import Peer, Turns, end_with_parent
from speclab.shown import figure

ABOUT = "Times passes beside other engines on the same file; the other options are those of speclab bench."
SQL = """SELECT placement, what, context, slots, n, peer, rounds, median_ns, low_ns, high_ns, min_ns, max_ns, ratio, ratio_low, ratio_high
         FROM bench_pass WHERE bench = ? ORDER BY placement, what, context, slots, n, peer"""


def _options() -> Options:
    o = Options("bench", ABOUT, "  ./run bench smollm2-135m-instruct --compare        (which sets llama-cpp-python up)\n")
    o.flag("--compare", help="time llama.cpp on the same file in the same rounds; requires llama-cpp-python for python3 or for $SPECLAB_PYTHON")
    o.add_argument("--peer-option", action="append", default=[], metavar="KEY=VALUE",
                   help="for --compare: a number of llama_context_params or llama_model_params, as in flash_attn_type=0; repeatable")  # fmt: skip
    o.add_argument("--peer-command", action="append", default=[], metavar="COMMAND",
                   help="compare with this program, which implements the protocol of peer_llama.py; can be given several times")  # fmt: skip
    o.option("--db", metavar="FILE", help="also store the results in this database")
    o.flag("--json", help="print one JSON object with all measurements")
    return o


def _start(peers: list[Peer], given: Any) -> None:
    if given.compare:
        python = os.environ.get("SPECLAB_PYTHON") or "python3"
        peers.append(Peer([python, str(Path(__file__).parents[1] / "peer_llama.py")], python, given.peer_option))
    for command in given.peer_command:
        peers.append(Peer(["sh", "-c", command], command))


def _measure(words: list[str], turns: Turns, captured: bool) -> tuple[int, bytes]:
    """Runs the engine, whose measurements the peers take in turns; its exit status and, if captured, its stdout. Raises Fault."""
    ours, theirs = socket.socketpair()
    engine = subprocess.Popen([files.program(), "bench", *words, "--turns", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                              stdout=subprocess.PIPE if captured else None, preexec_fn=end_with_parent)  # fmt: skip
    theirs.close()
    try:
        with ours, ours.makefile("rw", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            for line in lines:
                answer = turns.answer(line.removesuffix("\n"))
                if answer is not None:
                    lines.write(answer + "\n")
                    lines.flush()
    except ConnectionError:
        pass  # the engine has failed, and says why
    except BaseException:
        engine.terminate()
        engine.wait()
        raise
    out, _ = engine.communicate()
    return engine.returncode, out or b""


def _stored(db: str, turns: Turns) -> list[dict[str, Any]]:
    """Stores what the peers measured in the latest bench; rows of the view bench_pass of it. Raises Fault."""
    with database.faults(db), sqlite3.connect(db, timeout=60) as c:
        (bench,) = c.execute("SELECT max(id) FROM bench").fetchone()
        c.executemany("INSERT INTO bench_peer (bench, peer, name) VALUES (?,?,?)", [(bench, i, p.name) for i, p in enumerate(turns.peers, 1)])
        c.executemany("INSERT INTO bench_time (bench, round, what, context, slots, n, peer, ns) VALUES (?,?,?,?,?,?,?,?)",
                      [(bench, *t) for t in turns.times])  # fmt: skip
        return database.dicts(c, SQL, [bench])


def _table(rows: list[dict[str, Any]], names: list[str]) -> str:
    key = ("placement", "what", "context", "slots", "n")
    own = {tuple(r[k] for k in key): r for r in rows if r["peer"] == 0}
    out, several = [f"peer        {name}\n" for name in names], any(r["slots"] > 1 for r in rows)
    medians = {(*(r[k] for k in key), r["peer"]): r["median_ns"] for r in rows}
    heading: tuple = ()
    for r in sorted(rows, key=lambda r: (r["placement"], r["what"] == "prompt", r["context"], r["peer"], r["slots"], r["n"])):
        if r["peer"] == 0:
            continue
        name, mine = names[r["peer"] - 1].split(" ")[0], own[tuple(r[k] for k in key)]["median_ns"]
        if r["what"] == "prompt":
            out.append(f"\nPlacement {r['placement']}, prompt of {r['n']} tokens, beside {name}: {figure(mine / 1e6)} ms, the peer's "
                       f"{figure(r['median_ns'] / 1e6)} ms, {figure(r['ratio'])} times speclab's ({figure(r['ratio_low'])} to "
                       f"{figure(r['ratio_high'])})\n")  # fmt: skip
            continue
        if heading != (heading := (r["placement"], r["context"], r["peer"])):
            out.append(f"\nPlacement {r['placement']}, beside {name} (the peer), after {r['context']} cached tokens, with the logits of every row\n"
                       + ("slots " if several else "")
                       + "    n       ms  peer ms peer / speclab     25 %     75 %       c(n) peer c(n)\n")  # fmt: skip
        one = [medians.get((r["placement"], "pass", r["context"], 1, 1, peer)) for peer in (0, r["peer"])]
        c = [figure(ns / first if first else None) for ns, first in zip((mine, r["median_ns"]), one, strict=True)]
        out.append((f"{r['slots']:5} " if several else "")
                   + f"{r['n']:5} {figure(mine / 1e6):>8} {figure(r['median_ns'] / 1e6):>8} {figure(r['ratio']):>14} {figure(r['ratio_low']):>8} "
                   + f"{figure(r['ratio_high']):>8} {c[0]:>10} {c[1]:>9}\n")  # fmt: skip
    return "".join(out)


def _with_peers(text: bytes, rows: list[dict[str, Any]], turns: Turns) -> str:
    """The engine's JSON with the peers' names, times, medians and ratios."""
    j = json.loads(text)
    j["peers"] = [p.name for p in turns.peers]
    subject = ("what", "context", "slots", "n")
    for m in j["measured"]:
        m["peers_ns"] = [[t.ns for t in turns.times if t.peer == i + 1 and all(m[k] == getattr(t, k) for k in subject)]
                         for i in range(len(turns.peers)) if m["what"] != "draft_step"]  # fmt: skip
    for p in j["placements"]:
        for m in p["medians"]:
            m["peers"] = [{"ns": {"rounds": r["rounds"], "median": r["median_ns"], "low_quartile": r["low_ns"], "high_quartile": r["high_ns"],
                                  "min": r["min_ns"], "max": r["max_ns"]},
                           "ratio": {"rounds": r["rounds"], "median": r["ratio"], "low_quartile": r["ratio_low"], "high_quartile": r["ratio_high"]}}
                          for r in rows if r["peer"] and r["placement"] == p["placement"] and all(m[k] == r[k] for k in subject)]  # fmt: skip
    return json.dumps(j)


def main(words: list[str]) -> int:
    given, rest = _options().parse_known_args(words)
    if given.peer_option and not given.compare:
        raise Misuse("--peer-option requires --compare")
    for option in given.peer_option:
        if "=" not in option or any(c in option for c in " \n"):
            raise Misuse(f'--peer-option: expected KEY=VALUE, found "{option}"')
    peers: list[Peer] = []
    with tempfile.TemporaryDirectory() as folder:
        db, turns = given.db or f"{folder}/bench.db", Turns(peers)
        try:
            _start(peers, given)
            status, out = _measure([*rest, "--db", db, *(["--json"] if given.json else [])], turns, given.json)
        finally:
            for peer in peers:
                peer.close()
        if status == 0:
            rows = _stored(db, turns)
            print(_with_peers(out, rows, turns) if given.json else "\n" + _table(rows, [p.name for p in peers]), end="\n" if given.json else "")
    return status if status >= 0 else 1
