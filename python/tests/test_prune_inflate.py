"""prune and inflate: the kept layers bit for bit; larger models and heads that compute what the smaller ones do."""

import json
import subprocess

import numpy as np
import pytest
from checkpoints import TEXT, TYPES, edit_json, edit_tensors, logprobs, metadata, numbers, small, tensors
from conftest import BUILD, engine

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
    keep, before = [0, 1, 4, 11], "blk." if name.endswith("f") else "model.layers."
    a, b = tensors(model), tensors(to)
    layered = {n for n in a if n.startswith(before)}
    assert {n: t for n, t in b.items() if not n.startswith(before)} == {n: t for n, t in a.items() if n not in layered}
    for new, old in enumerate(keep):
        of = {n.removeprefix(f"{before}{old}."): t for n, t in a.items() if n.startswith(f"{before}{old}.")}
        assert {n.removeprefix(f"{before}{new}."): t for n, t in b.items() if n.startswith(f"{before}{new}.")} == of
    assert facts(to)["layers"] == 4 and not any(n.startswith(f"{before}4.") for n in b)


def test_a_pruned_gguf_file_keeps_its_metadata(tmp_path, in_process):
    """Lists with a number for each layer are pruned too, and the alignment stays."""
    import gguf

    from speclab.checkpoint import Source, changed, stored_in_gguf, write_gguf

    model = small(tmp_path / "large.gguf", *LARGE)
    found, values, fields = stored_in_gguf(str(model))
    key = "llama.attention.head_count_kv"
    for heads, fits in ([2] * 11 + [1], False), ([2] * 12, True):
        with open(tmp_path / "listed.gguf", "wb") as f:
            new = {key: heads, "general.alignment": 64}
            write_gguf(f, changed(Source({}, found, [], values, fields, []), new), found)
        status, _, err = in_process("prune", tmp_path / "listed.gguf", "--keep", "0-1,7,11", "--out", tmp_path / "to.gguf")
        assert (status == 0) == fits and (fits or "layers that differ" in err)
    in_process("prune", model, "--keep", "0-1,7,11", "--out", tmp_path / "plain.gguf")
    before, after = metadata(tmp_path / "listed.gguf"), metadata(tmp_path / "to.gguf")
    assert {k for k in before if before[k] != after[k]} == {"llama.block_count", "general.name", "llama.attention.head_count_kv"}
    assert after["general.name"] == "tiny (layers 0-1,7,11)" and after["llama.attention.head_count_kv"] == [2] * 4
    assert gguf.GGUFReader(tmp_path / "to.gguf").alignment == 64 and tensors(tmp_path / "to.gguf") == tensors(tmp_path / "plain.gguf")


@pytest.mark.parametrize("name", ["m.gguf", "m"])
def test_a_pruned_model_works_as_a_draft_model(tmp_path, in_process, name):
    model = small(tmp_path / name)
    assert in_process("prune", model, "--keep", "0,2", "--out", tmp_path / f"draft-{name}")[0] == 0
    words = ("generate", model, "--ids", "[5, 6]", "--tokens", "20", "--json")
    a, b = (json.loads(engine(*words, *more)) for more in ((), ("--drafter", f"small:model={tmp_path}/draft-{name}")))
    assert a["new_ids"] == b["new_ids"]


def test_which_layers_have_experts_is_kept(tmp_path, golden, in_process):
    """Layers 0, 1 and 2 have none, by decoder_sparse_step and by mlp_only_layers."""
    for i, keep in enumerate(((0, 3), (1, 3), (0, 2))):
        to = tmp_path / f"{i}"
        assert in_process("prune", golden["qwen3moe-mixed"]["plain"], "--keep", f"{keep[0]},{keep[1]}", "--out", to)[0] == 0
        config = json.loads((to / "config.json").read_text())
        assert config["mlp_only_layers"] == [n for n, layer in enumerate(keep) if layer != 3] and facts(to)["problem"] is None
    for name, m in golden.items():
        if name.endswith(" fp8"):
            for key in ("fp8", "plain"):
                assert in_process("prune", m[key], "--keep", "0,2", "--out", tmp_path / f"{name}-{key}")[0] == 0
            a, b = (logprobs(tmp_path / f"{name}-{key}", TEXT, "--activations", "f32") for key in ("fp8", "plain"))
            assert a == b


