#!/usr/bin/python3
"""Mutation testing: small mistakes planted one at a time, and whether a test sees them. See docs/testing.md.

Every mutant is compiled in a build tree of its own, the programs that reach its line are linked again and run until one fails.
Results are kept in build/mutate/results.jsonl, one line a mutant; what has a result is not run again.
"""
import argparse
import collections
import fcntl
import glob
import hashlib
import json
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import operators
import sql
from trees import FOLDERS, OUT, REPO, Reach, Tree, sh

RESULTS = os.path.join(OUT, "results.jsonl")
EXPLAINED = os.path.join(REPO, "tests/mutate/explained.txt")
OPEN = ("lived", "uncovered")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]    # of the mutated file; what is allocated is watched everywhere


def say(*words):
    print("mutate:", *words, file=sys.stderr, flush=True)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def name_all(path, file, found):
    """Names that outlive moved lines: file, function, source line, before, after, and which of those that are alike."""
    with open(path, "rb") as f:
        text = f.read()
    count = collections.Counter()
    for i, m in enumerate(found):
        m.file, m.id = file, f"{file}#{i + 1}"
        m.line = text.count(b"\n", 0, m.start) + 1
        m.before = text[m.start:m.end].decode()
        key = (file, m.function, squeezed(text.split(b"\n")[m.line - 1].decode()), squeezed(m.before), squeezed(m.after))
        count[key] += 1
        m.key = "\t".join(key + (str(count[key]),))
    return found


def mutants_of(tree, file):
    path = os.path.join(tree.src, file)
    found = sql.mutants_of(path) if file.endswith(".sql") else operators.mutants_of(path, tree.arguments(file))
    return name_all(path, file, found)


def sample(mutants, n, seed):
    """n of them: every file by its share of all mutants, and in a file every operator by its share of the file's."""
    files = collections.defaultdict(list)
    for m in mutants:
        files[m.file].append(m)
    chosen, owed = [], 0.0
    for file in sorted(files):
        # In order of operators, and by chance within one: every so many-th of them is a fair share of each.
        found = sorted(files[file], key=lambda m: (m.operator, hashlib.sha256(f"{seed} {m.key}".encode()).digest()))
        owed += n * len(found) / len(mutants)
        k = min(len(found), int(owed + 1e-9))
        owed -= k
        chosen += [found[int((i + 0.5) * len(found) / k)] for i in range(k)]
    return sorted(chosen, key=lambda m: (m.file, m.start, m.end, m.after))


