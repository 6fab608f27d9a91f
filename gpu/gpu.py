#!/usr/bin/env python3
"""gpu.py - `./run gpu WORD`: checks and measurements on a machine with an NVIDIA GPU; the standard library is sufficient.

    first          at most 8 minutes: do the kernels run, with the bits they should have; how fast is memory, and how near to that are
                   kernels and passes; what limits two kernels
    check          at most 9 minutes: every test that uses CUDA, bits of a whole experiment, acceptance against the CPU's, compute-sanitizer
    bench          at most 9 minutes: kernels and passes as shares of the bandwidth of a copy that is measured in the same call, beside
                   cuBLAS (bf16)
    bench torch    passes beside transformers, eager and compiled
    bench loop     decoding with 1, 4, 16 and 64 slots: Llama-8B's shape with an EAGLE-3 head and synthetic acceptance, and SmolLM2
    bench loop try DEVICE    the same with small models and the programs of build/release: cpu, or cuda, the emulated GPU
    carry [model]  puts what the others need on a machine without network into build/carry, to be copied with the working tree: programs,
                   built here for compute capability 8 and 9, with the libraries that they load; model: also SmolLM2, in two parts
                   (build/carry-model-1 and -2), for where some 64 MiB can be copied at a time

Programs are those of build/carry if they are of these sources, to the byte, and run here; otherwise they are built. A word is a list of
phases, each with a time limit. A phase fails with the first program that fails, and does not stop the others; the summary has the lines
of its output that name an error. Measurements finished by then are kept. Everything is stored in $OUT, or build/gpu-results: WORD.log,
WORD.txt (the summary), WORD.jsonl (a line of JSON for each measurement) and WORD.md (their table).
Exit status: 0 all that could run passed, 1 something failed, 2 wrong usage, 77 no GPU.
"""
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

from measurements import PROMPTS, Failed, Skipped, experiment, loop, passes, profile, table_of

HERE = Path(__file__).resolve().parents[1]
BUILD, CARRY = HERE / "build", HERE / "build/carry"
KEPT = Path(os.environ.get("OUT") or BUILD / "gpu-results")
ERROR = re.compile(r"ERROR|FAILED|[Ee]rror:|(cuda|cublas):[0-9]+: |^=+ Invalid|Assertion|: expected ")
NO_DEVICE = "not on this machine: device cuda"


# ---- phases

class Phases:
    def __init__(self, word, device, tried):
        self.word, self.device, self.failed, self.lock, self.capability = word, device, False, threading.Lock(), 0 if tried else capability()
        self.built, self.records, self.profiles, self.summary = BUILD / ("release" if tried else "gpu-programs"), [], [], []
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

    @staticmethod
    def carried_model(to):
        """Joins the two parts of SmolLM2."""
        parts = [BUILD / f"carry-model-{i}/part" for i in (1, 2)]
        if not all(part.exists() for part in parts):
            raise Skipped("SmolLM2 is missing (./run gpu carry model)")
        data = b"".join(part.read_bytes() for part in parts)
        if hashlib.sha256(data).hexdigest() != (CARRY / "model.sha256").read_text().strip():
            raise Failed("SmolLM2: expected the SHA-256 of build/carry/model.sha256, found another")
        Path(to).write_bytes(data)

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

    def finish(self):
        """Prints the table, the profiles and the summary, which fit into 12,000 characters, and returns the exit status."""
        self.summary.append(f"gpu {self.word}: {'not every phase passed' if self.failed else 'every phase that could run passed'}; logs in {KEPT}")
        table = table_of(self.records)
        if table:
            self.file("md").write_text(table)
        self.file("txt").write_text("\n".join(self.summary) + "\n")
        print((table + "\n".join(self.profiles + self.summary))[-11500:])
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
    p.run("nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap,clocks.max.sm,clocks.max.mem", "--format=csv")
    if shutil.which("nvcc"):
        p.run("nvcc", "--version")


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


def carried_programs(p):
    """Unpacks the carried programs. Why they do not fit; None: they do."""
    packed, hashed = CARRY / "programs.tar.xz", CARRY / "programs.hash"
    if not packed.exists() or not hashed.exists():
        return "build/carry has no programs (./run gpu carry)"
    if hashed.read_text().strip() != sources_hash():
        return "the programs in build/carry are of other sources"
    if p.capability < 80:
        return "the programs in build/carry are for compute capability 8.0 or later"
    if p.built.is_symlink():
        p.built.unlink()
    shutil.rmtree(p.built, ignore_errors=True)
    with tarfile.open(packed) as tar:
        tar.extractall(p.built, filter="data")
    status, text = p.capture([p.built / "speclab", "--version"])
    return None if status == 0 else f"a carried program does not run: {text}"


