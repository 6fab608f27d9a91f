#!/usr/bin/env python3
"""Directories whose tokens stand in several files, and the ids that transformers' AutoTokenizer makes of texts: one line of JSON each.

    make_added_tokens.py added_tokens.jsonl

`files` has the content of each file; those of every directory are a tokenizer.json over `letters` (BPE without merges, ByteLevel) with
`more` behind them, and a config.json, which the test writes as well. `ids` has the ids of each text without the tokens that
post-processing adds, `special` the ids that decoding leaves out. `refused`: our sentence must have these words, since the files
contradict each other (AutoTokenizer gives the token another id than they say, or leaves it out), or since AutoTokenizer ends with an
error; `ids` is null then.
"""
import json
import os
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers

LETTERS = list("abcdefghijklmnopqrstuvwxyz<>|/ABCXYZ") + ["\u0120"]
TEXTS = ["a<x>b", "a <x> b<y>", "<|think|>a<X> <Y>", "<z> <x><y><x>", "plain"]


def token(content, id=None, **flags):
    t = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}
    return t if id is None else {"id": id, **t}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def decoder(*tokens, first=len(LETTERS)):
    return {str(first + i): t for i, t in enumerate(tokens)}


N = len(LETTERS)
MAP, ADDED, CONFIG = "special_tokens_map.json", "added_tokens.json", "tokenizer_config.json"


