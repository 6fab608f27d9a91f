"""prune and inflate: the kept layers bit for bit; larger models and heads that compute what the smaller ones do."""

import json
import re
import shutil

import gguf
import numpy as np
import pytest
from checkpoints import TEXT, TYPES, edit_json, edit_tensors, fp8_of, logprobs, metadata, numbers, small, tensors
from conftest import engine, inside, refused

from speclab import checkpoint

LARGE = ["vocab=300", "width=32", "hidden=64", "layers=12", "heads=4", "kv_heads=2", "head_dim=16", "context=256", "theta=500000", "rope=llama3",
         "factor=8", "low=1", "high=4", "original=64", "tied=1", "new_spelling=1", "shards=3", "seed=6"]  # fmt: skip


def facts(path):
    return json.loads(engine("inspect", "--no-probe", "--json", path))


@pytest.mark.parametrize("name", ["large.gguf", "large"])
def test_a_pruned_model_has_the_layers_of_the_larger(tmp_path, in_process, name):
    """Of twelve layers, so that the order of names differs from that of numbers; in three files."""
    model, to = small(tmp_path / name, *LARGE), tmp_path / name.replace("large", "small")
    status, out, _ = in_process("prune", model, "--keep", "0-1,4,11", "--out", to)
    assert status == 0 and f"{to}: 4 of 12 layers" in out
    expected, kept = {}, {"0": "0", "1": "1", "4": "2", "11": "3"}
    for n, t in tensors(model).items():
        before, layer, rest = re.fullmatch(r"(?:(blk\.|model\.layers\.)(\d+))?(.*)", n).groups("")
        if layer in kept or not layer:
            expected[before + kept.get(layer, "") + rest] = t
    assert tensors(to) == expected and facts(to)["layers"] == 4


def test_a_pruned_gguf_file_keeps_its_metadata(tmp_path, in_process):
    """Lists with a number for each layer are pruned too, and the alignment stays."""
    model, listed, to = small(tmp_path / "large.gguf", *LARGE), tmp_path / "listed.gguf", tmp_path / "to.gguf"
    found, values, fields = checkpoint.stored_in_gguf(str(model))
    for heads, fits in ([2] * 11 + [1], False), ([2] * 12, True):
        with open(listed, "wb") as f:
            new = {"llama.attention.head_count_kv": heads, "general.alignment": 64}
            checkpoint.write_gguf(f, checkpoint.changed(checkpoint.Source({}, found, [], values, fields, []), new), found)
        status, _, err = in_process("prune", listed, "--keep", "0-1,7,11", "--out", to)
        assert (status == 0) == fits and (fits or "layers that differ" in err)
    before, after = metadata(listed), metadata(to)
    assert {k: after[k] for k in before if before[k] != after[k]} == {
        "llama.block_count": 4, "general.name": "tiny (layers 0-1,7,11)", "llama.attention.head_count_kv": [2] * 4}  # fmt: skip
    in_process("prune", model, "--keep", "0-1,7,11", "--out", tmp_path / "plain.gguf")
    assert gguf.GGUFReader(to).alignment == 64 and tensors(to) == tensors(tmp_path / "plain.gguf")


def test_which_layers_have_experts_is_kept(tmp_path, golden, in_process):
    """Layers 0, 1 and 2 have none, by decoder_sparse_step and by mlp_only_layers."""
    for i, keep in enumerate(((0, 3), (1, 3), (0, 2))):
        to = tmp_path / f"{i}"
        assert in_process("prune", golden["qwen3moe-mixed"]["plain"], "--keep", f"{keep[0]},{keep[1]}", "--out", to)[0] == 0
        config = json.loads((to / "config.json").read_text())
        assert config["mlp_only_layers"] == [n for n, layer in enumerate(keep) if layer != 3] and facts(to)["problem"] is None
    for m in fp8_of(golden):
        for key in ("fp8", "plain"):
            assert in_process("prune", m[key], "--keep", "0,2", "--out", tmp_path / f"{m['name']}-{key}")[0] == 0
        a, b = (logprobs(tmp_path / f"{m['name']}-{key}", TEXT, "--activations", "f32") for key in ("fp8", "plain"))
        assert a == b


