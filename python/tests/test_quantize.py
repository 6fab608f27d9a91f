"""quantize: every matrix in another type, everything else unchanged; directories as GGUF files that llama.cpp opens, or a sentence."""

import json
import math
import os
import re
import resource
import subprocess
import sys

import gguf
import numpy as np
import pytest
from checkpoints import TYPES, edit_json, edit_tensors, logprobs, metadata, numbers, small, tensors
from conftest import ROOT, engine

TARGETS = ["q8_0", "q4_0", "bf16"]
EXPECTED = {"general.file_type": {"q8_0": 7, "q4_0": 2, "bf16": 32}}


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
    to = TARGETS[i % 3]
    status, out, err = in_process("quantize", model, "--type", to, "--out", tmp_path / "to.gguf")
    assert status == 0 and err == "" and f" matrices are {to} now" in out
    assert ("2 are unchanged" in out and "blk.0.ffn_down.weight, blk.1.ffn_down.weight\n" in out) == (to != "bf16")
    agrees(tmp_path / "to.gguf", model, to)
    before, after = metadata(model), metadata(tmp_path / "to.gguf")
    assert after.pop("speclab.quantised_from") == f"from.gguf ({source})"
    assert after.pop("general.file_type") == EXPECTED["general.file_type"][to]
    after.pop("general.quantization_version", None)
    before.pop("general.quantization_version", None), before.pop("general.file_type", None)
    assert after == before
    engine("inspect", "--no-probe", tmp_path / "to.gguf")


def test_a_model_quantized_twice_names_both_sources_and_logits_stay_close(in_process, tmp_path):
    files = [small(tmp_path / "one.gguf"), *(tmp_path / f"{name}.gguf" for name in ("two", "three", "four"))]
    said = [in_process("quantize", a, "--type", to, "--out", b) for a, b, to in zip(files, files[1:], ("q4_0", "q8_0", "q8_0"), strict=False)]
    assert [status for status, *_ in said] == [0, 0, 0] and "23 were before" in said[2][1]
    shown = json.loads(engine("inspect", "--no-probe", "--json", files[2]))
    assert shown["quantized_from"] == "two.gguf (q4_0), made from one.gguf (f32)"
    one, two = (numbers(logprobs(file)) for file in files[:2])
    assert 0 < abs(one - two).max() < 0.3 * abs(one).max()


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
    facts = [json.loads(engine("inspect", "--no-probe", "--json", path)) for path in made]
    for f in facts:
        del f["model"], f["quantized_from"]
    assert facts[0] == facts[1]
    text = json.dumps({"text": "<|im_start|>the inning and Ünïcode 123<|im_end|> \n\n\t x"})
    assert len({engine("tokenize", path, stdin=text) for path in (*made, hf)}) == 1


def test_a_tokenizer_gives_the_same_ids_from_the_gguf_file(in_process, tmp_path):
    """llama-bpe: pieces that are tokens skip merging, special tokens are outside the model's vocabulary; five rows have no token."""
    tokenizer = (ROOT / "tests/cases/tokenizer_l3/tokenizer.json").read_bytes()
    j = json.loads(tokenizer)
    n = max([*j["model"]["vocab"].values(), *(t["id"] for t in j["added_tokens"])]) + 6
    model = small(tmp_path / "l3", "tokenizer=0", f"vocab={n}", "width=32", "hidden=32", "layers=1", "heads=2", "kv_heads=1")
    (model / "tokenizer.json").write_bytes(tokenizer)
    assert in_process("quantize", model, "--type", "q8_0", "--out", tmp_path / "l3.gguf")[0] == 0
    lines = [json.dumps({"text": json.loads(line)["text"]}) for line in (ROOT / "tests/cases/tokenizer_l3.jsonl").read_text().splitlines()]
    assert len(lines) > 200
    a, b = (engine("tokenize", tmp_path / m, stdin="\n".join(lines) + "\n") for m in ("l3", "l3.gguf"))
    assert a == b
    keys = metadata(tmp_path / "l3.gguf")
    assert len(keys["tokenizer.ggml.tokens"]) == n and keys["tokenizer.ggml.token_type"][-6:].count(5) == 5 and keys["speclab.token_count"] == n - 5


