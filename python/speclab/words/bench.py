"""bench - the measurements of the engine (`speclab bench --json`) as tables, and with other engines: llama.cpp, or any
that implements the protocol of peer_llama.py, takes each measurement in the rounds of the engine's.

The peers' times are stored in the database with the engine's, whose view bench_pass has the ratios. The file needs the
standard library alone.
"""
# with --compare --peer-command --peer-option
# without --json

import contextlib
import ctypes
import json
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from speclab import database, engine, files
from speclab.command import Fault, Misuse, Options, placed
from speclab.shown import figure

Row = dict[str, Any]
SUBJECT = ("what", "context", "slots", "n")
SPREADS = {"ns": {"rounds": "rounds", "median": "median_ns", "low_quartile": "low_ns", "high_quartile": "high_ns", "min": "min_ns", "max": "max_ns"},
           "ratio": {"rounds": "rounds", "median": "ratio", "low_quartile": "ratio_low", "high_quartile": "ratio_high"}}  # fmt: skip
SQL = """SELECT placement, what, context, slots, n, peer, rounds, median_ns, low_ns, high_ns, min_ns, max_ns, ratio, ratio_low, ratio_high
         FROM bench_pass WHERE bench = ? ORDER BY placement, what, context, peer, slots, n"""
# Seconds: after its work an engine's threads may spin for some milliseconds before they sleep (libgomp's for about 15).
PAUSE = 0.025
LINE = 1 << 20  # maximum bytes of a line


# ---- the other engines


def end_with_parent() -> None:
    """Makes the kernel kill this child when the process that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Peer:
    """Another engine in a separate process. Its failures are Faults with its label."""

    def __init__(self, words: Sequence[str], label: str, options: Sequence[str] = ()):
        """words: program and arguments. options: "KEY=VALUE", for its model. Raises Fault."""
        self.label, self.options, self.name = label, options, ""
        with placed(f"the engine to compare with: {words[0]}: "):
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, preexec_fn=end_with_parent,
                                            encoding="utf-8", errors="surrogateescape")  # fmt: skip

    def close(self) -> None:
        """Closes its input, which ends it."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # it may have ended
                stream.close()
        self.process.wait()

    def _request(self, request: str) -> str:
        """Returns the line that answers the request; an empty request waits for one more."""
        with contextlib.suppress(OSError):  # a failure shows as a missing answer
            self.process.stdin.write(request)
            self.process.stdin.flush()
        answer = self.process.stdout.readline(LINE)
        if not answer:
            status = self.process.wait()
            raise Fault(f"{self.label} ended without an answer ({signal.strsignal(-status) if status < 0 else f'exit status {status}'})")
        if answer.startswith("error "):
            raise Fault(answer.removeprefix("error ").rstrip("\n"))
        return answer.rstrip("\n")

    def open(self, lines: Sequence[str]) -> None:
        """Loads the model. lines: those of the protocol before "open". Raises Fault."""
        options = ["option " + option.replace("=", " ", 1) for option in self.options]
        with placed("the engine to compare with: "):
            answer = self._request("\n".join([*lines, *options, "open", ""]))
            if any(line.startswith("slots ") for line in lines):
                if answer != "slots":
                    raise Fault(f"{self.label} does not run passes of several slots (--slots)")
                answer = self._request("")
            if not answer.startswith("ready "):
                raise Fault(f'{self.label}: expected "ready NAME", found "{answer}"')
        self.name = answer.removeprefix("ready ")

    def seconds(self, request: str) -> float:
        """Returns the time of a pass or a prompt that the peer reports. Raises Fault."""
        time.sleep(PAUSE)
        answer, took = self._request(request + "\n"), 0.0
        with contextlib.suppress(ValueError):
            took = float(answer)
        if not 0 < took < 1e6:
            raise Fault(f'{self.label}: expected seconds, found "{answer}"')
        return took


class Time(NamedTuple):
    """A measurement of a peer, as a row of the table bench_time."""

    round: int
    what: str
    context: int
    slots: int
    n: int
    peer: int
    ns: int


