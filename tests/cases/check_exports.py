"""check_exports.py - reads what `speclab report --export` writes with the programs that the files are for, and compares their numbers with the views.

    speclab report --db demo.db --export spec-bench answers       (and vllm, nvidia)
    python -B check_exports.py demo.db FOLDER CLONES TOKENIZER

FOLDER has folders spec-bench, vllm and nvidia with those files. CLONES has hemingkx+Spec-Bench/repo and NVIDIA+Model-Optimizer/repo, git
directories or clones; what is missing is skipped, with a line. TOKENIZER is a folder that transformers' AutoTokenizer opens, the target's.
Needs numpy and transformers, and prometheus_client for the last. Nothing is written but temporary files."""

import contextlib
import glob
import importlib.util
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import warnings

db, folder, clones, tokenizer = sys.argv[1:5]
store = sqlite3.connect("file:%s?mode=ro" % db, uri=True)


def original(clone, path):
    """A module of another project, as its repository has it."""
    git = os.path.join(clones, clone, "repo")
    if not os.path.isdir(git):
        print("skipped: no", git)
        return None
    to = os.path.join(tempfile.mkdtemp(), os.path.basename(path))
    with open(to, "wb") as f:
        f.write(subprocess.run(["git", "-C", git, "show", "HEAD:" + path], check=True, capture_output=True).stdout)
    spec = importlib.util.spec_from_file_location("original_" + re.sub(r"\W", "_", path), to)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(path):
    return int(re.search(r"-run(\d+)-", os.path.basename(path)).group(1))


def near(what, a, b, tolerance=1e-9):
    assert abs(a - b) <= tolerance * max(1e-3, abs(b)), (what, a, b)


def spec_bench():
    speed, equal = original("hemingkx+Spec-Bench", "evaluation/speed.py"), original("hemingkx+Spec-Bench", "evaluation/equal.py")
    if speed is None:
        return
    files = {run_of(f): f for f in glob.glob(folder + "/spec-bench/*.jsonl")}
    for run, path in sorted(files.items()):
        peers, kind, sampling = store.execute("SELECT peers, drafter_kind, sampling FROM run WHERE id = ?", [run]).fetchone()
        none = store.execute("SELECT min(id) FROM run WHERE peers = ? AND drafter_kind = 'none'", [peers]).fetchone()[0]
        with contextlib.redirect_stdout(io.StringIO()):
            rate, base, speedup, lengths = speed.speed(path, files[none], tokenizer, task="overall")
        mat, tokens_per_s = store.execute("SELECT mean_accepted_tokens, tokens_per_s FROM spec_bench WHERE run = ?", [run]).fetchone()
        ours = tokens_per_s / store.execute("SELECT tokens_per_s FROM spec_bench WHERE run = ?", [none]).fetchone()[0]
        near("mean accepted tokens", sum(lengths) / len(lengths), mat)
        near("tokens per second", rate, tokens_per_s)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            place = tempfile.mkdtemp() + "/"
            for f in {path, files[none]}:
                os.symlink(os.path.abspath(f), place + os.path.basename(f))
            equal.run_compare(place, os.path.basename(path), os.path.basename(files[none]))
        print("speed.py, run %d: #MAT %.4f, %.3f tokens/s, speedup %.4f; without its second tokenization %.4f; equal.py: %s"
              % (run, sum(lengths) / len(lengths), rate, speedup, ours, said.getvalue().strip()))  # fmt: skip


def nvidia():
    """specdec_bench's own rates of the exported histogram; its profile has these, by position instead of length (k - 2), gaps filled."""
    git = os.path.join(clones, "NVIDIA+Model-Optimizer", "repo")
    if not os.path.isdir(git):
        print("skipped: no", git)
        return
    place = tempfile.mkdtemp()
    tar = subprocess.run(["git", "-C", git, "archive", "HEAD", "examples/specdec_bench/specdec_bench"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", place], input=tar, check=True)
    sys.path.insert(0, place + "/examples/specdec_bench")
    warnings.simplefilter("ignore")
    from specdec_bench.metrics.acceptance_rate import AcceptanceRate

    for path in sorted(glob.glob(folder + "/nvidia/*.speculation_profile.json")):
        ours, metric = json.load(open(path)), AcceptanceRate()
        with contextlib.redirect_stdout(io.StringIO()):
            metric._process_lengths({int(k): v for k, v in ours["acceptance_length_histogram"].items()})
        joint = metric.out["Joint_Acceptance_Rate"]
        for i, rate in enumerate(ours["marginal_accept_rates"] or []):
            assert abs(rate - next((joint[k] for k in sorted(joint) if k >= i + 2), 0.0)) < 1e-6, (path, i)
        near("mean", 1 + sum(ours["marginal_accept_rates"] or []), ours["mean_accept_length"], 1e-5)
        print("specdec_bench, run %d: the same rates, mean %.4f" % (run_of(path), ours["mean_accept_length"]))


def vllm():
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("skipped: no prometheus_client")
        return
    for path in sorted(glob.glob(folder + "/vllm/*.prom")):
        found = {}
        for family in text_string_to_metric_families(open(path).read()):
            for s in family.samples:
                found[s.name + s.labels.get("position", "")] = s.value
        drafts, tokens, accepted = (found["vllm:spec_decode_num_%s_total" % k] for k in ("drafts", "draft_tokens", "accepted_tokens"))
        bench = json.load(open(path.replace(".prom", ".json")))
        if drafts:
            near("rate", bench["spec_decode_acceptance_rate"], 100 * accepted / tokens)
            near("length", bench["spec_decode_acceptance_length"], 1 + accepted / drafts)
            for i, rate in enumerate(bench["spec_decode_per_position_acceptance_rates"]):
                near("position", rate, found["vllm:spec_decode_num_accepted_tokens_per_pos_total%d" % i] / drafts)
        print("prometheus_client, run %d: %d drafts" % (run_of(path), drafts))


spec_bench()
nvidia()
vllm()
