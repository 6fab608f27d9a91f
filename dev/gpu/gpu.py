#!/usr/bin/env python3
"""gpu.py - `./run gpu WORD`: checks and measurements on a machine with an NVIDIA GPU; the standard library is sufficient.

    measure        the one call for a GPU that is lent for minutes, at most 560 s: are the bits right; what do launches and memory cost;
                   passes of 8B, 1B and quantized weights as shares of the bandwidth of a copy, beside cuBLAS and transformers; every kernel
                   of a layer by ncu; what each switch of the backend is worth; steps of none and of an EAGLE-3 head. It only runs the
                   programs of build/carry, and builds nothing. measure SECONDS: phases in their order while these last; measure try DEVICE:
                   the same with small models and the programs of build/release: cpu, or cuda, the emulated GPU
    first          at most 8 minutes: bits, bandwidth, passes and kernels of a layer, with programs that are built if need be
    check          at most 9 minutes: every test that uses CUDA, bits of a whole experiment, compute-sanitizer
    bench          at most 9 minutes: kernels and passes, beside cuBLAS (bf16)
    bench torch    passes beside transformers, eager and compiled
    bench loop     decoding with 1, 4, 16 and 64 slots: Llama-8B's shape with an EAGLE-3 head and synthetic acceptance
    carry          builds the programs for compute capability 9.0 (NAME=80: another) into build/carry, with the libraries that they load, to
                   be copied with the working tree to a machine without network

Programs are those of build/carry if they are of these sources, to the byte, and run here; otherwise they are built (not by measure, which
says what is wrong and ends with status 77). A word is a list of phases, each with a time limit. A phase fails with the first program
that fails, and does not stop the others; the summary has the lines of its output that name an error. Measurements finished by then are
kept. Everything is stored in $OUT, or build/gpu-results: WORD.log, WORD.txt (the summary), WORD.jsonl (a line of JSON for each
measurement), WORD.md (their table) and layer.csv (of ncu).
Exit status: 0 all that could run passed, 1 something failed, 2 wrong usage, 77 no GPU, or nothing that measure can run.
"""
import concurrent.futures
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
BUILD, CARRY, PROMPTS = HERE / "build", HERE / "build/carry", HERE / "experiments/data/prompts.jsonl"
KEPT = Path(os.environ.get("OUT") or BUILD / "gpu-results")
ERROR = re.compile(r"ERROR|FAILED|[Ee]rror:|(cuda|cublas):[0-9]+: |^=+ Invalid|Assertion|: expected ")
NO_DEVICE = "not on this machine: device cuda"
MOST = 20 << 20  # bytes of build/carry: what may travel is 64 MiB, and the working tree has 38 MB


class Failed(Exception):
    """A phase has failed; the text names the reason if the log does not."""


class Skipped(Exception):
    """A phase cannot run here, for this reason."""


# ---- phases

