#!/usr/bin/env python3
"""make_small.py OUT: small SentencePiece models of every kind, trained on generated texts, the same pieces as tokenizer.json and GGUF, and what
sentencepiece and `tokenizers` make of 60 texts: tests/cases/pieces. Needs sentencepiece, tokenizers, protobuf and gguf."""
import base64
import json
import pathlib
import sys

import sentencepiece
import strings
from sentencepiece import sentencepiece_model_pb2 as proto

MODELS = {
    "unigram": {"model_type": "unigram", "byte_fallback": True, "normalization_rule_tsv": "RULES", "user_defined_symbols": ["<sep>", "I'm", "\u2122"]},
    "unigram_identity": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "bpe_bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                  "split_digits": True},
    "bpe_spaces": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                   "add_dummy_prefix": False, "user_defined_symbols": ["\u2581\u2581", "\u2581\u2581\u2581", "\n", "\n\n", "<start_of_turn>", "<b>"]},
}
# A map of characters for `unigram`: source and target, code points in hexadecimal.
RULES = ["9\t20", "A\t20", "D\t20", "A0\t20", "3000\t20", "2009\t20", "FB01\t66 69", "2026\t2E 2E 2E", "BD\t31 2044 32", "65 301\te9", "B2\t32",
         "200B\t", "FEFF\t", "FF41\t61", "2122\t54 4D", "1F\t"]


def train(out, name, options):
    common = set("".join(strings.WORDS) + " ")
    text = ["".join(c for c in t if c in common) for t in strings.texts(4000, seed=7)]
    (out / "text.txt").write_text("\n".join(text), encoding="utf-8")
    if "normalization_rule_tsv" in options:
        (out / "rules.tsv").write_text("".join(r + "\n" for r in RULES), encoding="utf-8")
        options = {**options, "normalization_rule_tsv": str(out / "rules.tsv")}
    sentencepiece.SentencePieceTrainer.train(input=str(out / "text.txt"), model_prefix=str(out / name), vocab_size=700, character_coverage=0.999,
                                             hard_vocab_limit=False, max_sentence_length=100000, minloglevel=2, num_threads=1, **options)
    (out / f"{name}.vocab").unlink()
    m = proto.ModelProto()
    m.ParseFromString((out / f"{name}.model").read_bytes())
    return m


def merges_of(m):
    score = {p.piece: p.score for p in m.pieces if p.type == 1}
    found = []
    for index, p in enumerate(m.pieces):
        if p.type == 1:
            for i in range(1, len(p.piece)):
                if p.piece[:i] in score and p.piece[i:] in score:
                    found.append((-p.score, index, i, [p.piece[:i], p.piece[i:]]))
    return [x[3] for x in sorted(found)]


def added(m):
    kinds = {2: True, 3: True, 4: False}
    return [{"id": i, "content": p.piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": p.type == 4 and "▁" in p.piece,
             "special": kinds[p.type]} for i, p in enumerate(m.pieces) if p.type in kinds]


def as_json(m, unigram):
    """As transformers converts them."""
    n = m.normalizer_spec
    steps = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(n.precompiled_charsmap).decode()}] if n.precompiled_charsmap else []
    prefix = "always" if n.add_dummy_prefix else "never"
    if n.remove_extra_whitespaces:
        steps += [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    fallback = m.trainer_spec.byte_fallback
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if n.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    j = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(m), "post_processor": None,
         "decoder": {"type": "Sequence", "decoders": decoders}}
    if unigram:
        j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prefix, "split": True}
        j["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prefix, "split": True} if not fallback else j["decoder"]
        j["model"] = {"type": "Unigram", "unk_id": m.trainer_spec.unk_id, "vocab": [[p.piece, p.score] for p in m.pieces], "byte_fallback": fallback}
    else:
        j["pre_tokenizer"] = None
        if n.add_dummy_prefix:
            steps.append({"type": "Prepend", "prepend": "▁"})
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
        j["model"] = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": fallback, "ignore_merges": False,
                      "vocab": {p.piece: i for i, p in enumerate(m.pieces)}, "merges": merges_of(m)}
    j["normalizer"] = {"type": "Sequence", "normalizers": steps} if steps else None
    return j


def as_gguf(path, m, unigram):
    import gguf
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model("t5" if unigram else "llama")
    w.add_token_list([p.piece.replace("\u2581", " ") if p.type == 4 else p.piece for p in m.pieces])   # as llama.cpp's converter writes them
    w.add_token_scores([p.score for p in m.pieces])
    w.add_token_types([p.type for p in m.pieces])
    w.add_add_space_prefix(m.normalizer_spec.add_dummy_prefix)
    w.add_remove_extra_whitespaces(m.normalizer_spec.remove_extra_whitespaces)
    if m.normalizer_spec.precompiled_charsmap:
        w.add_precompiled_charsmap(m.normalizer_spec.precompiled_charsmap)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def expected(out, name, some):
    """Ids and decoded texts by sentencepiece (of the .model and GGUF) and by `tokenizers` (of the .json)."""
    import tokenizers
    sp, tk = sentencepiece.SentencePieceProcessor(model_file=str(out / f"{name}.model")), tokenizers.Tokenizer.from_file(str(out / f"{name}.json"))
    tk.encode_special_tokens = True
    lines = []
    for text in some:
        a, b = sp.encode(text), tk.encode(text, add_special_tokens=False).ids
        lines.append({"text": text, "model": a, "json": b, "model_decoded": sp.decode(a).replace(" \u2047 ", "<unk>"), "decoded": tk.decode(b, skip_special_tokens=False)})
    (out / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, options in MODELS.items():
        m = train(out, name, options)
        (out / f"{name}.json").write_text(json.dumps(as_json(m, "unigram" in name), ensure_ascii=False), encoding="utf-8")
        as_gguf(out / f"{name}.gguf", m, "unigram" in name)
        expected(out, name, strings.texts(60, seed=3))
    (out / "text.txt").unlink()
    (out / "rules.tsv").unlink()


if __name__ == "__main__":
    main()
