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


QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+"]
CASED = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ")   # its Latin and Greek part
DEEPSEEK = ["[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")


def splits(patterns, digits=False):
    some = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence([*some, *([pre_tokenizers.Digits(individual_digits=True)] if digits else []), byte_level(False)])


def falcon():
    return pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
                                    pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])


FAMILIES = [
    (gpt2, False, ["gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "exaone4", "gigachat", "a.x-4.0", "mellum", "trillion", "granite-docling"]),
    (digits, False, ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"]),
    (lambda: split(LLAMA3), True, ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"]),
    (lambda: split(LLAMA3), False, ["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"]),
    (lambda: split(QWEN2), False, ["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "kormo", "hunyuan", "solar-open", "grok-2"]),
    (lambda: split(QWEN35), False, ["qwen35"]),
    (lambda: split(TEKKEN), True, ["tekken"]),
    (lambda: split(GPT4O), False, ["gpt-4o", "llama4", "kanana2", "minimax-m2"]),
    (lambda: splits(DEEPSEEK3), False, ["deepseek-v3", "hunyuan-dense", "joyai-llm"]),
    (lambda: splits(DEEPSEEK, True), False, ["deepseek-llm"]),
    (lambda: splits(CODER, True), False, ["deepseek-coder"]),
    (lambda: split(SEED), False, ["seed-coder"]),
    (falcon, False, ["falcon"]),
    (lambda: split(BLOOM), False, ["bloom", "poro-chat", "gpt3-finnish"]),
    (lambda: splits([BLOOM, r"\p{N}"]), False, ["viking"]),
    (lambda: splits([r"\p{N}+", r"(?=(\d{3})+(?!\d))"]), False, ["superbpe"]),
]


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        for make, whole, names in FAMILIES:
            found = make().pre_tokenize_str(TEXT)
            letters = make is falcon          # splits characters: the pieces are in byte letters
            pieces = [p if letters else TEXT[a:b] for p, (a, b) in found]
            assert letters or "".join(pieces) == TEXT
            for name in names:
                f.write(json.dumps({"name": name, "whole": whole, **({"text": TEXT} if letters else {}), "pieces": pieces}, ensure_ascii=True) + "\n")


main()
