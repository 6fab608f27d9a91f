#!/usr/bin/env python3
"""fp8.json: logits of a tiny random Qwen3 whose matrices are torch's float8_e4m3fn with scales, by transformers in float32.

    make_fp8.py OUT.json

[{"form": "qwen3", and what a line of architectures.jsonl has}, ...].  The numbers are those of make_architectures.py; then each matrix of a
layer becomes FP8 times a scale, the largest magnitude / 448, for blocks of 128 x 128, for rows, or for itself.  The scales of "qwen3",
"channel" and "tensor" are bfloat16, rounded towards zero.  The forms are those of tests/models/small_fp8.c.
"""
import json
import pathlib
import sys
import tempfile

import torch

from make_architectures import QWEN3, build, config
from make_logits import COUNT, ROWS, hashes, number

CONFIG = config(*QWEN3, 256, 384, 2, 4, 2, 97, head_dim=96, rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6)
FORMS = {"qwen3": (128, 128, True), "deepseek": (128, 128, False), "channel": (1, None, True), "tensor": (None, None, True)}


def dequantized(x, rows, columns, short):
    rows, columns = rows or x.shape[0], columns or x.shape[1]
    out = torch.empty_like(x)
    for r in range(0, x.shape[0], rows):
        for k in range(0, x.shape[1], columns):
            part = x[r:r + rows, k:k + columns]
            scale = part.abs().max() / 448
            if short:
                scale = (scale.view(torch.int32) & -65536).view(torch.float32)
            codes = (part.double() / scale.double()).float().clamp(-448, 448).to(torch.float8_e4m3fn)
            out[r:r + rows, k:k + columns] = codes.float() * scale
    return out


def case(seed, form):
    with tempfile.TemporaryDirectory() as folder:
        model, made, _ = build(CONFIG, seed, pathlib.Path(folder), False)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith("model.layers.") and p.dim() == 2:
                p.copy_(dequantized(made[name], *FORMS[form]))
        tokens = [int(z) % CONFIG["vocab_size"] for z in hashes(seed, 1000000, COUNT)]
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return ('{"form": "%s", "name": "fp8-%s", "seed": %d, "config": %s,\n "shapes": %s,\n "first": {%s},\n "tokens": %s, "rows": %s,\n "logits": [%s]}' %
            (form, form, seed, json.dumps(CONFIG), json.dumps({n: list(made[n].shape) for n in sorted(made)}),
             ", ".join('"%s": %s' % (n, number(made[n].flatten()[0].item())) for n in sorted(made)), json.dumps(tokens), json.dumps(ROWS),
             ",\n  ".join("[" + ", ".join(map(number, logits[r].tolist())) + "]" for r in ROWS)))


def main(path):
    torch.set_num_threads(1)
    text = "[" + ",\n".join(case(seed, form) for seed, form in enumerate(FORMS, 101)) + "]\n"
    json.loads(text)
    pathlib.Path(path).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
