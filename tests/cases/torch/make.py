#!/usr/bin/env python3
"""Little checkpoints as torch.save writes them, and golden.json: what torch.load makes of them.

    make.py FOLDER

golden.json: {"read": {"file": {"name": {"dtype": "F32", "shape": [2, 3], "hex": "the bytes, row by row"}}},
              "refused": {"file": "words of the sentence"}}
A key of "read" that ends in "/" is a folder.  Names and dtypes are safetensors'.
"""
import json
import os
import sys

import numpy as np
import torch
from torch import nn

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


def module():
    """A state_dict of a module: an OrderedDict that carries _metadata."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict()


def plain():
    """A dictionary that holds other things, too."""
    t = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return {"weight": t, "epoch": 3, "loss": -0.5, "none": None, "yes": True, "no": False, "words": ["a", ["b"], ()],
            "large": 2**40, "negative": -7, "most negative": -2**63, "pair": (1, 2), "h\u00e9llo": t[0] + 0.25,
            "config": {"width": 300, "deep": {"deeper": []}}, 7: "a number as key", "x" * 300: torch.ones(1)}


def dtypes():
    edges = {torch.float32: [float("nan"), float("inf"), -0.0, 1e-45], torch.float64: [5e-324, -1.7e308],
             torch.float16: [65504, -6e-8], torch.bfloat16: [3e38, -1e-40], torch.int64: [-2**63, 2**63 - 1],
             torch.int32: [-2**31, 2**31 - 1], torch.int16: [-2**15, 2**15 - 1], torch.int8: [-128, 127],
             torch.uint8: [0, 255], torch.bool: [True, False, True]}
    return {DTYPES[d]: torch.tensor(v, dtype=d) for d, v in edges.items()}


def shared():
    """Views of one storage: whole, from an offset, with a row in both, and with strides that do not matter."""
    t = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {"all": t, "again": t.view(2, 12), "tail": t[2:], "middle": t[1:3], "row": t[1], "flat": t.view(-1)[5:9],
            "one row": t[1:2], "column of a row": t[1:2].t(), "one": t[3, 5], "none": t[4:], "other": torch.ones(2)}


def shapes():
    t = torch.arange(8, dtype=torch.int32)
    return {"scalar": torch.tensor(2.5), "empty": torch.zeros(0), "no rows": torch.zeros(0, 3),
            "no width": torch.zeros(2, 0), "eight": t.reshape(2, 1, 2, 1, 2, 1, 1, 1),
            "long": t.reshape(1, 8).expand(1, 8)}


def parameter():
    return {"learnt": nn.Parameter(torch.ones(2, 2)), "fixed": nn.Parameter(torch.zeros(3), requires_grad=False),
            "plain": torch.full((2,), 7.0)}


def training():
    """What a training script keeps: the optimizer's tensors lie deeper, and are passed over."""
    net = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {"state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}


READ = {"module.pt": (module, {}), "plain.pt": (plain, {}), "dtypes.pt": (dtypes, {}), "shared.pt": (shared, {}),
        "shapes.pt": (shapes, {}), "parameter.pt": (parameter, {}), "training.pt": (training, {}),
        "model.pt": (lambda: {"model": {"w": torch.ones(3)}, "args": None}, {}),
        "protocol5.pt": (module, {"pickle_protocol": 5})}

REFUSED = {
    "transposed.pt": (lambda: {"t": torch.ones(2, 3).t()}, {}, "tensor t: expected a contiguous tensor, "
                      "found shape [3, 2] with strides [1, 3]"),
    "legacy.bin": (lambda: {"t": torch.ones(1)}, {"_use_new_zipfile_serialization": False},
                   "found the format before it"),
    "protocol0.pt": (lambda: {"t": torch.ones(1)}, {"pickle_protocol": 0}, "expected a pickle of protocol 2 to 5"),
    "float8.pt": (lambda: {"t": torch.ones(1).to(torch.float8_e4m3fn)}, {}, "found torch._utils _rebuild_tensor_v3"),
    "whole.pt": (lambda: nn.Linear(1, 1), {}, "found torch.nn.modules.linear Linear"),
    "tensor.pt": (lambda: torch.ones(1), {}, "expected a state_dict, a dictionary of tensors, found a tensor"),
    "numpy.pt": (lambda: {"t": torch.ones(1), "n": np.float64(1)}, {}, "scalar; the pickle was not executed"),
    "set.pt": (lambda: {"t": torch.ones(1), "s": {1}}, {"pickle_protocol": 4}, "found EMPTY_SET (0x8f)"),
    "two.pt": (lambda: {"a": {"t": torch.ones(1)}, "model": {"t": torch.ones(1)}}, {}, "found several, a and model"),
}


def golden(tensors):
    out = {}
    for name, t in sorted(tensors.items()):
        flat = t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.zeros(0, dtype=torch.uint8)
        out[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "hex": flat.numpy().tobytes().hex()}
    return out


def loaded(path):
    state = torch.load(path, map_location="cpu", weights_only=False)      # files of our own
    for key in ("state_dict", "model", "module"):
        state = state.get(key, state)
    return {name: t for name, t in state.items() if isinstance(t, torch.Tensor)}


def shards(folder):
    """Two files and their index. The second has a tensor that is not listed, and one that is listed in the first."""
    os.makedirs(folder, exist_ok=True)
    parts = [{"a": torch.arange(3.0), "c": torch.ones(2, dtype=torch.float16)},
             {"b": torch.arange(4.0).reshape(2, 2), "a": torch.zeros(3), "unlisted": torch.ones(1)}]
    files = [f"pytorch_model-{i + 1:05}-of-00002.bin" for i in range(2)]
    for part, file in zip(parts, files):
        torch.save(part, os.path.join(folder, file))
    where = {"a": files[0], "c": files[0], "b": files[1]}
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 32}, "weight_map": where}, f, indent=2)
    return {name: loaded(os.path.join(folder, file))[name] for name, file in where.items()}


def main(folder):
    torch.manual_seed(1)
    read, refused = {}, {}
    for file, (make, options) in READ.items():
        torch.save(make(), os.path.join(folder, file), **options)
        read[file] = golden(loaded(os.path.join(folder, file)))
    for file, (make, options, words) in REFUSED.items():
        torch.save(make(), os.path.join(folder, file), **options)
        refused[file] = words
    read["sharded/"] = golden(shards(os.path.join(folder, "sharded")))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"read": read, "refused": refused}, f, indent=0)
        f.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