def test_heads_beside_a_model_are_left_out(tmp_path, in_process):
    """Medusa-2: what is made of the model has the bytes of what is made of the model alone."""
    both = small(tmp_path / "both")
    small(tmp_path / "alone")
    edit_tensors(both, lambda found: found | {"medusa_head.0.0.linear.weight": ["F32", [64, 64], bytes(4 * 64 * 64)]})
    for i, words in enumerate((["prune", "--keep", "0,2"], ["inflate", "--layers", "4"], ["quantize", "--type", "bf16"])):
        for name in ("both", "alone"):
            status, out, _ = in_process(words[0], tmp_path / name, *words[1:], "--out", tmp_path / f"{name}-{i}")
            assert status == 0 and ("left out: 1 tensors that the model does not use: medusa_head.0.0.linear.weight" in out) == (name == "both")
        assert tensors(tmp_path / f"both-{i}") == tensors(tmp_path / f"alone-{i}")


# ---- inflate

USUAL = ["width=64", "hidden=96", "layers=2", "heads=4", "kv_heads=2", "head_dim=32"]
ALL = ["--width", "160", "--hidden", "224", "--heads", "12", "--kv-heads", "3", "--layers", "5"]


def same_function(in_process, tmp_path, name, keys, sizes, tolerance=1e-5):
    model, to = small(tmp_path / name, *keys), tmp_path / f"large-{name}"
    status, out, err = in_process("inflate", model, *sizes, "--out", to)
    assert status == 0, err
    assert "marked as inflated" in out
    a, b = numbers(logprobs(model)), numbers(logprobs(to))
    assert abs(a - b).max() <= tolerance * abs(a).max()
    made = facts(to)
    for option, n in zip(sizes[::2], sizes[1::2], strict=True):
        assert made[option[2:].replace("-", "_")] == int(n)
    assert made["inflated_from"].startswith(f"{name} (width ")
    return model, to


@pytest.mark.parametrize("name", ["m.gguf", "m"])
@pytest.mark.parametrize("sizes", [["--width", "96"], ["--hidden", "128"], ["--heads", "8", "--kv-heads", "4"], ["--layers", "7"], ALL])
def test_enlarging_preserves_the_function(tmp_path, in_process, name, sizes):
    same_function(in_process, tmp_path, name, [*USUAL, "bias=1"], sizes)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_preserves_the_function(tmp_path, in_process, kind):
    keys, sizes = [*USUAL, f"type={kind}", f"tied={TYPES.index(kind) % 2}"], ALL
    if kind in ("q4_k", "q5_k", "q6_k", "iq4_xs"):  # a group of heads is one block, before and after
        keys += ["width=256", "hidden=256", "heads=8", "kv_heads=1"]
        sizes = ["--width", "512", "--hidden", "768", "--heads", "16", "--kv-heads", "2", "--layers", "3"]
    same_function(in_process, tmp_path, "m.gguf", keys, sizes)
    if kind in ("f16", "bf16"):
        same_function(in_process, tmp_path, "m", [*keys, "shards=2", "new_spelling=1"], sizes)


@pytest.mark.parametrize("keys, sizes", [
    (["kv_heads=4"], ["--width", "100", "--hidden", "101", "--heads", "10", "--kv-heads", "5", "--layers", "3"]),
    (["kv_heads=1", "rope=llama3", "factor=8", "low=1", "high=4", "original=64"], ["--width", "65", "--heads", "15", "--kv-heads", "3"]),
    (["head_dim=6"], ["--width", "81", "--hidden", "97", "--heads", "9", "--kv-heads", "3", "--layers", "3"]),
])  # fmt: skip
def test_every_kind_of_attention_preserves_the_function(tmp_path, in_process, keys, sizes):
    for name in ("m.gguf", "m"):
        same_function(in_process, tmp_path, name, [*USUAL, *keys], sizes)


@pytest.mark.parametrize("kind", ["bf16", "q4_1"])
def test_four_times_the_width_preserves_every_bit(tmp_path, in_process, kind):
    """Halved gains and a quarter of eps are exact, also with int8 activations."""
    model, to = same_function(in_process, tmp_path, "m.gguf", [*USUAL, f"type={kind}"], ["--width", "256", *ALL[2:]])
    assert logprobs(model) == logprobs(to)