class Phases:
    def __init__(self, word, device, tried):
        self.word, self.device, self.tried, self.failed, self.lock = word, device, tried, False, threading.Lock()
        self.capability, self.phase_name = 0 if tried else capability(), ""
        self.built, self.records, self.notes, self.summary = BUILD / ("release" if tried else "gpu-programs"), [], [], []
        self.speclab = self.built / ("speclab_emulated" if tried and device != "cpu" else "speclab")
        KEPT.mkdir(parents=True, exist_ok=True)
        for suffix in ("log", "txt", "jsonl", "md"):
            self.file(suffix).unlink(missing_ok=True)

    def file(self, suffix):
        return KEPT / f"{self.word}.{suffix}"

    def log(self, text):
        with self.lock, open(self.file("log"), "a") as f:
            f.write(text if text.endswith("\n") or not text else text + "\n")

    def emit(self, **record):
        self.records.append(record)
        with open(self.file("jsonl"), "a") as f:
            f.write(json.dumps(record) + "\n")

    def note(self, line):
        """A line of the summary."""
        with self.lock:
            self.notes.append(f"{self.phase_name}: {line}")

    def left(self):
        return max(1.0, self.until - time.monotonic())

    def capture(self, words, seconds=None, **env):
        """The exit status and the output (both streams) of a program, which ends with the phase, or earlier: status 124."""
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            child = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=HERE,
                                     env=os.environ | {"PHASE": self.phase_name} | env, start_new_session=True)
            try:
                status = child.wait(min(seconds or self.left(), self.left()))
            except subprocess.TimeoutExpired:
                status = 124
                os.killpg(child.pid, signal.SIGINT)  # what `speclab run` has finished is stored
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
            out.seek(0)
            return status, out.read()

    def run(self, *words, seconds=None, **env):
        """Runs a program, logs its output, keeps the measurements in it, and returns it. Raises Failed, or Skipped for status 77."""
        status, text = self.capture(words, seconds, **env)
        self.log(f"$ {' '.join(map(str, words))}\n{text}")
        for line in text.splitlines():
            if line.startswith('{"engine"'):
                try:
                    self.emit(**json.loads(line))
                except ValueError:  # the last line of a program that ran out of time
                    pass
        if status == 77:
            raise Skipped((text.splitlines() or ["status 77"])[-1])
        if status != 0:
            raise Failed(f"{Path(words[0]).name}: {'stopped, no time left' if status == 124 else f'status {status}'}")
        return text

    def phase(self, name, seconds, work, *arguments):
        began = time.monotonic()
        self.phase_name, self.until = name, min(began + seconds, self.end)
        self.log(f"\n==== {name}")
        at, reason = self.file("log").stat().st_size, ""
        try:
            if self.end - began < 3:
                raise Failed("not run: no time left")
            work(self, *arguments)
            line = "passed"
        except Skipped as e:
            line = f"skipped: {e}"
        except Exception as e:  # of whatever kind: the other phases go on
            line, reason, self.failed = "failed", str(e) if isinstance(e, Failed) else f"{type(e).__name__}: {e}", True
        with open(self.file("log"), errors="replace") as f:
            f.seek(at)
            text = [t[:200] for t in f.read().splitlines() if not t.startswith(("{", "$ "))] if reason else []
        found = list(dict.fromkeys(t for t in text if ERROR.search(t) and "not on this machine: device cublas" not in t))[:8] or text[-8:]
        lines = [f"{name:14} {time.monotonic() - began:6.1f} s  {line}"] + [f"    {name}: {t}" for t in ([reason] if reason else []) + found]
        self.summary += lines
        print("\n".join(lines), file=sys.stderr, flush=True)
        return line != "failed"

    def finish(self):
        """Prints the table, the notes and the summary, which fit into 12,000 characters, and returns the exit status."""
        self.summary.append(f"gpu {self.word}: {'not every phase passed' if self.failed else 'every phase that could run passed'}; logs in {KEPT}")
        table = table_of(self.records)
        self.file("md").write_text(table)
        self.file("txt").write_text("\n".join(self.notes + self.summary) + "\n")
        print((table + "\n".join(self.notes + self.summary))[-11500:])
        return int(self.failed)


# ---- the machine and the programs

def capability():
    """Compute capability of the first GPU, 90 for an H100; 0: no GPU."""
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True).stdout
        return int(out.split()[0].replace(".", "")) if out.strip() else 0
    except (OSError, ValueError):
        return 0


def machine(p):
    p.note(p.run("nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version,clocks.max.sm,clocks.max.mem,clocks.sm,power.limit,temperature.gpu",
                 "--format=csv,noheader").strip())
    os.environ["LD_LIBRARY_PATH"] = ":".join([os.environ.get("LD_LIBRARY_PATH", ""), *cublas_folders()]).strip(":")
    p.note(f"{os.cpu_count()} CPUs; ncu {shutil.which('ncu')}; compute-sanitizer {shutil.which('compute-sanitizer')}; cuBLAS in {', '.join(cublas_folders()) or 'none of the usual folders'}")


def cublas_folders():
    """Folders with a libcublas.so: of CUDA, and of Python's wheels."""
    roots = ["/usr/local/cuda/lib64", *(f"{f}/nvidia/{part}/lib" for f in sys.path if "packages" in f for part in ("cu13", "cublas"))]
    return [f for f in roots if list(Path(f).glob("libcublas.so*"))]


def tests_with_cuda():
    """Those that open the device."""
    opens = re.compile(r"\b(gpus_here|gpus_of_bits|backends_open|backend_cuda)\(")
    return sorted(f.stem for f in HERE.glob("tests/*/test_*.c") if opens.search(f.read_text()))


