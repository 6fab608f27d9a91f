"""A GRU that begins with the target's hidden state. It learns from the texts while it drafts, so it needs no training beforehand.

It needs a Python with torch: SPECLAB_PYTHON=python3 ./run generate MODEL --plugin examples/gru.py --drafter gru:tokens=3 PROMPT
"""

import torch
from torch import nn

import speclab


class Gru(speclab.Drafter):
    "a GRU over the target's last hidden state, trained while it drafts"

    layers = (speclab.FINAL,)  # the hidden states that advance gets
    remembers = "others"  # drafts depend on what it learned from earlier texts
    rate: float = 0.003

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.ModuleDict({"begin": nn.Linear(self.width, 64), "embed": nn.Embedding(self.vocab, 64),
                                  "cell": nn.GRUCell(64, 64), "out": nn.Linear(64, self.vocab)})  # fmt: skip
        self.learn = torch.optim.Adam(self.net.parameters(), self.rate)
        self.state = torch.zeros(self.slots, 64)

    def advance(self, a):  # state i of the target predicted token i
        tokens = torch.tensor(a.tokens).long()
        h = self.net.cell(self.net.embed(tokens), self.net.begin(torch.tensor(a.states[:, 0])))
        self.state[a.slot] = h[-1].detach()
        if len(tokens) > 1:
            self.learn.zero_grad()
            nn.functional.cross_entropy(self.net.out(h[:-1]), tokens[1:]).backward()
            self.learn.step()

    @torch.no_grad()
    def row(self, slot, path):  # the engine draws from the logits: q is true by construction
        h = self.state[slot]
        for token in path[1:].tolist():  # the root is in the state already
            h = self.net.cell(self.net.embed.weight[token], h)
        return self.net.out(h).numpy()
