#!/usr/bin/env python3
"""record.py - what must not change while tools move out of C: it is written for two revisions on one machine, and compared.

    tests/record.py write BUILD TO      BUILD: a release build (build/release) whose source folder has `run`; TO: a new folder
    tests/record.py compare A B         names every file that differs, with its first lines; exit status 1 if one does

A tool that the program no longer has is called as `./run WORD`. Times, dates and ids are random or the machine's: they are left out, and the
database that reports read has made-up ones, which are functions of the rows (`freeze`).
"""

import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

CLOCK = re.compile(r"_ns$|_s$|per_s$|^(time|ns|s|ms|seconds|started|finished|since|uuid|revision|machine|environment|round|at_ns|foreign_load)$")
RULES = "rejection match block traversal spectr multipath typical blockwise lenient synthetic".split()
DRAFTERS = """none
ngram
ngram:longest=2,tokens=3
suffix:max_spec_factor=2,min_token_prob=0.01
rest:datastore=store,shortest=1,choices=5,nodes=9,tokens=4
recycling:tree=[[0],[1],[0,0],[2]]
lookahead:window=4,ngram=3,candidates=3
early_exit:exit_layer=1,widths=[3,2,1]
layer_skip:keep=0,tokens=3,pick=coupled
union:of=[{kind: ngram, longest: 2},{kind: suffix},{kind: medusa, weights: medusa, tokens: 3}]
adaptive:by=confidence,threshold=0.1,of={kind: small, model: tiny-pruned, tokens: 6}
adaptive:by=acceptance,of={kind: ngram, longest: 2}
oracle:tokens=3,wrong=[0.5, 0.1]
ladder:of=[{kind: ngram, shortest: 3},{kind: eagle3, weights: eagle3, tokens: 3}]
small:model=tiny-pruned
small:model=tiny-pruned,tokens=6,pick=greedy
small:model=tiny-pruned,widths=[3,2,1]
small:model=tiny-pruned,widths=[3,2,1],distinct=false
small:model=tiny-pruned,nodes=9,top=3,tokens=4,pick=greedy
small:model=tiny-pruned,tokens=3,pick=coupled
medusa:weights=medusa,tree=mc_sim_7b_63,pick=greedy
blockwise:weights=medusa
eagle:weights=eagle,nodes=59,top=10,tokens=6,pick=greedy
eagle:weights=eagle,widths=[3,2,1]
eagle3:weights=eagle3,tokens=3
eagle3:weights=eagle3,nodes=12,top=4,tokens=4,pick=greedy""".splitlines()


class Recorder:
    def __init__(self, build: Path, to: Path):
        self.build, self.source, self.to = build, build.parent.parent, to
        self.work = to / "work"
        self.cache = self.work / "cache" / "speclab" / "models"
        self.cache.mkdir(parents=True)
        (self.work / "data").mkdir()
        for environment in (Path.home() / ".cache" / "speclab").glob("python-*"):  # the tools' packages
            (self.cache.parent / environment.name).symlink_to(environment)
        for name in ("smoke.jsonl", "prompts.jsonl"):
            shutil.copy(self.source / "experiments" / "data" / name, self.work / "data")
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.work / "cache"), NO_COLOR="1", COLUMNS="120")
        shown = subprocess.run([build / "speclab", "--help"], capture_output=True, text=True).stdout
        self.words = set(re.findall(r"^  ([a-z]+)  ", shown, re.M))

    def run(self, *words, stdin=None) -> tuple[int, str, str]:
        program = [self.build / "speclab"] if words[0] in self.words - {"report"} else [self.source / "run"]
        done = subprocess.run([*program, *map(str, words)], cwd=self.work, env=self.environment, input=stdin,
                              capture_output=True, text=True, errors="surrogateescape")
        return done.returncode, done.stdout, done.stderr

    def put(self, name: str, text: str):
        path = self.to / "record" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(str(self.work), "WORK").replace(str(self.source), "SOURCE"), errors="surrogateescape")

    def record(self, name: str, *words, messages=True):
        status, out, err = self.run(*words)
        self.put(name, out + (f"\n--- stderr\n{err}" if messages and err else "") + f"\n--- status {status}\n")

    def must(self, *words):
        status, _, err = self.run(*words)
        if status != 0:
            raise SystemExit(f"record: speclab {' '.join(map(str, words))}: status {status}: {err}")