class Turns:
    """The peers' part of a bench. The engine announces each measurement, and takes it when `answer` has returned.

    Engines take a measurement one after another, and which of them begins rotates.
    """

    def __init__(self, peers: Sequence[Peer]):
        self.peers, self.times = peers, list[Time]()
        self.opening, self.round, self.turn, self.later = list[str](), -1, 0, list[Time]()

    def used(self) -> float:
        """Returns the processor seconds that peers and this process have used so far."""
        groups, ticks = {p.process.pid for p in self.peers}, 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it may have ended
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
                ticks += (int(fields[11]) + int(fields[12])) * (int(fields[2]) in groups)
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()

    def _take(self, all_of: Sequence[Time]) -> None:
        for t in all_of:
            request = "prompt" if t.what == "prompt" else f"pass {t.n} {t.context}" + (f" {t.slots}" if t.slots > 1 else "")
            self.times.append(t._replace(ns=round(1e9 * self.peers[t.peer - 1].seconds(request))))

    def answer(self, line: str) -> str | None:
        """Takes the turn that a line of the engine announces, and returns the answer; None: no answer. Raises Fault."""
        word, *rest = line.split(" ")
        if word not in ("open", "round", "end", "pass", "prompt", "draft"):
            self.opening.append(line)
            return None
        if word == "open":
            for peer in self.peers:
                peer.open(self.opening)
            return "0"
        self._take(self.later)
        self.later = []
        if word in ("round", "end"):
            self.round, self.turn = self.round + (word == "round"), 0
            return str(self.used())
        count = 1 + len(self.peers)
        first, self.turn = self.turn + self.round, self.turn + 1
        if word != "draft":  # no peer takes draft steps
            n, context, slots = map(int, rest if word == "pass" else (*rest, 0, 1))
            rows = [Time(self.round, word, context, slots, n, (first + k) % count, 0) for k in range(count)]
            own = next(i for i, row in enumerate(rows) if row.peer == 0)
            self._take(rows[:own])
            self.later = rows[own + 1 :]
        return "0"


# ---- tables


def _digits(x: float | None) -> str:
    """Returns a number with three significant digits."""
    return "-" if x is None else f"{x:.{2 if x < 9.995 else 1 if x < 99.95 else 0}f}"


def _spread(s: Row, unit: float) -> str:
    """Returns "5.00 ms (4.50 to 6.50)" without the unit's name: median and quartiles."""
    return f"{_digits(s['median'] / unit)} {{}} ({_digits(s['low_quartile'] / unit)} to {_digits(s['high_quartile'] / unit)})"


def _head(j: Row) -> str:
    m, d, rounds, peaks = j["model"], j["draft"], j["rounds"], j["peaks"]
    out = [f"model       {m['path']}"]
    if m["inflated_from"] is not None:
        out.append(f"            marked as inflated from {m['inflated_from']}; its speed is not that of a real model")
    out.append(f"weights     {m['type']}, a pass {'with all experts ' * (m['expert_layers'] > 0)}reads {m['bytes'] / 1e6:.1f} MB; "
               f"activations {m['activations']}, cache {m['cache']}")  # fmt: skip
    if m["expert_layers"] > 0:
        text = "random tokens" if j["text"] is None else f"the text {j['text']}"
        out.append(f"experts     {m['experts_used']} of {m['experts']} for a row, in {m['expert_layers']} layers; the rows are {text}")
    if d is not None:
        out.append(f"draft       {d['path']} ({d['type']}, activations {d['activations']})")
    out += [f"device      {j['device']}", f"machine     {j['machine']}", f"revision    {j['revision']}"]
    if peaks:
        lines = [", ".join(f"{_digits(p['per_second'] / 1e9)} {p['kind']} ({p['isa']})" for p in peaks[i : i + 3]) for i in range(0, len(peaks), 3)]
        out.append("compute     " + f",\n{'':12}".join(lines) + " G operations/s")
    disturbed = sum((r["foreign"] or 0) > j["foreign_limit"] for r in rounds)
    line = f"rounds      {len(rounds)}, of which {sum(r['counts'] for r in rounds)} count; in {disturbed} other processes used more than "
    line += f"{100 * j['foreign_limit']:.0f} % of a processor"
    if any(r["before"] for r in rounds):
        unstable = sum(r["placement"] == "unstable" for r in rounds)
        line += f",\n            in {unstable} the probes before and after the round disagree"
    out += [line, *["            NONE counts: the machine was disturbed in all rounds; all are shown"] * j["none_counts"]]
    return "\n".join(out) + "\n"


def _passes(rows: Sequence[Row], context: int, several: bool, probed: bool) -> str:
    """The columns of experts are for a mixture: how many of a layer a pass reads, as counted, and as expected if rows
    choose independently and uniformly."""
    peak, mixture = any(r["share_of_peak"] is not None for r in rows), "experts" in rows[0]
    out = [f"\nPasses of n rows{' in each slot' * several} after {context} cached tokens, with the logits of every row (median and quartiles)",
           f"{'slots ' * several}    n       ms     25 %     75 %    c(n)  GFLOP/s{'  % peak' * peak}     GB/s{'  % read' * probed}"
           + "  experts expected" * mixture]  # fmt: skip
    for r in (r for r in rows if r["context"] == context):
        ns = [_digits(r["ns"][k] / 1e6) for k in ("median", "low_quartile", "high_quartile")]
        line = f"{r['slots']:5} " * several + f"{r['n']:5} {ns[0]:>8} {ns[1]:>8} {ns[2]:>8} {_digits(r['c']):>7} "
        line += f"{_digits(r['flops_per_second'] / 1e9):>8}" + (f" {100 * r['share_of_peak']:7.0f}" if peak else "")
        line += f" {_digits(r['bytes_per_second'] / 1e9):>8}" + (f" {100 * r['share_of_read']:7.0f}" if r["share_of_read"] is not None else "")
        out.append(line + (f" {_digits(r['experts_per_layer']):>8} {_digits(r['experts_per_layer_expected']):>8}" if mixture else ""))
    return "\n".join(out) + "\n"


