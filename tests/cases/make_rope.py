#!/usr/bin/env python3
"""The frequencies of rope as torch computes them, to the bit, for the C code to compare with.

    make_rope.py rope.json

The two lines are those of transformers' modeling_rope_utils (_compute_default_rope_parameters, _compute_llama3_parameters):

    inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).to(dtype=torch.float) / dim))

written out here, so that no model is needed. torch's own pow has other last bits in three of these frequencies where it
goes by vectors (AVX2, AVX-512): the file is made without them, so that every machine makes the same one. Each frequency is stored as the 32 bits of its float, as a number. Bases and
sizes of heads are those of models that there are, and some odd ones, long enough that a step in double instead of float would
show in some of them.
"""
import json
import math
import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "default"

import torch  # noqa: E402: after the line above

PLAIN = [(10000.0, 64), (10000.0, 128), (100000.0, 64), (500000.0, 128), (500000.0, 64), (1000000.0, 128), (130000.0, 64),
         (1000042.0, 256), (10000.0, 80), (25000.0, 24), (8000000.0, 96)]
# factor, low, high, original: Llama 3.1's, 3.2's, and two that are none
LLAMA3 = [(500000.0, 128, 8.0, 1.0, 4.0, 8192), (500000.0, 64, 32.0, 1.0, 4.0, 8192), (10000.0, 64, 3.0, 1.5, 5.0, 1000),
          (1000000.0, 96, 16.0, 2.0, 7.0, 4096)]


def plain(base, dim):
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).to(dtype=torch.float) / dim))


def llama3(base, dim, factor, low, high, original):
    inv_freq = plain(base, dim)
    low_wavelen = original / low
    high_wavelen = original / high
    wavelen = 2 * math.pi / inv_freq
    scaled = torch.where(wavelen > low_wavelen, inv_freq / factor, inv_freq)
    smooth = (original / wavelen - low) / (high - low)
    smoothed = (1 - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelen < high_wavelen) * ~(wavelen > low_wavelen)
    return torch.where(medium, smoothed, scaled)


def bits(t):
    return [x & 0xFFFFFFFF for x in t.to(torch.float32).view(torch.int32).tolist()]


def main():
    cases = []
    for base, dim in PLAIN:
        cases.append({"scaling": "plain", "base": base, "dim": dim, "bits": bits(plain(base, dim))})
    for base, dim in PLAIN[:3]:
        cases.append({"scaling": "linear", "base": base, "dim": dim, "factor": 3.0, "bits": bits(plain(base, dim) / 3.0)})
    for base, dim, factor, low, high, original in LLAMA3:
        cases.append({"scaling": "llama3", "base": base, "dim": dim, "factor": factor, "low": low, "high": high,
                      "original": original, "bits": bits(llama3(base, dim, factor, low, high, original))})
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        json.dump({"torch": torch.__version__, "cases": cases}, f, separators=(", ", ": "))
        f.write("\n")


main()