def without_clocks(value):
    if isinstance(value, dict):
        return {k: without_clocks(v) for k, v in value.items() if not CLOCK.search(k) and k != "times"}
    return [without_clocks(v) for v in value] if isinstance(value, list) else value


def models(r: Recorder):
    subprocess.run([r.build / "write_small_model", r.cache / "tiny.gguf"], check=True)
    r.must("prune", "tiny", "--keep", "0,2", "--out", r.cache / "tiny-pruned.gguf")
    subprocess.run([r.build / "write_small_heads", r.cache / "tiny.gguf", *(r.work / h for h in ("medusa", "eagle", "eagle3"))], check=True)
    (r.work / "texts.jsonl").write_text("".join(json.dumps({"text": f"The cat {w} on the mat, and the dog {w} too."}) + "\n"
                                                for w in ("sat", "sang", "slept", "waited")))
    r.must("features", "tiny", "texts.jsonl", "--datastore", "store")


def texts(r: Recorder):
    """Every drafter x rule x temperature."""
    for number, drafter in enumerate(DRAFTERS):
        lines = []
        for rule in RULES:
            for temperature in (0, 1):
                status, out, err = r.run("generate", "tiny", "The cat sat on the mat. The cat", "--json", "--trace", "--drafter", drafter,
                                         "--rule", rule, "--temperature", temperature, "--tokens", 24, "--seed", 5, "--threads", 1, "--chat", "none")
                said = json.dumps(without_clocks(json.loads(out)), sort_keys=True) if status == 0 else err.strip()
                lines.append(f"{rule} {temperature} {status} {said}")
        r.put(f"generate/{number:02} {drafter.split(':')[0]}", drafter + "\n" + "\n".join(lines) + "\n")