def test_heads_beside_a_model_are_left_out(tmp_path, in_process):
    """Medusa-2: what is made of the model has the bytes of what is made of the model alone."""
    both = small(tmp_path / "both")
    small(tmp_path / "alone")
    edit_tensors(both, lambda found: found | {"medusa_head.0.0.linear.weight": ("F32", (64, 64), bytes(4 * 64 * 64))})
    for i, words in enumerate((["prune", "--keep", "0,2"], ["inflate", "--layers", "4"], ["quantize", "--type", "bf16"])):
        for name in ("both", "alone"):
            status, out, _ = in_process(words[0], tmp_path / name, *words[1:], "--out", tmp_path / f"{name}-{i}")
            assert status == 0 and ("left out: 1 tensors that the model does not use: medusa_head.0.0.linear.weight" in out) == (name == "both")
        assert tensors(tmp_path / f"both-{i}") == tensors(tmp_path / f"alone-{i}")


USUAL = ["width=64", "hidden=96", "layers=2", "heads=4", "kv_heads=2", "head_dim=32"]
BLOCKS = ["width=256", "hidden=256", "heads=8", "kv_heads=1"]  # a group of heads is one block of 256, before and after
SIZES = ("width", "hidden", "heads", "kv_heads", "layers")
ALL, HUGE = (160, 224, 12, 3, 5), (512, 768, 16, 2, 3)


def same_function(in_process, model, to, *sizes):
    """Enlarges a model, and compares what the engine computes with both. sizes: SIZES; 0: the model's own."""
    given = {key: n for key, n in zip(SIZES, sizes, strict=True) if n}
    words = [word for key, n in given.items() for word in (f"--{key.replace('_', '-')}", n)]
    status, out, err = in_process("inflate", model, *words, "--out", to)
    assert status == 0 and "marked as inflated" in out, err
    a, b = numbers(logprobs(model)), numbers(logprobs(to))
    assert abs(a - b).max() <= 1e-5 * abs(a).max()
    made = facts(to)
    assert {key: made[key] for key in given} == given and made["inflated_from"].startswith(f"{model.name} (width ")


@pytest.mark.parametrize("keys, sizes", [
    (["bias=1"], (96, 0, 0, 0, 0)), (["bias=1"], (0, 128, 0, 0, 0)), (["bias=1"], (0, 0, 8, 4, 0)), (["bias=1"], (0, 0, 0, 0, 7)), (["bias=1"], ALL),
    (["kv_heads=4"], (100, 101, 10, 5, 3)), (["head_dim=6"], (81, 97, 9, 3, 3)),
    (["kv_heads=1", "rope=llama3", "factor=8", "low=1", "high=4", "original=64"], (65, 0, 15, 3, 0)),
    *(([f"type={t}", f"tied={i % 2}", *(BLOCKS if t[-1] == "k" or t == "iq4_xs" else [])], HUGE if t[-1] == "k" or t == "iq4_xs" else ALL)
      for i, t in enumerate(TYPES)),
])  # fmt: skip
def test_enlarging_preserves_the_function(tmp_path, in_process, keys, sizes):
    """Of every type in GGUF; of those that safetensors have in directories, too."""
    same_function(in_process, small(tmp_path / "m.gguf", *USUAL, *keys), tmp_path / "to.gguf", *sizes)
    if "type=" not in keys[0] or keys[0][5:] in ("f16", "bf16"):
        same_function(in_process, small(tmp_path / "m", *USUAL, *keys, "shards=2", "new_spelling=1"), tmp_path / "to", *sizes)


@pytest.mark.parametrize("kind", ["bf16", "q4_1"])
def test_four_times_the_width_preserves_every_bit(tmp_path, in_process, kind):
    """Halved gains and a quarter of eps are exact, also with int8 activations."""
    model, to = small(tmp_path / "m.gguf", *USUAL, f"type={kind}"), tmp_path / "to.gguf"
    same_function(in_process, model, to, 256, *ALL[1:])
    assert logprobs(model) == logprobs(to)


@pytest.mark.parametrize("name, end", [("m.gguf", ".gguf"), ("m", "")])
def test_a_model_inflated_twice_names_the_original_and_its_files_stay_marked(tmp_path, in_process, name, end):
    model, large, twice = small(tmp_path / name, *USUAL), tmp_path / f"large{end}", tmp_path / f"twice{end}"
    same_function(in_process, model, large, *ALL)
    assert in_process("inflate", large, "--width", "200", "--heads", "15", "--layers", "6", "--out", twice)[0] == 0
    assert in_process("quantize", twice, "--type", "bf16", "--out", tmp_path / "bf16.gguf")[0] == 0
    for made in (twice, tmp_path / "bf16.gguf"):
        assert facts(made)["inflated_from"] == f"{name} (width 64, hidden 96, 4 heads on 2, 2 layers)"
    assert not end or metadata(twice)["general.name"] == "tiny (inflated)"


