#!/usr/bin/env python3
"""How each family of pre-tokenizers cuts one text, by Hugging Face's tokenizers: one line of JSON for each name.

    make_families.py families.jsonl

A family is what GGUF calls `tokenizer.ggml.pre`. Which name cuts how is llama.cpp's list (src/llama-vocab.cpp); the
pre-tokenizers are those of the models' own tokenizer.json. `whole` says whether a piece that is a token is taken without
merging (llama.cpp's ignore_merges). The text has what families differ in: digits alone, in rows and behind spaces,
contractions in both cases, rows of spaces and of line ends, punctuation before letters and before line ends, other scripts.
"""
import json
import sys

from tokenizers import Regex, pre_tokenizers

TEXT = ("In 1969 they'd 12345 things; WE'LL see  42, x7y 3.14159\n\n  it's I'M 'tis don'T\r\n\t(a)b\n)\n   \n end!!!\n?  "
        "\u00fcber \u4e2d\u65872024\u5e74 \u0661\u0662\u0663\u0664 \u00bd \u216b e\u0301t\u00e9 \U0001F600\U0001F600 a\u00a0b  ")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


def gpt2():
    return byte_level(True)


def digits():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(False)])


FAMILIES = [
    (gpt2, False, ["gpt-2", "gpt2", "mpt", "olmo", "jais"]),
    (digits, False, ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"]),
    (lambda: split(LLAMA3), True, ["llama-bpe", "llama3", "llama-v3", "falcon3"]),
    (lambda: split(LLAMA3), False, ["dbrx", "smaug-bpe"]),
    (lambda: split(QWEN2), False, ["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"]),
]


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        for make, whole, names in FAMILIES:
            pieces = [TEXT[a:b] for _, (a, b) in make().pre_tokenize_str(TEXT)]
            assert "".join(pieces) == TEXT
            for name in names:
                f.write(json.dumps({"name": name, "whole": whole, "pieces": pieces}, ensure_ascii=True) + "\n")


main()
