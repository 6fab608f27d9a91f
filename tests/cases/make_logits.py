#!/usr/bin/env python3
"""logits_<name>.json: logits of tiny random Llama models, by transformers in float32.

    make_logits.py OUT_DIR

Makes the eight models below from a generator that a C program can repeat bit for bit, and runs them.

The generator.  Tensor number t is its place in the sorted list of the checkpoint's tensor names (a tied model
has no lm_head.weight); element i counts in row-major order; all arithmetic is modulo 2^64:
    z = seed * 0x9E3779B97F4A7C15 + (t + 1) * 0xBF58476D1CE4E5B9 + i * 0x94D049BB133111EB
    z ^= z >> 30;  z *= 0xBF58476D1CE4E5B9;  z ^= z >> 27;  z *= 0x94D049BB133111EB;  z ^= z >> 31
    u = (z >> 40) * 2^-24                      (exact in float32)
    model.embed_tokens.weight  (u - 0.5) * 2
    other matrices             (u - 0.5) * 2 * scale,  scale = (float) sqrt(3.0 / in_features)    one rounding
    norm weights               1 + (u - 0.5) * 0.5     the product is exact, the sum rounds once
    biases                     (u - 0.5) * 0.2f        one rounding
Token number j is the hash of t = 1000000, i = j, modulo the vocabulary size.
"""
import json
import math
import os
import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROWS = [0, 1, 7, 20, 39]
COUNT = 40
MASK = (1 << 64) - 1


def config(vocab, width, hidden, layers, heads, kv, head_dim, tied, theta, eps, **extra):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": width,
            "intermediate_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "head_dim": head_dim, "hidden_act": "silu", "max_position_embeddings": 256,
            "rms_norm_eps": eps, "rope_theta": theta, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", **extra}


CONFIGS = {
    "mha": config(97, 32, 56, 2, 4, 4, 8, False, 1e4, 1e-5),
    "gqa": config(128, 48, 80, 3, 6, 2, 8, True, 1e5, 1e-5),
    "odd": config(131, 40, 52, 2, 5, 1, 8, False, 5e5, 1e-6),
    "one": config(64, 16, 24, 1, 2, 1, 8, True, 1e4, 1e-5),
    "headdim": config(101, 32, 64, 2, 4, 2, 12, False, 1e4, 1e-5),
    "llama3": config(128, 32, 64, 2, 4, 2, 16, True, 5e5, 1e-5, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}),
    "linear": config(96, 32, 64, 2, 4, 4, 8, False, 1e4, 1e-5, rope_scaling={"rope_type": "linear", "factor": 2.0}),
    "bias": config(96, 32, 64, 2, 4, 2, 8, False, 1e4, 1e-5, attention_bias=True),
}


def hashes(seed, t, count):
    """uint64[count]; numpy's unsigned integers wrap."""
    start = (seed * 0x9E3779B97F4A7C15 + (t + 1) * 0xBF58476D1CE4E5B9) & MASK
    z = np.uint64(start) + np.arange(count, dtype=np.uint64) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def tensor(seed, t, name, shape):
    f = np.float32
    u = (hashes(seed, t, math.prod(shape)) >> np.uint64(40)).astype(f) * f(2.0 ** -24)
    c = u - f(0.5)
    if name.endswith("embed_tokens.weight"):
        v = c * f(2)
    elif name.endswith("norm.weight"):
        v = f(1) + c * f(0.5)
    elif name.endswith(".bias"):
        v = c * f(0.2)
    else:
        assert len(shape) >= 2, name
        v = (c * f(2)) * f(math.sqrt(3.0 / shape[-1]))
    assert v.dtype == np.float32
    return torch.from_numpy(v.reshape(shape))


def build(cfg, seed):
    torch.manual_seed(0)
    c = LlamaConfig.from_dict(cfg)
    # version 5 keeps both in rope_parameters: see that it took them
    rope = dict(cfg["rope_scaling"] or {"rope_type": "default"}, rope_theta=cfg["rope_theta"])
    assert {k: c.rope_parameters[k] for k in rope} == rope, c.rope_parameters
    c._attn_implementation = "eager"
    model = LlamaForCausalLM(c).to(torch.float32).eval()
    state = model.state_dict()
    names = sorted(n for n in state if not (cfg["tie_word_embeddings"] and n == "lm_head.weight"))
    made = {n: tensor(seed, t, n, tuple(state[n].shape)) for t, n in enumerate(names)}
    result = model.load_state_dict(made, strict=False)
    assert not result.unexpected_keys and set(result.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    if cfg["tie_word_embeddings"]:
        assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    for n, v in made.items():
        assert torch.equal(model.state_dict()[n], v), n
    return model, made


def number(x):
    text = f"{x:.9g}"
    assert np.float32(text) == np.float32(x)
    return text


def golden(path, name, seed, cfg):
    model, made = build(cfg, seed)
    tokens = [int(z) % cfg["vocab_size"] for z in hashes(seed, 1000000, COUNT)]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    assert logits.dtype == torch.float32 and torch.isfinite(logits).all()
    check = {n: v.flatten()[:4].tolist() for n, v in made.items()}
    with open(path, "w", encoding="ascii", newline="\n") as out:
        out.write('{"name": %s, "seed": %s,\n' % (json.dumps(name), json.dumps(seed)))
        out.write(' "config": %s,\n' % json.dumps(cfg))
        out.write(' "tokens": %s,\n "vocab": %d, "rows": %s,\n' % (json.dumps(tokens), logits.shape[1], json.dumps(ROWS)))
        out.write(' "check": {\n' + ",\n".join('  "%s": [%s]' % (n, ", ".join(map(number, v))) for n, v in check.items()) + "},\n")
        out.write(' "logits": [\n' + ",\n".join("  [" + ", ".join(map(number, logits[r].tolist())) + "]" for r in ROWS) + "]}\n")
    print(f"{name}: standard deviation {logits.std():.3f}, largest {logits.abs().max():.3f}")


def main(folder):
    torch.set_num_threads(1)
    for seed, (name, cfg) in enumerate(CONFIGS.items(), 1):
        golden(os.path.join(folder, f"logits_{name}.json"), name, seed, cfg)


if __name__ == "__main__":
    main(*sys.argv[1:])