def test_added_layers_are_copies_that_write_nothing(tmp_path, in_process):
    """Added layers cost as much as real ones: their weights are other than zero except where zeros are required."""
    same_function(in_process, small(tmp_path / "m", *USUAL, "bias=1"), tmp_path / "large", *ALL)
    t = tensors(tmp_path / "large")
    for layer in (2, 3, 4):
        for part in ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.gate_proj.weight", "input_layernorm.weight", "self_attn.q_proj.bias"):
            assert t[f"model.layers.{layer}.{part}"] == t[f"model.layers.{layer % 2}.{part}"] and any(t[f"model.layers.{layer}.{part}"][2])
        for part in ("self_attn.o_proj.weight", "self_attn.o_proj.bias", "mlp.down_proj.weight"):
            assert not any(t[f"model.layers.{layer}.{part}"][2])
    k = np.frombuffer(t["model.layers.0.self_attn.k_proj.weight"][2], np.float32).reshape(96, 160)
    assert (k[64:] == k[:32]).all()


def drafts(model, drafter):
    """What a drafter proposed and how probable it was, step by step."""
    said = json.loads(engine("generate", model, "the inning and then", "--json", "--trace", "--tokens", "24", "--chat", "none", "--threads", "1",
                             "--drafter", drafter, "--temperature", "1", "--seed", "3"))  # fmt: skip
    return [{k: v for k, v in step.items() if not k.endswith("_ns")} for step in said["steps"]]


@pytest.fixture(scope="module")
def wide(tiny, tmp_path_factory):
    """`tiny`, four times as wide."""
    to = tmp_path_factory.mktemp("wide") / "wide.gguf"
    sizes = ("--width", 256, "--hidden", 224, "--heads", 12, "--kv-heads", 3, "--layers", 7)
    assert inside("inflate", tiny, *sizes, "--out", to).status == 0
    return to


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_an_inflated_head_drafts_with_the_same_bits(tiny, heads, wide, tmp_path, in_process, kind):
    assert in_process("inflate", heads / kind, "--target", wide, "--out", tmp_path / "head")[0] == 0
    assert drafts(tiny, f"{kind}:weights={heads / kind}") == drafts(wide, f"{kind}:weights={tmp_path / 'head'}")


@pytest.mark.parametrize("says, how", [
    ("there is no eagle_aux_hidden_state_layer_ids", {"eagle_config": {}}),
    ("what becomes of it does not fit the target: ", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}}),
    ("found width 64, hidden 96 and 2 heads of 16 numbers on 3", {"num_attention_heads": 2, "num_key_value_heads": 3, "head_dim": 16}),
    ("which do not fit the sizes in", {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16}),
    ("hidden_size: expected a positive integer", {"hidden_size": "x"}),
    ("not an inflated model", {"target": []}),
    ("narrower than the target's 64", {"target": ["inflated=x"]}),
    ("expected sizes that can become the target's, width 128", {"target": ["inflated=x", "width=128", "head_dim=32"]}),
    ("expected sizes that can become the target's, width 128", {"target": ["inflated=x", "width=128", "hidden=8"]}),
    ("/no/such/folder/head", {"out": "/no/such/folder/head"}),
    ("config.json: No such file", {"model": "head/model.safetensors"}),
    ("/dev/null: expected a file", {"model": "/dev/null"}),
])  # fmt: skip
def test_heads_that_do_not_fit_are_refused(heads, wide, tmp_path, in_process, says, how):
    head = shutil.copytree(heads / "eagle3", tmp_path / "head")
    target = small(tmp_path / "target.gguf", *how["target"]) if "target" in how else wide
    edit_json(head / "config.json", **{key: n for key, n in how.items() if key not in ("target", "out", "model")})
    if "model" in how:
        (head / "config.json").unlink()
    refused(in_process("inflate", tmp_path / how.get("model", "head"), "--target", target, "--out", how.get("out", tmp_path / "to")), says)
    assert not (tmp_path / "to").exists()


def test_a_head_with_two_tensors_of_one_name_is_refused(heads, wide, tmp_path, in_process):
    head = shutil.copytree(heads / "eagle3", tmp_path / "head")
    edit_tensors(head, lambda found: found | {"model.fc.weight": found["fc.weight"]})
    refused(in_process("inflate", head, "--target", wide, "--out", tmp_path / "to"), "two tensors have one name")
