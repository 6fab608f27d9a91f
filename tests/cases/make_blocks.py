#!/usr/bin/env python3
"""blocks.json: random blocks of thirteen GGML types and of F8_E4M3, and gguf-py's float32 values of them; F8_E4M3's by torch.

    make_blocks.py OUT.json

{"Q8_0": {"id": 8, "elements": 32, "bytes": 34, "blocks": [{"hex": "...", "values": [...]}, ...]}, ...}
The bytes are random but for the scales, which are finite: two ordinary ones, a subnormal one, the smallest
subnormal one, zero, and the largest one; of MXFP4, exponents.  F16 and BF16 come in runs of 32.
gguf-py rounds after each multiplication and addition; a fused multiply-add may differ in the last bit.
"""
import json
import random
import sys

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# byte offsets of the half-precision scales
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
MXFP4_EXPONENTS = [120, 131, 0, 1, 2, 252]  # 253 and above overflow a float
F16_EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x3555, 0x0200, 0x7800, 0x2E66]
BF16_EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x8080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x3EAB, 0x0040, 0x7F00, 0x3DCD]


def half(rng, kind):
    sign = rng.getrandbits(1) << 15
    if kind == "ordinary":      # 2^-10 up to 2^1
        return sign | rng.randint(5, 15) << 10 | rng.getrandbits(10)
    if kind == "subnormal":
        return sign | rng.randint(1, 1023)
    return sign | {"smallest": 0x0001, "zero": 0x0000, "largest": 0x7BFF}[kind]


def plain(rng, n, edges, exponent):
    """A run of halves: edge values first in the second one; never infinite nor NaN."""
    out = []
    while len(out) < 32:
        h = rng.getrandbits(16)
        if n == 1 and len(out) < len(edges):
            h = edges[len(out)]
        elif n == 2:
            h &= ~exponent & 0xFFFF         # all subnormal
        if h & exponent != exponent:
            out.append(h)
    return np.array(out, dtype="<u2").tobytes()


def f8(rng, n):
    """A float scale and 128 floats of eight bits, none a NaN; all of the others are in the first two blocks."""
    scale = [0.0123, -3.4e5, 1.0, 2.0 ** -126, 0.0, 2.0 ** 119][n]
    codes = bytes(c for c in range(256) if c & 127 != 127)
    codes = (codes + codes[:2])[128 * n:128 * n + 128] if n < 2 else bytes(rng.choice(codes) for _ in range(128))
    values = torch.frombuffer(bytearray(codes), dtype=torch.float8_e4m3fn).float() * torch.tensor(scale, dtype=torch.float32)
    return np.float32(scale).tobytes() + codes, values.numpy()


def block(rng, name, size, n):
    if name == "F16":
        return plain(rng, n, F16_EDGES, 0x7C00)
    if name == "BF16":
        return plain(rng, n, BF16_EDGES, 0x7F80)
    data = bytearray(rng.randbytes(size))
    if name == "MXFP4":
        data[0] = MXFP4_EXPONENTS[n]
        return bytes(data)
    kinds = ["ordinary", "ordinary", "subnormal", "smallest", "zero", "largest"]
    for i, at in enumerate(SCALES[name]):
        data[at:at + 2] = half(rng, kinds[n] if i == 0 else kinds[(n + 1) % 6]).to_bytes(2, "little")
    return bytes(data)


def main(path):
    result = {}
    for name in ("F16", "BF16", *SCALES, "MXFP4", "F8_E4M3"):
        rng = random.Random(f"blocks of {name}")
        kind = -1 if name == "F8_E4M3" else GGMLQuantizationType[name]
        elements, size = (128, 132) if name == "F8_E4M3" else GGML_QUANT_SIZES[kind]
        blocks = []
        for n in range(6):
            if name == "F8_E4M3":
                data, values = f8(rng, n)
            else:
                data = block(rng, name, size, n)
                values = quants.dequantize(np.frombuffer(data, dtype=np.uint8), kind)
            assert values.dtype == np.float32 and np.isfinite(values).all()
            assert len(values) == len(data) // size * elements
            text = [f"{v:.9g}" for v in values]
            assert (np.array([float(t) for t in text], dtype=np.float32).view(np.uint32) == values.view(np.uint32)).all()
            blocks.append('   {"hex": "%s",\n    "values": [%s]}' % (data.hex(), ", ".join(text)))
        result[name] = ' "%s": {"id": %d, "elements": %d, "bytes": %d, "blocks": [\n%s]}' % (name, kind, elements, size, ",\n".join(blocks))
    text = "{\n" + ",\n".join(result.values()) + "\n}\n"
    json.loads(text)
    with open(path, "w", encoding="ascii", newline="\n") as out:
        out.write(text)
    print(f"{path}: {len(result)} types, {len(text)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
