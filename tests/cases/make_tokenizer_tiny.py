#!/usr/bin/env python3
"""Two tiny tokenizer.json files and the ids Hugging Face `tokenizers` gives some texts with them.

    make_tokenizer_tiny.py OUT_DIR

tokenizer_l3/tokenizer.json  in the style of Llama 3: its pattern, ignore_merges, merges as strings "a b",
                             a template that prepends <|begin_of_text|>.  Some tokens have no merge, so that
                             only ignore_merges finds them.
tokenizer_q2/tokenizer.json  in the style of Qwen 2: NFC, its pattern, merges as pairs ["a","b"], added tokens
                             special and not.
tokenizer_l3.jsonl, tokenizer_q2.jsonl  300 texts each; ids without what the template adds.
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_tokenizer as big

L3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
      r"|\s*[\r\n]+|\s+(?!\S)|\s+")
Q2 = L3.replace(r"\p{N}{1,3}", r"\p{N}")
COUNT = 300


def train(pattern, normalizer, ignore_merges, corpus, size):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(big.byte_chars().values()), show_progress=False))
    assert tok.get_vocab_size() == size
    return tok


def save(spec, folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        json.dump(spec, out, ensure_ascii=False, indent=1)
        out.write("\n")
    return Tokenizer.from_file(path)


def llama3(folder, corpus):
    tok = train(L3, None, True, corpus, 400)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True)
                            for t in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")])
    tok.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
        special_tokens=[("<|begin_of_text|>", tok.token_to_id("<|begin_of_text|>"))])
    spec = json.loads(tok.to_str())
    pairs = [tuple(m) for m in spec["model"]["merges"]]
    used = {part for pair in pairs for part in pair}
    leaves = [pair for pair in pairs if "".join(pair) not in used]
    lost = set(leaves[::4])
    spec["model"]["merges"] = [f"{a} {b}" for a, b in pairs if (a, b) not in lost]
    return save(spec, folder), ["".join(pair) for pair in sorted(lost)]


def qwen2(folder, corpus):
    tok = train(Q2, normalizers.NFC(), False, corpus, 400)
    tok.add_tokens([AddedToken("<|endoftext|>", normalized=False, special=True), AddedToken("<|im_start|>", normalized=False, special=True),
                    AddedToken("<|im_end|>", normalized=False, special=True), AddedToken("<tool_call>", normalized=False, special=False),
                    AddedToken("</tool_call>", normalized=False, special=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    spec = json.loads(tok.to_str())
    assert all(len(m) == 2 and isinstance(m, list) for m in spec["model"]["merges"])
    return save(spec, folder)


# Texts that NFC changes, or that look as if it would.
NFC = ["e\u0301", "cafe\u0301", "Cafe\u0301 au lait", "A\u030angstro\u0308m", "\u212b \u2126 \u212a", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1112\u1161\u11ab\u1100\u1173\u11af",
       "o\u0302\u0323", "o\u0323\u0302", "a\u0315\u0300\u05ae\u0062", "\u0958\u0959", "\u0915\u093c", "\u0b47\u0b3e", "\u0dd9\u0dcf\u0dca", "\u1025\u102e", "\u30ab\u3099\u304b\u3099",
       "\uf900\uf901", "\U0002f800", "\u1e9b\u0323", "\u0344", "\u0387", "\u1fbe", "\u037e", "\u2000\u2001", "\u2329\u232a", "\u0340\u0341", "\u0374", "\ufb1d", "\ufb4b",
       "\u0f43", "\u0f71\u0f72", "\u0f73", "\u2adc", "\U0001d15e", "<\u0338", ">\u0338=", "=\u0338", "'\u0301s", "n\u0303o 1\u0301", "  e\u0301  ", "\n\u0301", "\u0301", "\u0301e\u0301",
       "<|im_end|>\u0338", "<\u0338|im_end|>", "<|im_end|\u0338>", "<|im_start|>e\u0301<|im_end|>", "<tool_call>e\u0301</tool_call>\u0338", "e<|im_end|>\u0301", "\ufb01 \u00bd \u00b2 \u2460",
       "\u1e0b\u0323", "\u0071\u0307\u0323", "Vie\u0323\u0302t Nam", "\u0418\u0306 \u0438\u0306 \u0435\u0308", "\u03b1\u0313\u0301\u0345", "\u05d0\u05b7", "\u0627\u0653", "\u1fef", "\u212b\u0301",
       "\u0061\u0328\u0301", "\u01d5\u0304", "s\u0307\u0323", "\u0041\u0301\u0328", "\u09c7\u09be", "\u0bc6\u0bd7", "\u0cc6\u0cc2\u0cd5", "\u0d46\u0d57", "\u3061\u3099\u3064\u3099", "\U00011131\U00011127"]

LLAMA3 = ["1234567", "12 345 6789", "a1234b", " 1234", "1,234,567.89", "\u0663\u0664\u0665\u0666", "\u00b2\u00b3\u00b9\u2070", "it'S HE'LL I'M we'Re DON'T", "'\u017f it'\u017f", "don't", "'sword",
          "Hello\n\nWorld", "end.\n\n", "end.\r\n\r\nnext", "!!!\n\n\n???", "  \n  x", "\n \n x", "\t\tx", " \t x", "a  b", "a   b", ".\n a", "$abc", "\u00a0abc", "\nabc", "\r\nabc",
          "_abc", "\"abc\"", "(abc)", " (abc)", " .abc", "\u3000abc", "\u200babc", "#include <x.h>\n", "//\n", "x\n\n\n", "   ", "   \n", "   \n\n  \n x", "abc\u0301def",
          "<|begin_of_text|>", "<|begin_of_text|>hi<|eot_id|>", "<|end_of_text|><|end_of_text|>", "<|eot_id|", "a<|eot_id|>b", " <|eot_id|> ", "<|eot_id|>\n\n", "<<|eot_id|>>",
          "<|begin_of_text|>1234<|eot_id|>5678", "<|im_start|>user\nhi<|im_end|>"]


def texts(own, rng):
    pool = big.ENGLISH + big.PARAGRAPHS + big.CODE + big.LANGUAGES[:45]
    pool = [t if len(t) < 90 else t[:rng.randint(40, 90)] for t in pool]
    words = sorted({w for t in big.ENGLISH for w in t.split()})
    glue = [" ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", ".", ", ", "'s", "'LL", "12", "3456", "e\u0301", "\u00e9", "\u4e2d", "😀", "-", "..."]
    out = ["", *own]
    out += rng.sample(pool, 60) + rng.sample(big.SPACES, 30) + rng.sample(big.DIGITS, 25) + rng.sample(big.EMOJI, 8) + rng.sample(big.LANGUAGES[45:], 12)
    out += [t for t in big.LONG[:40:4] if len(t) < 130] + rng.sample(big.MARKS, 8) + rng.sample(big.CONTROL, 8)
    out = list(dict.fromkeys(out))
    while len(out) < COUNT:
        t = "".join(rng.choice(words) if rng.random() < 0.45 else rng.choice(glue) for _ in range(rng.randint(2, 10)))
        if t not in out:
            out.append(t)
    return out[:COUNT]


def write(tok, lines, path):
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for text in lines:
            ids = tok.encode(text, add_special_tokens=False).ids
            want = text
            if tok.normalizer:    # the added tokens are cut out first: no composing across them
                want = tok.decode(ids, skip_special_tokens=False)
                assert unicodedata.normalize("NFC", want) == unicodedata.normalize("NFC", text), ascii(text)
                if "<" not in text:
                    assert want == unicodedata.normalize("NFC", text), ascii(text)
            assert tok.decode(ids, skip_special_tokens=False) == want, ascii(text)
            out.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=True, separators=(",", ":")) + "\n")
    return [tok.encode(t, add_special_tokens=False).ids for t in lines]


def main(out_dir):
    corpus = (big.ENGLISH + big.PARAGRAPHS) * 4 + big.CODE * 2 + big.LANGUAGES[:12]

    tok, orphans = llama3(os.path.join(out_dir, "tokenizer_l3"), corpus)
    back = {c: b for b, c in big.byte_chars().items()}
    own = []
    for token in orphans:
        whole = bytes(back[c] for c in token).decode("utf-8", "ignore")
        own += [whole, whole + "x"]
    lines = texts(LLAMA3 + own, random.Random(31))
    ids = write(tok, lines, os.path.join(out_dir, "tokenizer_l3.jsonl"))
    bos = tok.token_to_id("<|begin_of_text|>")
    assert all(tok.encode(t).ids == [bos, *i] for t, i in zip(lines, ids))
    without = Tokenizer.from_str(tok.to_str())
    without.model.ignore_merges = False
    differ = sum(without.encode(t, add_special_tokens=False).ids != i for t, i in zip(lines, ids))
    assert differ > 10
    print(f"llama-3 style: {tok.get_vocab_size()} tokens, {len(lines)} texts, {differ} need ignore_merges")

    tok = qwen2(os.path.join(out_dir, "tokenizer_q2"), corpus)
    lines = texts(NFC, random.Random(47))
    write(tok, lines, os.path.join(out_dir, "tokenizer_q2.jsonl"))
    changed = sum(unicodedata.normalize("NFC", t) != t for t in lines)
    assert changed > 40
    print(f"qwen-2 style: {tok.get_vocab_size()} tokens, {len(lines)} texts, NFC changes {changed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
