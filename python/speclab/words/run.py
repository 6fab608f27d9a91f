"""`run` with --again: a stored run is run again, and both are compared; and the text of --dry-run. All else that `run`
does is C.

The stored run becomes an experiment: its file, with the target, the cell and the threads that it had. Changes of its
inputs are found before anything is decoded (`speclab run --dry-run --json`). Then what is stored of both runs is
compared.

The interval of a stored number shows how it depends on the choice of prompts. The new run has the same prompts, so that
part cancels between the two, and the noise of clocks remains, as far as it differs from prompt to prompt. So the change
has its own interval, and a number is outside only if both agree: the whole interval of the new one (the stored value
with the change's interval) is outside of the stored one. The program computes the intervals (`speclab report
--intervals`). This file needs the standard library alone.

The next lines have the options that make `run` this word (`run`, commands/main.c).
# with --again
# with --dry-run without --json
"""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from speclab import database, dry_run, engine, files
from speclab.command import Fault, Misuse, Options, integer

_ABOUT = """\
Runs a stored run again, with `none` beside it, and says whether it comes out the same. First it compares the hashes of weights,
configuration, tokenizer and prompts, and every setting, with the stored ones; what has changed is listed, and nothing is run.
Then texts and steps are compared one by one, acceptance and speedup prompt by prompt: outside is what neither the stored
interval nor the noise of the clocks explains (docs/results.md). Exit status: 0 reproduced; 3 inputs, texts or steps differ,
or a number is outside."""

Row = dict[str, Any]
OTHERWISE = 3  # exit status: changed inputs, other texts, or a speedup outside of the interval
_STORED = ("file", "folder", "config_hash")  # what a run has to have stored


def _options() -> Options:
    o = Options("run", _ABOUT, "  ./run run --again 2 --db demo.db --limit 5\n")
    o.option("--again", metavar="RUN", type=integer(1, 1 << 62), help="the run, by its number in the database")
    o.option("--db", metavar="FILE", default="results.db", help="database with the run; default: results.db")
    o.option("--out", metavar="FILE", help="database for the new run; default: one that is removed again")
    o.option("--limit", metavar="N", type=integer(1, 1 << 18), help="only the first N prompts")
    o.flag("--no-probe", help="do not measure memory and processors before the first text")
    o.add_argument("--plugin", metavar="FILE", action="append", default=[], help="a drafter or a rule of your own that the run used")
    return o


def _stored(db: sqlite3.Connection, path: str, run: int) -> Row:
    with database.faults(path):
        found = database.dicts(db, "SELECT * FROM run WHERE id = ?", [run])
    if not found:
        raise Misuse(f"{path}: there is no run {run} in it")
    if None in [found[0][name] for name in _STORED]:
        raise Fault(f"{path}: run {run}: its file, folder or hashes are not stored")
    settings = json.loads(found[0]["settings"])
    if not isinstance(settings, dict) or not {"target", "threads", "cells"} <= settings.keys():
        raise Fault(f"{path}: run {run}: its settings are those of no cell")
    return found[0] | {"settings": settings}


# ---- the program


class Again:
    """The experiment of a stored run. What its database names as plugins is not loaded."""

    def __init__(self, run: Row, got: Namespace):
        self.run = run
        sets = {key: run["settings"][key] for key in ("target", "threads", "cells")} | {"plugins": []}
        sets |= {"prompts.limit": got.limit} if got.limit else {}
        self.words = ["run", "-", "--shard=none", *(f"--set={key}={json.dumps(value)}" for key, value in sets.items())]
        self.words += [word for file in got.plugin for word in ("--plugin", os.path.abspath(file))]
        python = any(file.endswith(".py") for file in got.plugin)
        self.program = [sys.executable, "-P", "-B", "-m", "speclab"] if python else [files.program()]

    def call(self, *words: str, output: int | None = None) -> str:
        """Runs the program in the folder of the experiment's file, and returns its stdout; lines of progress are
        printed as they come. Raises Fault; Misuse if the file is no experiment, or names files that are gone."""
        if not os.path.isdir(self.run["folder"]):
            raise Misuse(f"{self.run['folder']}: the folder of the run's file is not there")
        said = ""
        with subprocess.Popen([*self.program, *self.words, *words], cwd=self.run["folder"], stdin=subprocess.PIPE, stdout=output,
                              stderr=subprocess.PIPE, encoding="utf-8", errors="surrogateescape") as child:  # fmt: skip
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(self.run["file"])
            for line in child.stderr:
                if line.startswith("speclab run: "):
                    said = line
                elif not line.startswith("Results are in "):  # they may be removed
                    engine.say(line.rstrip("\n"))
            out = child.stdout.read() if output else ""
        if child.returncode != 0:
            why = engine.failure(child.returncode, said)
            raise type(why)(re.sub(r"^--set:[0-9:]+", "run.settings:", re.sub(r" \(with --set .*", "", str(why), flags=re.S)))
        return out


