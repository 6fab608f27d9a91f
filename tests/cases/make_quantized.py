#!/usr/bin/env python3
"""quantized.json: blocks of 32 float32 numbers and gguf-py's Q8_0, Q4_0, BF16 and MXFP4 of them.

    make_quantized.py OUT.json

{"blocks": [{"what": ..., "x": hex, "Q8_0": hex, "Q4_0": hex, "BF16": hex,
  "MXFP4": hex}, ...], "odd": [{"x": hex, "BF16": hex}, ...]}
x is the numbers' own bytes.  `odd` has what only BF16 is made of: infinities and what is no number.
gguf-py's Q8_0 and Q4_0 are bit-exact with ggml's reference (it says so, and tests it against the C library).
"""
import json
import random
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants


def kinds(rng):
    def normal(scale):
        return [rng.gauss(0, 1) * scale for _ in range(32)]

    for scale in (1, 0.02, 1e-3, 40, 3e4, 1e-6, 1e-8, 1e-12, 1e-30, 1e-36):
        yield f"normal, times {scale:g}", normal(scale)
    yield "zeros", [0.0] * 32
    yield "zeros of both signs", [0.0, -0.0] * 16
    yield "all the same", [0.3] * 32
    yield "one of them", [0.0] * 17 + [-2.5] + [0.0] * 14
    yield "largest of both signs, negative first", [-7.0, 7.0] + [i / 4 for i in range(30)]
    yield "largest of both signs, positive first", [7.0, -7.0] + [i / 4 for i in range(30)]
    # The scale is 1: halves, and the numbers beside them, are where rounding shows.
    halves = [k + 0.5 for k in range(-16, 15)]
    yield "halves in steps of Q8_0", [127.0] + halves
    below = [float(np.nextafter(np.float32(abs(v)), np.float32(0))) * (1 if v > 0 else -1) for v in halves]
    above = [float(np.nextafter(np.float32(abs(v)), np.float32(1e9))) * (1 if v > 0 else -1) for v in halves]
    yield "just below halves", [127.0] + below
    yield "just above halves", [127.0] + above
    yield "large halves", [127.0] + [126.5 - k for k in range(31)]
    eighths = [-8.0] + [k / 4 for k in range(-15, 16)]
    yield "quarters in steps of Q4_0", eighths
    yield "quarters, other way round", [-v for v in eighths]
    yield "just below", [-8.0] + [float(np.nextafter(np.float32(v), np.float32(-1e9))) for v in eighths[1:]]
    yield "a scale that is a tie between halves", [127 * (1 + 2.0 ** -11)] + normal(20)[1:]
    yield "a scale that is a tie, upwards", [127 * (1 + 3 * 2.0 ** -11)] + normal(20)[1:]
    yield "a subnormal scale", [127 * 3.3e-7] + [v * 1e-6 for v in normal(1)][1:]
    yield "the smallest scale", [127 * 2.0 ** -24] + [v * 1e-8 for v in normal(1)][1:]
    yield "a scale that is half of the smallest", [127 * 2.0 ** -25] + [v * 1e-8 for v in normal(1)][1:]
    yield "a scale near the largest", [65000.0 * 8] + normal(1e5)[1:]


def quantized(x, name):
    return quants.quantize(x, GGMLQuantizationType[name]).tobytes().hex()


def main(path):
    rng = random.Random("blocks to quantize")
    blocks = []
    for what, values in kinds(rng):
        x = np.array(values, dtype=np.float32)
        assert len(x) == 32 and np.isfinite(x).all()
        blocks.append({"what": what, "x": x.tobytes().hex(), **{n: quantized(x, n) for n in ("Q8_0", "Q4_0", "BF16", "MXFP4")}})
    bits = [0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0x7F807FFF, 0xFFFF8000,
            0x7F7FFFFF, 0xFF7F8000, 0x7F7F7FFF, 0x00000001, 0x80007FFF, 0x00008000, 0x00018000, 0x3F808000,
            0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000, 0x00000000, 0x80000000, 0x00800000, 0x007FFFFF] + [0] * 8
    x = np.array(bits, dtype=np.uint32).view(np.float32)
    odd = [{"x": x.tobytes().hex(), "BF16": quantized(x, "BF16")}]
    with open(path, "w", encoding="ascii", newline="\n") as out:
        json.dump({"blocks": blocks, "odd": odd}, out, indent=1)
        out.write("\n")
    print(f"{path}: {len(blocks)} blocks")


if __name__ == "__main__":
    main(*sys.argv[1:])