def _others(rows: Sequence[Row]) -> str:
    out = ""
    for r in rows:
        ms = _spread(r["ns"], 1e6).format("ms")
        if r["what"] == "draft_step":
            out += f"\nDraft step after {r['context']} cached tokens: {ms}, {_digits(r['c'])} of a pass of one row"
        elif r["what"] == "prompt":
            out += f"\nPrompt of {r['n']} tokens: {ms}, {_digits(1e9 * r['n'] / r['ns']['median'])} tokens/s, "
            out += f"{_digits(r['flops_per_second'] / 1e9)} GFLOP/s"
    return out


def _cost(c: Row, mixture: bool) -> str:
    if c["form"] == "none":
        return ""
    h, t, d = c["hinge"], c["table"], c["draft_step"]
    a, b, s, e, f, u = (f"{h[k] / 1e3:.4g}" for k in "absdeu")
    out = f"\nCost model: {c['form']}. Hinge: us = {a} + {b} n + {s} max(0, n - {h['n0']:.4g}) + {e} c + {f} n c"
    out += f"\n    + {u} x, x: the experts that the pass reads, in all layers" * mixture
    out += f",\n    error at most {100 * h['largest_error']:.1f} %, rms {100 * h['rms_error']:.1f} %; table: at most "
    out += f"{100 * t['largest_error']:.1f} %, rms {100 * t['rms_error']:.1f} % between its points\n"
    if d is not None:
        out += f"    Draft step: us = {d['a'] / 1e3:.4g} + {d['d'] / 1e3:.4g} c, error at most {100 * d['largest_error']:.1f} %\n"
    return out


def tables(j: Row) -> str:
    """Returns the tables of what `speclab bench --json` has printed: for each placement and context."""
    out, mixture, probed = [_head(j)], j["model"]["expert_layers"] > 0, any(r["before"] for r in j["rounds"])
    for p in j["placements"]:
        rows = [measured | median for measured, median in zip(j["measured"], p["medians"], strict=True)]
        passes, read = [r for r in rows if r["what"] == "pass"], p["read_bytes_per_second"]
        gb = [_digits(read[k] / 1e9) if read["rounds"] else "" for k in ("median", "min", "max")]
        out.append(f"\nPlacement {p['placement']}: {p['rounds']} rounds"
                   + (f"; memory read at {gb[0]} GB/s ({gb[1]} to {gb[2]})" if read["rounds"] else "") + "\n")  # fmt: skip
        several = any(r["slots"] > 1 for r in passes)
        out += [_passes(passes, context, several, probed) for context in sorted({r["context"] for r in passes})]
        out += [_others(rows), _cost(p["cost"], mixture)]
    out.append("\n")
    for o in j["overheads"]:
        out.append(f"Step of plain decoding ({o['mode']}), outside its pass: {_spread(o['outside_ns'], 1e3).format('us')}, "
                   f"{100 * o['outside_ns']['median'] / o['step_ns']['median']:.2g} % of the step\n")  # fmt: skip
    return "".join(out)


# ---- the word


def _help(o: Options) -> str:
    """Returns the engine's help, then that of the options here."""
    own = [(f"{a.option_strings[0]} {a.metavar or ''}", a.help) for a in o._actions if a.help not in (SUPPRESS, None) and a.dest != "help"]
    text = "".join(f"  {name:<25} {about}\n" for name, about in own)
    return engine.call("bench", "--json", "--help") + "\nBeside other engines on the same file, in the same rounds:\n" + text


def _options() -> Options:
    o = Options("bench", "")
    o.flag("--compare", help="llama.cpp; requires llama-cpp-python for python3 or for $SPECLAB_PYTHON")
    several = {"action": "append", "default": []}
    own = "a number of llama_context_params or llama_model_params"
    o.add_argument("--peer-option", metavar="KEY=VALUE", help=f"for --compare: {own},\n{'':27} as in flash_attn_type=0; repeatable", **several)
    program = "a program that implements the protocol of peer_llama.py"
    o.add_argument("--peer-command", metavar="COMMAND", help=f"{program};\n{'':27} repeatable", **several)
    o.option("--db", help=SUPPRESS)
    o.flag("--json", help=SUPPRESS)
    o.format_help = lambda: _help(o)
    return o