def test_a_model_inflated_twice_names_the_original_and_its_files_stay_marked(tmp_path, in_process):
    small_one, large = same_function(in_process, tmp_path, "m.gguf", USUAL, ALL)
    for words in (["inflate", large, "--width", "200", "--heads", "15", "--layers", "6", "--out", tmp_path / "twice.gguf"],
                  ["quantize", tmp_path / "twice.gguf", "--type", "bf16", "--out", tmp_path / "bf16.gguf"]):  # fmt: skip
        assert in_process(*words)[0] == 0
    for name in ("twice.gguf", "bf16.gguf"):
        assert facts(tmp_path / name)["inflated_from"] == "m.gguf (width 64, hidden 96, 4 heads on 2, 2 layers)"
    assert metadata(tmp_path / "twice.gguf")["general.name"] == "tiny (inflated)"
    hf, wide = same_function(in_process, tmp_path, "m", USUAL, ALL)
    assert in_process("quantize", wide, "--type", "bf16", "--out", tmp_path / "hf.gguf")[0] == 0
    assert facts(tmp_path / "hf.gguf")["inflated_from"].startswith("m (width 64")


def test_added_layers_are_copies_that_write_nothing(tmp_path, in_process):
    """Added layers cost as much as real ones: their weights are other than zero except where zeros are required."""
    _, large = same_function(in_process, tmp_path, "m", [*USUAL, "bias=1"], ALL)
    t = tensors(large)
    for layer in (2, 3, 4):
        for part in ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.gate_proj.weight", "input_layernorm.weight", "self_attn.q_proj.bias"):
            assert t[f"model.layers.{layer}.{part}"] == t[f"model.layers.{layer % 2}.{part}"] and any(t[f"model.layers.{layer}.{part}"][2])
        for part in ("self_attn.o_proj.weight", "self_attn.o_proj.bias", "mlp.down_proj.weight"):
            assert not any(t[f"model.layers.{layer}.{part}"][2])
    k = np.frombuffer(t["model.layers.0.self_attn.k_proj.weight"][2], np.float32).reshape(96, 160)
    assert (k[64:] == k[:32]).all()


WRONG = [(["--width", "63"], 2, "width 63: the model has 64"), (["--hidden", "1"], 2, "hidden 1: the model has 96"),
         (["--heads", "5"], 2, "heads 5: expected a multiple of the 2"),
         (["--heads", "6", "--kv-heads", "6"], 2, "groups are of 1, and the model's are of 2"), ([], 2, "nothing would become larger"),
         (["--width", "100"], 1, "its rows would have 100 numbers, which is not a multiple of the block size 32 of q4_0 (128 is)"),
         (["--hidden", "100"], 1, "blk.0.ffn_down.weight: its rows would have 100 numbers"),
         (["--width", "4194304", "--hidden", "4194304", "--layers", "1000"], 1, "not enough disk space"),
         (["--target", "x", "--width", "99"], 2, "--target: the sizes are those of x")]  # fmt: skip


def test_impossible_sizes_are_refused(tmp_path, golden, in_process):
    model, to = small(tmp_path / "q4.gguf", *USUAL, "type=q4_0"), tmp_path / "none.gguf"
    odd = small(tmp_path / "odd.gguf", *USUAL, "type=q4_0", "head_dim=16", "heads=6")
    hf = small(tmp_path / "hf", *USUAL)
    fp8 = next(m["fp8"] for name, m in golden.items() if name.endswith(" fp8"))
    more = [(odd, ["--heads", "8"], to, 1, "a group of 3 heads of 16 is not a multiple"),
            (hf, ["--layers", "3"], to, 2, "expected a directory as output"),
            (model, ["--layers", "3"], tmp_path / "none", 2, "expected an output name that ends with .gguf"),
            (model, ["--layers", "3"], model, 1, "onto itself"),
            (fp8, ["--layers", "4"], tmp_path / "none", 2, "a model of FP8 cannot be inflated"),
            (golden["gemma2"]["plain"], ["--layers", "9"], tmp_path / "none", 2, "models of architecture gemma2 cannot be inflated")]  # fmt: skip
    for of, sizes, out, status, says in [(model, sizes, to, status, says) for sizes, status, says in WRONG] + more:
        found, _, err = in_process("inflate", of, *sizes, "--out", out)
        assert found == status and says in err, (sizes, err)
    edit_json(hf / "config.json", num_hidden_layers=1)
    assert "num_hidden_layers is 1, but the file has tensors of 2 layers" in in_process("inflate", hf, "--width", "96", "--out", tmp_path / "x")[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "odd.gguf", "q4.gguf"]