def cases():
    x, y = token("<x>", N), token("<y>", N + 1)
    yield "decoder", {}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"), token("<|think|>", special=False), token("<y>", lstrip=True))}}
    yield "decoder, out of order", {}, {CONFIG: {"added_tokens_decoder": {str(N + 1): token("<x>"), str(N): token("<y>")}}}
    yield "decoder behind others", {"added": [x]}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"), token("<y>"))}}
    yield "decoder, flags", {"added": [x, y]}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>", lstrip=True), token("<y>", rstrip=True))}}
    yield "decoder, flags off", {"added": [token("<x>", N, lstrip=True, special=False)]}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"))}}
    yield "decoder, normalized", {"added": [x], "replace": True}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>", normalized=True))}}
    yield "decoder, not normalized", {"added": [token("<x>", N, normalized=True)], "replace": True}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"))}}
    yield "decoder, in the model", {"more": ["<x>"]}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"))}}
    yield "decoder without flags", {"replace": True}, {CONFIG: {"added_tokens_decoder": {str(N): {"content": "<X>"}}}}
    yield "decoder hides other files", {}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>"))}, MAP: {"eos_token": "<y>"}, ADDED: {"<z>": N}}
    yield "empty decoder", {}, {CONFIG: {"added_tokens_decoder": {}, "bos_token": "<x>"}, MAP: {"eos_token": "<y>"}}
    yield "decoder and names", {}, {CONFIG: {"added_tokens_decoder": decoder(token("<x>", special=False)), "bos_token": "<x>", "pad_token": "<y>"}}
    yield "decoder with a gap", {"refused": ['"<x>": expected id ' + str(N), "found " + str(N + 4)]}, {CONFIG: {"added_tokens_decoder": {str(N + 4): token("<x>")}}}
    yield "decoder against tokenizer.json", {"added": [x, y], "refused": ['"<y>": expected id ' + str(N + 1) + ", as in tokenizer.json"]}, {
        CONFIG: {"added_tokens_decoder": decoder(token("<y>"), token("<x>"))}}
    yield "decoder that is a list", {"refused": ["added_tokens_decoder: expected an object"]}, {CONFIG: {"added_tokens_decoder": []}}
    yield "decoder of texts", {"refused": ["added_tokens_decoder: expected an object for each token"]}, {CONFIG: {"added_tokens_decoder": {str(N): "<x>"}}}
    yield "names", {}, {CONFIG: {"bos_token": "<x>", "eos_token": "<y>", "pad_token": None, "unk_token": "<z>"}}
    yield "names in the model", {"more": ["<x>", "<z>"]}, {CONFIG: {"eos_token": "<z>", "bos_token": "<x>", "mask_token": "<y>"}}
    yield "names of added tokens", {"added": [token("<x>", N, special=False)]}, {CONFIG: {"bos_token": "<x>"}}
    yield "a name as an object", {}, {CONFIG: {"bos_token": typed("<x>", lstrip=True)}}
    yield "other names", {}, {CONFIG: {"image_token": "<x>", "boi_token": "<y>", "add_bos_token": False, "cls_token": "<z>"}}
    yield "a name that is a number", {"refused": ["bos_token: expected the text of a token"]}, {CONFIG: {"bos_token": 5}}
    yield "extra", {}, {CONFIG: {"extra_special_tokens": ["<x>", typed("<y>", lstrip=True)]}}
    yield "extra by name", {}, {CONFIG: {"extra_special_tokens": {"image_token": "<x>", "boi": "<y>"}}}
    yield "extra that are there", {"added": [x]}, {CONFIG: {"extra_special_tokens": ["<x>", "<y>"]}}
    yield "additional", {}, {CONFIG: {"additional_special_tokens": ["<|think|>", "<x>"]}}
    yield "additional beside extra", {}, {CONFIG: {"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]}}
    yield "additional beside empty extra", {}, {CONFIG: {"additional_special_tokens": ["<x>"], "extra_special_tokens": {}}}
    yield "extra of numbers", {"refused": ["extra_special_tokens: expected the text of a token"]}, {CONFIG: {"extra_special_tokens": [5]}}
    yield "extra that is a text", {"refused": ["extra_special_tokens: expected a list of tokens"]}, {CONFIG: {"extra_special_tokens": "<x>"}}
    yield "map", {}, {CONFIG: {}, MAP: {"bos_token": "<x>", "additional_special_tokens": ["<y>"]}}
    yield "map beside empty extra", {}, {CONFIG: {"extra_special_tokens": {}}, MAP: {"additional_special_tokens": ["<y>"]}}
    yield "map alone", {}, {MAP: {"bos_token": {"content": "<x>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}}}
    yield "map over names", {}, {CONFIG: {"bos_token": "<y>"}, MAP: {"bos_token": "<x>"}}
    yield "map and extra", {}, {CONFIG: {"extra_special_tokens": ["<x>"]}, MAP: {"extra_special_tokens": ["<y>", "<x>"]}}
    yield "map over additional", {}, {CONFIG: {"additional_special_tokens": ["<x>"]}, MAP: {"additional_special_tokens": ["<y>"]}}
    yield "added", {}, {CONFIG: {}, ADDED: {"<y>": N + 1, "<x>": N}}
    yield "added alone", {"replace": True}, {ADDED: {"<X>": N, "<|think|>": N + 1}}
    yield "added and special", {"replace": True}, {CONFIG: {"eos_token": "<X>", "additional_special_tokens": ["<Y>"]}, ADDED: {"<X>": N, "<Y>": N + 1, "<Z>": N + 2}}
    yield "added that are there", {"added": [token("<x>", N, lstrip=True)]}, {ADDED: {"<x>": N, "<y>": N + 1}}
    yield "added with a gap", {"refused": ['"<x>": expected id ' + str(N)]}, {ADDED: {"<x>": N + 2}}
    yield "added in another's place", {"added": [x], "refused": ['"<y>": expected id ' + str(N + 1), "found " + str(N)]}, {ADDED: {"<y>": N}}
    yield "added without ids", {"refused": ["expected an id, found null"]}, {ADDED: {"<x>": None}}
    yield "all", {"added": [x]}, {CONFIG: {"pad_token": "<Y>", "image_token": "<z>", "additional_special_tokens": ["<|think|>"]}, MAP: {"eos_token": "<y>"}, ADDED: {"<X>": N + 1}}


def write(directory, setup, files):
    vocabulary = {c: i for i, c in enumerate(LETTERS + setup.get("more", []))}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": setup.get("added", []),
                 "normalizer": {"type": "Replace", "pattern": {"String": "X"}, "content": "x"} if setup.get("replace") else None, "pre_tokenizer": level, "post_processor": None,
                 "decoder": level, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                                             "ignore_merges": False, "vocab": vocabulary, "merges": []}}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 8, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 2}
    for name, content in {"tokenizer.json": tokenizer, "config.json": config, **files}.items():
        with open(f"{directory}/{name}", "w") as f:
            json.dump(content, f)
    return tokenizer


def main(path):
    with open(path, "w") as out:
        for name, setup, files in cases():
            files = {n: {"tokenizer_class": "PreTrainedTokenizerFast", **c} if n == CONFIG else c for n, c in files.items()}
            with tempfile.TemporaryDirectory() as directory:
                files = {"tokenizer.json": write(directory, setup, files), **files}
                line = {"name": name, "files": files, "texts": TEXTS, "ids": None, "special": None, "refused": setup.get("refused")}
                if "refused" not in setup:
                    t = transformers.AutoTokenizer.from_pretrained(directory)
                    line["ids"] = [t(x, add_special_tokens=False).input_ids for x in TEXTS]
                    line["special"] = sorted(set(i for l in line["ids"] for i in l if t.decode([i], skip_special_tokens=True) == ""))
                out.write(json.dumps(line) + "\n")


main(sys.argv[1])
