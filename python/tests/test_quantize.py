"""quantize: every matrix in another type, else unchanged; directories as GGUF files that llama.cpp opens. Mistakes of prune and inflate, too."""

import json
import math
import os
import re
import resource
import shlex
import shutil
import struct
import subprocess

import gguf
import numpy as np
import pytest
from checkpoints import TYPES, edit_json, edit_tensors, fp8_of, logprobs, metadata, small, tensors
from conftest import ROOT, engine, inside, refused

TARGETS = {"q8_0": 7, "q4_0": 2, "bf16": 32}  # and their numbers in general.file_type


def floats(t):
    kind = gguf.GGMLQuantizationType[t[0]]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return gguf.dequantize(np.frombuffer(t[2], np.uint8).reshape(-1, t[1][-1] // block * size), kind)


def agrees(made, source, to):
    """Every matrix equals the source's in this type if its row length allows; everything else has the same bytes."""
    a, b, kind = tensors(source), tensors(made), gguf.GGMLQuantizationType[to.upper()]
    assert list(a) == list(b)
    for name, t in a.items():
        if len(t[1]) > 1 and t[1][-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 and t[0] != kind.name:
            assert b[name] == (kind.name, t[1], gguf.quantize(floats(t) + np.float32(0), kind).tobytes()), name
        else:
            assert b[name] == t


@pytest.mark.parametrize("source", TYPES)
def test_a_gguf_file_of_any_type_is_converted(tmp_path, in_process, source):
    i = TYPES.index(source)
    model = small(tmp_path / "from.gguf", "blocks=1", f"type={source}", f"tied={i % 2}", f"bias={int(i % 3 == 0)}")
    to = list(TARGETS)[i % 3]
    status, out, err = in_process("quantize", model, "--type", to, "--out", tmp_path / "to.gguf")
    assert status == 0 and err == "" and f" matrices are {to} now" in out
    assert ("2 are unchanged" in out and "blk.0.ffn_down.weight, blk.1.ffn_down.weight\n" in out) == (to != "bf16")
    agrees(tmp_path / "to.gguf", model, to)
    before, after = metadata(model), metadata(tmp_path / "to.gguf")
    assert after.pop("speclab.quantised_from") == f"from.gguf ({source})"
    assert after.pop("general.file_type") == TARGETS[to]
    after.pop("general.quantization_version", None)
    assert after == {key: before[key] for key in before if key not in ("general.quantization_version", "general.file_type")}
    engine("inspect", "--no-probe", "--json", tmp_path / "to.gguf")


def test_a_model_quantized_twice_names_both_sources(in_process, tmp_path):
    files = [small(tmp_path / "one.gguf"), *(tmp_path / f"{name}.gguf" for name in ("two", "three", "four"))]
    said = [in_process("quantize", a, "--type", to, "--out", b) for a, b, to in zip(files, files[1:], ("q4_0", "q8_0", "q8_0"), strict=False)]
    assert [got.status for got in said] == [0, 0, 0] and "23 were before" in said[2].out
    assert json.loads(engine("inspect", "--no-probe", "--json", files[2]))["quantized_from"] == "two.gguf (q4_0), made from one.gguf (f32)"


@pytest.mark.parametrize("keys", [["type=f32"], ["type=f16", "shards=2", "new_spelling=1"], ["type=bf16", "shards=3", "bias=1"]])
def test_a_directory_is_converted_to_bf16(in_process, tmp_path, keys):
    model = small(tmp_path / "hf", "blocks=1", *keys)
    assert in_process("quantize", model, "--type", "bf16", "--out", f"{tmp_path}/made/")[0] == 0
    agrees(tmp_path / "made", model, "bf16")
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert config["dtype" if "new_spelling=1" in keys else "torch_dtype"] == "bfloat16" and ("dtype" in config) != ("torch_dtype" in config)
    assert {p.name for p in model.glob("tok*")} <= {p.name for p in (tmp_path / "made").iterdir()}


@pytest.mark.parametrize("keys", [[], ["tied=1", "bias=1", "shards=3"], ["rope=llama3", "factor=8", "low=1", "high=4", "original=64", "head_dim=24"],
                                  ["rope=linear", "factor=4", "kv_heads=4"], ["kv_heads=1", "new_spelling=1", "theta=500000"]])  # fmt: skip
def test_a_directory_is_converted_as_by_llama_cpp(tmp_path, in_process, keys):
    """The tests' writer makes both formats as llama.cpp's converter would."""
    hf, of = small(tmp_path / "hf", "blocks=1", *keys), small(tmp_path / "of.gguf", "blocks=1", *keys)
    for to in TARGETS:
        made = [tmp_path / f"{to}-{name}.gguf" for name in "ab"]
        for source, out in zip((hf, of), made, strict=True):
            assert in_process("quantize", source, "--type", to, "--out", out)[0] == 0
        assert tensors(made[0]) == tensors(made[1])
    a, b = (json.loads(engine("inspect", "--no-probe", "--json", path)) | {"model": None, "quantized_from": None} for path in made)
    assert a == b
    text = json.dumps({"text": "<|im_start|>the inning and Ünïcode 123<|im_end|> \n\n\t x"})
    assert len({engine("inspect", "--tokenize", path, stdin=text) for path in (*made, hf)}) == 1


def test_a_tokenizer_gives_the_same_ids_from_the_gguf_file(in_process, tmp_path):
    """llama-bpe: pieces that are tokens skip merging, special tokens are outside the model's vocabulary; five rows have no token."""
    tokenizer = (ROOT / "tests/cases/tokenizer_l3/tokenizer.json").read_bytes()
    j = json.loads(tokenizer)
    n = max([*j["model"]["vocab"].values(), *(t["id"] for t in j["added_tokens"])]) + 6
    model = small(tmp_path / "l3", "tokenizer=0", f"vocab={n}", "width=32", "hidden=32", "layers=1", "heads=2", "kv_heads=1")
    (model / "tokenizer.json").write_bytes(tokenizer)
    assert in_process("quantize", model, "--type", "q8_0", "--out", tmp_path / "l3.gguf")[0] == 0
    lines = [json.dumps({"text": json.loads(line)["text"]}) for line in (ROOT / "tests/cases/tokenizer_l3.jsonl").read_text().splitlines()]
    a, b = (engine("inspect", "--tokenize", tmp_path / m, stdin="\n".join(lines) + "\n") for m in ("l3", "l3.gguf"))
    assert a == b and len(lines) > 200
    keys = metadata(tmp_path / "l3.gguf")
    assert len(keys["tokenizer.ggml.tokens"]) == n and keys["tokenizer.ggml.token_type"][-6:].count(5) == 5 and keys["speclab.token_count"] == n - 5
    assert in_process("quantize", small(tmp_path / "ids", "tokenizer=0"), "--type", "bf16", "--out", tmp_path / "ids.gguf")[0] == 0
    assert metadata(tmp_path / "ids.gguf")["tokenizer.ggml.model"] == "none"


REFUSED = re.findall(r"[\w-]+", """qwen2-window qwen2-types mistral-window mistral-one gemma2 gemma3-pattern gemma3-types smollm3 smollm3-window
    phi3-window qwen3-yarn mixtral-one qwen3moe-mixed ministral ministral-window ministral3 ministral3-tied mistral3-ministral3 gemma3-untied
    qwen3-bias qwen3moe-window mistral-types qwen3moe-fused""")
REASONS = ("would differ in its windows", "would differ in its experts", "cannot store it", "which it does not read of")


def test_every_family_has_the_bits_of_its_directory_or_is_refused(tmp_path, golden, in_process):
    made = {}
    for name, m in golden.items():
        if "fp8" in m:
            continue
        out = tmp_path / f"{len(made)}.gguf"  # llama.cpp expects the tokens of Phi-3 where a name has "phi3"
        status, _, err = in_process("quantize", m["plain"], "--type", "bf16", "--out", out)
        assert (status != 0) == (name in REFUSED), (name, err)
        assert status == 0 or (any(r in err for r in REASONS) and m["plain"] in err and not out.exists())
        if status == 0:
            ids = json.dumps({"ids": m["tokens"]}) + "\n"
            assert logprobs(out, ids) == logprobs(m["plain"], ids), name
            made[name] = out
    assert len(made) >= 18
    for name, architecture, experts, used, hidden in (("mixtral", "llama", 5, 2, None), ("qwen3moe", "qwen3moe", 9, 4, 24)):
        keys, found = metadata(made[name]), tensors(made[name])
        assert [keys.get(f"{architecture}.expert_{k}") for k in ("count", "used_count", "feed_forward_length")] == [experts, used, hidden]
        assert all(found[f"blk.2.ffn_{part}_exps.weight"][1][0] == experts for part in ("gate", "up", "down"))


@pytest.mark.slow
def test_llama_cpp_opens_what_is_written(tmp_path, golden, in_process):
    """With and without a tokenizer that has fewer tokens than the model has rows. Skipped where no Python has llama-cpp-python."""
    lines = []
    for number, m in enumerate(m for name, m in golden.items() if not name.endswith(" fp8")):
        for form in ("plain", "chat"):
            out = tmp_path / f"{number}-{form}.gguf"
            if in_process("quantize", m[form], "--type", "bf16", "--out", out)[0] == 0:
                compared = form == "plain" and m["name"] != "gemma2-plain"
                expected = {k: m[k] if compared else None for k in ("tokens", "rows", "logits")}
                lines.append({"name": f"{m['name']}, {form}", "file": str(out), **expected})
    (tmp_path / "files.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    python = os.environ.get("LLAMA_PYTHON", "/opt/oracles/bin/python")
    if not os.access(python, os.X_OK):
        pytest.skip(f"no {python}")
    done = subprocess.run([python, "-B", ROOT / "tests/models/open_exports.py", tmp_path / "files.jsonl"], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout


LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}
LONG = {"rope_type": "longrope", "short_factor": [1] * 4, "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 64}


@pytest.mark.parametrize("name, keys, says", [
    ("qwen3-bias", {}, "attention_bias: expected .* which it does not read of qwen3"),
    ("qwen2-gqa", {"rope_scaling": LLAMA3}, "rope_type: expected .* which it does not read of qwen2"),
    ("qwen2-gqa", {"rope_scaling": LONG}, "rope_type: expected .* which it does not read of qwen2"),
    ("olmo2", {"tie_word_embeddings": True}, "tie_word_embeddings: expected .* which it does not read of olmo2"),
    ("granite", {"rope_scaling": LLAMA3}, None),
])  # fmt: skip
def test_what_llama_cpp_does_not_read_is_refused_by_its_key(tmp_path, golden, in_process, name, keys, says):
    model = shutil.copytree(golden[name]["plain"], tmp_path / "model")
    edit_json(model / "config.json", **keys)
    if "tie_word_embeddings" in keys:
        edit_tensors(model, lambda found: {n: t for n, t in found.items() if n != "lm_head.weight"})
    status, _, err = in_process("quantize", model, "--type", "bf16", "--out", tmp_path / "to.gguf")
    assert (status, err) == (0, "") if says is None else status == 1 and re.search(f"{model}/config.json: {says}", err), err


def test_fp8_equals_the_same_numbers_in_f32(tmp_path, golden, in_process):
    for m in fp8_of(golden):
        for kind, end in ("q8_0", ".gguf"), ("bf16", ""):
            made = [tmp_path / f"{m['name']}-{key}{end}" for key in ("fp8", "plain")]
            for key, to in zip(("fp8", "plain"), made, strict=True):
                assert in_process("quantize", m[key], "--type", kind, "--out", to)[0] == 0
            assert tensors(made[0]) == tensors(made[1])
        assert "quantization_config" not in json.loads((made[0] / "config.json").read_text())


@pytest.mark.parametrize("file, old, new, says", [
    ("tokenizer.json", '"normalizer":null', '"normalizer":{"type":"NFC"}', "normalizes"),
    ("tokenizer.json", '"individual_digits":true', '"individual_digits":false', "pre_tokenizer"),
    ("tokenizer.json", '"lstrip":false', '"lstrip":true', "lstrip"),
    ("tokenizer.json", '"ByteLevel"', '"Metaspace"', "byte-level"),
    ("tokenizer.json", '{"id":0', '{"id":999,"content":"<x>","special":true},{"id":0', "rows for them"),
    ("config.json", '"eos_token_id":2', '"eos_token_id":[2, 9, 10, 11, 12]', "end a text"),
    ("config.json", '"num_hidden_layers":2', '"num_hidden_layers":1', "but the file has tensors of 2 layers"),
    ("config.json", '"intermediate_size":80', '"intermediate_size":81', "expected 81 rows of 256"),
])  # fmt: skip
def test_impossible_conversions_are_one_sentence(in_process, tmp_path, file, old, new, says):
    model = small(tmp_path / "hf", "blocks=1")
    text = (model / file).read_text()
    assert old in text
    (model / file).write_text(text.replace(old, new, 1))
    refused(in_process("quantize", model, "--type", "q8_0", "--out", tmp_path / "none.gguf"), says)
    assert list(tmp_path.iterdir()) == [model]


def test_a_number_that_is_not_finite_is_named(in_process, tmp_path):
    model, name = small(tmp_path / "hf", "blocks=1"), "model.layers.1.self_attn.v_proj.weight"
    edit_tensors(model, lambda found: found | {name: (*found[name][:2], found[name][2][:-12] + struct.pack("<f", math.nan) + found[name][2][-8:])})
    for kind, out, own in (("q8_0", "none.gguf", "blk.1.attn_v.weight"), ("bf16", "none", name)):
        refused(in_process("quantize", model, "--type", kind, "--out", tmp_path / out), f"tensor {own}: row 31 holds a number that is not finite")
    assert list(tmp_path.iterdir()) == [model]


@pytest.fixture(scope="module")
def models(golden, tmp_path_factory):
    """A folder with models by the names that the mistakes below use."""
    folder, usual = tmp_path_factory.mktemp("models"), ["width=64", "hidden=96", "layers=2", "heads=4", "kv_heads=2", "head_dim=32"]
    small(folder / "m.gguf")
    small(folder / "q4.gguf", *usual, "type=q4_0")
    small(folder / "odd.gguf", *usual, "type=q4_0", "head_dim=16", "heads=6")
    small(folder / "hf")
    edit_json(small(folder / "cut", *usual) / "config.json", num_hidden_layers=1)
    (folder / "other.gguf").write_text("")
    strange = (folder / "m.gguf").read_bytes().replace(b"speclab.", b"speclab\xf6").replace(b"general.name", b"general.nam\xf6")
    (folder / "strange.gguf").write_bytes(strange)  # the engine reads it
    for name, of in ("fp8", fp8_of(golden)[0]["fp8"]), ("gemma2", golden["gemma2"]["plain"]), ("images", golden["gemma3-images"]["plain"]):
        (folder / name).symlink_to(of)
    return folder


@pytest.mark.parametrize("words, status, says", [
    ("quantize m.gguf --type q8_0 --out ''", 2, "--out PATH is needed"),
    ("quantize m.gguf --type q4_1 --out x.gguf", 2, 'expected one of q8_0|q4_0|bf16, found "q4_1"'),
    ("quantize m.gguf --type q8_0 --out x", 2, "expected an output name that ends with .gguf"),
    ("quantize hf --type q8_0 --out x", 2, "safetensors cannot store q8_0"),
    ("quantize m.gguf --type q8_0 --out m.gguf", 1, "onto itself"), ("quantize m.gguf --type q8_0 --out other.gguf", 1, "not overwritten"),
    ("quantize m.gguf --type q8_0 --out /no/such/folder/x.gguf", 1, "/no/such/folder/x.gguf"),
    ("quantize images --type bf16 --out x", 2, "would lack what the model has for images"),
    ("quantize strange.gguf --type bf16 --out x.gguf", 1, "strange.gguf: expected a GGUF file that Python's gguf reads"),
    ("prune strange.gguf --keep 0 --out x.gguf", 1, "strange.gguf: expected a GGUF file that Python's gguf reads"),
    ("prune images --keep 0 --out x", 1, "would lack what the model has for images"),
    ("prune m.gguf --keep two --out x.gguf", 2, 'layers "two": expected ascending numbers and ranges of layers 0 to 2'),
    *((f"prune m.gguf --keep {keep} --out x.gguf", 2, f'layers "{keep}": expected ascending') for keep in ("0-7", "0,2-1")),
    ("inflate q4.gguf --width 63 --out x.gguf", 2, "width 63: the model has 64"),
    ("inflate q4.gguf --heads 5 --out x.gguf", 2, "heads 5: expected a multiple of the 2"),
    ("inflate q4.gguf --heads 6 --kv-heads 6 --out x.gguf", 2, "groups are of 1, and the model's are of 2"),
    ("inflate q4.gguf --out x.gguf", 2, "nothing would become larger"), ("inflate q4.gguf --layers 3 --out q4.gguf", 1, "onto itself"),
    ("inflate q4.gguf --width 100 --out x.gguf", 1, "its rows would have 100 numbers, which is not a multiple of the block size 32 of q4_0 (128 is)"),
    ("inflate q4.gguf --width 4194304 --hidden 4194304 --layers 1000 --out x.gguf", 1, "not enough disk space"),
    ("inflate q4.gguf --target x --width 99 --out x.gguf", 2, "--target: the sizes are those of x"),
    ("inflate q4.gguf --layers 3 --out x", 2, "expected an output name that ends with .gguf"),
    ("inflate odd.gguf --heads 8 --out x.gguf", 1, "a group of 3 heads of 16 is not a multiple"),
    ("inflate hf --layers 9 --out x.gguf", 2, "expected a directory as output"),
    ("inflate fp8 --layers 4 --out x", 2, "a model of FP8 cannot be inflated"),
    ("inflate gemma2 --layers 9 --out x", 2, "models of architecture gemma2 cannot be inflated"),
    ("inflate cut --width 96 --out x", 1, "num_hidden_layers is 1, but the file has tensors of 2 layers"),
])  # fmt: skip
def test_mistakes_are_one_sentence(models, words, status, says):
    before = sorted(models.iterdir())
    refused(inside(*shlex.split(words), cwd=models), says, status)
    assert sorted(models.iterdir()) == before


@pytest.mark.parametrize("model, words", [("m.gguf", ["quantize", "--type", "bf16"]), ("hf", ["prune", "--keep", "0"])])
def test_a_full_disk_leaves_nothing_behind(tmp_path, within, model, words):
    """A limit on the size of files stands for a disk that fills up halfway."""
    small(tmp_path / model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60000, limits[1]))
    try:
        got = within(words[0], model, *words[1:], "--out", "x.gguf" if model == "m.gguf" else "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(got, "File too large")
    assert list(tmp_path.iterdir()) == [tmp_path / model]