def test_a_file_without_a_tokenizer_says_so(in_process, tmp_path):
    model = small(tmp_path / "ids", "tokenizer=0")
    assert in_process("quantize", model, "--type", "bf16", "--out", tmp_path / "ids.gguf")[0] == 0
    assert metadata(tmp_path / "ids.gguf")["tokenizer.ggml.model"] == "none"


REFUSED = re.findall(r"[\w-]+", """qwen2-window qwen2-types mistral-window mistral-one gemma2 gemma3-pattern gemma3-types smollm3 smollm3-window
    phi3-window qwen3-yarn mixtral-one qwen3moe-mixed ministral ministral-window ministral3 ministral3-tied mistral3-ministral3 gemma3-untied
    qwen3-bias qwen3moe-window mistral-types qwen3moe-fused""")
REASONS = ("would differ in its windows", "would differ in its experts", "cannot store it", "which it does not read of")


def test_every_family_has_the_bits_of_its_directory_or_is_refused(tmp_path, golden, in_process):
    made = {}
    for name, m in golden.items():
        if name.endswith(" fp8"):
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


@pytest.mark.parametrize("name, keys, key, architecture", [
    ("qwen3-bias", {}, "attention_bias", "qwen3"),
    ("qwen2-gqa", {"rope_scaling": LLAMA3}, "rope_type", "qwen2"),
    ("qwen2-gqa", {"rope_scaling": LONG}, "rope_type", "qwen2"),
    ("granite", {"rope_scaling": LLAMA3}, None, None),
    ("olmo2", {"tie_word_embeddings": True}, "tie_word_embeddings", "olmo2"),
    ("gemma3-untied", {}, "tie_word_embeddings", None),
    ("phi3-long", {}, None, None),
])  # fmt: skip
def test_what_llama_cpp_does_not_read_is_refused_by_its_key(tmp_path, golden, in_process, name, keys, key, architecture):
    model = tmp_path / "model"
    subprocess.run(["cp", "-r", golden[name]["plain"], model], check=True)
    edit_json(model / "config.json", **keys)
    if keys.get("tie_word_embeddings"):
        edit_tensors(model, lambda found: {n: t for n, t in found.items() if n != "lm_head.weight"})
    status, _, err = in_process("quantize", model, "--type", "bf16", "--out", tmp_path / "to.gguf")
    if architecture is None:
        assert status == (1 if key else 0), err
        return
    assert status == 1 and f"{model}/config.json: {key}: expected " in err and f"which it does not read of {architecture}" in err


def test_fp8_equals_the_same_numbers_in_f32(tmp_path, golden, in_process):
    for name, m in golden.items():
        if not name.endswith(" fp8"):
            continue
        files, folders = ([tmp_path / f"{name}-{key}{end}" for key in ("fp8", "plain")] for end in (".gguf", ""))
        for key, file, folder in zip(("fp8", "plain"), files, folders, strict=True):
            assert in_process("quantize", m[key], "--type", "q8_0", "--out", file)[0] == 0
            assert in_process("quantize", m[key], "--type", "bf16", "--out", folder)[0] == 0
        assert tensors(files[0]) == tensors(files[1])
        assert logprobs(folders[0]) == logprobs(folders[1]) and "quantization_config" not in json.loads((folders[0] / "config.json").read_text())


def test_a_directory_would_lack_the_model_of_images(tmp_path, golden, in_process):
    for m in golden.values():
        if m.get("images"):
            for words in (("prune", m["plain"], "--keep", "0"), ("quantize", m["plain"], "--type", "bf16")):
                status, _, err = in_process(*words, "--out", tmp_path / "to")
                assert status == {"prune": 1, "quantize": 2}[words[0]] and "would lack what the model has for images" in err


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
    status, _, err = in_process("quantize", model, "--type", "q8_0", "--out", tmp_path / "none.gguf")
    assert status == 1 and says in err and err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def test_a_number_that_is_not_finite_is_named(in_process, tmp_path):
    model = small(tmp_path / "hf", "blocks=1")

    def broken(found):
        t = found["model.layers.1.self_attn.v_proj.weight"]
        x = np.frombuffer(t[2], np.float32).copy()
        x[-3] = math.nan
        return found | {"model.layers.1.self_attn.v_proj.weight": [*t[:2], x.tobytes()]}

    edit_tensors(model, broken)
    for kind, out, says in (("q8_0", "none.gguf", "tensor blk.1.attn_v.weight: row 31 holds a number that is not finite"),
                            ("bf16", "none", "tensor model.layers.1.self_attn.v_proj.weight: row 31")):  # fmt: skip
        status, _, err = in_process("quantize", model, "--type", kind, "--out", tmp_path / out)
        assert status == 1 and says in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


