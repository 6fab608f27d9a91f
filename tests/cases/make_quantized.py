#!/usr/bin/env python3
"""quantized.json: blocks of 32 float32 numbers and gguf-py's Q8_0, Q4_0, BF16 and MXFP4 of them.

    make_quantized.py quantized.json

{"blocks": [{"what": ..., "x": hex, "Q8_0": hex, "Q4_0": hex, "BF16": hex,
  "MXFP4": hex}, ...], "odd": [{"x": hex, "BF16": hex}, ...]}
x is the numbers' own bytes, which are read and written again.  `odd` has what only BF16 is made of: infinities and what is no number.
gguf-py's Q8_0 and Q4_0 are bit-exact with ggml's reference (it says so, and tests it against the C library).
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants


def quantized(x, name):
    return quants.quantize(x, GGMLQuantizationType[name]).tobytes().hex()


def main(path):
    with open(path, encoding="ascii") as f:
        read = json.load(f)
    for block in read["blocks"] + read["odd"]:
        x = np.frombuffer(bytes.fromhex(block["x"]), dtype=np.float32)
        assert len(x) == 32 and ("what" not in block or np.isfinite(x).all())
        block.update({n: quantized(x, n) for n in (("Q8_0", "Q4_0", "BF16", "MXFP4") if "what" in block else ("BF16",))})
    with open(path, "w", encoding="ascii", newline="\n") as out:
        json.dump(read, out, indent=1)
        out.write("\n")
    print(f"{path}: {len(read['blocks'])} blocks")


if __name__ == "__main__":
    main(*sys.argv[1:])
