"""tune - finds settings of drafters for one target on one machine: probes, predictions, and the best few measured.
Given training texts, it finds the layers and the draft length of the drafter layer_skip (layers.py).

The engine runs the experiments, and their predictions are read from the database's views (tuning.py). The file needs
the standard library alone.
"""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speclab import database, engine, files, layers, settings
from speclab.command import Fault, Misuse, Options, integer
from speclab.tuning import Candidate, Search, Searched

ROWS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48]  # rows of the passes that are timed
MOST_ROWS = 512  # maximum rows in a pass
MOST_COST = 3  # number of passes of one row; a larger draft costs more than it could gain
SHOWN = 12  # number of candidates that are printed
NO_DRAFTER = {"kind": "none"}
MARK = "/dev/null/no-model"  # this model is looked up after everything else of an experiment was read

ABOUT = """Searches settings of drafters for a target on this machine: measures passes of the target, runs each drafter with its longest chain, a
wide tree and best-first trees on some of the prompts, predicts all lengths, best-first sizes and the best fixed tree of each size (by dynamic
programming over the acceptance by depth and rank), and confirms the best few by a paired run on other prompts.

With DATA.jsonl: chooses the layers of the drafter layer_skip: removes layers of the model one at a time, each time the one without which the others
predict the model's own next token best (sum min(p, q) at temperature 1), then exchanges kept and removed ones. Prints the acceptance of the first
draft token on texts that it chose by and on others, the measured cost of a draft token, and the speedup predicted from both. DATA.jsonl:
conversations with input_ids and loss_mask, as `speclab distill` writes them; the first half of up to 32 is chosen by, the others are held out."""
EXAMPLE = """  speclab tune smollm2-135m-instruct --drafter ngram --drafter suffix --prompts experiments/data/prompts.jsonl --out best.yaml
  speclab distill smollm2-135m-instruct --invent 32 --out texts.jsonl
  speclab tune smollm2-135m-instruct texts.jsonl
"""


def _options() -> Options:
    o = Options("tune", ABOUT, EXAMPLE)
    o.add_argument("--drafter", action="append", default=[], metavar="KIND[:OPTIONS]",
                   # fmt: skip.
                   help="a drafter whose settings are searched; can be repeated. Its `tokens` is the longest draft to try")
    o.option("--prompts", metavar="FILE.jsonl", help="prompts to probe and confirm with, in turn")
    for name, least, most, default, what in (
        ("limit", 1, 100000, 8, "prompts of each at most"), ("tokens", 1, 1 << 24, 64, "new tokens of a text"),
        ("longest", 1, 64, 8, "longest draft of a drafter whose `tokens` is not given"), ("confirm", 0, 64, 5, "settings to measure; 0: none"),
        ("seconds", 1, 1 << 24, 0, "confirm fewer settings if they would take longer in total"), ("batch", 1, 256, 1, "texts at a time"),
        ("context", 2, 1 << 24, 0, "tokens of prompt and text; default: 2048; with DATA.jsonl longer texts are cut at 512"),
        ("least", 1, 10000, 0, "layers to keep at least; default: half of them"), ("positions", 1, 10000, 20, "positions of each text"),
        ("exchanges", 0, 1000, 1, "exchanges of layers of the best set, at most"), ("threads", 1, 1024, 0, "number of threads"),
    ):  # fmt: skip
        o.option(f"--{name}", type=integer(least, most), default=default, metavar="N", help=what + (f"; default: {default}" if default else ""))
    o.option("--sampling", default="temperature=0", metavar="OPTIONS", help="default: temperature=0")
    o.option("--rule", default="rejection", metavar="RULE[:OPTIONS]", help="default: rejection")
    o.option("--chat", default="auto", metavar="NAME", help="format of the prompts; default: auto")
    o.option("--db", metavar="FILE", help="keep what was measured in this database")
    o.option("--out", metavar="FILE.yaml", help="write an experiment with the best setting")
    o.option("--device", default="cpu", metavar="NAME", help="cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N; default: cpu")
    o.option("--activations", default="default", choices=["default", "f32", "bf16", "int8"], help="what products round their input to")
    o.option("--cache", default="default", choices=["default", "f32", "bf16", "q8_0"], help="element type of keys and values")
    o.option("--packed", default="no", choices=["no", "keep"], help="keep: packed weights are kept in a file beside the model")
    o.add_argument("model", metavar="MODEL")
    o.add_argument("data", metavar="DATA.jsonl", nargs="?")
    return o