# ---- heads


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """A model, four times as wide, and the three kinds of heads for the small one."""
    folder = tmp_path_factory.mktemp("heads")
    small(folder / "t.gguf")
    subprocess.run([BUILD / "write_small_heads", folder / "t.gguf", *(folder / k for k in ("medusa", "eagle", "eagle3"))], check=True)
    return folder


def drafts(folder, model, drafter):
    """What a drafter proposed and how probable it was, step by step."""
    said = json.loads(engine("generate", model, "the inning and then", "--json", "--trace", "--tokens", "24", "--chat", "none", "--threads", "1",
                             "--drafter", drafter, "--temperature", "1", "--seed", "3", cwd=folder))  # fmt: skip
    return [{k: v for k, v in step.items() if not k.endswith("_ns")} for step in said["steps"]]


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_an_inflated_head_drafts_with_the_same_bits(heads, in_process, monkeypatch, kind):
    monkeypatch.chdir(heads)
    if not (heads / "wide.gguf").exists():
        assert in_process("inflate", "t.gguf", "--width", "256", "--hidden", "224", "--heads", "12", "--kv-heads", "3", "--layers", "7",
                          "--out", "wide.gguf")[0] == 0  # fmt: skip
    assert in_process("inflate", kind, "--target", "wide.gguf", "--out", f"{kind}-wide")[0] == 0
    assert drafts(heads, "t.gguf", f"{kind}:weights={kind}") == drafts(heads, "wide.gguf", f"{kind}:weights={kind}-wide")


def test_heads_that_do_not_fit_are_refused(heads, tmp_path, in_process):
    wide = tmp_path / "wide.gguf"
    assert in_process("inflate", heads / "t.gguf", "--width", "256", "--heads", "12", "--kv-heads", "3", "--out", wide)[0] == 0
    small(tmp_path / "as-wide.gguf", "inflated=x")
    small(tmp_path / "other.gguf", "inflated=x", "width=128", "head_dim=32")
    small(tmp_path / "thin.gguf", "inflated=x", "width=128", "hidden=8")

    def refused(says, target=wide, head="eagle3", out=tmp_path / "to", **keys):
        subprocess.run(["rm", "-rf", tmp_path / "head"], check=True)
        if (heads / head).is_dir():
            subprocess.run(["cp", "-r", heads / head, tmp_path / "head"], check=True)
            edit_json(tmp_path / "head/config.json", **keys)
        status, _, err = in_process("inflate", tmp_path / "head" if (heads / head).is_dir() else head, "--target", target, "--out", out)
        assert status == 1 and says in err and not (tmp_path / "to").exists(), err

    refused("there is no eagle_aux_hidden_state_layer_ids", eagle_config={})
    refused("not an inflated model", target=heads / "t.gguf")
    refused("narrower than the target's 64", target=tmp_path / "as-wide.gguf")
    for target in ("other.gguf", "thin.gguf"):
        refused("expected sizes that can become the target's, width 128", target=tmp_path / target)
    refused("found width 64, hidden 96 and 2 heads of 16 numbers on 3", num_attention_heads=2, num_key_value_heads=3, head_dim=16)
    refused("which do not fit the sizes in", num_attention_heads=6, num_key_value_heads=2, head_dim=16)
    refused("hidden_size: expected a positive integer", hidden_size="x")
    refused("what becomes of it does not fit the target: ", eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 1]})
    refused("/no/such/folder/head", out="/no/such/folder/head")
    refused("/dev/null: expected a file", head="/dev/null")
    (heads / "medusa" / "config.json").rename(heads / "medusa" / "kept")
    refused("config.json: No such file", head=str(heads / "medusa/model.safetensors"))
    (heads / "medusa" / "kept").rename(heads / "medusa" / "config.json")


def test_what_was_made_is_said(in_process, tmp_path):
    model, to = small(tmp_path / "target.gguf"), tmp_path / "marked.gguf"
    status, out, _ = in_process("inflate", model, "--width", "128", "--layers", "4", "--out", to)
    assert status == 0 and "width 128 (64), hidden 128 (128), 4 heads on 2 (4 on 2), 4 layers (3)" in out
    assert "with width 256 they would be equal to the last bit" in out
    assert "marked as inflated" in engine("inspect", "--no-probe", to)
