#!/usr/bin/env python3
"""tokenizer_smollm2.jsonl, tokenizer_l3.jsonl, tokenizer_q2.jsonl: the ids that Hugging Face `tokenizers` gives to the texts that they have.

    make_tokenizer.py MODEL.gguf FOLDER

The texts are those of the files in FOLDER, and the two tiny tokenizers those of its tokenizer_l3 and tokenizer_q2 (README.md).  The first
tokenizer is built from the GGUF file's own tokens and merges: byte-level BPE, every digit split off first, then the GPT-2 pattern; control
and user-defined tokens are matched in the raw text.  It has no unknown token, as the published tokenizer has none: a byte the vocabulary
lacks yields nothing (21 bytes are missing there, so text with them does not survive a round trip).
"""
import json
import os
import sys
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def byte_chars():
    """The byte -> character map of byte-level BPE."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars = {b: chr(b) for b in own}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + len(chars) - len(own))
    return chars


def from_gguf(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = []
    for line in fields["tokenizer.ggml.merges"].contents():
        cut = line.index(" ", 1)
        merges.append((line[:cut], line[cut + 1:]))
    vocab = {token: i for i, token in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, kind in zip(tokens, types) if kind in (3, 4)])
    assert tok.get_vocab_size() == len(tokens)
    return tok, {b for b, c in byte_chars().items() if c not in vocab}


def after_round_trip(tok, text, ids, missing):
    """The text that the ids must give."""
    decoded = tok.decode(ids, skip_special_tokens=False)
    if missing & set(text.encode()):
        return bytes(b for b in text.encode() if b not in missing).decode("utf-8", "replace")
    if not tok.normalizer:
        return text
    if "<" in text:             # the added tokens are cut out first: no composing across them
        assert unicodedata.normalize("NFC", decoded) == unicodedata.normalize("NFC", text), ascii(text)
        return decoded
    return unicodedata.normalize("NFC", text)


def write(tok, path, missing=frozenset()):
    with open(path, encoding="ascii") as f:
        texts = [json.loads(line)["text"] for line in f]
    assert len(set(texts)) == len(texts)
    ids = [tok.encode(text, add_special_tokens=False).ids for text in texts]
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for text, i in zip(texts, ids):
            assert tok.decode(i, skip_special_tokens=False) == after_round_trip(tok, text, i, missing), ascii(text)
            out.write(json.dumps({"text": text, "ids": i}, ensure_ascii=True, separators=(",", ":")) + "\n")
    return texts, ids


def main(gguf, folder):
    def file(name):
        return os.path.join(folder, name)

    tok, missing = from_gguf(gguf)
    texts, _ = write(tok, file("tokenizer_smollm2.jsonl"), missing)
    print(f"{len(texts)} texts, {sum(bool(missing & set(t.encode())) for t in texts)} of them with bytes that have no token: "
          + " ".join(f"{b:02x}" for b in sorted(missing)))

    tok = Tokenizer.from_file(file("tokenizer_l3/tokenizer.json"))
    texts, ids = write(tok, file("tokenizer_l3.jsonl"))
    begin = tok.token_to_id("<|begin_of_text|>")
    assert all(tok.encode(t).ids == [begin, *i] for t, i in zip(texts, ids))
    tok.model.ignore_merges = False
    differ = sum(tok.encode(t, add_special_tokens=False).ids != i for t, i in zip(texts, ids))
    assert differ > 10
    print(f"llama-3 style: {tok.get_vocab_size()} tokens, {len(texts)} texts, {differ} need ignore_merges")

    tok = Tokenizer.from_file(file("tokenizer_q2/tokenizer.json"))
    texts, _ = write(tok, file("tokenizer_q2.jsonl"))
    changed = sum(unicodedata.normalize("NFC", t) != t for t in texts)
    assert changed > 40
    print(f"qwen-2 style: {tok.get_vocab_size()} tokens, {len(texts)} texts, NFC changes {changed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