def programs(p, *names):
    why = carried_programs(p)
    if why is None:
        return
    p.log(why)
    folder = BUILD / "gpu"
    p.run("cmake", "-S", HERE, "--preset", "release", "-B", folder, "-G", "Ninja", "-DSPECLAB_CUDA=on", "-DSPECLAB_EMULATED=OFF",
          f"-DSPECLAB_CUDA_ARCHITECTURES={p.capability}")
    p.run("cmake", "--build", folder, "--target", *names)
    p.run("nvcc", "-O3", "-std=c++17", f"-arch=sm_{p.capability}", "-o", folder / "probe", HERE / "gpu/probe.cu")
    if not p.built.is_symlink():
        shutil.rmtree(p.built, ignore_errors=True)
    p.built.unlink(missing_ok=True)
    p.built.symlink_to("gpu")


BESIDE = re.compile(r"/(ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s)\.so")  # what every machine has


def carry(model):
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    if not shutil.which("nvcc"):
        sys.exit("carry: expected nvcc, found none")
    shutil.rmtree(CARRY, ignore_errors=True)
    CARRY.mkdir(parents=True)
    carry_programs(sources_hash())
    if model:
        data = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "speclab/models/smollm2-135m-instruct.gguf").read_bytes()
        for i, part in enumerate((data[:len(data) // 2], data[len(data) // 2:]), 1):
            (BUILD / f"carry-model-{i}").mkdir(exist_ok=True)
            (BUILD / f"carry-model-{i}/part").write_bytes(part)
        (CARRY / "model.sha256").write_text(hashlib.sha256(data).hexdigest() + "\n")
    subprocess.run(["du", "-sh", CARRY])


def carry_programs(of_sources):
    names, build, folder = ["speclab", "write_small_model", "bench_gpu", *tests_with_cuda()], BUILD / "gpu-carry", CARRY / "programs"
    # Not the machine's own instruction set: inner loops of each are compiled, and chosen at run time.
    subprocess.run(["cmake", "-S", HERE, "--preset", "release", "-B", build, "-G", "Ninja", "-DSPECLAB_CUDA=on", "-DSPECLAB_EMULATED=OFF",
                    "-DSPECLAB_TEST_SOURCE=.", "-DCMAKE_BUILD_RPATH=$ORIGIN/lib", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags"], check=True)
    subprocess.run(["cmake", "--build", build, "--target", *names], check=True)
    subprocess.run(["nvcc", "-O3", "-std=c++17", *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in (80, 90)),
                    "-gencode=arch=compute_90,code=compute_90", "-o", build / "probe", HERE / "gpu/probe.cu"], check=True)
    (folder / "lib").mkdir(parents=True)
    for name in [*names, "probe"]:
        subprocess.run(["strip", "-o", folder / name, build / name], check=True)
    loaded = subprocess.run(["ldd", *(folder / name for name in names)], capture_output=True, text=True, check=True).stdout
    for library in set(re.findall(r" => (/\S+) ", loaded)):
        if not BESIDE.search(library):
            shutil.copy(library, folder / "lib")
    # The kernels are in every program: a dictionary as large as several of them keeps one copy.
    subprocess.run(["tar", "-C", folder, "-I", "xz --lzma2=dict=64MiB", "-cf", CARRY / "programs.tar.xz", "."], check=True)
    shutil.rmtree(folder)
    if of_sources != sources_hash():
        sys.exit("carry: the sources changed during the build")
    (CARRY / "programs.hash").write_text(of_sources + "\n")


# ---- tests

def tested(p, name, *words, **env):
    """Whether a test passes. One that does not find the device says so and passes, or is skipped; here it is a failure."""
    status, text = p.capture([p.built / name, *words], **env)
    well = status in (0, 77) and NO_DEVICE not in text
    p.log(f"{name}: passed" if well else f"{text}{name}: FAILED, status {status}")
    return well


def tests(p, names, together=None, env=None):
    """names: of tests, each with its words; so many together. Raises Failed if one fails; the others run."""
    with concurrent.futures.ThreadPoolExecutor(together or os.cpu_count()) as pool:
        if not all(list(pool.map(lambda words: tested(p, *words.split(), **(env or {})), names))):
            raise Failed("not every test passed")


OPERATIONS, CHECKS = ["test_matmul", "test_attention", "test_row_operations"], ["memcheck", "racecheck", "initcheck", "synccheck"]


def steps(p, count):
    """Drafts, trials and tokens of device verification against the host's; the exact output distribution of the rules by bisection."""
    tests(p, [f"test_device_verification {count}", "test_bisect_device 24"], 1)


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


ACCEPTANCE = """name: acceptance
target: {model: MODEL, device: DEVICE, activations: bf16, cache: bf16}
prompts: {file: PROMPTS, per_category: 3, chat: auto}
limits: {new_tokens: 48, context: 2048}
seed: 5
cells:
  sampling: [{temperature: 0}, {temperature: 1}]
  drafter:
    - {kind: none}
    - {kind: ngram, longest: 3, tokens: 8}
    - {kind: small, model: MODEL, activations: bf16, cache: bf16, widths: [2, 2, 1], pick: sampled}
"""


def acceptance(p):
    """Tokens per step of SmolLM2, with the 95 % interval of 4,000 resamples of prompts on the CPU: the GPU's mean must lie in it. Texts differ after
    the first near-tie that rounds the other way, so the numbers agree in distribution. At temperature 0 texts must equal those of `none`."""
    def mean(prompts):
        return sum(t for t, _ in prompts) / sum(s for _, s in prompts)

    cells, draw, wrong = {}, random.Random(1), []
    with tempfile.TemporaryDirectory() as folder:
        p.carried_model(f"{folder}/smollm2.gguf")
        for device in ("cuda", "cpu"):
            c, failed = experiment(p, folder, device, ACCEPTANCE, MODEL=f"{folder}/smollm2.gguf", DEVICE=device, PROMPTS=PROMPTS)
            if failed:
                raise failed
            for sampling, drafter, tokens, taken in c.execute("SELECT r.sampling, r.drafter_kind, sum(q.new_tokens), sum(q.steps) FROM sequence AS q"
                                                             " JOIN run AS r ON r.id = q.run GROUP BY r.id, q.prompt_id"):
                cells.setdefault((sampling, drafter), {}).setdefault(device, []).append((tokens, taken))
            wrong += [f"{device}, {row[0]}: texts differ from those of none" for row in c.execute(
                "SELECT drafter_kind FROM run_summary WHERE sampling = 'temperature=0' AND compared_texts <> equal_texts")]
    for (sampling, drafter), by in cells.items():
        resampled = sorted(mean(draw.choices(by["cpu"], k=len(by["cpu"]))) for _ in range(4000))
        low, high, gpu = resampled[100], resampled[3900], mean(by["cuda"])
        line = f"{sampling}, {drafter}: {gpu:.3f} tokens per step, on the CPU {mean(by['cpu']):.3f} [{low:.3f}, {high:.3f}]"
        p.log(line)
        wrong += [] if low - 1e-9 <= gpu <= high + 1e-9 else [f"ERROR: {line}: outside"]
    if wrong:
        raise Failed("; ".join(wrong))


# ---- words

def phases_of(word, p):
    """(name, seconds, function, its arguments after p) of a word, the most important first, and the seconds of all."""
    cuda, bench_gpu, small = tests_with_cuda(), p.built / "bench_gpu", {"rows": "1,16,64", "contexts": "1024"}
    first = [("machine", 10, machine), ("programs", 240, programs, "speclab", "write_small_model", "bench_gpu", *([] if "bench" in word else cuda))]
    probe, profiled = ("probe", 20, Phases.run, p.built / "probe"), ("profile", 60, profile)
    torch = [(how, s, Phases.run, "python3", "-u", HERE / "gpu/torch_passes.py", how, s - 15) for how, s in (("eager", 75), ("compiled", 300))]
    return {
        "first": (465, [*first, ("products", 80, tests, ["test_matmul cuda", "test_attention cuda"], 1, {"SPECLAB_CUDA_SYNC": "1"}),
                        ("memcheck", 60, sanitized, "memcheck", OPERATIONS[:1]), probe,
                        ("kernels", 45, Phases.run, bench_gpu, "cuda,cublas", "bf16,q4_0", "1,16,64"),
                        ("passes", 75, passes, small, "llama-8b,type=bf16", "llama-1b,type=bf16", "llama-1b,type=q4_0", "smollm2-135m,type=q4_1"),
                        ("tests", 75, tests, ["test_clusters", "test_planes", "test_graphs", "test_padding", "test_cuda"]),
                        ("steps", 45, steps, 100), profiled]),
        "check": (520, [*first, ("tests", 200, tests, cuda), ("steps", 90, steps, 480), ("bits", 60, bits), ("acceptance", 80, acceptance),
                        *((tool, s, sanitized, tool, OPERATIONS) for tool, s in zip(CHECKS, (120, 120, 60, 60)))]),
        "bench": (520, [*first, probe, ("kernels", 120, Phases.run, bench_gpu),
                        ("passes", 220, passes, {}, *(f"llama-{m}b,type={t}" for m in (1, 8) for t in ("bf16", "q8_0", "q4_0"))), profiled]),
        "bench torch": (520, [*first, probe, ("passes", 60, passes, small, "llama-8b,type=bf16", "llama-1b,type=bf16"), *torch]),
        "bench loop": (520, [*first, ("synthetic", 190, loop, "cuda", False, "synthetic"), ("smollm2", 120, loop, "cuda", False, "texts")]),
        "bench loop try": (1400, [("synthetic", 700, loop, p.device, True, "synthetic"), ("smollm2", 700, loop, p.device, True, "texts")]),
    }[word]


def main(words):
    word, tried = " ".join(words), words[:3] == ["bench", "loop", "try"] and len(words) == 4
    if word in ("carry", "carry model"):
        return carry(word == "carry model")
    if not tried and word not in ("first", "check", "bench", "bench torch", "bench loop"):
        print(f'gpu: expected first, check, bench [torch | loop [try DEVICE]] or carry [model], found "{word}"', file=sys.stderr)
        return 2
    p = Phases("loop" if "loop" in words else words[0], words[3] if tried else "cuda", tried)
    if not p.capability and not tried:
        print("gpu: expected an NVIDIA GPU known to nvidia-smi, found none: nothing was run", file=sys.stderr)
        return 77
    seconds, phases = phases_of(" ".join(words[:3]), p)
    p.end = time.monotonic() + seconds
    for phase in phases:
        p.phase(*phase)
    return p.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
