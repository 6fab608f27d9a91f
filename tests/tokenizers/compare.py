#!/usr/bin/env python3
"""compare.py SPECLAB FILE...: ids of `speclab inspect --tokenize` beside those of the tokenizer's own library, on 3000 texts and one of 100 kB.

FILE: tokenizer.model of SentencePiece (sentencepiece) or of Llama 3 (tiktoken), tekken.json (mistral-common), tokenizer.json (tokenizers), GGUF beside the .model that it was made from.
Needs these packages (shared/tools/oracles, and pip install sentencepiece tiktoken mistral-common). Special tokens are ordinary text.
"""
import json
import subprocess
import sys
import time

import strings


def answers(speclab, path, key, queries, *options):
    """What `speclab inspect --tokenize` prints under this key for each query, an object."""
    done = subprocess.run([speclab, "inspect", "--tokenize", path, *options], input="".join(json.dumps(q) + "\n" for q in queries), capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line)[key] for line in done.stdout.split("\n") if line]


def ours(speclab, path, some):
    return answers(speclab, path, "ids", [{"text": t} for t in some], "--no-special")


def decoded(speclab, path, ids):
    return answers(speclab, path, "text", [{"ids": i} for i in ids], "--decode")


def library(path):
    """Functions text -> ids and ids -> text."""
    if path.endswith("tekken.json") or "tekken_" in path:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        t = Tekkenizer.from_file(path)
        return lambda s: t.encode(s, bos=False, eos=False), t.decode
    if path.endswith(".json"):
        from tokenizers import Tokenizer
        t = Tokenizer.from_file(path)
        t.encode_special_tokens = True
        return lambda s: t.encode(s, add_special_tokens=False).ids, lambda i: t.decode(i, skip_special_tokens=False)
    path = path.removesuffix(".gguf") + ".model" if path.endswith(".gguf") else path
    with open(path, "rb") as f:
        head = f.read(64)
    if b" 0\n" in head:
        import tiktoken
        from tokenizers import normalizers
        from tiktoken.load import load_tiktoken_bpe
        ranks = load_tiktoken_bpe(path)
        # Qwen's tokenization_qwen.py takes digits one by one, and normalizes with Python's NFC; ours is that of `tokenizers`, as in the
        # tokenizer.json of these models, which treats marks of Unicode 10 and later as letters.
        qwen = len(ranks) == 151643
        nfc = normalizers.NFC()
        digits = r"\p{N}" if qwen else r"\p{N}{1,3}"
        pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
                   r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        t = tiktoken.Encoding("published", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return lambda s: t.encode_ordinary(nfc.normalize_str(s) if qwen else s), t.decode
    import sentencepiece
    t = sentencepiece.SentencePieceProcessor(model_file=path)
    return t.encode, t.decode


def main():
    failed = False
    for path in sys.argv[2:]:
        some = [*strings.texts(3000), strings.long_text()]
        encode, decode = library(path)
        began = time.monotonic()
        got = ours(sys.argv[1], path, some)
        seconds = time.monotonic() - began
        began = time.monotonic()
        expected = [list(encode(s)) for s in some]
        theirs = time.monotonic() - began
        bad = [(s, g, e) for s, g, e in zip(some, got, expected, strict=True) if g != e]
        back = [(s, t, decode(e)) for s, t, e in zip(some, decoded(sys.argv[1], path, expected), expected) if t != decode(e)]
        print(f"{path}: {len(some)} texts, {sum(map(len, expected))} ids: {len(bad)} differ; decoded: {len(back)} differ "
              f"({seconds:.2f} s with opening, the library {theirs:.2f} s)")
        for s, g, e in bad[:5]:
            at = next((i for i, (x, y) in enumerate(zip(g, e)) if x != y), min(len(g), len(e)))
            print(f"  {s[:80]!r}: at {at}: {g[at:at + 8]}, expected {e[at:at + 8]}")
        for s, g, e in back[:3]:
            print(f"  {s[:60]!r}: decoded {g[:60]!r}, expected {e[:60]!r}")
        failed |= bool(bad or back)
    return failed


if __name__ == "__main__":
    sys.exit(main())