@pytest.mark.parametrize("words, status, says", [
    (["quantize", "m.gguf", "--type", "q8_0"], 2, "--out"),
    (["quantize", "m.gguf", "--type", "q8_0", "--out", ""], 2, "--out PATH is needed"),
    (["quantize", "m.gguf", "--type", "q4_1", "--out", "x.gguf"], 2, 'expected one of q8_0|q4_0|bf16, found "q4_1"'),
    (["quantize", "m.gguf", "--type", "q8_0", "--out", "x"], 2, "expected an output name that ends with .gguf"),
    (["quantize", "hf", "--type", "q8_0", "--out", "x"], 2, "safetensors cannot store q8_0"),
    (["quantize", "m.gguf", "--type", "q8_0", "--out", "m.gguf"], 1, "onto itself"),
    (["quantize", "m.gguf", "--type", "q8_0", "--out", "other.gguf"], 1, "not overwritten"),
    (["quantize", "m.gguf", "--type", "q8_0", "--out", "/no/such/folder/x.gguf"], 1, "/no/such/folder/x.gguf"),
    (["quantize", "no-such-model", "--type", "q8_0", "--out", "x.gguf"], 1, "no-such-model"),
    (["prune", "m.gguf", "--keep", "0-7", "--out", "x.gguf"], 2, "layers 0 to 2"),
    (["prune", "m.gguf", "--keep", "two", "--out", "x.gguf"], 2, 'layers "two": expected ascending numbers and ranges of layers 0 to 2'),
    (["prune", "m.gguf", "--keep", "1,0", "--out", "x.gguf"], 2, 'layers "1,0": expected ascending'),
    (["prune", "m.gguf", "--keep", "0,2-1", "--out", "x.gguf"], 2, 'layers "0,2-1": expected ascending'),
    (["prune", "m.gguf", "--keep", "0", "--out", "pruned.gguf/"], 0, ""),
])  # fmt: skip
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, in_process, words, status, says):
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "m.gguf")
    small(tmp_path / "hf")
    (tmp_path / "other.gguf").write_text("")
    found, _, err = in_process(*words)
    assert found == status and says in err
    assert not [p.name for p in tmp_path.iterdir() if p.name not in ("m.gguf", "hf", "other.gguf", "pruned.gguf")]


@pytest.mark.parametrize("model, words", [("m.gguf", ["quantize", "--type", "bf16"]), ("hf", ["prune", "--keep", "0"])])
def test_a_full_disk_leaves_nothing_behind(tmp_path, model, words):
    """A limit on the size of files stands for a disk that fills up halfway."""
    small(tmp_path / model)
    before = sorted(tmp_path.iterdir())
    out = "x.gguf" if model == "m.gguf" else "x"

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))

    done = subprocess.run([sys.executable, "-B", "-m", "speclab", words[0], model, *words[1:], "--out", out], cwd=tmp_path, preexec_fn=limited,
                          env=dict(os.environ, PYTHONPATH=str(ROOT / "python")), capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_name_that_is_not_utf8_is_one_sentence(tmp_path, in_process):
    """The engine reads such a file, Python's gguf does not."""
    content = small(tmp_path / "a.gguf").read_bytes().replace(b"speclab.", b"speclab\xf6")
    (tmp_path / "x.gguf").write_bytes(content.replace(b"general.name", b"general.nam\xf6"))
    for words in (["quantize", "--type", "bf16"], ["prune", "--keep", "0"]):
        status, _, err = in_process(*words, tmp_path / "x.gguf", "--out", tmp_path / "y.gguf")
        assert status == 1 and "x.gguf: expected a GGUF file that Python's gguf reads" in err and not (tmp_path / "y.gguf").exists()
