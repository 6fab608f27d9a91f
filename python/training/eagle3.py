"""eagle3.py - EAGLE-3 and EAGLE-1 heads: one decoder layer that reads states of the target (models/heads/eagle.h
computes the same).

Row i reads the token after it, t[i+1], and the target's state of row i, and predicts t[i+2]. Training-time test: at
depth j the row that started at r reads t[r+j+1] and its own output of depth j-1, is at position r+j, and attends to the
rows 0..r of depth 0, computed from the target's states, and to its own rows of depths 1..j, as they are in the
drafter's cache.

Shapes: B conversations, L positions, H width, A heads, G key-value heads, D head size.
"""
import torch
import torch.nn.functional as F
from torch import nn


def rms(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def shifted(x, n):
    """Returns x [B, L, ..] shifted: row r is row r + n of x; zeros at the end."""
    return torch.cat((x[:, n:], torch.zeros_like(x[:, :n])), 1)


def rope_tables(positions, head_dim, theta):
    angle = positions[:, None].float() * theta ** (-torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    return angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)             # [L, D]


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attend(q, keys, values):
    """q [B, A, L, D]; keys, values: those of depths 0..j, each [B, G, L, D]. Depth 0 is causal; at the others a row
    attends to itself."""
    b, heads, n, size = q.shape
    kv = keys[0].shape[1]
    q = (q * size ** -0.5).reshape(b, kv, heads // kv * n, size)          # the heads of one key-value head are adjacent
    scores = (q @ keys[0].transpose(-1, -2)).view(b, heads, n, n).float()
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(later, float("-inf"))
    if len(keys) == 1:
        p = scores.softmax(-1).to(values[0].dtype)
        return (p.view(b, kv, -1, n) @ values[0]).view(b, heads, n, size)
    q = q.view(b, kv, heads // kv, n, size)
    own = torch.stack([(q * k[:, :, None]).sum(-1).float() for k in keys[1:]], -1).view(b, heads, n, -1)
    p = torch.cat((scores, own), -1).softmax(-1).to(values[0].dtype)
    out = (p[..., :n].reshape(b, kv, -1, n) @ values[0]).view(b, kv, heads // kv, n, size)
    p = p[..., n:].reshape(b, kv, heads // kv, n, -1)
    for j, v in enumerate(values[1:]):
        out = out + p[..., j:j + 1] * v[:, :, None]
    return out.reshape(b, heads, n, size)


class Layer(nn.Module):
    def __init__(self, c, reads):
        super().__init__()
        h, size, inner = c["hidden_size"], c["head_dim"], c["intermediate_size"]
        self.c = c
        self.q_proj = nn.Linear(reads, c["num_attention_heads"] * size, bias=False)
        self.k_proj = nn.Linear(reads, c["num_key_value_heads"] * size, bias=False)
        self.v_proj = nn.Linear(reads, c["num_key_value_heads"] * size, bias=False)
        self.o_proj = nn.Linear(c["num_attention_heads"] * size, h, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(h, inner, bias=False), nn.Linear(h, inner, bias=False)
        self.down_proj = nn.Linear(inner, h, bias=False)
        self.post_attention_layernorm = nn.Parameter(torch.ones(h))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.02)
        for m in (self.o_proj, self.down_proj):                          # the layer begins as the residual stream alone
            nn.init.normal_(m.weight, std=0.002)

    def forward(self, x, read, tables, keys, values):
        """x [B, L, H] the residual stream, read [B, L, *] the input of attention. Appends to keys and values."""
        b, n, _ = read.shape

        def heads(y):
            return y.view(b, n, -1, self.c["head_dim"]).transpose(1, 2)
        keys.append(rotate(heads(self.k_proj(read)), *tables))
        values.append(heads(self.v_proj(read)))
        a = attend(rotate(heads(self.q_proj(read)), *tables).to(values[0].dtype), [k.to(values[0].dtype) for k in keys], values)
        x = x + self.o_proj(a.transpose(1, 2).reshape(b, n, -1))
        y = rms(x, self.post_attention_layernorm, self.c["rms_norm_eps"])
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Eagle3(nn.Module):
    """ids: the target's id of each draft id, ascending; None: all."""
    kind, features = "eagle3", "eagle3"

    def __init__(self, target, config, ids, o):
        super().__init__()
        h = config["hidden_size"]
        self.c = {**config, "intermediate_size": o.get("intermediate_size") or config["intermediate_size"]}
        self.register_buffer("embedding", target["embed_tokens.weight"].float(), persistent=False)
        self.register_buffer("ids", torch.arange(config["vocab_size"]) if ids is None else ids)
        self.layer = Layer(self.c, 2 * h)
        self.fc = nn.Linear(o["state_width"], h, bias=False)
        self.input_layernorm, self.hidden_norm = nn.Parameter(torch.ones(h)), nn.Parameter(torch.ones(h))
        self.norm = nn.Parameter(target["norm.weight"].float().clone())
        self.lm_head = nn.Linear(h, len(self.ids), bias=False)
        nn.init.normal_(self.fc.weight, std=0.002)
        with torch.no_grad():                                # begins with the last of the streams and the target's rows
            self.fc.weight[:, -h:] += torch.eye(h)
            self.lm_head.weight.copy_(target["lm_head.weight"][self.ids])

    def depths(self, batch, n):
        """Yields for depth 0..n-1 the input of the LM head, [B, L, H]: row r at depth j predicts t[r+j+2]."""
        places = torch.arange(batch["ids"].shape[1], device=self.ids.device)
        g, keys, values = self.fc(batch["states"].to(self.fc.weight.dtype)).float(), [], []
        for j in range(n):
            e = F.embedding(shifted(batch["ids"], j + 1), self.embedding)
            read = torch.cat((rms(e, self.input_layernorm, self.c["rms_norm_eps"]),
                              rms(g, self.hidden_norm, self.c["rms_norm_eps"])), -1)
            tables = rope_tables(places + j, self.c["head_dim"], self.c["rope_theta"])
            g = self.layer(g, read, tables, keys, values)
            yield rms(g, self.norm, self.c["rms_norm_eps"])

    def logits(self, x, depth):
        del depth
        return self.lm_head(x)

    def regression(self, x, batch, depth):
        del x, batch, depth
        return 0.0


class Eagle1(nn.Module):
    """EAGLE-1: fc of token and normed state, no norm before attention, the target's LM head. Its output imitates the
    next state."""
    kind, features = "eagle", "eagle"

    def __init__(self, target, config, ids, o):
        super().__init__()
        assert ids is None                                                # the LM head is the target's
        h = config["hidden_size"]
        self.c, self.weight_of_states = config, o.get("regression", 1.0)
        self.register_buffer("embedding", target["embed_tokens.weight"].float(), persistent=False)
        self.register_buffer("output", target["lm_head.weight"].float(), persistent=False)
        self.register_buffer("ids", torch.arange(config["vocab_size"]))
        self.fc, self.layer = nn.Linear(2 * h, h), Layer(config, h)
        nn.init.normal_(self.fc.weight, std=0.002)
        nn.init.zeros_(self.fc.bias)
        with torch.no_grad():
            self.fc.weight[:, h:] += torch.eye(h)

    def depths(self, batch, n):
        places = torch.arange(batch["ids"].shape[1], device=self.ids.device)
        f, keys, values = batch["states"].float(), [], []
        for j in range(n):
            x = self.fc(torch.cat((F.embedding(shifted(batch["ids"], j + 1), self.embedding), f), -1)).float()
            f = self.layer(x, x, rope_tables(places + j, self.c["head_dim"], self.c["rope_theta"]), keys, values)
            yield f

    def logits(self, x, depth):
        del depth
        return F.linear(x, self.output)

    def regression(self, x, batch, depth):
        """Returns the distance from the target's state of row r + depth + 1."""
        error = F.smooth_l1_loss(x, shifted(batch["states"].float(), depth + 1), reduction="none").mean(-1)
        return self.weight_of_states * error
