"""medusa.py - Medusa-1: head h predicts t[i+2+h] from the target's normed state of row i (models/heads/medusa.c
computes the same).

The heads are residual blocks, z + silu(W z + b). `output`: `one` LM head for all of them, over the draft vocabulary
(vLLM's form with token_map), `own`, one each, or `target`: the target's LM head, which is unchanged and not in the file
(blockwise parallel decoding, Stern et al. 2018, arXiv 1811.03115).
"""
import torch
import torch.nn.functional as F
from torch import nn


class Medusa(nn.Module):
    kind, features = "medusa", "medusa"

    def __init__(self, target, config, ids, o):
        super().__init__()
        h = config["hidden_size"]
        self.c, self.n, self.layers = config, o.get("heads", 4), o.get("layers", 1)
        self.output = o.get("output", "one")
        self.register_buffer("ids", torch.arange(config["vocab_size"]) if ids is None else ids)
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(h, h) for _ in range(self.layers)) for _ in range(self.n))
        for p in self.blocks.parameters():
            nn.init.zeros_(p)                                              # a head begins as the identity
        rows = target["lm_head.weight"][self.ids].float()
        self.lm_heads = nn.ParameterList(nn.Parameter(rows.clone()) for _ in range(self.n if self.output == "own" else 1))
        self.lm_heads.requires_grad_(self.output != "target")

    def depths(self, batch, n):
        """Yields for depth 0..n-1 the residual block's output [B, L, H]: depth j is head j."""
        states = batch["states"].float()
        for blocks in self.blocks[:n]:
            z = states
            for block in blocks:
                z = z + F.silu(block(z))
            yield z

    def logits(self, x, depth):
        return F.linear(x, self.lm_heads[depth if self.output == "own" else 0])

    def regression(self, x, batch, depth):
        del x, batch, depth
        return 0.0