def dump(db: Path) -> str:
    lines = []
    with contextlib.closing(sqlite3.connect(db)) as c:
        tables = [name for (name,) in c.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")]
        for table in tables:
            if table in ("slice", "environment"):       # who had which second, and of what machine
                continue
            columns = [name for _, name, *_ in c.execute(f"PRAGMA table_info({table})") if not CLOCK.search(name) and name not in ("arithmetic", "device")]
            lines.append(f"{table}: {' '.join(columns)}")
            chosen = ", ".join(f'"{n}"' for n in columns)
            lines += sorted(json.dumps([v.hex() if isinstance(v, bytes) else v for v in row]) for row in c.execute(f"SELECT {chosen} FROM {table}"))
    return "\n".join(lines) + "\n"


def freeze(db: Path):
    """Makes times functions of the rows, dates and machines constants."""
    with contextlib.closing(sqlite3.connect(db)) as c:
        c.execute("PRAGMA foreign_keys = OFF")
        noise = "((sequence * 7919 + step * 104729 + {} * 1299709) % 100003)"
        c.execute(f"UPDATE step SET propose_ns = 20000 * drafted + {noise.format(1)}, verify_ns = 900000 + 40000 * drafted + {noise.format(2)},"
                  f" advance_ns = 10000 + {noise.format(3)}, round = step / 16")
        c.execute("UPDATE step SET at_ns = (SELECT sum(s.propose_ns + s.verify_ns + s.advance_ns) FROM step AS s"
                  " WHERE s.sequence = step.sequence AND s.step <= step.step)")
        c.execute("UPDATE sequence SET prefill_ns = 1500000 + id * 7919 % 100003,"
                  " decode_ns = (SELECT coalesce(sum(propose_ns + verify_ns + advance_ns), 0) FROM step WHERE sequence = sequence.id)")
        c.execute("UPDATE sequence SET wall_ns = decode_ns + 5000")
        c.execute("DELETE FROM slice")
        c.execute("INSERT INTO slice SELECT DISTINCT q.pair, q.run, s.round, 100000000, 0.0, 0 FROM step AS s JOIN sequence AS q ON q.id = s.sequence")
        date = "'2026-01-01T00:00:00Z'"
        c.execute(f"UPDATE run SET started = {date}, finished = {date}, machine = 'm, 1 threads', revision = 'r', folder = '/f', model_path = '/m',"
                  " prompts_path = '/p'")
        c.execute(f"UPDATE pair SET started = {date}, uuid = printf('%032x', id)")
        c.execute(f"UPDATE environment SET since = {date}, processor = 'm', arithmetic = 'a, 1 threads', revision = 'r', read_bytes_per_s = 1e10,"
                  " read_one_bytes_per_s = 1e10, round_trip_ns = 100, mhz = 2000")
        c.commit()


EXPERIMENT = """name: frozen
target: {model: tiny, device: cpu}
threads: 1
prompts: {file: data/smoke.jsonl, chat: chatml}
limits: {new_tokens: 24, context: 448}
seed: 7
record: {trials: true, expected: true, rows: full}
cells:
  sampling: [{temperature: 0}, {temperature: 0.8, top_p: 0.95}]
  rule: [rejection, {kind: typical}]
  drafter:
    - {kind: none}
    - {kind: ngram, longest: 2, tokens: {any: [3, 6]}}
    - {kind: small, model: tiny-pruned, tokens: {any: [2, 4]}, pick: sampled}
    - {kind: small, model: tiny-pruned, nodes: 12, pick: greedy}
"""


def databases(r: Recorder):
    smoke = (r.source / "experiments" / "smoke.yaml").read_text()
    (r.work / "smoke.yaml").write_text(smoke)
    r.must("run", "smoke.yaml", "--db", "smoke.db")
    r.put("dump smoke", dump(r.work / "smoke.db"))
    real = Path.home() / ".cache" / "speclab" / "models" / "smollm2-135m-instruct.gguf"
    if real.exists():
        (r.cache / real.name).symlink_to(real)
        r.must("run", r.source / "experiments" / "ci.yaml", "--db", "ci.db")
        r.put("dump ci", dump(r.work / "ci.db"))
    (r.work / "frozen.yaml").write_text(EXPERIMENT)
    r.must("run", "frozen.yaml", "--db", "frozen.db")
    freeze(r.work / "frozen.db")
    for shard in range(2):
        r.must("run", "smoke.yaml", "--shard", f"{shard}/2", "--db", f"shard-{shard}.db")
    r.must("merge", "merged.db", "shard-0.db", "shard-1.db")
    r.put("dump merged", dump(r.work / "merged.db"))


def folder(path: Path) -> str:
    return "".join(f"=== {p.relative_to(path)}\n{p.read_text(errors='surrogateescape')}\n" for p in sorted(path.rglob("*")) if p.is_file())


def reports(r: Recorder):
    db = ("--db", "frozen.db")
    for name, words in {"text": (), "csv": ("--csv",), "jsonl": ("--jsonl",), "markdown": ("--markdown",), "latex": ("--latex",),
                        "markdown by category": ("--markdown", "--by-category"), "latex by category": ("--latex", "--by-category"),
                        "against": ("--against", 2), "top": ("--top", 2), "details": ("--details",)}.items():
        r.record(f"report/{name}", "report", *db, *words)
    for form in ("spec-bench", "vllm", "sglang", "nvidia", "golden"):
        to = r.work / f"export-{form}"
        r.record(f"export/{form} said", "report", *db, "--export", form, to)
        r.put(f"export/{form}", folder(to))
    r.must("report", *db, "--html", "page.html")
    page = (r.work / "page.html").read_text()
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.S)
    r.put("page tables", "\n".join(re.sub(r"<[^>]+>", "", c).strip() for c in cells) + "\n")
    r.record("predict", "predict", *db)
    r.record("replay", "replay", "frozen.db", "--json")
    r.record("replay match", "replay", "frozen.db", "--json", "--run", 4, "--rule", "match")


