"""A lossy rule: a draft token is accepted if it is nearly as probable as the target's best token. `exact` says how far its output is from p.

./run exact --rules --plugin examples/lossy_rule.py
"""

from typing import Annotated

import speclab


class Near(speclab.Rule):
    "accepts tokens with at least a share of the target's highest probability"

    lossless = False  # what the rule declares; `exact --rules` shows whether it is so
    share: Annotated[float, "of the highest probability", (0, 1)] = 0.5

    def verify(self, draft, p, q, accept, pick):
        node = 0
        while True:
            after = p(node)
            near = [c for c in draft.children(node) if after[draft.tokens[c]] >= self.share * after.max()]
            if not near:
                return node, pick(node, after)
            node = near[0]
