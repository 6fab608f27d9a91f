"""small.py - a draft model made from the target: some of its layers, repaired by distillation.

The layers are chosen by their worth. From all layers, the one without which the acceptance (sum of min(p, q),
temperature 1, on training texts) is highest is removed, until the requested number remains. Embedding and LM head
remain the target's.

Row r at depth j predicts token r + j + 2, like the rows of a head. Here it has read the tokens 0 .. r + j + 1 and
nothing else, so all depths are one pass over the text, shifted.
"""
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

from training import accept
from training.eagle3 import rms, rope_tables, rotate, shifted
from training.losses import log_q_at, overlap

PROJECTIONS = {"self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("gate_proj", "up_proj", "down_proj")}


class Layer(nn.Module):
    """A decoder layer of the target. tensors: by their names within the layer."""

    def __init__(self, c, tensors):
        super().__init__()
        self.c, self.names = c, sorted(tensors)
        self.weights = nn.ParameterList(nn.Parameter(tensors[n].float()) for n in self.names)

    def forward(self, x, tables):
        """x [B, L, H]."""
        w = dict(zip(self.names, self.weights))
        b, n, _ = x.shape

        def project(y, name):
            return F.linear(y, w[name + ".weight"], w.get(name + ".bias"))

        def heads(y):
            return y.view(b, n, -1, self.c["head_dim"]).transpose(1, 2)
        y = rms(x, w["input_layernorm.weight"], self.c["rms_norm_eps"])
        q, k, v = (heads(project(y, f"self_attn.{p}_proj")) for p in "qkv")
        q, k = rotate(q, *tables).to(v.dtype), rotate(k, *tables).to(v.dtype)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + project(a.transpose(1, 2).reshape(b, n, -1), "self_attn.o_proj")
        y = rms(x, w["post_attention_layernorm.weight"], self.c["rms_norm_eps"])
        return x + project(F.silu(project(y, "mlp.gate_proj")) * project(y, "mlp.up_proj"), "mlp.down_proj")


def inverse_frequency(c):
    """Returns RoPE's inverse frequencies, with the scaling of the target (Llama 3 or linear)."""
    f = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
    scaling = json.loads(c["rope_scaling"]) if c.get("rope_scaling") else {}
    if scaling.get("rope_type") == "linear":
        return f / scaling["factor"]
    if scaling.get("rope_type") == "llama3":
        turns = scaling["original_max_position_embeddings"] * f / (2 * torch.pi)
        share = ((turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])).clamp(0, 1)
        return share * f + (1 - share) * f / scaling["factor"]
    return f


class Small(nn.Module):
    """o: `keep`, layer numbers or how many; `train_embedding`: train the embedding and the LM head as well."""
    kind, features = "small", "small"

    def __init__(self, target, config, ids, o):
        super().__init__()
        assert ids is None                                                # the vocabulary is the target's
        keep = o.get("keep", 4)
        self.c, self.wanted = config, keep if isinstance(keep, int) else len(keep)   # recipe.py has checked the type
        total = config["num_hidden_layers"]
        self.kept = list(range(total)) if isinstance(keep, int) else list(keep)
        if not 0 < self.wanted <= total or self.kept != sorted(set(self.kept)) or not set(self.kept) <= set(range(total)):
            raise SystemExit(f"head: keep: expected ascending layers from 0 to {total - 1}, or how many of them, found {keep!r}")
        self.register_buffer("ids", torch.arange(config["vocab_size"]))
        self.register_buffer("frequency", inverse_frequency(config), persistent=False)
        ends = {"embedding": target["embed_tokens.weight"].float(),
                "output": None if config["tie_word_embeddings"] else target["lm_head.weight"].float()}
        for name, w in ends.items():
            if o.get("train_embedding", False):
                setattr(self, name, None if w is None else nn.Parameter(w))
            else:
                self.register_buffer(name, w, persistent=False)
        self.norm = nn.Parameter(target["norm.weight"].float())
        self.layers = nn.ModuleList(Layer(config, {n.removeprefix(f"layers.{i}."): t for n, t in target.items()
                                                   if n.startswith(f"layers.{i}.")}) for i in self.kept)

    def keep_only(self, kept):
        """kept: ascending layers, as prune left them in self.kept."""
        self.layers = nn.ModuleList(self.layers[self.kept.index(i)] for i in kept)
        self.kept = list(kept)

    def tables(self, n):
        angle = torch.arange(n, device=self.frequency.device)[:, None].float() * self.frequency
        return angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def depths(self, batch, n):
        """Yields [B, L, H] of depths 0 .. n - 1; while training one: the others would repeat the same rows."""
        x = F.embedding(batch["ids"], self.embedding)
        tables = self.tables(x.shape[1])
        for layer in self.layers:
            x = layer(x, tables)
        x = rms(x, self.norm, self.c["rms_norm_eps"])
        for j in range(1 if torch.is_grad_enabled() else n):
            yield shifted(x, j + 1)

    def logits(self, x, depth):
        del depth
        return F.linear(x, self.embedding if self.output is None else self.output)

    def regression(self, x, batch, depth):
        del x, batch, depth
        return 0.0

    # ---- the choice of layers

    def worth(self, x, rows, ids, p):
        """Returns the mean of sum of min(p, q) over the chosen rows; x: the stream that leaves the last layer."""
        logits = self.logits(shifted(rms(x, self.norm, self.c["rms_norm_eps"]), 1)[rows], 0)
        return float(overlap(log_q_at(logits, ids), p).mean())

    @torch.no_grad()
    def prune(self, batch, rows_limit=512, log=sys.stderr):
        """Removes layers until `wanted` are left. batch: conversations that are not held out."""
        rows = accept.rows_at(batch, 0)
        chosen = rows.flatten().nonzero()[:, 0]
        rows = torch.zeros_like(rows).flatten().index_fill_(0, chosen[::max(1, len(chosen) // rows_limit)], True).view(rows.shape)
        ids, p = accept.target_at(batch, rows, 0, accept.to_draft(self.ids, self.c["vocab_size"]))
        x0, tables = F.embedding(batch["ids"], self.embedding), self.tables(batch["ids"].shape[1])
        while len(self.layers) > self.wanted:
            best, before = (-1.0, 0), x0
            for i, layer in enumerate(self.layers):          # the stream before layer i is that of all layers before it
                x = before
                for later in self.layers[i + 1:]:
                    x = later(x, tables)
                best = max(best, (self.worth(x, rows, ids, p), i))
                before = layer(before, tables)
            worth, i = best
            print(f"train: without layer {self.kept[i]}: {len(self.layers) - 1} layers, acceptance {worth:.4f}", file=log, flush=True)
            del self.layers[i], self.kept[i]

    def as_target(self):
        """Returns tensors under the names of a Hugging Face model."""
        t = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        if self.output is not None:
            t["lm_head.weight"] = self.output
        for i, layer in enumerate(self.layers):
            t |= {f"model.layers.{i}.{n}": w for n, w in zip(layer.names, layer.weights)}
        return t
