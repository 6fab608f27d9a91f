#!/usr/bin/env python3
"""acceptance.py - tokens a step of one experiment, on the CPU beforehand and on a GPU: gpu/acceptance.yaml.

    gpu/acceptance.py run SPECLAB MODEL DEVICE DATABASE    runs it
    gpu/acceptance.py compare CPU_DATABASE GPU_DATABASE    each cell's mean on the GPU must lie in the CPU's 95 % interval

Tokens a step: new tokens over steps, of all prompts of a cell together; the interval is that of 4,000 resamples of prompts.
The texts differ from the first near-tie on that rounds the other way, so the numbers agree in distribution and not one by one.
At temperature 0 every text must also be that of `none` on its own device, token by token.
Exit status: 0 it holds, 1 it does not, 2 called wrongly.
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
    """{(sampling, drafter): {prompt: (new tokens, steps)}}, and those at temperature 0 whose texts are not all none's."""
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
    chance = random.Random(1)
    means = sorted(mean(chance.choices(prompts, k=len(prompts))) for _ in range(RESAMPLES))
    return means[RESAMPLES * 25 // 1000], means[RESAMPLES * 975 // 1000]


def compare(cpu_database, gpu_database):
    (cpu, _), (gpu, other) = cells_of(cpu_database), cells_of(gpu_database)
    well = bool(cpu) and not other
    for sampling, drafter, texts in other:
        print(f"{sampling}, {drafter}: {texts} texts are not those of none")
    if not cpu:
        print(f"{cpu_database}: expected results, found none")
    for key in cpu:
        if key not in gpu:
            print(f"{key[0]}, {key[1]}: expected it on the GPU, found nothing")
            well = False
            continue
        low, high = interval(list(cpu[key].values()))
        there = mean(list(gpu[key].values()))
        inside = low - 1e-9 <= there <= high + 1e-9
        well = well and inside
        print(f"{key[0]}, {key[1]}: {there:.3f} tokens a step, on the CPU {mean(list(cpu[key].values())):.3f} "
              f"[{low:.3f}, {high:.3f}], {len(cpu[key])} prompts: {'inside' if inside else 'OUTSIDE'}")
    return 0 if well else 1


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[1] == "run":
        sys.exit(run(*sys.argv[2:]))
    if len(sys.argv) == 4 and sys.argv[1] == "compare":
        sys.exit(compare(*sys.argv[2:]))
    print(__doc__, file=sys.stderr)
    sys.exit(2)
