"""induction.py - an EAGLE-3 head whose attention begins by copying: at a token that occurred before, it proposes the
token that followed it.

Texts repeat themselves, at temperature 0 most of all, and the one layer of a draft head learns to follow repetitions
slowly. Row i reads the token t[i+1] and the target's streams after t[i]. So at row r, an earlier row i with t[i] =
t[r+1] reads the token to propose, t[i+1]. For the query heads of the first key-value head:

query   the embedding of t[r+1]
key     the embedding of t[i], recovered from the first stream by least squares
value   the embedding of t[i+1]
output  is added to the residual stream in the direction of that token's row of the LM head

Each is computed by a random projection, query and key in the dimensions that RoPE turns least. The residual stream
carries the key's projection in a few of its directions. Only the beginning is set: training changes all of it.
(Induction heads: Olsson et al. 2022, arXiv 2209.11895.)
"""
import torch

from training.eagle3 import rms

SHARPNESS = 3.0   # sharpness of attention: a match scores 3 sqrt(head_dim) / 2, other tokens 2 in standard deviation
STRENGTH = 3.0    # strength of what is copied, relative to the residual stream


def orthonormal_rows(rows, width):
    return torch.linalg.qr(torch.randn(width, rows))[0].T


def recover(streams, embeddings):
    """Returns the matrix M with embeddings ~ M streams, by least squares with a small ridge. [N, H] each."""
    x, y = streams - streams.mean(0), embeddings - embeddings.mean(0)
    a = x.T @ x
    a += 1e-2 * a.diagonal().mean() * torch.eye(len(a))
    return torch.linalg.solve(a, x.T @ y).T


@torch.no_grad()
def begin(head, streams, ids):
    """Sets the head's weights. streams [N, streams x H] after the tokens ids [N]: some thousand of the target's."""
    h, size, layer = head.c["hidden_size"], head.c["head_dim"], head.layer
    embeddings = rms(head.embedding[ids], torch.ones(h), head.c["rms_norm_eps"])
    # pairs (d, d + size / 2) of the lower frequencies.
    slow = [d for half in (0, size // 2) for d in range(half + size // 4, half + size // 2)]
    match, copy = orthonormal_rows(len(slow), h), orthonormal_rows(size, h)
    rest = torch.eye(h) - match.T @ match
    last = streams[:, -h:] @ rest
    scale = last.square().mean().sqrt()
    head.fc.weight[:, :h] = scale * match.T @ match @ recover(streams[:, :h], embeddings)
    head.fc.weight[:, -h:] = rest
    heads = head.c["num_attention_heads"] // head.c["num_key_value_heads"]
    places = [q * size + d for q in range(heads) for d in slow]
    for projection, rows in ((layer.q_proj, heads * size), (layer.k_proj, size), (layer.v_proj, size)):
        projection.weight[:rows] *= 0.1
    layer.q_proj.weight[places, :h] = SHARPNESS * match.repeat(heads, 1)
    layer.k_proj.weight[slow, h:] = match
    every, reads = head.embedding[head.ids], head.lm_head.weight * head.norm  # the directions of the normed stream that
                                                                             # the logits of the draft ids read
    every, reads = (rms(x, torch.ones(h), head.c["rms_norm_eps"]) for x in (every, reads))
    layer.v_proj.weight[:size, :h] = copy @ recover(every, reads)
    layer.o_proj.weight[:, :heads * size] = STRENGTH * scale / heads * copy.T.repeat(1, heads)
