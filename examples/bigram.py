"""A bigram table: after a token, what followed it before in this text. Tokens are drawn from q, so every lossless rule stays exact.

./run generate smollm2-135m-instruct --plugin examples/bigram.py --drafter bigram:tokens=4 'Count: one two three, one two three, one two'
"""

from collections import Counter, defaultdict

import numpy as np

import speclab


class Bigram(speclab.Drafter):
    "a table of what followed each token of the text"

    makes = ("sampled",)  # how propose picks its tokens
    tokens: int = 4

    def __init__(self):
        self.after = [defaultdict(Counter) for _ in range(self.slots)]

    def advance(self, a):
        new = a.text[-len(a.tokens) - 1 :].tolist()  # the token before, and the new ones
        for token, following in zip(new, new[1:], strict=False):
            self.after[a.slot][token][following] += 1

    def propose(self, request, draft):
        node, token = 0, int(request.tokens[-1])
        for _ in range(self.tokens):
            counts = self.after[request.slot].get(token)
            if counts is None or node < 0:
                return  # a draft may be short, or empty
            q = np.zeros(self.vocab, np.float32)
            q[list(counts)] = list(counts.values())
            node = draft.sample(q / q.sum(), node)
            token = draft.token(node)

    def forget(self, slot):
        self.after[slot].clear()