def sources_hash():
    """Of what the programs are built from. No git: a copied working tree may have none."""
    total, wanted = hashlib.sha256(), re.compile(r".*\.(c|h|cu|cpp|sql|cmake)|CMakeLists\.txt|CMakePresets\.json")
    for folder, folders, files in os.walk(HERE):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and (Path(folder) != HERE or f not in ("build", "shared")))
        for name in sorted(f for f in files if wanted.fullmatch(f)):
            path = Path(folder, name)
            total.update(str(path.relative_to(HERE)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def remove(folder):
    folder.unlink() if folder.is_symlink() else shutil.rmtree(folder, ignore_errors=True)


def carried_programs(p):
    """Unpacks the carried programs. Why they do not fit; None: they do."""
    packed, hashed, built_for = files = [CARRY / f"programs.{end}" for end in ("tar.xz", "hash", "capability")]
    if not all(f.exists() for f in files):
        return "build/carry has no programs (./run gpu carry)"
    if hashed.read_text().strip() != sources_hash():
        return "the programs in build/carry are of other sources (./run gpu carry)"
    if packed.stat().st_size > MOST:
        return f"build/carry/programs.tar.xz: expected at most {MOST / 1e6:.0f} MB, found {packed.stat().st_size / 1e6:.1f} MB"
    if p.capability // 10 != int(built_for.read_text()) // 10:
        return f"the programs in build/carry are for compute capability {built_for.read_text().strip()}, and the GPU has {p.capability}"
    remove(p.built)
    with tarfile.open(packed) as tar:
        tar.extractall(p.built, filter="data")
    status, text = p.capture([p.built / "speclab", "--version"])
    return None if status == 0 else f"a carried program does not run: {text}"


def programs(p, *names):
    why = carried_programs(p)
    if why is None:
        return
    if p.word == "measure":
        raise Failed(why)
    p.log(why)
    folder = BUILD / "gpu"
    p.run("cmake", "-S", HERE, "--preset", "release", "-B", folder, "-G", "Ninja", "-DSPECLAB_CUDA=on", "-DSPECLAB_EMULATED=OFF",
          f"-DSPECLAB_CUDA_ARCHITECTURES={p.capability}")
    p.run("cmake", "--build", folder, "--target", *names)
    p.run("nvcc", "-O3", "-std=c++17", f"-arch=sm_{p.capability}", "-o", folder / "probe", HERE / "dev/gpu/probe.cu")
    remove(p.built)
    p.built.symlink_to("gpu")


BESIDE = re.compile(r"/(ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s)\.so")  # what every machine has


def carry(capability):
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    if not shutil.which("nvcc"):
        sys.exit("carry: expected nvcc, found none")
    of_sources, names, build, folder = sources_hash(), ["speclab", "write_small_model", *tests_with_cuda()], BUILD / "gpu-carry", CARRY / "programs"
    shutil.rmtree(CARRY, ignore_errors=True)
    # Not the machine's own instruction set: inner loops of each are compiled, and chosen at run time.
    subprocess.run(["cmake", "-S", HERE, "--preset", "release", "-B", build, "-G", "Ninja", "-DSPECLAB_CUDA=on", "-DSPECLAB_EMULATED=OFF",
                    f"-DSPECLAB_CUDA_ARCHITECTURES={capability}", "-DSPECLAB_TEST_SOURCE=.", "-DCMAKE_BUILD_RPATH=$ORIGIN/lib",
                    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags"], check=True)
    subprocess.run(["cmake", "--build", build, "--target", *names], check=True)
    subprocess.run(["nvcc", "-O3", "-std=c++17", f"-arch=sm_{capability}", "-o", build / "probe", HERE / "dev/gpu/probe.cu"], check=True)
    (folder / "lib").mkdir(parents=True)
    linked = {name: os.readlink(build / name) for name in names if (build / name).is_symlink()}
    for name in {*names, "probe", *linked.values()}:
        os.symlink(linked[name], folder / name) if name in linked else subprocess.run(["strip", "-o", folder / name, build / name], check=True)
    loaded = subprocess.run(["ldd", *(folder / name for name in names)], capture_output=True, text=True, check=True).stdout
    for library in set(re.findall(r" => (/\S+) ", loaded)):
        if not BESIDE.search(library):
            shutil.copy(library, folder / "lib")
    # A dictionary as large as several programs keeps one copy of the kernels.
    subprocess.run(["tar", "-C", folder, "-I", "xz --lzma2=mode=fast,mf=hc4,nice=32,dict=64MiB", "-cf", CARRY / "programs.tar.xz", "."], check=True)
    shutil.rmtree(folder)
    if of_sources != sources_hash():
        sys.exit("carry: the sources changed during the build")
    (CARRY / "programs.hash").write_text(of_sources + "\n")
    (CARRY / "programs.capability").write_text(f"{capability}\n")
    size = (CARRY / "programs.tar.xz").stat().st_size
    sys.exit(f"carry: expected at most {MOST / 1e6:.0f} MB, found {size / 1e6:.1f} MB" if size > MOST else None)


# ---- tests

def tested(p, name, *words):
    """Whether a test passes. One that does not find the device says so and passes, or is skipped; here it is a failure."""
    began = time.monotonic()
    status, text = p.capture([p.built / name, *words])
    well = status in (0, 77) and (NO_DEVICE not in text or p.tried)
    p.note(f"{' '.join([name, *words])}: {'passed' if well else f'FAILED, status {status}'}, {time.monotonic() - began:.1f} s")
    p.log(f"{name}: passed" if well else f"{text}{name}: FAILED, status {status}")
    return well


def tests(p, names, together):
    """names: of tests, each with its words; so many together. Raises Failed if one fails; the others run."""
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        if not all(list(pool.map(lambda words: tested(p, *words.split()), names))):
            raise Failed("not every test passed")


OPERATIONS, CHECKS = ["test_matmul", "test_attention", "test_row_operations"], ["memcheck", "racecheck", "initcheck", "synccheck"]


def sanitized(p, tool, names):
    """Under compute-sanitizer kernels take a hundred times as long: tests of operations on the GPU only, with small shapes."""
    if not shutil.which("compute-sanitizer"):
        raise Skipped("compute-sanitizer is not installed")
    for name in names:
        p.run("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", p.built / name, "cuda", "small")


def bits(p):
    """The smoke experiment on the GPU: every row of logits along its texts, against one token at a time."""
    text = (HERE / "experiments/smoke.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(HERE / "experiments/data", Path(folder, "data"))
        p.run(p.built / "write_small_model", f"{folder}/tiny.gguf")
        p.run(p.built / "write_small_model", f"{folder}/tiny-pruned.gguf", "keep=0,2")
        if "device: cpu" not in text:
            raise Failed("expected a device in experiments/smoke.yaml, found none")
        for name in ("tiny", "tiny-pruned"):
            text = text.replace(f"model: {name},", f"model: {folder}/{name}.gguf,")
        Path(folder, "smoke.yaml").write_text(text.replace("device: cpu", "device: cuda"))
        p.run(p.built / "speclab", "exact", "--bits", f"{folder}/smoke.yaml", "--tokens", "400", "--db", f"{folder}/bits.db")


# ---- measurements

def experiment(p, folder, name, text, seconds=None, **words):
    """Runs an experiment with these words for its capitals; its database, and the failure of one that ended early."""
    for word, value in words.items():
        text = text.replace(word, json.dumps(str(value)) if isinstance(value, (str, Path)) else str(value))
    Path(folder, f"{name}.yaml").write_text(text)
    try:
        p.run(p.speclab, "run", f"{folder}/{name}.yaml", "--db", f"{folder}/{name}.db", seconds=seconds)
        return sqlite3.connect(f"{folder}/{name}.db"), None
    except Failed as e:
        return sqlite3.connect(f"{folder}/{name}.db"), e


def passes(p, types, how):
    """Passes of shapes by `speclab bench`, with graphs as in a run, and where a weight is bf16 also by cuBLAS. All shapes are measured, though one fails."""
    failures = []
    for shape in types.split():
        for device in [p.device, *(["cublas"] if "bf16" in shape and p.capability else [])]:
            try:
                bench(p, f"shape:{shape}{SMALL if p.tried else ''}", device, shape.replace(",type=", " "), **how)
            except Failed as e:
                failures.append(e)
    if failures:
        raise failures[0]


SMALL = ",layers=2,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=512"


def bench(p, model, device, what, env=None, **lists):
    """Emits what `speclab bench` measures. env: variables of the backend, which are in the engine's name."""
    engine = " ".join(f"{k.removeprefix('SPECLAB_CUDA_')}={v}" for k, v in (env or {}).items()) or ("cublas" if device == "cublas" else "speclab")
    lists |= {"rows": "1,16", "contexts": "128"} if p.tried and "slots" not in lists else {}
    text = p.run(p.speclab, "bench", model, "--device", device, *(w for k, v in lists.items() for w in (f"--{k}", v)), "--prefill", 0, "--repeats", 5,
                 "--activations", "bf16", "--cache", "bf16", "--no-probe", "--json", **{k: str(v) for k, v in (env or {}).items()})
    j = json.loads(text[text.index('{"'):])
    for m in j["placements"][0]["medians"]:
        seconds = m["ns"]["median"] / 1e9
        p.emit(engine=engine, what=what + (f", {m['slots']} slots" if m["slots"] > 1 else ""), rows=m["n"], context=m["context"], seconds=seconds,
               bytes=seconds * m["bytes_per_second"])
    if engine == "speclab":
        p.note(f"{what}: a step of none outside its pass: " + ", ".join(f"{o['mode']} {o['outside_ns']['median'] / 1e3:.0f} us" for o in j.get("overheads", [])))


# What a switch of the backend (docs/gpu.md) is worth: passes with one of them each, beside the same with none.
SWITCHES = [{"NO_PDL": 1}, {"NO_BULK": 1}]


def switches(p, shape, how):
    for env in [{}, *SWITCHES]:
        bench(p, f"shape:{shape}{SMALL if p.tried else ''}", p.device, shape.replace(",type=", " ") + ", switches",
              {f"SPECLAB_CUDA_{k}": v for k, v in env.items()}, **how)


METRICS = {"us": "gpu__time_duration.sum", "MB": "dram__bytes_read.sum"}


def layer(p, rows):
    """Every kernel of a pass of an 8B model of two layers, its time alone and its bytes from memory: where a pass's time goes, by ncu."""
    if not shutil.which("ncu"):
        raise Skipped("ncu is not installed")
    for n in rows:
        status, text = p.capture(["ncu", "--clock-control", "none", "--cache-control", "none", "--print-units", "base", "--launch-count", 270, "--page", "raw", "--csv",
                     "--metrics", ",".join(METRICS.values()), p.speclab, "bench", "shape:llama-8b,layers=2,type=bf16", "--device", "cuda",
                     "--activations", "bf16", "--cache", "bf16", "--rows", n, "--contexts", 1024, "--prefill", 0, "--repeats", 3, "--no-probe", "--json"])
        p.log(text)
        if status not in (0, 6):  # 6: aborted by ncu's library when all is done
            raise Failed(f"ncu: status {status}")
        lines = [line for line in text.splitlines() if line.startswith('"')]
        with open(KEPT / "layer.csv", "a") as f:
            f.write(f"{n} rows\n" + "\n".join(lines) + "\n")
        for line in layer_lines(list(csv.DictReader(lines))[1:]):
            p.note(f"{n} rows: {line}")


def layer_lines(kernels):
    """Of the last pass: the shortest end that its kernels before repeat, of the same names and grids."""
    def of(k):
        return k["Kernel Name"], k.get("Grid Size"), k.get("Block Size")

    def number(k, metric):
        return float(k[METRICS[metric]].replace(",", "") or 0)

    length = next((n for n in range(8, len(kernels) // 2 + 1) if [of(k) for k in kernels[-n:]] == [of(k) for k in kernels[-2 * n:-n]]), None)
    if length is None:
        return [f"expected a pass that repeats among {len(kernels)} kernels, found none"]
    by, all_ns = {}, 0
    for k in kernels[-length:]:
        entry = by.setdefault(of(k), [0, 0, 0])
        entry[0] += 1
        entry[1] += number(k, "us")
        entry[2] += number(k, "MB")
        all_ns += number(k, "us")
    return [f"{length} kernels, {all_ns / 1e3:.1f} us alone"] + [
        f"{count} x {re.sub(r'[a-z_]+::|<.*|void ', '', name)[:24]} {grid}: {ns / count / 1e3:.2f} us, {b / count / 1e6:.1f} MB" + (f", {b / ns / 1e3:.2f} TB/s" if b > 1e6 else "")
        for (name, grid, _), (count, ns, b) in by.items()]


# ---- the loop

# EAGLE-1's tree (eagle_25 in drafters/trees/tree_published.c): a digit is a rank.
TREE = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001".split()
TOKENS_A_STEP = 3.3
LOOP = """name: loop
target: {model: MODEL, device: DEVICE, activations: bf16, cache: bf16}
prompts: {file: PROMPTS}
limits: {new_tokens: TOKENS, context: CONTEXT, ignore_end: true}
seed: 5
cells:
  sampling: SAMPLING
  batch: SLOTS
  rule: [{kind: synthetic, rate: RATE}]
  drafter:
    - {kind: none}
    - {kind: eagle3, weights: HEAD, tree: TREE, pick: greedy, activations: bf16, cache: bf16}
"""


def rate_for(tokens):
    """The acceptance at which TREE gives so many tokens a step (verifier/rules/rejection.c)."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle, reached = (low + high) / 2, {"": 1.0}
        for path in sorted(TREE, key=len):
            reached[path] = reached[path[:-1]] * middle * (1 - middle) ** int(path[-1])
        low, high = (middle, high) if sum(reached.values()) < tokens else (low, middle)
    return round(high, 6)


def write_head(folder, t, ids):
    """An EAGLE-3 head with random weights in bf16, of the shape t of its target, that proposes evenly spaced ids; in the published form."""
    width, heads, kv, hidden = t["width"], t["heads"] * t["head_dim"], t["kv_heads"] * t["head_dim"], t["hidden"]
    shapes = {"fc": (width, 3 * width), "midlayer.self_attn.q_proj": (heads, 2 * width), "midlayer.self_attn.k_proj": (kv, 2 * width),
              "midlayer.self_attn.v_proj": (kv, 2 * width), "midlayer.self_attn.o_proj": (width, heads), "midlayer.mlp.gate_proj": (hidden, width),
              "midlayer.mlp.up_proj": (hidden, width), "midlayer.mlp.down_proj": (width, hidden), "midlayer.input_layernorm": (width,),
              "midlayer.hidden_norm": (width,), "midlayer.post_attention_layernorm": (width,), "norm": (width,), "lm_head": (ids, width)}
    draw, header, at, few, layers = random.Random(1), {}, 0, t["layers"] < 7, t["layers"]
    block = b"".join(struct.pack("<f", draw.gauss(0, 0.02))[2:] for _ in range(1 << 16))  # these repeat, which no time depends on
    spaced = struct.pack(f"<{ids}q", *(i * t["vocab"] // ids - i for i in range(ids)))
    bytes_of = {f"{name}.weight": 2 * s[0] * (s[1] if len(s) > 1 else 1) for name, s in shapes.items()} | {"d2t": len(spaced)}
    for (name, size), shape in zip(bytes_of.items(), [*shapes.values(), (ids,)], strict=True):
        header[name] = {"dtype": "I64" if name == "d2t" else "BF16", "shape": shape, "data_offsets": [at, at := at + size]}
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as f:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        f.write(struct.pack("<Q", len(text)) + text)
        for name, size in bytes_of.items():
            data = spaced if name == "d2t" else b"\x80\x3f" * (size // 2) if "norm" in name else block
            while size > 0:
                size -= f.write(data[:size])
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": 1,
        "num_attention_heads": t["heads"], "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"], "vocab_size": t["vocab"],
        "draft_vocab_size": ids, "max_position_embeddings": t["context"], "rope_theta": t["rope_theta"], "rms_norm_eps": 1e-05, "hidden_act": "silu",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1 if few else 2, layers // 2, layers if few else layers - 3]}}))


def loop(p, slots, temperatures=(0, 1)):
    """Decodes with so many slots, a rate of acceptance that is given."""
    slots, few = [1, 2] if p.tried else slots, p.tried
    with tempfile.TemporaryDirectory() as name:
        folder, draw = Path(name), random.Random(1)
        words = {"DEVICE": p.device, "TOKENS": 12 if few else 64, "CONTEXT": 448 if few else 1024, "SLOTS": slots, "RATE": rate_for(TOKENS_A_STEP),
                 "HEAD": folder / "head", "TREE": [[int(rank) for rank in path] for path in TREE], "SAMPLING": [{"temperature": t} for t in temperatures]}
        model = "shape:llama-8b,type=bf16" + (SMALL if few else "")
        text = p.run(p.speclab, "inspect", model, "--no-probe", "--json")
        write_head(folder / "head", json.loads(text[text.index("{"):]), 200 if few else 32000)
        with open(folder / "prompts.jsonl", "w") as f:
            for i in range(4 if few else max(4, *slots)):
                f.write(json.dumps({"id": str(i), "input_ids": [draw.randrange(3, 200) for _ in range(128)]}) + "\n")
        c, failed = experiment(p, folder, "loop", LOOP, 0.7 * p.left(), MODEL=model, PROMPTS=folder / "prompts.jsonl", **words)
        c.row_factory = sqlite3.Row
        for r in map(dict, c.execute("SELECT s.* FROM run_summary AS s ORDER BY run")):
            step = r["decode_ns"] / 1e9 / r["steps"] * r["batch"]
            p.emit(engine="loop", what="llama-8b bf16", step=step,
                   **{k: r[k] for k in ("drafter_kind", "sampling", "batch", "lossless", "finished", "tokens_per_s", "tokens_per_step", "speedup",
                                        "propose_share", "verify_share", "advance_share", "other_share")})
    if failed:
        raise failed


# ---- the table

def shown(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def table_lines(lines):
    return "".join("| " + " | ".join(line) + " |\n" + ("|" + "---|" * len(line) + "\n" if i == 0 else "") for i, line in enumerate(lines))


def table_of(records):
    """Times as shares of the floor: the time to read what must be read, at the bandwidth of a copy measured on this device. A pass that only reads
    may exceed 100 %: reading is faster than copying. c is the time over that of one row. Engines are columns."""
    text, rows = "", {}
    copy = max((r["copy"] for r in records if r.get("what") == "bandwidth"), default=0)
    for r in records:
        if r["what"] == "bandwidth":
            text += (f"{r['device']}: reads {r['read'] / 1e12:.3g} TB/s, copies {r['copy'] / 1e12:.3g} TB/s (read and written). "
                     "Shares are of the latter.\n\n")
        elif r["engine"] == "probe":
            text += f"{r['what']}: {shown(r['seconds'])}\n\n"
        elif r["engine"] != "loop":
            rows.setdefault((r["what"], r.get("context", ""), r.get("rows", "")), {})[r["engine"]] = r
    cells = [r for r in records if r["engine"] == "loop"]
    if cells:
        text += "Phases are shares of a step. *: LOSSY, for timing only.\n\n" + table_lines([
            "what,sampling,slots,drafter,tokens/s,tokens per step,speedup,step,propose,verify,advance,other".split(","),
            *([r["what"], r["sampling"], str(r["batch"]), r["drafter_kind"] + "*" * (not r["lossless"]) + " (part)" * (not r["finished"]),
               f"{r['tokens_per_s'] or 0:.0f}", f"{r['tokens_per_step'] or 0:.2f}", f"{r['speedup'] or 1:.2f}", shown(r["step"]),
               *(f"{100 * (r[k + '_share'] or 0):.0f} %" for k in ("propose", "verify", "advance", "other"))] for r in cells)]) + "\n"
    engines = sorted({e for by in rows.values() for e in by}, key=lambda e: (e != "speclab", e))
    lines = [["what", "context", "n", *engines]]
    for (what, context, n), by in rows.items():
        one, line = rows.get((what, context, 1), {}), [what, str(context), str(n)]
        for e in engines:
            r = by.get(e)
            c = f", c {r['seconds'] / one[e]['seconds']:.2f}" if r and e in one and n != 1 else ""
            share = f"{100 * r['bytes'] / copy / r['seconds']:.0f} % " if r and copy and r.get("bytes") else ""
            line.append(f"{share}({shown(r['seconds'])}{c})" if r else "")
        lines.append(line)
    return text + (table_lines(lines) + "\n" if rows else "")


# ---- words

def phases_of(word, p):
    """(name, seconds, function, its arguments after p) of a word, the most important first, and the seconds of all."""
    cuda = tests_with_cuda()
    one = {"rows": "1,16,64", "contexts": "1024"}
    right = ["test_rings", "test_rounded", "test_graphs", "test_device_verification 20", "test_device_drafts", "test_matmul cuda", "test_attention cuda",
             "test_row_operations cuda", "test_probabilities"]
    rest = [name for name in cuda if not any(t.split()[0] == name for t in right)] + ["test_bisect_device 24"]
    start = [("machine", 10, machine), ("programs", 30 if word == "measure" else 240, programs, "speclab", "write_small_model", *cuda)]
    probe, layers = ("probe", 20, Phases.run, p.built / "probe"), ("layer", 60, layer, (1, 16, 64))
    eight = ("passes", 60, passes, "llama-8b,type=bf16", {"rows": "1,8,16,26,32,64", "contexts": "1024"})

    def torch(how, seconds, *shapes):
        return how, seconds, Phases.run, "python3", "-u", HERE / "dev/gpu/torch_passes.py", how, seconds - 10, *shapes

    return {
        "measure": (550, [*start, probe, ("bits", 60, tests, right, 4), eight, layers,
                          ("switches", 70, switches, "llama-8b,type=bf16", {"rows": "1,8,16,26,32,64", "contexts": "1024"}), ("step", 90, loop, [1]),
                          ("others", 50, passes, "llama-1b,type=bf16 llama-1b,type=q8_0 llama-1b,type=q4_0 smollm2-135m,type=q4_0", one),
                          ("slots", 50, loop, [16], [0]), ("tests", 70, tests, rest, 4), ("memcheck", 40, sanitized, "memcheck", ["test_attention"]),
                          ("long", 20, passes, "llama-8b,type=bf16", {"rows": "1,16", "contexts": "8000"}), torch("eager", 40, "llama-8b"),
                          ("racecheck", 20, sanitized, "racecheck", ["test_rings"])]),
        "measure try": (1400, [("bits", 300, tests, right[:1], 2), ("passes", 100, *eight[2:]), ("switches", 100, switches, "llama-8b,type=bf16", one),
                               ("step", 300, loop, [1]), ("others", 300, passes, "llama-1b,type=q8_0 smollm2-135m,type=q4_0", one), ("slots", 300, loop, [16], [0])]),
        "first": (465, [*start, probe, ("bits", 80, tests, right, 4), eight, layers]),
        "check": (520, [*start, ("tests", 250, tests, [*cuda, "test_device_verification 480", "test_bisect_device 24"], 4), ("experiment", 60, bits),
                        *((tool, s, sanitized, tool, OPERATIONS) for tool, s in zip(CHECKS, (120, 120, 60, 60)))]),
        "bench": (520, [*start, probe, ("passes", 220, passes, " ".join(f"llama-{m}b,type={t}" for m in (1, 8) for t in ("bf16", "q8_0", "q4_0")),
                         {"rows": "1,4,8,16,32,64", "contexts": "1024,8192,32768"}), layers]),
        "bench torch": (520, [*start, probe, ("passes", 60, passes, "llama-8b,type=bf16 llama-1b,type=bf16", one), torch("eager", 75), torch("compiled", 300)]),
        "bench loop": (520, [*start, ("loop", 400, loop, [1, 4, 16, 64])]),
    }[word]


def main(words):
    if words[:1] == ["carry"] and len(words) <= 2 and (words + ["90"])[1].isdigit():
        return carry(int((words + ["90"])[1]))
    tried = words[:2] == ["measure", "try"] and len(words) == 3
    limit = int(words.pop()) if words[:1] == ["measure"] and len(words) == 2 and words[1].isdigit() else None
    word = " ".join(words[:2] if tried else words)
    if not tried and word not in ("measure", "first", "check", "bench", "bench torch", "bench loop"):
        print(f'gpu: expected measure [SECONDS | try DEVICE], first, check, bench [torch | loop] or carry [CAPABILITY], found "{" ".join(words)}"', file=sys.stderr)
        return 2
    p = Phases("loop" if "loop" in words else words[0], words[2] if tried else "cuda", tried)
    if not p.capability and not tried:
        print("gpu: expected an NVIDIA GPU known to nvidia-smi, found none: nothing was run", file=sys.stderr)
        return 77
    seconds, phases = phases_of(word, p)
    p.end = time.monotonic() + (limit or seconds)
    for phase in phases:
        if not p.phase(*phase) and phase[0] == "programs":  # nothing runs without them
            p.finish()
            return 77 if word == "measure" else 1
    return p.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