# ---- what changed


def _change(what: str, path: str, was: str | None, now: str | None) -> list[str]:
    place = f" ({path})" if path else ""
    return [f"changed    {what}{place}: was {was or 'none'}, is {now or 'none'}"] if (was or "") != (now or "") else []


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _differences(key: str, was: Any, now: Any) -> Iterator[str]:
    """Yields a line for every key whose value differs."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in [*was, *(name for name in now if name not in was)]:
            yield from _differences(f"{key}{'.' * bool(key)}{name}", was.get(name, "not there"), now.get(name, "not there"))
    elif was != now:
        yield f"changed    settings, {key}: was {_shown(was)}, is {_shown(now)}"


def _changes(run: Row, cell: Row) -> list[str]:
    """Returns a line for everything that differs from what the run had."""
    if cell["cell"] == run["cell"]:
        return []
    lines = _change("weights of the target", path := run["model_path"], run["target_hash"], cell["target_hash"])
    lines = lines or _change("configuration of the target", path, run["config_hash"], cell["config_hash"])
    lines += _change("tokenizer of the target", path, run["tokenizer_hash"], cell["tokenizer_hash"])
    lines += _change("weights or configuration of the drafter", "", run["drafter_hash"], cell["drafter_hash"])
    lines += _change("prompts", run["prompts_path"], run["prompts"], cell["prompts"])
    lines += _differences("", run["settings"], cell["settings"])
    return lines or _change("the hash of the same settings and inputs, by this revision", "", run["cell"], cell["cell"])


def _missing(run: Row) -> list[str]:
    """Returns a line for each file of the run that is gone, and one that says why if a command had made it for its own
    time."""
    lines, why = [], []
    for what, path, was in (("weights of the target", run["model_path"], run["target_hash"]), ("prompts", run["prompts_path"], run["prompts"])):
        if not path or os.path.exists(path):
            continue
        lines += _change(what, path, was, "not there")
        if (made := re.match(r"(.*?/speclab-tune-[^/]*)", path)) and not os.path.exists(made[1]):
            why = [f"           {made[1]} was the folder of a command (tune) for the time that it ran: no such run can be repeated"]
    return lines + why


def _found(again: Again, run: Row, folder: str) -> tuple[list[str], Row]:
    """Returns what changed, and the cell of a dry run. Raises Fault."""
    try:
        cells = json.loads(again.call("--dry-run", "--json", f"--db={folder}/none.db", output=subprocess.PIPE))["cells"]
    except Misuse as why:
        if missing := _missing(run):
            return missing, {}
        raise Fault(str(why)) from None  # the file is the database's, so this is no mistake of the call
    except Fault as why:
        if run["drafter_hash"] is None:
            raise
        return [f"changed    weights or configuration of the drafter: was {run['drafter_hash']}, cannot be opened: {why}"], {}
    cell = next(cell for cell in cells if cell["baseline"] == (run["drafter_kind"] == "none"))
    return _changes(run, cell), cell


# ---- the comparison

_PLACE = """SELECT revision, processor, arithmetic, read_bytes_per_s / 1e9, round_trip_ns, mhz FROM environment WHERE run = ?
            ORDER BY id DESC LIMIT 1"""
_TEXTS = """SELECT prompt, turn, repeat, pair, prompt_id, tokens,
            (SELECT count(*) || ' steps, ' || coalesce(sum(drafted), 0) || ' drafted, ' || coalesce(sum(accepted), 0) || ' accepted'
             FROM step WHERE sequence = sequence.id) AS steps FROM sequence WHERE run = ? ORDER BY prompt, repeat, turn, pair"""


class Run(NamedTuple):
    """A run in a database. Its texts and drafts may vary where drafts depend on other texts or on clocks."""

    db: sqlite3.Connection
    path: str
    id: int
    baseline: bool
    texts_vary: bool = False
    drafts_vary: bool = False

    def rows(self, query: str) -> list[Row]:
        """Returns the rows of a query of this run. Raises Fault."""
        with database.faults(self.path):
            return database.dicts(self.db, query, [self.id])


def interval(x: Row) -> str:
    """Returns "1.460 [1.225, 1.704]"."""
    return f"{x['value']:.3f}" + (f" [{x['low']:.3f}, {x['high']:.3f}]" if x["low"] is not None else "")


class Comparison:
    """`lines` are for people; `same` and `verdict` are what was decided."""

    def __init__(self, then: Run, now: Run):
        """Compares the texts that `now` has. Raises Fault."""
        self.then, self.now, self.same, self.verdict, self.lines = then, now, True, list[str](), list[str]()
        self._places()
        self._texts()
        self._numbers()
        self.lines.append(f"{'reproduced' if self.same else 'not reproduced'}: {', '.join(self.verdict)}")

    def _decide(self, what: str, is_: str, same: bool) -> None:
        self.verdict.append(f"{what} {is_}")
        self.same = self.same and same

    def _places(self) -> None:
        was, is_ = ([*(run.rows(_PLACE) or [dict.fromkeys(range(6))])[0].values()] for run in (self.then, self.now))
        for name, a, b in zip(("revision", "processor", "arithmetic"), was, is_, strict=False):
            if a != b:
                self.lines.append(f"{name:<10} was {a or ''}, is {b or ''}")
        units = zip(("GB/s read", "ns round trip", "MHz"), (1, 0, 0), was[3:], is_[3:], strict=True)
        known = [f"{name} was {a:.{digits}f}, is {b:.{digits}f}" for name, digits, a, b in units if a is not None and b is not None]
        if known:
            self.lines.append(f"machine    {'; '.join(known)}")

    def _texts(self) -> None:
        """Compares every text of the new run, by its place, with the first of several of the stored run."""
        stored: dict[tuple, Row] = {}
        for t in self.then.rows(_TEXTS):
            place = t["prompt"], t["turn"], t["repeat"]
            if place not in stored or t["pair"] < stored[place]["pair"]:
                stored[place] = t
        pairs = [(stored[place], t) for t in self.now.rows(_TEXTS) if (place := (t["prompt"], t["turn"], t["repeat"])) in stored]
        if not pairs:
            raise Fault(f"{self.then.path}: run {self.then.id} has no text of these prompts")
        for what, key, varies in (("texts", "tokens", self.then.texts_vary), ("steps", "steps", self.then.drafts_vary)):
            differ = [(was, is_) for was, is_ in pairs if was[key] != is_[key]]
            first = ""
            for was, is_ in differ[:1]:
                first = f"; first difference: prompt {is_['prompt_id']}, turn {is_['turn']}"
                first += f", token {os.path.commonprefix([was[key], is_[key]]).count(',')}" if key == "tokens" else f": was {was[key]}, is {is_[key]}"
            why = " (drafts depend on other texts or clocks: it does not decide)" if differ and varies else ""
            self.lines.append(f"{what:<10} {len(pairs) - len(differ)} of {len(pairs)} are equal{first}{why}")
            self._decide(what, "differ" if differ else "equal", varies or not differ)
        self.steps_same = not differ

    def _sums(self, view: str, columns: Sequence[str]) -> tuple[list[Row], list[Row]]:
        """Returns the rows of a view of sums: the stored run's, and the new one's."""
        unit = "unit" if view != "sums_by_prompt" else "0 AS unit"
        query = f"SELECT prompt, {unit}, {', '.join(columns)} FROM {view} WHERE run = ? ORDER BY prompt, 2"
        was, is_ = ([{k: x or 0 for k, x in row.items()} for row in run.rows(query)] for run in (self.then, self.now))
        both = {row["prompt"] for row in was} & {row["prompt"] for row in is_}
        return [r for r in was if r["prompt"] in both], [r for r in is_ if r["prompt"] in both]

    def _numbers(self) -> None:
        accepted, speeds = ["accepted_tokens", "drafted_tokens"], ["new_tokens", "decode_ns"]
        was, is_ = self._sums("sums_by_prompt", accepted)
        paired = self._sums("speed_by_slice", [*speeds, "steps", *(f"none_{c}" for c in [*speeds, "steps"])])
        alone = self._sums("sums_by_slice", [*speeds, "steps"])
        ratio, none = [*speeds, *(f"none_{c}" for c in speeds)], ["steps", "none_steps"]
        queries = [_rows("rate", [was], accepted), _rows("rate", [is_], accepted), _rows("difference", [is_, was], accepted),
                 _units("ratio_of_ratios", [paired[0]], ratio, none), _units("ratio_of_ratios", [paired[1]], ratio, none),
                 _units("change", [paired[1], paired[0]], ratio, none), _units("ratio_of_ratios", [alone[1], alone[0]], speeds, ["steps"]),
                 _units("ratio", [alone[0]], speeds, ["steps"]), _units("ratio", [alone[1]], speeds, ["steps"])]  # fmt: skip
        rate_was, rate_is, difference, speedup_was, speedup_is, change, of_speeds, speed_was, speed_is = engine.objects(
            "report", "--intervals", "-", lines=queries
        )
        if rate_was["value"] is not None and rate_is["value"] is not None:  # else nothing was drafted
            ends = [None if difference[k] is None else rate_was["value"] + difference[k] for k in ("low", "high")]
            self._number("acceptance", len(was), rate_was, rate_is, ("difference", difference), ends, self.steps_same)
        if not self.then.baseline and (speedup_was["value"] is not None or speedup_is["value"] is not None):
            ends = [None if change[k] is None else speedup_was["value"] * change[k] for k in ("low", "high")]
            prompts = len({r["prompt"] for r in paired[0]})
            self._number("speedup", prompts, speedup_was, speedup_is, ("ratio", change), ends, False)
        if of_speeds["value"] is not None:  # the units of the two runs are different times
            self.lines.append(f"tokens/s   was {1e9 * speed_was['value']:.1f}, is {1e9 * speed_is['value']:.1f}: ratio {interval(of_speeds)}")

    def _number(self, name: str, prompts: int, was: Row, is_: Row, change: tuple[str, Row], ends: Sequence[float | None], equal: bool) -> None:
        """change: its kind, and its interval. ends: the interval of the new number, given the stored one and the
        interval of the change. equal: the parts that the numbers are made of are equal."""
        low, high = ends
        rounding, known, inside = 1e-9 * (was["value"] or 0), None not in (was["low"], low, high), False
        if known:
            inside = low <= was["high"] + rounding and high >= was["low"] - rounding
        found = "equal" if equal else "not known" if not known else "inside" if inside else "outside"
        says = (found if equal or known else "no change can be told, as the two have no prompt in common that was not disturbed"
                if change[1]["value"] is None else "one slice of time has no interval" if prompts > 1 else "one prompt has no interval")  # fmt: skip
        values = f"was {_known(was)}, is {_known({**is_, 'low': None})}"
        changed = f", {change[0]} {interval(change[1])}" if not equal and change[1]["value"] is not None else ""
        self.lines.append(f"{name:<10} on {prompts} prompts: {values}{changed}: {says}")
        self._decide(name, found, equal or inside or not known)


def _known(x: Row) -> str:
    return interval(x) if x["value"] is not None else "nan"


def _rows(of: str, runs: Sequence[list[Row]], columns: Sequence[str]) -> Row:
    """Returns the query of sums by prompt: the columns of each run follow those of the one before."""
    names = iter("abcdefgh")
    return {"of": of} | {next(names): [r[c] for r in rows] for rows in runs for c in columns}


def _units(of: str, runs: Sequence[list[Row]], columns: Sequence[str], steps: Sequence[str]) -> Row:
    """Returns the query of sums by prompt and slice of time. The rows of the runs follow each other, since their
    times are different ones; what one has in the columns of another is 0."""
    names, steps_names = iter("abcdefgh"), iter(("steps", "other_steps", "old_steps", "old_other_steps"))
    all_rows = [(i, r) for i, rows in enumerate(runs) for r in rows]
    query: Row = {"of": of, "prompt": [r["prompt"] for _, r in all_rows], "unit": [-1 - r["unit"] if i else r["unit"] for i, r in all_rows]}
    for i in range(len(runs)):
        for to, of_run in ((names, columns), (steps_names, steps)):
            query |= {next(to): [r[c] if k == i else 0 for k, r in all_rows] for c in of_run}
    return query


# ---- the word


def _compare(run: Row, cell: Row, then: sqlite3.Connection, got: Namespace, path: str) -> bool:
    with contextlib.closing(database.connect(path)) as now, database.faults(path):
        found = now.execute("SELECT id FROM run WHERE experiment = ? AND cell = ?", (run["experiment"], run["cell"])).fetchone()
        baseline = run["drafter_kind"] == "none"
        old = Run(then, got.db, got.again, baseline, cell["texts_vary"], cell["drafts_vary"])
        compared = Comparison(old, Run(now, path, found[0], baseline))
        print("\n".join(compared.lines))
        return compared.same


def main(words: Sequence[str]) -> int:
    given = [word.split("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    if "--dry-run" in given and "--again" not in given:
        return engine.print_text("run", words, dry_run.text)
    got = _options().read(words)
    if got.out is not None and os.path.lexists(got.out):  # stored texts would be compared, not decoded
        raise Misuse(f"--out {got.out}: the file exists; expected a new one")
    with contextlib.closing(database.connect(got.db)) as then, tempfile.TemporaryDirectory(prefix="speclab-again-") as folder:
        run = _stored(then, got.db, got.again)
        again = Again(run, got)
        print(f"run {got.again:<6} {run['experiment']}: {run['drafter']}, {run['rule']}, {run['sampling']}", flush=True)
        changes, cell = _found(again, run, folder)
        if changes:
            print("\n".join(changes), "not reproduced: it would be another run", sep="\n")
            return OTHERWISE
        print("inputs     are the same: model, drafter, tokenizer, prompts and settings", flush=True)
        path = os.path.abspath(got.out) if got.out is not None else f"{folder}/again.db"
        again.call(f"--db={path}", *["--no-probe"] * got.no_probe)
        return 0 if _compare(run, cell, then, got, path) else OTHERWISE