def explained():
    """Mutants that a person has found to change nothing: lines of a name, a tab and the reason."""
    found = {}
    with open(EXPLAINED, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                key, _, reason = line.rstrip("\n").rpartition("\t")
                found[key] = reason
    return found


def results():
    found = {}
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                found[r["key"]] = r
    return found


# ---- one mutant

class Worker:
    def __init__(self, tree, reach, sanitized, budget):
        self.tree, self.reach, self.sanitized, self.budget = tree, reach, sanitized, budget
        self.kills = collections.Counter()
        for r in results().values():
            if r["state"] in ("killed", "timeout"):
                self.count(r["file"], r["function"], r["by"])

    def count(self, file, function, by):
        self.kills[file, by] += 1
        self.kills[file, function, by] += 1

    def order(self, m, units):
        """What has killed hereabouts, and what takes no time, comes first."""
        def cost(unit):
            by = (unit[0] + " " + unit[1]).strip()
            likely = 0.05 + 3 * self.kills[m.file, m.function, by] + self.kills[m.file, by] + \
                (os.path.basename(m.file).split(".")[0].split("_")[0] in by)
            return (unit[2] + 0.2) / likely
        return sorted(units, key=cost)

    def compile(self, file):
        if file.endswith(".sql"):
            name = os.path.join(self.tree.build, "carried", os.path.basename(file))
            with open(os.path.join(self.tree.src, file), "rb") as f, open(name + ".c", "w") as to:
                to.write("extern const char %s[];\nconst char %s[] = {%s0};\n" %
                         ((re.sub(r"\W", "_", os.path.basename(file)),) * 2 + ("".join("%d," % b for b in f.read()),)))
        for command in self.tree.compile[file]:
            if subprocess.run(command + SANITIZERS * self.sanitized, cwd=self.tree.build, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                return False
        return True

    def objects(self, file):
        return [open(o, "rb").read() for o in self.tree.object[file]]

    def run(self, m):
        path = os.path.join(self.tree.src, m.file)
        with open(path, "rb") as f:
            whole = f.read()
        original, archive = self.objects(m.file), self.tree.archive[m.file.split("/")[0]]
        try:
            with open(path, "wb") as f:
                f.write(whole[:m.start] + m.after.encode() + whole[m.end:])
            if not self.compile(m.file) or m.file.endswith(".sql") and not sound(self.tree.src):
                return {"state": "invalid"}
            if self.objects(m.file) == original and not self.sanitized:
                return {"state": "equivalent"}
            units, left_out, total = [], 0, 0.0
            for unit in self.order(m, self.reach.reaching(m)):
                if units and total + unit[2] > self.budget:
                    left_out += 1
                else:
                    units.append(unit)
                    total += unit[2] + 0.05
            if not units:
                return {"state": "uncovered"}
            sh(archive, self.tree.build)
            return {**self.tried(m, units), "left_out": left_out}
        finally:
            with open(path, "wb") as f:
                f.write(whole)
            for o, data in zip(self.tree.object[m.file], original):
                with open(o, "wb") as f:
                    f.write(data)
            sh(archive, self.tree.build)

    def tried(self, m, units):
        linked = set()
        for program, name, seconds in units:
            for p in self.tree.needs(program)[::-1]:
                if p not in linked:
                    link = self.tree.link[p]
                    if self.sanitized:
                        link = link.replace(" -o ", " " + " ".join(SANITIZERS) + " -o ", 1)
                    if sh(link, self.tree.build).returncode != 0:
                        return {"state": "invalid"}
                    linked.add(p)
            limit = (5 * seconds + 2) * (20 if self.sanitized else 1)
            status, _, said = self.tree.run(program, name, limit, {"UBSAN_OPTIONS": "halt_on_error=1"})
            by = (program + " " + name).strip()
            if status not in (0, 77):
                self.count(m.file, m.function, by)
                hint = re.findall(r"(?:ERROR|SUMMARY|error|assert)[^\n]*", said)
                return {"state": "timeout" if status is None else "killed", "by": by, "said": hint[0][:160] if hint else "",
                        "sanitized": self.sanitized}
        return {"state": "lived", "tests": [(p + " " + n).strip() for p, n, _ in units], "sanitized": self.sanitized}


def sound(src):
    """Whether SQLite takes the schema and the views, and every view can be asked."""
    db = sqlite3.connect(":memory:")
    try:
        for file in ("schema", "schema_bench", "schema_exact", "views"):
            with open(os.path.join(src, "results", file + ".sql"), encoding="utf-8") as f:
                db.executescript(f.read())
        for (view,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall():
            try:
                db.execute(f"SELECT * FROM {view} LIMIT 0")
            except sqlite3.OperationalError as e:
                if "no such function" not in str(e):
                    return False
        return True
    except sqlite3.Error:
        return False


class Given:
    """In place of Reach: the programs that were named, of which nothing is known."""
    def __init__(self, programs):
        self.units = [(p, "", 10.0) for p in programs.split(",")]

    def reaching(self, mutant):
        return self.units


def work(number, sanitized, budget, tests, queue):
    tree = Tree(f"worker{number}")
    tree.read()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))    # what was planted is taken back
    worker = Worker(tree, Given(tests) if tests else Reach(), sanitized, budget if not tests else float("inf"))
    revision = sh(["git", "rev-parse", "--short", "HEAD"], REPO).stdout.strip()
    while (m := queue.get()) is not None:
        start = time.time()
        r = {"id": m.id, "file": m.file, "line": m.line, "function": m.function, "operator": m.operator, "before": m.before,
             "after": m.after, "revision": revision, **worker.run(m), "seconds": round(time.time() - start, 1), "key": m.key}
        with open(RESULTS, "a", encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.write(json.dumps(r) + "\n")
        say(f"{m.id} {m.file}:{m.line} {m.function}: {squeezed(m.before)} -> {squeezed(m.after)}: {r['state']} "
            f"{r.get('by', '')} ({r['seconds']} s)")


# ---- what came of it

def state_of(r, reasons):
    return "explained" if r["state"] in OPEN and r["key"] in reasons else r["state"]


def summary(found, reasons):
    print("| folder | mutants compiled | equivalent (compiler) | explained | killed | of them by time | open | killed of the rest |")
    print("|---|---|---|---|---|---|---|---|")
    rows = collections.OrderedDict((f, collections.Counter()) for f in FOLDERS + ["all"])
    for r in found:
        for folder in (r["file"].split("/")[0], "all"):
            rows[folder][state_of(r, reasons)] += 1
    for folder, n in rows.items():
        killed, left = n["killed"] + n["timeout"], n["lived"] + n["uncovered"]
        if killed + left:
            print(f"| {folder} | {killed + left + n['equivalent'] + n['explained']} | {n['equivalent']} | {n['explained']} | {killed} | "
                  f"{n['timeout']} | {left} | {100 * killed / (killed + left):.1f} % |")


def survivors(found, reasons):
    for r in sorted(found, key=lambda r: (r["file"], r["line"])):
        if state_of(r, reasons) in OPEN:
            print(f"{r['file']}:{r['line']} {r['function']}: `{squeezed(r['before'])}` -> `{squeezed(r['after'])}` "
                  f"({r['operator']}, {r['state']}; {r['id']})\n    reached by: {', '.join(r.get('tests', [])) or 'no test'}\n    {r['key']}")


def main():
    ask = argparse.ArgumentParser(prog="./run mutate", description="Small mistakes planted in FILEs, and whether a test sees them.")
    ask.add_argument("file", nargs="+", metavar="FILE", help=f"a source or SQL file, or one of the folders {', '.join(FOLDERS)}")
    ask.add_argument("--sample", type=int, metavar="N", help="so many mutants, by file and operator, not all")
    ask.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    ask.add_argument("--only", metavar="ID", action="append", help="this mutant (file#number), whether it has a result or not")
    ask.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    ask.add_argument("--open", action="store_true", help="run again those that lived")
    ask.add_argument("--sanitized", action="store_true", help="run those that lived once more, the mutated file under the sanitizers")
    ask.add_argument("--survivors", action="store_true", help="print those that lived so far, run nothing")
    ask.add_argument("--summary", action="store_true", help="print the table so far, run nothing")
    ask.add_argument("--budget", type=float, default=60, metavar="S",
                     help="seconds of tests a mutant; of those that reach it the likely and the cheap ones stay (60)")
    ask.add_argument("--tests", metavar="A,B,..", help="run these programs, whether they reach the mutant or not")
    ask.add_argument("--as-built", action="store_true", help="sources and tests as they were when the trees were built last")
    ask.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="build trees that work side by side")
    a = ask.parse_args()

    files = []
    for f in a.file:
        files += sorted(g for kind in ("c", "sql") for g in glob.glob(f"{f}/**/*.{kind}", root_dir=REPO, recursive=True)) if f in FOLDERS else [f]
    os.makedirs(OUT, exist_ok=True)
    trees = [Tree(f"worker{i}") for i in range(1, a.workers + 1)]
    if not (a.survivors or a.summary or a.as_built):
        for tree in trees[:1] if a.list else trees:
            say("building", os.path.relpath(tree.src, REPO))
            tree.set_up()
        if not a.list and not a.tests:
            Reach().find_out(say)
    trees[0].read()
    mutants = [m for f in files for m in mutants_of(trees[0], f)]
    if a.sample:
        mutants = sample(mutants, a.sample, a.seed)
    reasons, known = explained(), results()
    done = [known[m.key] for m in mutants if m.key in known]
    if a.list:
        for m in mutants:
            print(f"{m.id} line {m.line} {m.function} ({m.operator}): {squeezed(m.before)} -> {squeezed(m.after)}")
        return
    if a.survivors:
        return survivors(done, reasons)
    if a.summary:
        return summary(done, reasons)
    if a.only:
        todo = [m for m in mutants if m.id in a.only]
    elif a.open or a.sanitized:
        todo = [m for m in mutants if m.key in known and known[m.key]["state"] in OPEN and m.key not in reasons]
    else:
        todo = [m for m in mutants if m.key not in known]
    say(f"{len(todo)} mutants to run, {len(mutants) - len(todo)} are done")
    queue = multiprocessing.Queue()
    for m in sorted(todo, key=lambda m: files.index(m.file)):
        queue.put(m)
    hands = [multiprocessing.Process(target=work, args=(i, a.sanitized, a.budget, a.tests, queue)) for i in range(1, a.workers + 1)]
    for h in hands:
        queue.put(None)
        h.start()
    for h in hands:
        h.join()
    known = results()
    summary([known[m.key] for m in mutants if m.key in known], reasons)


if __name__ == "__main__":
    main()
