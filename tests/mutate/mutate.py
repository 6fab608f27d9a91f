#!/usr/bin/python3
"""Mutation testing: small changes of the program, one at a time, and whether a test detects them. See docs/testing.md.

Each worker has its own build tree: it compiles the mutant, then links and runs the test programs that reach its line until one
fails. Results are stored in build/mutate/results.jsonl, one line a mutant; a mutant with a result is not run again.
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
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]    # of the mutated file; allocations are tracked everywhere


def say(*words):
    print("mutate:", *words, file=sys.stderr, flush=True)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def name_all(path, file, found):
    """Names that survive moved lines: file, function, source line, before, after, and an index among equal ones."""
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
    """n of them: each file by its share of all mutants, and within a file each operator by its share."""
    files = collections.defaultdict(list)
    for m in mutants:
        files[m.file].append(m)
    chosen, owed = [], 0.0
    for file in sorted(files):
        # Ordered by operator, and at random within one: a regular selection takes a fair share of each.
        found = sorted(files[file], key=lambda m: (m.operator, hashlib.sha256(f"{seed} {m.key}".encode()).digest()))
        owed += n * len(found) / len(mutants)
        k = min(len(found), int(owed + 1e-9))
        owed -= k
        chosen += [found[int((i + 0.5) * len(found) / k)] for i in range(k)]
    return sorted(chosen, key=lambda m: (m.file, m.start, m.end, m.after))


def explained():
    """Mutants that somebody has found to change nothing: lines of a name, a tab and the reason."""
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
        """Tests that killed mutants of the same function or file, and cheap ones, come first."""
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
        original, archive = self.objects(m.file), self.tree.archive[m.file]
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
            status, _, output = self.tree.run(program, name, limit, {"UBSAN_OPTIONS": "halt_on_error=1"})
            by = (program + " " + name).strip()
            if status not in (0, 77):
                self.count(m.file, m.function, by)
                hint = re.findall(r"(?:ERROR|SUMMARY|error|assert)[^\n]*", output)
                return {"state": "timeout" if status is None else "killed", "by": by, "message": hint[0][:160] if hint else "",
                        "sanitized": self.sanitized}
        return {"state": "lived", "tests": [(p + " " + n).strip() for p, n, _ in units], "sanitized": self.sanitized}


def sound(src):
    """Whether SQLite accepts the schema and the views, and every view can be queried."""
    db = sqlite3.connect(":memory:")
    try:
        for file in ("schema", "schema_bench", "schema_exact", "views", "views_exports"):
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
    """In place of Reach: the programs named by --tests, whose cost and coverage are unknown."""
    def __init__(self, programs):
        self.units = [(p, "", 10.0) for p in programs.split(",")]

    def reaching(self, mutant):
        return self.units


def work(number, sanitized, budget, tests, queue):
    tree = Tree(f"worker{number}")
    tree.read()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))    # undoes the mutation
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


# ---- results

def state_of(r, reasons):
    return "explained" if r["state"] in OPEN and r["key"] in reasons else r["state"]


def summary(found, reasons):
    print("| folder | mutants compiled | equivalent (compiler) | explained | killed | of these by timeout | open | killed of the rest |")
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
    parser = argparse.ArgumentParser(prog="./run mutate", description="Mutation testing: changes FILEs one place at a time and runs the tests.")
    parser.add_argument("file", nargs="+", metavar="FILE", help=f"a source or SQL file, or one of the folders {', '.join(FOLDERS)}")
    parser.add_argument("--sample", type=int, metavar="N", help="run a sample of N mutants, stratified by file and operator; default: all")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample; default: 1")
    parser.add_argument("--only", metavar="ID", action="append", help="run this mutant (file#number), even if it has a result")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--open", action="store_true", help="run surviving mutants again")
    parser.add_argument("--sanitized", action="store_true", help="run surviving mutants again, with the mutated file under the sanitizers")
    parser.add_argument("--survivors", action="store_true", help="print the survivors so far, run nothing")
    parser.add_argument("--stale", action="store_true", help="print explanations of mutants that are no longer made, run nothing")
    parser.add_argument("--summary", action="store_true", help="print the table so far, run nothing")
    parser.add_argument("--budget", type=float, default=60, metavar="S",
                     help="seconds of tests for each mutant, likely and cheap tests first; default: 60")
    parser.add_argument("--tests", metavar="A,B,..", help="run these programs, whether they reach the mutant or not")
    parser.add_argument("--as-built", action="store_true", help="use sources and tests as of the last build of the trees")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="number of parallel build trees; default: one for each processor")
    a = parser.parse_args()

    files = []
    for f in a.file:
        files += sorted(g for kind in ("c", "sql") for g in glob.glob(f"{f}/**/*.{kind}", root_dir=REPO, recursive=True)) if f in FOLDERS else [f]
    os.makedirs(OUT, exist_ok=True)
    trees = [Tree(f"worker{i}") for i in range(1, a.workers + 1)]
    if not (a.survivors or a.summary or a.as_built):
        for tree in trees[:1] if a.list or a.stale else trees:
            say("building", os.path.relpath(tree.src, REPO))
            tree.set_up()
        if not (a.list or a.stale or a.tests):
            Reach().find_out(say)
    trees[0].read()
    mutants = [m for f in files for m in mutants_of(trees[0], f)]
    if a.sample:
        mutants = sample(mutants, a.sample, a.seed)
    reasons, known = explained(), results()
    done = [known[m.key] for m in mutants if m.key in known]
    if a.stale:
        made = {m.key for m in mutants}
        for key in reasons:
            if key.startswith(tuple(f + ("/" if f in FOLDERS else "\t") for f in a.file)) and key not in made:
                print(key)
        return
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
    workers = [multiprocessing.Process(target=work, args=(i, a.sanitized, a.budget, a.tests, queue)) for i in range(1, a.workers + 1)]
    for h in workers:
        queue.put(None)
        h.start()
    for h in workers:
        h.join()
    known = results()
    summary([known[m.key] for m in mutants if m.key in known], reasons)


if __name__ == "__main__":
    main()
