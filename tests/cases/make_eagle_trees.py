#!/usr/bin/env python3
"""eagle_trees.json: best-first trees by EAGLE's own builder; eagle_trees_fixed.json: fixed trees by Medusa's.

    make_eagle_trees.py OUT.json FIXED.json REPOSITORIES

REPOSITORIES as in make_heads.py.  EAGLE's topK_genrate runs as it is, that of cnets1.py (EAGLE-2) for even seeds, that of
cnets.py (EAGLE-3) for odd ones; the layer below it is replaced by one whose states number paths of tokens, and which
checks that a row's mask, position and state belong to the same path.  The row of logits after a path depends on seed and
path only:

    h = seed;  for each token: h = h * 1000003 + token + 1      modulo 2^64
    logit of token v = ((number v of splitmix64 from h) >> 40) * 2^-21 - 4      exact in float32

A case: the arguments of topK_genrate; the nodes it kept with tokens, parents (0: the root) and cumulative
log-probabilities, as it computes them in float32; `margin`, the smallest difference of two values whose order the result
depends on.

Of a fixed tree: `nodes` lists for each leaf where its path lies in the candidates (retrieve_indices), `candidates` has one row
for each of 20 seeds: the root 0 and the tokens that generate_candidates gives for heads whose logits are those after path
[head].
"""
import importlib
import json
import random
import sys

import numpy as np
import torch
from make_heads import extract, published_config

VOCAB, CASES, INPUTS, MASK = 64, 200, 20, (1 << 64) - 1


def logits_after(seed, path):
    h = seed
    for token in path:
        h = (h * 1000003 + token + 1) & MASK
    z = np.uint64(h) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, VOCAB + 1, dtype=np.uint64)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -21) - np.float32(4))


def paths_model(cnets):
    class Paths(cnets.Model):
        def begin(self, seed):
            self.seed, self.path, self.pending, self.stable_kv = seed, [[]], [], None

        def forward(self, hidden_states, input_ids, past_key_values=None, position_ids=None, use_cache=None, **_):
            n, width = input_ids.shape[1], hidden_states.shape[-1]
            assert hidden_states.shape[1] == n
            if past_key_values is None:              # the text: its last state is the empty path
                self.certain = n
                return torch.zeros(1, n, width), [[torch.zeros(1, 1, n, 1)]]
            self.pending += input_ids[0].tolist()
            mask, out = self.tree_mask[0, 0], torch.zeros(1, n, width)
            assert mask.shape == (n, len(self.pending)) and past_key_values[0][0].shape[2] == self.certain + len(self.pending) - n
            for i in range(n):
                path = self.path[int(hidden_states[0, i, 0])] + [int(input_ids[0, i])]
                assert path == [t for t, seen in zip(self.pending, mask[i]) if seen]
                assert position_ids[i] == self.certain + len(path) - 1
                out[0, i, 0] = len(self.path)
                self.path.append(path)
            return out, [[torch.zeros(1, 1, self.certain + len(self.pending), 1)]]

        def head(self, states):
            return torch.stack([logits_after(self.seed, self.path[int(s[0])]) for s in states])
    return Paths


class Head(torch.nn.Module):
    """EAGLE-3 calls its own head, not the one that is passed."""

    def __init__(self, head):
        super().__init__()
        self.forward = head


class RecordedTopk:
    """Records the calls of torch.topk."""

    def __init__(self):
        self.topk, self.calls = torch.topk, []

    def __enter__(self):
        torch.topk = self.record
        return self

    def __exit__(self, *_):
        torch.topk = self.topk

    def record(self, x, k, dim=-1):
        result = self.topk(x, k, dim=dim)
        self.calls.append((x, k, result.indices))
        return result

    def margin(self):
        smallest = float("inf")
        for i, (x, k, _) in enumerate(self.calls):
            best = self.topk(x, min(k + 1, x.shape[-1])).values
            gaps = best[..., :-1] - best[..., 1:]
            if i + 1 == len(self.calls):             # the order within the last result does not matter
                gaps = gaps[..., k - 1:]
            smallest = min([smallest] + gaps.flatten().tolist())
        return smallest