def imports_and_others(r: Recorder):
    made = json.loads((Path(__file__).parent / "cases" / "imports.json").read_text())
    for name, text in made["files"].items():
        (r.work / name).write_text(text)
    for number, case in enumerate(made["cases"]):
        r.record(f"import/{number:02}", *shlex.split(case["words"].replace("HERE", str(r.work))))
    r.record("import/list", "import", "--list")
    cases = Path(__file__).parent / "cases" / "compare"
    files = sorted(p for p in cases.iterdir() if p.name != "expected.json")
    for file in files:
        shutil.copy(file, r.work)
        r.record(f"compare/{file.name}", "compare", file.name, "--jsonl")
    for form in ("csv", "jsonl", "markdown"):
        r.record(f"compare/all {form}", "compare", *(f.name for f in files), "frozen.db", f"--{form}")
    r.record("compare/all text", "compare", *(f.name for f in files), "frozen.db")
    r.record("compare/baseline", "compare", "vllm_serve.jsonl", "vllm_plain.json", "--baseline", "plain")


def files(r: Recorder):
    """Model files: the program's own reading of each, and the bytes."""
    for name, words in {"q8_0": ("quantize", "tiny", "--type", "q8_0"), "q4_0": ("quantize", "tiny", "--type", "q4_0"),
                        "bf16": ("quantize", "tiny", "--type", "bf16"), "wide": ("inflate", "tiny", "--width", 128, "--hidden", 320, "--heads", 8),
                        "deep": ("inflate", "tiny", "--layers", 5), "pruned": ("prune", "tiny", "--keep", "1-2")}.items():
        out = r.work / f"made-{name}.gguf"
        r.must(*words, "--out", out)
        shown = r.run("inspect", out)[1]
        r.put(f"files/{name} inspect", re.sub(r"^(memory|limit) .*\n", "", shown, flags=re.M))
        r.put(f"files/{name} bytes", hashlib.sha256(out.read_bytes()).hexdigest() + "\n")
        r.record(f"files/{name} score", "inspect", "--score", out, "texts.jsonl", "--threads", 1, messages=False)
    lines = (r.work / "data" / "prompts.jsonl").read_text().splitlines()
    (r.work / "questions.jsonl").write_text("\n".join(lines[:6]) + "\n")
    status, _, err = r.run("distill", "tiny", "--prompts", "questions.jsonl", "--invent", 3, "--new-tokens", 16, "--context", 448, "--out", "distilled.jsonl",
                           "--threads", 1, "--chat", "chatml")
    if status != 0:
        raise SystemExit(f"record: distill: {err}")
    r.put("distilled", (r.work / "distilled.jsonl").read_text())


def program(r: Recorder):
    r.record("list", "list")
    r.record("list json", "list", "--json")
    r.record("exact rules", "exact", "--rules", "--instances", 40)
    for isa in ("plain", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16"):
        done = subprocess.run([r.build / "write_bits", isa], capture_output=True, text=True)
        r.put(f"bits/{isa}", done.stdout if done.returncode == 0 else "not on this processor\n")


def write(build: str, to: str):
    r = Recorder(Path(build).resolve(), Path(to).resolve())
    for part in (models, program, texts, databases, reports, imports_and_others, files):
        part(r)


def compare(a: str, b: str) -> int:
    first, second = Path(a) / "record", Path(b) / "record"
    names = sorted({p.relative_to(root) for root in (first, second) for p in root.rglob("*") if p.is_file()})
    differ = 0
    for name in names:
        texts_of = [(root / name).read_text(errors="surrogateescape").splitlines() if (root / name).exists() else ["(no such file)"] for root in (first, second)]
        if texts_of[0] != texts_of[1]:
            differ += 1
            print(f"{name}:")
            for line in list(difflib.unified_diff(*texts_of, lineterm="", n=0))[2:14]:
                print("    " + line[:200].encode(errors="replace").decode())
    print(f"record: {len(names)} files, {differ} differ")
    return int(differ > 0)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("write", "compare"):
        raise SystemExit(__doc__)
    sys.exit(write(*sys.argv[2:]) if sys.argv[1] == "write" else compare(*sys.argv[2:]))
