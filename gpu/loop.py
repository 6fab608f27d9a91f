#!/usr/bin/env python3
"""loop.py - times the decoding loop on a device, at several numbers of slots, and the parts of its steps.

    gpu/loop.py texts     SPECLAB BENCH DEVICE MODEL SMALL SECONDS [quick]    gpu/loop.yaml, with the draft model SMALL
    gpu/loop.py synthetic SPECLAB BENCH DEVICE MODEL HEAD SECONDS [quick]     gpu/synthetic.yaml, with the EAGLE-3 head

SPECLAB is the program, BENCH that of gpu/bench_gpu.c. `SPECLAB run` decodes for at most 7/10 of SECONDS; results finished
by then count. `BENCH steps` times passes with the same numbers of rows alone. quick: few slots and tokens, to try it.

Prints a line of JSON for each cell (times in seconds, means over steps in which every slot is in use):

    tokens_per_s, speedup, tokens_per_step      as in docs/results.md; speedup over none with as many slots, in pairs
    propose, verify, advance                    as stamped on the device
    rest        between steps; null if no sequence shows it alone (prompts or ends of others lie in between)
    wall_tokens_per_s                           with the rest included in the time; null if rest is
    passes      of the target and of the drafter, measured alone, by the phase in which they run
    overhead    propose + verify + advance + rest - passes; without rest if that is null

Exit status: 0 everything was measured, 1 something was not, as printed, 2 wrong usage.
"""
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = os.path.join(HERE, "..", "experiments", "data", "prompts.jsonl")
# EAGLE-1's tree (eagle_25 in drafters/trees/tree_published.c): a digit is a rank.
TREE = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001".split()
TOKENS_A_STEP = 3.3
SLOTS, PROMPT, TEXTS, CONTEXT = [1, 4, 16, 64], 128, 64, 1024
TOKENS = {"texts": 48, "synthetic": 64}


# ---- the experiment

def tokens_per_step(rate):
    """Expected tokens per step with TREE if each draft token is accepted with this probability (verifier/rules/synthetic.c)."""
    reached = {"": 1.0}
    for path in sorted(TREE, key=len):
        reached[path] = reached[path[:-1]] * rate * (1 - rate) ** int(path[-1])
    return sum(reached.values())


def rate_for(tokens):
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_step(middle) < tokens else (low, middle)
    return round(high, 6)


def write_prompts(to, how, count):
    """First turns only, so that no second turn starts between steps; random ids for a model without a tokenizer."""
    rng = random.Random(1)
    with open(PROMPTS) as f:
        rows = [json.loads(line) for line in f][:count]
    for i, row in enumerate(rows):
        if how == "texts":
            text = row["turns"][0] if "turns" in row else row["prompt"]
            to.write(json.dumps({"id": str(i), "category": row.get("category", ""), "prompt": text}) + "\n")
        else:
            to.write(json.dumps({"id": str(i), "input_ids": [rng.randrange(3, 200) for _ in range(PROMPT)]}) + "\n")


def write_experiment(folder, how, device, model, drafter, quick):
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w") as f:
        write_prompts(f, how, 4 if quick else TEXTS)
    with open(os.path.join(HERE, "loop.yaml" if how == "texts" else "synthetic.yaml")) as f:
        text = f.read()
    words = {"MODEL": os.path.abspath(model), "DRAFTER": os.path.abspath(drafter), "DEVICE": device, "PROMPTS": prompts,
             "CHAT": "none" if quick else "auto", "TOKENS": str(12 if quick else TOKENS[how]),
             "CONTEXT": str(448 if quick else CONTEXT),
             "SLOTS": str([1, 2, 4] if quick else SLOTS), "RATE": str(rate_for(TOKENS_A_STEP)),
             "TREE": json.dumps([[int(rank) for rank in path] for path in TREE])}
    for word, value in words.items():
        text = text.replace(word, value)
    path = os.path.join(folder, "loop.yaml")
    with open(path, "w") as f:
        f.write(text)
    return path


def decode(speclab, experiment, database, seconds):
    """Runs until it is done or the time is over; then it is interrupted, and finished results are stored."""
    with subprocess.Popen([speclab, "run", experiment, "--db", database], stdin=subprocess.DEVNULL) as child:
        try:
            return child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                child.kill()
            return None


# ---- results

CELLS = """
SELECT s.run, s.drafter_kind, s.rule, s.lossless, s.marked_inflated, s.sampling, s.batch, s.machine, s.finished,
       s.tokens_per_s, s.tokens_per_step, s.speedup, avg(t.propose_ns) / 1e9 AS propose,
       avg(t.verify_ns) / 1e9 AS verify, avg(t.advance_ns) / 1e9 AS advance, avg(t.drafted) AS drafted,
       avg(t.depth) AS depth, avg(t.tokens) AS tokens,
       (SELECT avg(prompt_tokens + new_tokens / 2.0) FROM sequence WHERE run = s.run) AS context
FROM run_summary AS s JOIN sequence AS q ON q.run = s.run JOIN step AS t ON t.sequence = q.id
WHERE t.batch = s.batch GROUP BY s.run ORDER BY s.run"""

# Of the sequences that started last and ended first in their prompt batch: only the loop itself ran between their steps.
REST = """
SELECT sum(q.wall_ns - (SELECT sum(propose_ns + verify_ns + advance_ns) FROM step WHERE sequence = q.id)) / 1e9
       / sum(q.steps)
FROM sequence AS q JOIN
     (SELECT pair, max(prompt) AS last, min(steps) AS min_steps FROM sequence WHERE run = ? GROUP BY pair) AS p
     ON p.pair = q.pair AND p.last = q.prompt AND p.min_steps = q.steps
WHERE q.run = ?"""


