#!/usr/bin/env python3
"""random_head.py - writes an EAGLE-3 head with random weights in bf16, of the shape of its target, for decoding whose text does not matter.

random_head.py SPECLAB TARGET IDS FOLDER: SPECLAB is the program; the head proposes IDS evenly spaced ids of the target's vocabulary.
FOLDER gets config.json and model.safetensors in the published form. Python's standard library is sufficient.
"""
import array
import json
import os
import random
import struct
import subprocess
import sys

BLOCK = 1 << 16  # numbers that are drawn; they repeat, which no time depends on


def tensors(t, ids):
    """Shapes by name."""
    width, heads, kv = t["width"], t["heads"] * t["head_dim"], t["kv_heads"] * t["head_dim"]
    return {"fc.weight": (width, 3 * width), "midlayer.self_attn.q_proj.weight": (heads, 2 * width),
            "midlayer.self_attn.k_proj.weight": (kv, 2 * width), "midlayer.self_attn.v_proj.weight": (kv, 2 * width),
            "midlayer.self_attn.o_proj.weight": (width, heads), "midlayer.mlp.gate_proj.weight": (t["hidden"], width),
            "midlayer.mlp.up_proj.weight": (t["hidden"], width), "midlayer.mlp.down_proj.weight": (width, t["hidden"]),
            "midlayer.input_layernorm.weight": (width,), "midlayer.hidden_norm.weight": (width,),
            "midlayer.post_attention_layernorm.weight": (width,), "norm.weight": (width,), "lm_head.weight": (ids, width)}  # fmt: skip


def main(speclab, target, ids, folder):
    t, ids = json.loads(subprocess.run([speclab, "inspect", target, "--no-probe", "--json"], check=True, capture_output=True).stdout), int(ids)
    few, layers, draw = t["layers"] < 7, t["layers"], random.Random(1)
    block = array.array("H", (struct.unpack("<HH", struct.pack("<f", draw.gauss(0, 0.02)))[1] for _ in range(BLOCK))).tobytes()
    one = array.array("H", [0x3F80]).tobytes()
    header, at = {}, 0
    for name, shape in tensors(t, ids).items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    spaced = array.array("q", (i * t["vocab"] // ids - i for i in range(ids))).tobytes()
    header["d2t"] = {"dtype": "I64", "shape": [ids], "data_offsets": [at, at + len(spaced)]}
    os.makedirs(folder)
    with open(f"{folder}/model.safetensors", "wb") as f:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(t, ids).items():
            left = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            if len(shape) == 1:
                f.write(one * shape[0])
                continue
            while left > 0:
                left -= f.write(block[:left])
        f.write(spaced)
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": t["width"], "intermediate_size": t["hidden"],
              "num_hidden_layers": 1, "num_attention_heads": t["heads"], "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"],
              "vocab_size": t["vocab"], "draft_vocab_size": ids, "max_position_embeddings": t["context"], "rope_theta": t["rope_theta"],
              "rms_norm_eps": 1e-05, "hidden_act": "silu",
              "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1 if few else 2, layers // 2, layers if few else layers - 3]}}  # fmt: skip
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: random_head.py SPECLAB TARGET IDS FOLDER")
    main(*sys.argv[1:])