def build(paths, seed, total_token, depth, top_k):
    model = paths(published_config(hidden_size=2, num_attention_heads=1, num_key_value_heads=1, intermediate_size=2, vocab_size=VOCAB,
                                   draft_vocab_size=VOCAB),
                  total_tokens=total_token, depth=depth, top_k=top_k)
    model.init_tree()
    model.begin(seed)
    model.norm, model.lm_head = torch.nn.Identity(), Head(model.head)
    with RecordedTopk() as recorded, torch.no_grad():
        tokens, leaves, mask, position = model.topK_genrate(torch.zeros(1, 2, 2), torch.tensor([[3, 5, 7]]), model.head, None)
    scores, kept = recorded.calls[-1][0], sorted(recorded.calls[-1][2].tolist())
    mask, position, parents = mask[0, 0].bool(), position.tolist(), []
    for i in range(1, total_token):
        above = [j for j in range(total_token) if mask[i, j] and position[j] == position[i] - 1]
        assert len(above) == 1 and mask[i].sum() == position[i] + 1
        parents += above
    assert tokens[0, 0] == 7 and max(position) == (leaves >= 0).sum(1).max() - 1
    return {"seed": seed, "total_token": total_token, "depth": depth, "top_k": top_k, "margin": float(f"{recorded.margin():.3g}"),
            "tokens": tokens[0, 1:].tolist(), "parents": parents, "scores": [float(f"{s:.8g}") for s in scores[kept].tolist()]}


def fixed(utils, choices):
    choices = [list(path) for path in choices]
    buffers, rows = utils.generate_medusa_buffers(choices, device="cpu"), []
    nodes = [[i for i in leaf if i >= 0] for leaf in buffers["retrieve_indices"].tolist()]
    for seed in range(INPUTS):
        heads = torch.stack([logits_after(seed, [h]) for h in range(max(map(len, choices)))])[:, None, None]
        best = torch.topk(heads, utils.TOPK + 1).values
        assert (best[..., 1:] < best[..., :-1]).all()
        root = torch.zeros(1, 1, VOCAB)              # its argmax is 0
        root[0, 0, 0] = 1
        paths, flat = utils.generate_candidates(heads, root, buffers["tree_indices"], buffers["retrieve_indices"])
        for leaf, path in zip(nodes, paths.tolist()):
            assert path[:len(leaf)] == [int(flat[0, i]) for i in leaf]
        rows.append(flat[0].tolist())
    return nodes, rows


def main():
    out_path, fixed_path, repositories = sys.argv[1:]
    torch.set_num_threads(1)
    extract(repositories)
    paths = [paths_model(importlib.import_module("eagle_model." + m)) for m in ("cnets1", "cnets")]
    draw = random.Random(1)
    cases = []
    while len(cases) < CASES:
        total_token, depth, top_k = draw.randint(5, 60), draw.randint(1, 6), draw.randint(2, 10)
        if top_k + depth * top_k ** 2 >= total_token - 1:
            cases.append(build(paths[len(cases) % 2], len(cases), total_token, depth, top_k))
    with open(out_path, "w", encoding="ascii", newline="\n") as out:
        out.write('{"vocab": %d, "cases": [\n' % VOCAB + ",\n".join(json.dumps(c) for c in cases) + "]}\n")
    print(f"{sum(len(c['tokens']) for c in cases)} nodes in {len(cases)} trees, smallest margins {sorted(c['margin'] for c in cases)[:4]}")

    utils, medusa, eagle = (importlib.import_module(m)
                            for m in ("medusa_model.utils", "medusa_model.medusa_choices", "eagle_model.choices"))
    trees = {"eagle_25": eagle.mc_sim_7b_63, **{n: t for n, t in vars(medusa).items() if not n.startswith("_")}}
    with open(fixed_path, "w", encoding="ascii", newline="\n") as out:
        out.write('{"vocab": %d, "trees": {\n' % VOCAB)
        parts = [(json.dumps(n), *fixed(utils, t)) for n, t in trees.items()]
        out.write(",\n".join('%s: {"nodes": %s, "candidates": [\n%s]}' % (n, json.dumps(nodes), ",\n".join(map(json.dumps, rows)))
                             for n, nodes, rows in parts) + "}}\n")
    print(f"{len(trees)} fixed trees: {', '.join(trees)}")


if __name__ == "__main__":
    main()