def _measure(words: list[str], turns: Turns) -> tuple[int, Row]:
    """Runs the engine, whose measurements the peers take in turns; returns its exit status and what it measured. Raises
    Fault."""
    ours, theirs = socket.socketpair()
    announced = [theirs.fileno()] if turns.peers else []
    with tempfile.TemporaryFile() as out, ours:  # no pipe, which would be full before the engine's last turn has ended
        child = subprocess.Popen([files.program(), "bench", "--json", *(f"--turns={fd}" for fd in announced), *words], pass_fds=announced,
                                 stdout=out, preexec_fn=end_with_parent)  # fmt: skip
        theirs.close()
        try:
            with ours.makefile("rw", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
                for line in lines:
                    answer = turns.answer(line.removesuffix("\n"))
                    if answer is not None:
                        lines.write(answer + "\n")
                        lines.flush()
        except ConnectionError:
            pass  # the engine has failed, and reports why
        except BaseException:
            child.terminate()
            child.wait()
            raise
        status = child.wait()
        out.seek(0)
        return status, json.loads(out.read()) if status == 0 else {}


def _stored(db: str, turns: Turns) -> list[Row]:
    """Stores the peers' measurements in the latest bench; returns its rows of the view bench_pass. Raises Fault."""
    with database.faults(db), sqlite3.connect(db, timeout=60) as c:
        (bench,) = c.execute("SELECT max(id) FROM bench").fetchone()
        c.executemany("INSERT INTO bench_peer (bench, peer, name) VALUES (?,?,?)", [(bench, i, p.name) for i, p in enumerate(turns.peers, 1)])
        c.executemany("INSERT INTO bench_time (bench, round, what, context, slots, n, peer, ns) VALUES (?,?,?,?,?,?,?,?)",
                      [(bench, *t) for t in turns.times])  # fmt: skip
        return database.dicts(c, SQL, [bench])


def _table(rows: list[Row], names: list[str]) -> str:
    medians = {(r["placement"], *(r[k] for k in SUBJECT), r["peer"]): r["median_ns"] for r in rows}
    out, several = [f"peer        {name}\n" for name in names], any(r["slots"] > 1 for r in rows)
    heading: tuple = ()
    for r in (r for r in rows if r["peer"]):
        name, mine = names[r["peer"] - 1].split(" ")[0], medians[r["placement"], *(r[k] for k in SUBJECT), 0]
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


def _with_peers(j: Row, rows: list[Row], turns: Turns) -> str:
    """Returns the engine's JSON with the peers' names, times, medians and ratios."""
    j["peers"] = [p.name for p in turns.peers]
    for m in j["measured"]:
        m["peers_ns"] = [[t.ns for t in turns.times if t.peer == i + 1 and all(m[k] == getattr(t, k) for k in SUBJECT)]
                         for i in range(len(turns.peers)) if m["what"] != "draft_step"]  # fmt: skip
    for p in j["placements"]:
        for m in p["medians"]:
            own = [r for r in rows if r["peer"] and r["placement"] == p["placement"] and all(m[k] == r[k] for k in SUBJECT)]
            m["peers"] = [{of: {key: r[column] for key, column in columns.items()} for of, columns in SPREADS.items()} for r in own]
    return json.dumps(j)


def main(words: list[str]) -> int:
    given, rest = _options().parse_known_args(words)
    if given.peer_option and not given.compare:
        raise Misuse("--peer-option requires --compare")
    for option in given.peer_option:
        if "=" not in option or any(c in option for c in " \n"):
            raise Misuse(f'--peer-option: expected KEY=VALUE, found "{option}"')
    python, program = os.environ.get("SPECLAB_PYTHON") or "python3", str(Path(__file__).parents[1] / "peer_llama.py")
    commands = [([python, program], python, given.peer_option)] * given.compare + [(["sh", "-c", c], c, ()) for c in given.peer_command]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        db, turns = given.db or (f"{folder}/bench.db" if commands else None), Turns(peers := [])
        for command in commands:
            peers.append(Peer(*command))
            ends.callback(peers[-1].close)
        status, measured = _measure([*([f"--db={db}"] if db else []), *rest], turns)
        if status == 0:
            rows = _stored(db, turns) if commands else []
            if given.json:
                print(_with_peers(measured, rows, turns))
            else:
                print(tables(measured) + ("\n" + _table(rows, [p.name for p in peers]) if peers else ""), end="")
    return status if status >= 0 else 1
