"""`features`: shards of whole conversations whose rows stand where they belong, folders that are continued, and datastores sorted by plain
comparison. That states are those of drafting is tests/unit/test_states.c; what torch reads, tests/training."""

import json
import os
import struct

import numpy as np
import pytest
from conftest import engine, refused

import speclab
from speclab import checkpoint, safetensors_files
from speclab.texts import datastore, features
from speclab.texts.distillation import words_of

pytestmark = pytest.mark.library

LENGTHS = [5 + 7 * i for i in range(9)]
IDS = [[(11 * i + 5 * k) % 250 for k in range(n)] for i, n in enumerate(LENGTHS)]


@pytest.fixture
def texts(tmp_path):
    """Conversations, the second half of which the target wrote; blank lines are skipped."""
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"input_ids": ids, "loss_mask": [int(k >= len(ids) // 2) for k in range(len(ids))]}) + "\n\n" for ids in IDS))
    return path


def read(path):
    found = {}
    for t in safetensors_files.read(str(path)):
        found[t.name] = np.frombuffer(b"".join(t.pieces()), features.TYPES[t.kind]).reshape(t.shape)
    return found, safetensors_files.metadata(str(path))


def shards(folder):
    return [read(path) for path in sorted(folder.glob("features-*.safetensors"))]


def test_shards_have_whole_conversations_and_rows_at_their_tokens(within, texts, tiny, tmp_path):
    """The rows of each conversation are those of a call of its own, and next tokens those of `inspect --score`."""
    got = within("features", tiny, texts, "--layers", "0,1,3", "--top-k", 4, "--shard-tokens", 60, "--limit", 8, "--context", 50, "--out", "f")
    assert got.status == 0 and got.out == ""
    assert "shard 0: 4 conversations, 62 tokens, " in got.err and "8 conversations, 1 cut at 50 tokens; 232 tokens computed" in got.err
    at = 0
    with speclab.Target(str(tiny)) as target:
        for t, m in shards(tmp_path / "f"):
            assert (m["format"], m["kind"], m["layers"], m["first"]) == ("speclab-features-1", "eagle3", "0,1,3", str(at))
            assert (m["activations"], m["cache"], m["device"], m["top_k"], m["context"]) == ("f32", "f32", "cpu", "4", "50")
            offsets = t["offsets"]
            assert offsets[0] == 0 and offsets[-2] < 60 and (offsets[-1] >= 60 or at + len(offsets) - 1 == 8)
            for a, b in zip(offsets, offsets[1:], strict=False):
                assert t["input_ids"][a:b].tolist() == IDS[at][:50]
                assert t["loss_mask"][a:b].tolist() == [int(k >= LENGTHS[at] // 2) for k in range(b - a)]
                (one,) = target.states([IDS[at][:50]], layers=[0, 1, 3], top_k=4, logits=True)
                assert (t["states"][a:b] == one.states.reshape(b - a, -1)).all() and (t["top_ids"][a:b] == one.top_ids).all()
                p = np.exp(one.logits[:, : target.vocab].astype(float))
                assert np.allclose(t["top_p"][a:b], -np.sort(-p)[:, :4] / p.sum(1, keepdims=True), atol=1e-6)
                logprobs = json.loads(engine("inspect", tiny, "--score", stdin=json.dumps({"ids": IDS[at][:50]})))["logprobs"]
                log_sum = np.log(np.exp(one.logits.astype(float)).sum(1))
                assert np.allclose([one.logits[i, x] - log_sum[i] for i, x in enumerate(IDS[at][1:50])], logprobs, atol=1e-6)
                at += 1
    assert at == 8
    target, m = read(tmp_path / "f" / "target.safetensors")
    assert list(target) == ["embed_tokens.weight", "lm_head.weight", "norm.weight"] and m["format"] == "speclab-target-1"
    facts = json.loads(engine("inspect", tiny, "--json"))
    keys = {"hidden_size": "width", "intermediate_size": "hidden", "num_hidden_layers": "layers", "vocab_size": "vocab", "used_vocab_size": "tokens"}
    assert {k: m[k] for k in keys} == {k: str(facts[of]) for k, of in keys.items()} and np.float32(m["rms_norm_eps"]) == np.float32(facts["norm_eps"])


def test_states_in_bf16_are_the_nearest_ones(within, texts, tiny, tmp_path):
    for form in ("f32", "bf16"):
        assert within("features", tiny, texts, "--kind", "medusa", "--type", form, "--out", form).status == 0
    x, y = (shards(tmp_path / form)[0][0]["states"] for form in ("f32", "bf16"))
    wide = [(y.astype(np.uint32) + step << 16).view(np.float32).astype(float) for step in (0, 1)]
    below = ((y.astype(np.uint32) - 1) << 16).view(np.float32).astype(float)
    near, others = abs(wide[0] - x), np.minimum(abs(wide[1] - x), abs(below - x))
    assert (near <= others).all() and (near > 0).any()
    tie = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert features.bf16(tie).tolist() == [0x3F80, 0x3F82]


def test_a_draft_model_gets_layers_and_no_states(within, texts, tiny, tmp_path):
    assert within("features", tiny, texts, "--kind", "small", "--limit", 3, "--top-k", 4, "--out", "f").status == 0
    ((t, m),) = shards(tmp_path / "f")
    assert "states" not in t and "layers" not in m and t["top_p"].shape[1] == 4
    found, _ = read(tmp_path / "f" / "target.safetensors")
    with speclab.Target(str(tiny)) as target:
        layers = [name for name in target.weight_names() if name.startswith("model.layers.")]
        assert len(layers) == 9 * target.facts.layers and set(found) == {
            "embed_tokens.weight", "lm_head.weight", "norm.weight", *(name.removeprefix("model.") for name in layers)}  # fmt: skip
        assert all((found[name.removeprefix("model.")] == target.weight(name)).all() for name in layers)
    shard = tmp_path / "f" / "features-00000.safetensors"
    shard.unlink()
    refused(within("features", tiny, texts, "--kind", "medusa", "--limit", 1, "--out", "f"), "made with --kind small")


def test_a_folder_is_continued(within, texts, tiny, tmp_path):
    words = ["features", tiny, texts, "--layers", "1,2", "--shard-tokens", "60", "--out", "f"]
    assert within(*words).status == 0
    second = tmp_path / "f" / "features-00001.safetensors"
    before = second.read_bytes()
    second.unlink()  # as if the run had been killed before it
    got = within(*words)
    assert got.status == 0 and "shard 1: " in got.err and "shard 0: " not in got.err and "shard 2: " not in got.err
    assert second.read_bytes() == before and "7 were there" in got.err
    refused(within(*("1,3" if w == "1,2" else w for w in words)), 'made with layers "1,2", not "1,3"')
    refused(within(*words, "--top-k", "5"), 'made with top_k "32", not "5"')
    refused(within(*words, "--type", "bf16"), 'made with type "f32", not "bf16"')
    refused(within(*words, "--limit", "2"), "only 2 conversations, and the finished shards have more")
    second.write_bytes(before[:-5])
    refused(within(*words), "features-00001.safetensors: tensor")
    second.write_bytes((tmp_path / "f" / "features-00000.safetensors").read_bytes())
    refused(within(*words), "expected a shard that begins with conversation 4, found 0")
    second.write_bytes(before)
    texts.write_text('{"input_ids": [1], "loss_mask": [1]}\n')
    refused(within(*words), "made with data")


LINES = [
    ('{"input_ids": [1, 2], "loss_mask": [1]}', "expected a list of 2 entries"),
    ('{"input_ids": [1, 2]}', "expected a list of 2 entries"),
    ('{"input_ids": [1, 2], "loss_mask": [0, 2]}', "entry 2: expected 0 or 1"),
    ('{"input_ids": [1, 288], "loss_mask": [0, 1]}', "entry 2: expected a token id of this model, an integer from 0 to 287"),
    ('{"input_ids": [], "loss_mask": []}', "expected at least one token"),
    ('{"input_ids": 7, "loss_mask": []}', "expected a list of token ids"),
    ('{"conversations": []}', 'expected "input_ids" and "loss_mask"'),
    ("[1, 2]", "expected a JSON object"),
    ('{"input_ids": [1', "not valid JSON"),
]


def test_mistakes_in_texts_are_named_by_file_and_line(within, tiny, tmp_path):
    for line, says in LINES:
        (tmp_path / "bad.jsonl").write_text('{"input_ids": [1], "loss_mask": [1]}\n' + line)
        refused(within("features", tiny, "bad.jsonl", "--layers", 1, "--out", "bad"), says)
        assert "bad.jsonl:2:" in within("features", tiny, "bad.jsonl", "--layers", 1, "--out", "bad").err
    (tmp_path / "bad.jsonl").write_text("\n")
    refused(within("features", tiny, "bad.jsonl", "--layers", 1, "--out", "bad"), "there are no conversations")


@pytest.mark.parametrize("status, words, says", [
    (2, "TINY t", "expected either --out DIR or --datastore FILE"),
    (2, "TINY t --kind eagle --layers 1 --out x", "--layers is for --kind eagle3, not eagle"),
    (2, "TINY t u --out x", "several files go with --datastore"),
    (2, "TINY t --datastore s --top-k 3", "--datastore and --top-k exclude each other"),
    (2, "TINY t --out x --exclude s", "--exclude requires --datastore"),
    (1, "TINY t --out x", "has only 3 layers"),
    (1, "TINY t --layers 4 --out x", "numbers from 0 to 3"),
    (1, "TINY t --layers 1 --context 100000 --out x", "the context of"),
    (1, "TINY t --layers 1 --top-k 600 --out x", "the vocabulary of"),
    (1, "TINY no-such.jsonl --layers 1 --out x", "no-such.jsonl"),
    (1, "TINY /dev/null --layers 1 --out x", "expected a file"),
])  # fmt: skip
def test_mistakes_in_options_are_one_sentence(status, words, says, within, tiny, tmp_path):
    (tmp_path / "t").write_text('{"input_ids": [1], "loss_mask": [1]}\n')
    refused(within("features", *words.replace("TINY", str(tiny)).split()), says, status)


def test_a_table_of_rope_is_no_draft_models(within, tiny, texts, tmp_path):
    tensors, values, _ = checkpoint.stored_in_gguf(str(tiny))
    table = np.linspace(1, 8, 8, dtype=np.float32)
    tensors.append(safetensors_files.Tensor("rope_freqs.weight", "F32", (8,), 32, made=lambda: [table.tobytes()]))
    with open(tmp_path / "table.gguf", "wb") as f:
        checkpoint.write_gguf(f, list(values.values()), tensors)
    refused(within("features", "table.gguf", texts, "--kind", "small", "--out", "x"), "its RoPE is scaled by a table")


# ---- datastores


def plain_order(token):
    """Positions by comparison of lists: a text comes before its continuations."""
    return sorted(range(len(token)), key=lambda i: token[i:])


def test_suffix_arrays_are_those_of_plain_comparison(monkeypatch):
    random = np.random.default_rng(5)
    for chunk in (datastore.CHUNK, 3):
        monkeypatch.setattr(datastore, "CHUNK", chunk)
        for n, vocab in (1, 2), (2, 1), (7, 1), (200, 1), (200, 2), (300, 40), (300, 70000), (257, 200000):
            token = random.integers(0, vocab, n).astype(np.int32)
            token[n // 2 :] = token[: n - n // 2] if n % 2 else token[n // 2 :]  # a repeated text
            assert datastore.suffix_array(token, vocab).tolist() == plain_order(token.tolist())


def stored(path):
    raw = path.read_bytes()
    width, vocab, n, documents = struct.unpack_from("<IIQQ", raw, 24)
    token = np.frombuffer(raw, {2: np.uint16, 4: np.uint32}[width], n, 80).tolist()
    suffix = np.frombuffer(raw, np.uint32, n, 80 + -(-n * width // 8) * 8).tolist()
    assert raw[:24] == datastore.MAGIC and len(raw) == 80 + -(-n * width // 8) * 8 + 4 * n
    return token, vocab, documents, suffix


def test_a_datastore_has_all_texts_and_is_sorted(within, tiny, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"id": "x", "turns": ["The cat sat.", "A dog"], "conversations": [{"from": "human", "value": "Hello"}], "n": 3, "role": "user"}\n'
        '{"text": "", "input_ids": [5, 9, 5, 9, 5]}\n{"text": "naïve café"}\n')  # fmt: skip
    (tmp_path / "b.txt").write_text("A dog\nand a cat")
    got = within("features", tiny, "a.jsonl", "b.txt", "--datastore", "s")
    assert got.status == 0
    tokenizer = speclab.Tokenizer(str(tiny))
    documents = [tokenizer.encode(t).tolist() for t in ("The cat sat.", "A dog", "Hello")]
    documents += [[5, 9, 5, 9, 5], *(tokenizer.encode(t).tolist() for t in ("naïve café", "A dog\nand a cat"))]
    token, vocab, n, suffix = stored(tmp_path / "s")
    assert token == [x for d in documents for x in [*d, vocab]] and n == 6 and vocab == tokenizer.size
    assert suffix == plain_order(token)
    assert got.err == f"s: {len(token) - 6} tokens in 6 documents, 0 excluded\n"
    ids = json.loads(engine("inspect", tiny, "--tokenize", "--no-special", stdin=json.dumps({"text": "naïve café"})))["ids"]
    assert documents[4] == ids
    drafted = engine("generate", tiny, "A dog and", "--drafter", "rest:datastore=s,shortest=1", "--tokens", 4, "--chat", "none", cwd=tmp_path)
    assert drafted == engine("generate", tiny, "A dog and", "--tokens", 4, "--chat", "none")


def test_documents_that_share_thirteen_words_are_excluded(within, tiny, tmp_path):
    words = " ".join(f"w{i}" for i in range(20))
    (tmp_path / "held.jsonl").write_text(json.dumps({"question": f"So: {words}", "id": "w1"}) + "\n" + json.dumps({"text": "Short one"}) + "\n")
    lines = ["x " + " ".join(words.split()[4:16]), "X! " + ", ".join(words.upper().split()[4:17]), "short ONE.", "short one more", words]
    documents = [*({"text": t} for t in lines), {"input_ids": [1, 2], "text": words}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    got = within("features", tiny, "t.jsonl", "--datastore", "s", "--exclude", "held.jsonl")
    assert got.status == 0 and "in 2 documents, 4 excluded" in got.err
    (tmp_path / "none.jsonl").write_text('{"id": "only"}\n')
    refused(within("features", tiny, "t.jsonl", "--datastore", "s", "--exclude", "none.jsonl"), "none.jsonl: expected texts to exclude, found none")
    assert words_of("“Don’t” — 4.5% ZÜ\xa0a") == ("don", "t", "4", "5", "zÜ", "a")


def test_mistakes_in_datastores_are_one_sentence(within, tiny, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n{"input_ids": [1, 999]}\n')
    refused(within("features", tiny, "t.jsonl", "--datastore", "s"), "t.jsonl:2: \"input_ids\": entry 2: expected a token id")
    (tmp_path / "nul.txt").write_bytes(b"ab\0c")
    refused(within("features", tiny, "nul.txt", "--datastore", "s"), "nul.txt: a NUL character, at byte 2")
    (tmp_path / "bytes.txt").write_bytes(b"ab\xff")
    refused(within("features", tiny, "bytes.txt", "--datastore", "s"), "bytes.txt: expected UTF-8, found byte 0xFF at byte 2")
    (tmp_path / "empty.jsonl").write_text("{}\n")
    refused(within("features", tiny, "empty.jsonl", "--datastore", "s"), "expected texts, found none")
    refused(within("features", tiny, "t.jsonl", "--datastore", "t.jsonl"), "exists, and is no datastore; it is not replaced")
    assert not os.path.exists(tmp_path / "s")
