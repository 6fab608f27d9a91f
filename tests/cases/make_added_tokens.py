#!/usr/bin/env python3
"""Directories whose tokens stand in several files, and the ids that transformers' AutoTokenizer makes of texts: one line of JSON each.

    make_added_tokens.py added_tokens.jsonl

Reads the lines and writes them again. `files` has the content of each file; those of every directory are a tokenizer.json over letters (BPE
without merges, ByteLevel), with more tokens behind them in some, and a config.json, which the test writes as well. `ids` has the ids of each text
without the tokens that post-processing adds, `special` the ids that decoding leaves out. `refused`: our sentence must have these words, since the
files contradict each other (AutoTokenizer gives the token another id than they say, or leaves it out), or since AutoTokenizer ends with an
error; `ids` is null then.
"""
import json
import os
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 8, "intermediate_size": 8,
          "num_hidden_layers": 1, "num_attention_heads": 2}


def answer(line):
    with tempfile.TemporaryDirectory() as directory:
        for name, content in {"config.json": CONFIG, **line["files"]}.items():
            with open(f"{directory}/{name}", "w") as f:
                json.dump(content, f)
        t = transformers.AutoTokenizer.from_pretrained(directory)
        ids = [t(x, add_special_tokens=False).input_ids for x in line["texts"]]
        return {"ids": ids, "special": sorted(set(i for l in ids for i in l if t.decode([i], skip_special_tokens=True) == ""))}


def main(path):
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    with open(path, "w") as out:
        for line in lines:
            out.write(json.dumps(line if line["refused"] else {**line, **answer(line)}) + "\n")


main(sys.argv[1])