class Tuning:
    """The measurements of one call, in a separate folder."""

    def __init__(self, given: Any, folder: str):
        self.given, self.folder, self.began, self.probed = given, folder, time.monotonic(), 0.0
        self.db_path = given.db or f"{folder}/tune.db"
        self.known = json.loads(engine.call("list", "--json"))
        self.rule, self.sampling = settings.inline(given.rule, "--rule"), settings.pairs(given.sampling, "--sampling")
        self.lossy = not next((r["exact"] for r in self.known["rules"] if r["name"] == self.rule["kind"]), True)
        self.chat = os.path.realpath(given.chat) if os.path.exists(given.chat) and re.search(r"[./]", given.chat) else given.chat
        default = next(s["options"][0]["default"] for s in self.known["stages"] if s["name"] == "temperature")
        with contextlib.suppress(ValueError, TypeError):  # the engine refuses what is no number
            default = float(str(self.sampling.get("temperature", default)))
        self.search = Search(default == 0, self._takes)
        self.model, self.prompts = "", ""

    # ---- experiments

    def experiment(self, name: str, prompts: str, drafters: list[dict], trials: bool = False, model: str | None = None) -> str:
        """Returns an experiment's file with these drafters."""
        g = self.given
        target = {"model": model or self.model, "device": g.device, "activations": g.activations, "cache": g.cache}
        keys: dict = {"name": name, "target": target, "threads": g.threads, "prompts": {"file": prompts, "chat": self.chat},
                      "limits": {"new_tokens": g.tokens, "context": g.context}}  # fmt: skip
        if trials:
            keys["record"] = {"trials": "true"}
        keys["cells"] = {"sampling": self.sampling, "batch": g.batch, "rule": self.rule, "drafter": drafters}
        return "".join(f"{key}: {settings.written(value)}\n" for key, value in keys.items())

    def _takes(self, drafter: dict) -> str | None:
        """Returns what the engine finds wrong with a drafter under the rule, before it looks for the model; None:
        nothing."""
        path = f"{self.folder}/check.yaml"
        files.write(path, self.experiment("check", f"{self.folder}/probed.jsonl", [drafter], model=MARK))
        try:
            self._checked(path)
        except Fault as wrong:
            return None if MARK in str(wrong) else str(wrong)

    def _checked(self, path: str, *words: str) -> list[str]:
        """Returns the cells of an experiment's file. Raises Fault, without the place in the file, which the user has
        not written."""
        try:
            (plan,) = engine.objects("run", path, *words, "--dry-run", "--json")
            return [c["cell"] for c in plan["cells"]]
        except Fault as wrong:
            raise type(wrong)(re.sub(rf"^{re.escape(path)}:\d+:\d+: ", "", str(wrong))) from None

    def run(self, name: str, prompts: str, drafters: list[dict], trials: bool) -> list[int]:
        """Runs none and these drafters, except what the database has; returns the drafters' runs. Raises Fault."""
        path, full = f"{self.folder}/{name}.yaml", f"{name}-{self.digest}"
        files.write(path, self.experiment(full, prompts, [NO_DRAFTER, *drafters], trials))
        cells = self._checked(path, f"--db={self.db_path}")
        status = subprocess.run([files.program(), "run", path, f"--db={self.db_path}", "--no-probe"], stdout=subprocess.DEVNULL).returncode
        if status != 0:
            raise SystemExit(max(1, status))  # the engine has reported why
        with self.db() as db:
            found = [db.execute("SELECT max(id) FROM run WHERE experiment = ? AND cell = ?", (full, cell)).fetchone()[0] for cell in cells[1:]]
        if len(found) != len(drafters) or None in found:
            raise Fault(f"{self.db_path}: expected {len(drafters)} runs of {full}, found {len(found)}")
        return found

    @contextlib.contextmanager
    def db(self) -> Iterator[sqlite3.Connection]:
        uri = f"{database.uri_of(self.db_path)}?mode=ro"
        with database.faults(self.db_path), contextlib.closing(sqlite3.connect(uri, uri=True, timeout=60)) as db:
            yield db

    # ---- the search

    def open(self) -> None:
        """Reads the arguments and files. Raises Fault."""
        g = self.given
        Path(self.folder, "probed.jsonl").write_text("")
        for i, text in enumerate(g.drafter):
            if text in g.drafter[:i]:
                raise Misuse(f"--drafter {text}: given twice")
            given = self._absolute(settings.inline(text, "--drafter"))
            kind = next((d for d in self.known["drafters"] if d["name"] == ("adaptive" if "length" in given else given["kind"])), None)
            names = {o["name"] for o in kind["options"]} if kind else {"tokens"}  # the engine refuses an unknown option
            longest = int(given["tokens"]) if re.fullmatch("[0-9]{1,9}", str(given.get("tokens", ""))) else g.longest
            self.search.add(Searched(given, names, longest, bool(kind and kind["remembers"])))
        context = json.loads(engine.call("inspect", "--no-probe", "--device", g.device, "--json", "--", g.model))["context"]
        self.model = os.path.realpath(g.model) if os.path.exists(g.model) else g.model
        try:
            self.prompts = os.path.realpath(g.prompts, strict=True)
        except OSError as why:
            raise Fault(f"--prompts: {g.prompts}: {why.strerror}") from None
        if g.out is not None:
            if os.path.realpath(g.out) == self.prompts:
                raise Misuse(f"--out {g.out}: expected another file than --prompts")
            if not os.access(os.path.dirname(os.path.realpath(g.out)), os.W_OK):
                raise Fault(f"{g.out}: cannot be written: expected a folder in which files can be made")
        self._divide_prompts()
        self._time_passes(context)

    def _absolute(self, s: Any, key: str = "") -> Any:
        """Makes relative names of files in a drafter's options absolute, since its experiment is in another folder."""
        if isinstance(s, dict):
            return {k: self._absolute(v, k) for k, v in s.items()}
        if isinstance(s, list):
            return [self._absolute(v) for v in s]
        is_path = key == "tree" or any(o["name"] == key and o["type"] == "path" for d in self.known["drafters"] for o in d["options"])
        return os.path.realpath(s) if is_path and os.path.exists(s) else s

    def _divide_prompts(self) -> None:
        """Divides the prompts: lines of the file, taken evenly from all of it since it may be sorted by category, go to
        the probes and to the confirmation in turn."""
        g, text = self.given, files.read(self.prompts, files.TEXTS)
        lines = [line for line in text.split(b"\n") if line.strip()]
        if not lines:
            raise Fault(f"{self.prompts}: expected prompts, found an empty file")
        taken = min(len(lines), 2 * g.limit)
        halves: list[list[bytes]] = [[], []]
        for i in range(taken):
            halves[i % 2].append(lines[i * len(lines) // taken])
        self.n_prompts = [len(half) for half in halves]
        self.file = [f"{self.folder}/{name}.jsonl" for name in ("probed", "confirmed")]
        for path, half in zip(self.file, halves, strict=True):
            files.write(path, b"".join(line + b"\n" for line in half or halves[0]))
        what = [self.model, self.chat, g.rule, g.sampling, g.device, g.limit, g.tokens, g.context, g.batch, g.activations, g.cache]
        self.digest = hashlib.sha256(text + json.dumps(what).encode()).hexdigest()[:8]

    def _time_passes(self, context: int) -> None:
        """Measures passes. The probes' own steps show the time of passes; the bench shows how it grows between their
        numbers of rows."""
        g, most = self.given, 1 + self.search.rows()
        rows = [r * g.batch for r in ROWS if r < most and r * g.batch < MOST_ROWS] + [min(most * g.batch, MOST_ROWS)]
        behind = min(256 if g.context > 512 else g.context // 2, max(0, context - rows[-1]))
        words = ["--rows", ",".join(map(str, rows)), "--contexts", str(behind), "--prefill", "0", "--repeats", "3", "--no-probe", "--json",
                 # fmt: skip.
                 "--db", self.db_path, "--device", g.device, "--activations", g.activations, "--cache", g.cache]
        j = json.loads(engine.call("bench", *words, *(["--threads", str(g.threads)] if g.threads else []), "--", self.model))
        medians = max(j["placements"], key=lambda p: p["rounds"])["medians"]
        one = medians[0]["ns"]["median"]
        self.most = max(m["n"] for m in medians if m["ns"]["median"] <= MOST_COST * one) // g.batch - 1

    def _probe(self) -> None:
        """Runs all probes, and reads all anew: with more steps, the cost of passes is better known."""
        began = time.monotonic()
        runs = self.run("tune-probe", self.file[0], [p.settings for p in self.search.probes], True)
        self.probed += time.monotonic() - began
        self.search.candidates = []
        with self.db() as db:
            for p, run in zip(self.search.probes, runs, strict=True):
                self.search.read(p, db, run)

    def probe(self) -> None:
        """Probes chains, then trees. Raises Fault."""
        chains = len(self.search.probes)
        if chains:
            self._probe()
        self.search.widen(self.most)
        if len(self.search.probes) > chains:
            self._probe()
        if not self.search.candidates:
            raise Fault(f"{self.prompts}: nothing was drafted for its prompts, so there is nothing to choose from")

    def confirm(self) -> None:
        """Measures as many settings as --confirm says and as the remaining time allows, if they take as long as the
        probes."""
        g, n = self.given, min(self.given.confirm, len(self.search.candidates))
        if g.seconds:
            cell = self.probed / (1 + len(self.search.probes))
            n = max(0, min(n, int((g.seconds - (time.monotonic() - self.began)) / cell) - 1))  # includes none
        self.search.order(n)
        if n == 0:
            return
        best = self.search.candidates[:n]
        runs = self.run("tune-confirm", self.file[1], [c.settings for c in best], False)
        rows = engine.objects("report", f"--db={self.db_path}", "--experiment", f"tune-confirm-{self.digest}", "--jsonl")
        report = {r["run"]: r for r in rows}
        share = self.n_prompts[1] / sum(self.n_prompts) if self.n_prompts[1] else 1
        for c, run in zip(best, runs, strict=True):
            c.measured = report[run]
            c.both = c.speedup ** (1 - share) * c.measured["speedup"] ** share

    # ---- output

    @property
    def best(self) -> Candidate:
        found = self.search.candidates
        return max((c for c in found if c.measured), key=lambda c: c.both, default=found[0])

    def print(self) -> None:
        def count(n: int, what: str) -> str:
            return f"{n} {what}{'' if n == 1 else 's'}"

        s, n = self.search, sum(c.measured is not None for c in self.search.candidates)
        confirmed = f", {n} confirmed on {count(self.n_prompts[1], 'other')}" if self.n_prompts[1] else f", {n} confirmed on the same one"
        print(f"{count(len(s.candidates), 'setting')} predicted from {count(len(s.probes), 'probe')} on {count(self.n_prompts[0], 'prompt')} of "
              f"{self.prompts}{confirmed if n else ''}.\nDo not evaluate with these prompts what was tuned on them.\n\n"
              "   predicted              measured                     of both\n"
              "speedup  tokens/step  speedup   95 % interval  tokens/step speedup  setting")  # fmt: skip
        for c in s.candidates[: max(SHOWN, n)]:
            line = f"{c.speedup:7.2f} {c.tokens:12.2f}"
            if m := c.measured:  # one prompt gives no interval
                known = m["speedup_low"] is not None and m["speedup_high"] is not None
                interval = f"{m['speedup_low']:.2f} to {m['speedup_high']:.2f}" if known else "-"
                line += f" {m['speedup']:8.2f} {interval:>15} {m['tokens_per_step']:13.2f} {c.both:7.2f}"
            print(f"{line:<67}  {c.shown}")
        print(f"\n{self.best.shown}")
        if (self.best.both if n else self.best.speedup) < 1:
            print("It does not gain: none is faster.")
        if n == 0:
            print("It is predicted only: nothing was measured.")
        if self.lossy:
            print(f"LOSSY: the rule {self.given.rule} changes the target's distribution, so these speedups are for another task.")

    def write_best(self) -> None:
        """Writes the experiment with the best setting."""
        comment = f"# Written by `speclab tune`: predicted speedup {self.best.speedup:.2f}"
        if self.best.measured:
            comment += f", measured {self.best.measured['speedup']:.2f}"
        comment += "." + (" LOSSY: the rule changes the target's distribution." if self.lossy else "")
        comment += " Its prompts are those it was tuned on: evaluate with others.\n"
        files.write(self.given.out, comment + self.experiment("tuned", self.prompts, [NO_DRAFTER, self.best.settings]))


def main(words: list[str]) -> int:
    given = _options().read(words)
    if given.data is not None and (given.drafter or given.prompts):
        raise Misuse(f"DATA.jsonl and {'--drafter' if given.drafter else '--prompts'} exclude each other")
    if given.data is not None:
        options = [f"--{name}={getattr(given, name)}" for name in ("positions", "device", "activations", "cache", "packed")]
        threads = [f"--threads={given.threads}"] if given.threads else []
        layers.search(given, [*options, *threads, f"--context={given.context or 512}", "--", given.model, given.data])
        return 0
    given.context = given.context or 2048
    if not given.drafter or given.prompts is None:
        raise Misuse("--drafter requires --prompts" if given.drafter else "missing argument: DATA.jsonl, or --drafter and --prompts")
    if given.packed != "no":
        raise Misuse("--packed and --drafter exclude each other")
    with tempfile.TemporaryDirectory(prefix="speclab-tune-") as folder:
        t = Tuning(given, folder)
        t.open()
        t.probe()
        t.confirm()
        t.print()
        if given.out is not None:
            t.write_best()
    return 0