def cells_of(database):
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    cells = [dict(row) for row in db.execute(CELLS)]
    for cell in cells:
        cell["rest"] = db.execute(REST, (cell["run"], cell["run"])).fetchone()[0]
    return cells


# ---- passes alone

def nearest_integers(numbers):
    """The integers around each."""
    return sorted({f(x) for x in numbers for f in (math.floor, math.ceil)})


def words_of(numbers):
    return ",".join(str(n) for n in numbers)


def levels():
    """Rows of the head's passes: the number of nodes with children, level by level."""
    parents = {path[:-1] for path in TREE} - {""}
    return [sum(len(p) == depth for p in parents) for depth in range(1, max(map(len, parents)) + 1)]


def measure(bench, device, model, context, slots, rows, head, seconds):
    """{(part, slots, rows): seconds} by BENCH steps; prints its lines as well."""
    words = [bench, "steps", device, model, str(context), words_of(slots), words_of(rows)]
    words += [head, words_of(sorted(set(levels()))), words_of(range(1, 8))] if head else []
    try:
        out = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=seconds).stdout
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode()
    times = {}
    for line in out.splitlines():
        try:
            r = json.loads(line)
        except ValueError:
            continue
        times[r["part"], r["slots"], r["rows"]] = r["seconds"]
        print(line, flush=True)
    return times


def at(times, part, slots, rows):
    """Interpolated between measurements; None: not measured."""
    low, high = (times.get((part, slots, f(rows))) for f in (math.floor, math.ceil))
    return None if low is None or high is None else low + (high - low) * (rows - math.floor(rows))


def sum_of(numbers):
    numbers = list(numbers)
    return None if None in numbers else sum(numbers)


def passes_of(cell, target, small):
    """Passes of a step, by phase; None: not measured."""
    slots, kind = cell["batch"], cell["drafter_kind"]
    propose = advance = 0
    if kind == "small":
        one = small.get(("pass", slots, 1))
        propose = None if one is None else one * cell["depth"]
    elif kind == "eagle3":
        propose = sum_of([target.get(("logits", slots, 1))] + [target.get(("draft", slots, n)) for n in levels()])
        advance = at(target, "certain", slots, cell["tokens"])
    return {"propose": propose, "verify": at(target, "pass", slots, 1 + cell["drafted"]), "advance": advance}


# ---- lines

def record(name, cell, passes):
    phases = {phase: cell[phase] for phase in ("propose", "verify", "advance")}
    stamped, rest = sum(phases.values()), cell["rest"]
    known = sum_of(passes.values())
    keep = ("rule", "sampling", "machine", "tokens_per_s", "tokens_per_step", "speedup")
    return {"engine": "loop", "what": name, "drafter": cell["drafter_kind"], "slots": cell["batch"],
            **{key: cell[key] for key in keep}, "lossy": not cell["lossless"],
            "inflated": bool(cell["marked_inflated"]), "finished": bool(cell["finished"]), "drafted": cell["drafted"],
            "step": stamped + (rest or 0), **phases, "rest": rest,
            "wall_tokens_per_s": None if rest is None else cell["batch"] * cell["tokens"] / (stamped + rest),
            "passes": passes, "overhead": None if known is None else stamped + (rest or 0) - known}


def report(how, bench, device, model, drafter, cells, end):
    """Measures until `end` at the latest. Returns whether all passes were measured."""
    slots = sorted({cell["batch"] for cell in cells})
    context = max(1, round(sum(cell["context"] for cell in cells) / len(cells)))
    rows = nearest_integers({1 + cell["drafted"] for cell in cells})
    head = drafter if how == "synthetic" else None
    left = end - time.monotonic()
    small = {} if head else measure(bench, device, drafter, context, slots, [1], None, left / 3)
    target = measure(bench, device, model, context, slots, rows, head, end - time.monotonic())
    name, well = os.path.basename(model).removesuffix(".gguf"), True
    for cell in cells:
        r = record(name, cell, passes_of(cell, target, small))
        well = well and r["overhead"] is not None
        print(json.dumps(r), flush=True)
    if not well:
        print("some passes were not measured alone: their overheads are missing")
    return well


def main(how, speclab, bench, device, model, drafter, seconds, quick):
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "loop.db")
        experiment = write_experiment(folder, how, device, model, drafter, quick)
        status = decode(speclab, experiment, database, seconds * 7 / 10)
        cells = cells_of(database) if os.path.exists(database) else []
        well = bool(cells) and report(how, bench, device, model, drafter, cells, end)
        left = [f"{c['drafter_kind']} at {c['sampling']}, {c['batch']} slots" for c in cells if not c["finished"]]
    if status is None:
        last = f"{cells[-1]['sampling']}, {cells[-1]['batch']} slots" if cells else "the beginning"
        print(f"not run for lack of time: everything after {last}" + "".join(f"; part of {one}" for one in left))
    return 0 if well and status == 0 else 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    few = arguments[-1:] == ["quick"]
    arguments = arguments[:len(arguments) - few]
    if len(arguments) != 7 or arguments[0] not in ("texts", "synthetic") or not arguments[6].isdigit():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*arguments[:6], int(arguments[6]), few))
