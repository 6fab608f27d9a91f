"""tiny.py - a tiny random target in torch: its checkpoint for speclab, and features of texts that it writes (docs/training.md).

The same arithmetic as models/block.c, written down a second time; used by the tests in this folder.
"""
import json
import os
import pathlib
import subprocess
import sys

import safetensors.torch
import torch
import torch.nn.functional as F

from training.eagle3 import rms, rope_tables, rotate

CONFIG = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "vocab_size": 96, "num_hidden_layers": 8,
          "tie_word_embeddings": False}
LAYERS = (2, 4, 5)


def weights(seed=0, c=CONFIG):
    g, h = torch.Generator().manual_seed(seed), c["hidden_size"]

    def made(*shape):
        return torch.randn(shape, generator=g) * (1.2 / shape[-1] ** 0.5 if len(shape) == 2 else 0.1) + (len(shape) == 1)
    t = {"model.embed_tokens.weight": made(c["vocab_size"], h), "lm_head.weight": made(c["vocab_size"], h) * 4, "model.norm.weight": made(h)}
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, shape in {"self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
                            "self_attn.o_proj": (h, q), "mlp.gate_proj": (c["intermediate_size"], h),
                            "mlp.up_proj": (c["intermediate_size"], h), "mlp.down_proj": (h, c["intermediate_size"]),
                            "input_layernorm": (h,), "post_attention_layernorm": (h,)}.items():
            t[p + name + ".weight"] = made(*shape)
    return t


def write_model(path, t, c=CONFIG):
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(t, str(path / "model.safetensors"), {"format": "pt"})
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                                                  "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 0, **c}), encoding="utf-8")


def shared(t, kind):
    """What target.safetensors has: the ends of the target; for a draft model its layers, too."""
    return {n.removeprefix("model."): x for n, x in t.items() if kind == "small" or ".layers." not in n}


def forward(t, ids, c=CONFIG, layers=None):
    """ids [B, L]: the streams entering LAYERS [B, L, 3 H], the normed state [B, L, H], logits [B, L, V]. layers: None: all."""
    b, n = ids.shape
    x, streams, eps = F.embedding(ids, t["model.embed_tokens.weight"]), [], c["rms_norm_eps"]
    tables = rope_tables(torch.arange(n), c["head_dim"], c["rope_theta"])
    for i in range(c["num_hidden_layers"]) if layers is None else layers:
        if i in LAYERS:
            streams.append(x)

        def w(name, i=i):
            return t[f"model.layers.{i}.{name}.weight"]
        y = rms(x, w("input_layernorm"), eps)
        q, k, v = ((y @ w(f"self_attn.{m}_proj").T).view(b, n, -1, c["head_dim"]).transpose(1, 2) for m in "qkv")
        groups = c["num_attention_heads"] // c["num_key_value_heads"]
        k, v = (m.repeat_interleave(groups, 1) for m in (rotate(k, *tables), v))
        a = F.scaled_dot_product_attention(rotate(q, *tables), k, v, is_causal=True)
        x = x + a.transpose(1, 2).reshape(b, n, -1) @ w("self_attn.o_proj").T
        y = rms(x, w("post_attention_layernorm"), eps)
        x = x + (F.silu(y @ w("mlp.gate_proj").T) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    final = rms(x, t["model.norm.weight"], eps)
    return torch.cat(streams, -1) if streams else None, final, final @ t["lm_head.weight"].T


@torch.no_grad()
def texts(t, n, length, temperature, seed=1, c=CONFIG):
    """n conversations: 4 random tokens, then answers sampled by the target."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, c["vocab_size"], (n, 4), generator=g)
    while ids.shape[1] < length:
        logits = forward(t, ids, c)[2][:, -1]
        new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=g) if temperature else logits.argmax(-1, keepdim=True)
        ids = torch.cat((ids, new), 1)
    return ids


@torch.no_grad()
def write_features(path, t, ids, kind, k=16, per_shard=64, dtype=torch.float32, c=CONFIG):
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(shared(t, kind), str(path / "target.safetensors"), {a: str(b) for a, b in c.items()})
    for i, first in enumerate(range(0, len(ids), per_shard)):
        some = ids[first:first + per_shard]
        streams, final, logits = forward(t, some, c)
        top = logits.softmax(-1).topk(k, -1)
        mask = torch.ones_like(some, dtype=torch.uint8)
        mask[:, :4] = 0
        n, length = some.shape
        tensors = {"offsets": torch.arange(n + 1) * length, "input_ids": some.reshape(-1).int(), "loss_mask": mask.reshape(-1),
                   "states": (streams if kind == "eagle3" else final).reshape(n * length, -1).to(dtype),
                   "top_ids": top.indices.reshape(-1, k).int(), "top_p": top.values.reshape(-1, k)}
        if kind == "small":
            del tensors["states"]
        safetensors.torch.save_file({a: b.contiguous() for a, b in tensors.items()}, str(path / f"features-{i:05}.safetensors"), {
            "format": "speclab-features-1", "kind": kind, "model": "tiny", "model_hash": "0", "layers": ",".join(map(str, LAYERS)),
            "activations": "f32", "cache": "f32", "data": "0", "first": str(first), "vocab_size": str(c["vocab_size"])})


def write_features_by_engine(out, *words):
    """`speclab features WORDS`: what the engine computes."""
    done = subprocess.run([*os.environ["SANITIZED"].split(), sys.executable, "-B", "-m", "speclab", "features", *map(str, words), "--activations", "f32",
                           "--out", str(out)], capture_output=True, text=True, check=False,
                          env=dict(os.environ, SPECLAB_PROGRAM=os.path.join(os.environ["BUILD"], "speclab")))
    assert done.returncode == 0, done.stderr
