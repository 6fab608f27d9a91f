"""dev/gpu/gpu.py: a head with random weights fits its target, and runs."""

import json
import sys

import pytest
from checkpoints import small
from conftest import ROOT, engine, program

sys.path.insert(0, str(ROOT / "dev/gpu"))
from gpu import write_head  # noqa: E402


@pytest.mark.parametrize("target", ["tiny", "shape"])
def test_a_random_head_fits_its_model_and_runs(tiny, tmp_path, target):
    model = tiny
    if target == "shape":
        sizes = "layers=8,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=512"
        model = small(tmp_path / "shape.gguf", f"shape:llama-8b,type=bf16,{sizes}")
    write_head(tmp_path / "head", json.loads(engine("inspect", model, "--no-probe", "--json")), 90)
    shown = json.loads(engine("inspect", "--json", tmp_path / "head", "--target", model))
    assert (shown["kind"], shown["vocab"]) == ("eagle3", 90)
    words = ("--rule", "synthetic:rate=1", "--tokens", 12, "--ignore-end", "--ids", "[1, 2, 3]")
    done = program("generate", model, "--drafter", f"eagle3:weights={tmp_path / 'head'},widths=[2,2]", *words)
    assert done.status == 0 and "12 tokens in 4 steps" in done.err  # two draft tokens and the target's own a step
