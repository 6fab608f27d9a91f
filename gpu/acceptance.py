#!/usr/bin/env python3
"""acceptance.py - compares the tokens per step of gpu/acceptance.yaml on a GPU with those on a CPU.

    gpu/acceptance.py run SPECLAB MODEL DEVICE DATABASE    runs the experiment
    gpu/acceptance.py compare CPU_DATABASE GPU_DATABASE    each cell's mean on the GPU must lie in the CPU's 95 % interval

Tokens per step: new tokens over steps, over all prompts of a cell; the interval is that of 4,000 resamples of prompts.
Texts differ after the first near-tie that rounds the other way, so the numbers agree in distribution, not one by one.
At temperature 0 every text must also equal that of `none` on the same device, token by token.
Exit status: 0 success, 1 failure, 2 wrong usage.
"""
import os
import random
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RESAMPLES = 4000


def run(speclab, model, device, database):
    with open(os.path.join(HERE, "acceptance.yaml")) as f:
        text = f.read()
    prompts = os.path.join(HERE, "..", "experiments", "data", "prompts.jsonl")
    for word, value in ("MODEL", model), ("DEVICE", device), ("PROMPTS", prompts):
        text = text.replace(word, os.path.abspath(value) if word != "DEVICE" else value)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(text)
        f.flush()
        return subprocess.run([speclab, "run", f.name, "--db", database]).returncode


def cells_of(database):
    """{(sampling, drafter): {prompt: (new tokens, steps)}}, and the cells at temperature 0 with texts that differ from none's."""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    cells = {}
    for sampling, drafter, prompt, tokens, steps in db.execute(
            "SELECT r.sampling, r.drafter_kind, q.prompt_id, sum(q.new_tokens), sum(q.steps) FROM sequence AS q JOIN run AS r ON r.id = q.run GROUP BY r.id, q.prompt_id"):
        cells.setdefault((sampling, drafter), {})[prompt] = (tokens, steps)
    other = db.execute("SELECT sampling, drafter_kind, compared_texts - equal_texts FROM run_summary WHERE drafter_kind <> 'none'"
                       " AND sampling = 'temperature=0' AND compared_texts <> equal_texts").fetchall()
    return cells, other


def mean(prompts):
    return sum(t for t, _ in prompts) / sum(s for _, s in prompts)


def interval(prompts):
    rng = random.Random(1)
    means = sorted(mean(rng.choices(prompts, k=len(prompts))) for _ in range(RESAMPLES))
    return means[RESAMPLES * 25 // 1000], means[RESAMPLES * 975 // 1000]


def compare(cpu_database, gpu_database):
    (cpu, _), (gpu, other) = cells_of(cpu_database), cells_of(gpu_database)
    passed = bool(cpu) and not other
    for sampling, drafter, texts in other:
        print(f"{sampling}, {drafter}: {texts} texts differ from those of none")
    if not cpu:
        print(f"{cpu_database}: expected results, found none")
    for key in cpu:
        if key not in gpu:
            print(f"{key[0]}, {key[1]}: expected results of the GPU, found none")
            passed = False
            continue
        low, high = interval(list(cpu[key].values()))
        on_gpu = mean(list(gpu[key].values()))
        inside = low - 1e-9 <= on_gpu <= high + 1e-9
        passed = passed and inside
        print(f"{key[0]}, {key[1]}: {on_gpu:.3f} tokens per step, on the CPU {mean(list(cpu[key].values())):.3f} "
              f"[{low:.3f}, {high:.3f}], {len(cpu[key])} prompts: {'inside' if inside else 'OUTSIDE'}")
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[1] == "run":
        sys.exit(run(*sys.argv[2:]))
    if len(sys.argv) == 4 and sys.argv[1] == "compare":
        sys.exit(compare(*sys.argv[2:]))
    print(__doc__, file=sys.stderr)
    sys.exit(2)
