#!/usr/bin/env python3
"""make_odd_pieces.py OUT: little SentencePiece models such as no trainer makes (unused pieces, characters without a token, user-defined pieces that
overlap others, equal scores), with what sentencepiece makes of some texts and ids: tests/cases/pieces/odd.jsonl, a line for each model.
Needs sentencepiece 0.2.3 and protobuf; PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python."""
import base64
import json
import pathlib
import random
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ALPHABET = "abc▁é日"


def model_of(seed):
    r = random.Random(seed)
    m = proto.ModelProto()
    m.trainer_spec.model_type = r.choice([1, 2])
    m.trainer_spec.byte_fallback = r.random() < 0.2
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.add_dummy_prefix = r.random() < 0.5
    m.normalizer_spec.remove_extra_whitespaces = r.random() < 0.5

    def add(piece, score, kind):
        p = m.pieces.add()
        p.piece, p.score, p.type = piece, score, kind

    shift = r.choice([0, 0, 3, 9])
    add("<unk>", 0, UNKNOWN)
    add("<s>", 0, CONTROL)
    for b in range(256 if m.trainer_spec.byte_fallback else 0):
        add(f"<0x{b:02X}>", 0, BYTE)
    seen = set()
    for _ in range(r.randint(2, 25)):
        text = "".join(r.choice(ALPHABET) for _ in range(r.choice([1, 1, 1, 2, 2, 2, 3, 3, 4, 5])))
        if text not in seen:
            score = -float(r.randint(1, 7)) if r.random() < 0.5 else shift - 8 * r.random()
            add(text, score, r.choices([NORMAL, USER_DEFINED, UNUSED], [8, 1, 1])[0])
        seen.add(text)
    return m, r


def cases(seed, texts, lists):
    """The model's bytes, texts with their ids, and ids with their texts. Of byte pieces only ASCII: the rest depends on U+FFFD's rule."""
    m, r = model_of(seed)
    data = m.SerializeToString()
    t = sentencepiece.SentencePieceProcessor(model_proto=data)
    some = ["".join(r.choice("abcabcé日 ▁x\u0301") for _ in range(r.randint(0, 14))) for _ in range(texts)]
    ids = [i for i, p in enumerate(m.pieces) if p.type not in (UNKNOWN, CONTROL) and not (p.type == BYTE and int(p.piece[3:5], 16) > 127)]
    ids = [[r.choice(ids) for _ in range(r.randint(0, 6))] for _ in range(lists)] if ids else []
    return data, [(s, t.encode(s)) for s in some], [(i, t.decode(i)) for i in ids]


def main():
    lines = []
    for seed in range(40):
        data, texts, lists = cases(seed, 12, 6)
        lines.append({"model": base64.b64encode(data).decode(), "encode": texts, "decode": lists})
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
