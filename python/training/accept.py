"""accept.py - aligns rows of a head and of the target, selects the rows that count, and measures held-out acceptance.

Row r at depth j predicts token r + j + 2; the target's distribution for it is row r + j + 1 of top_ids and top_p. The
draft's root is token r + 1. All heads share this numbering (docs/training.md).
"""
import torch

from training.losses import log_q_at, overlap


def to_device(batch, device):
    return {k: v.to(device) for k, v in batch.items()}


def to_draft(ids, vocab):
    """Returns [vocab]: the draft id of each of the target's tokens; -1: none."""
    table = torch.full((vocab,), -1, dtype=torch.long, device=ids.device)
    table[ids] = torch.arange(len(ids), device=ids.device)
    return table


def rows_at(batch, depth, answers_before=False):
    """Returns [B, L], the rows that count: the predicted token is an answer; answers_before: the root and the draft
    tokens before it are answers as well."""
    n = batch["ids"].shape[1]
    place = torch.arange(n, device=batch["ids"].device)
    rows = (place + depth + 2)[None] < batch["length"][:, None]

    def answer(j):
        return torch.nn.functional.pad(batch["mask"][:, j:], (0, min(j, n)))[:, :n]
    rows = rows & answer(depth + 2)
    for j in range(1, depth + 2) if answers_before else ():
        rows = rows & answer(j)
    return rows


def target_at(batch, rows, depth, table):
    """Returns the target's tokens as draft ids [N, K] and their probabilities [N, K] for the chosen rows."""
    b, r = rows.nonzero(as_tuple=True)
    r = r + depth + 1
    return table[batch["top_ids"][b, r]], batch["top_p"][b, r].float()


class Survival:
    """Sums over roots: at each depth, the weight of roots whose earlier draft tokens were accepted, and of those
    accepted at this depth."""

    def __init__(self, depths):
        self.reached, self.accepted = [0.0] * depths, [0.0] * depths

    def add(self, depth, reached, accepted):
        self.reached[depth] += float(reached.sum())
        self.accepted[depth] += float((reached * accepted).sum())

    def rates(self):
        return [a / r if r > 0 else 0.0 for a, r in zip(self.accepted, self.reached)]

    def tokens(self, n):
        """Returns tokens a step of a chain of n draft tokens: 1 + a1 + a1 a2 + .."""
        total, alive = 1.0, 1.0
        for rate in self.rates()[:n]:
            alive *= rate
            total += alive
        return total


@torch.no_grad()
def held_out(head, batches, depths, table, device):
    """Computes acceptance by depth of a chain from rows, each depth given that the draft tokens before it were
    accepted.

    Greedy: a token is accepted if the head's argmax is the target's; the chain continues if the text's token is this
    token as well. Sampled at temperature 1: a token is accepted with the sum of min(p, q); a text drawn from p
    continues with min(1, q/p) of its token x. For x outside the target's K tokens p is at most the smallest of them,
    and its share at least min(1, q / that).
    """
    greedy, sampled = Survival(depths), Survival(depths)
    for batch in batches:
        batch = to_device(batch, device)
        shape = batch["ids"].shape
        # Depth j needs all roots that reach it, so weights remain at [B, L].
        on_path, weight = torch.ones(shape, device=device), torch.ones(shape, device=device)
        for j, x in enumerate(head.depths(batch, depths)):
            rows = rows_at(batch, j, answers_before=True)
            if not rows.any():
                break
            logits = head.logits(x[rows], j).float()
            ids, p = target_at(batch, rows, j, table)
            log_q = log_q_at(logits, ids)
            b, r = rows.nonzero(as_tuple=True)
            hit = (logits.argmax(-1) == ids[:, 0]).float()
            greedy.add(j, on_path[rows], hit)
            sampled.add(j, weight[rows], overlap(log_q, p))
            token = batch["ids"][b, r + j + 2]
            is_top = (token == batch["top_ids"][b, r + j + 1, 0]).float()
            same = batch["top_ids"][b, r + j + 1] == token[:, None]
            px = torch.where(same.any(-1), (p * same).sum(-1), p[:, -1])
            qx = log_q_at(logits, table[token][:, None])[:, 0].exp()
            on_path = torch.zeros(shape, device=device).index_put_((b, r), on_path[rows] * hit * is_top)
            weight = torch.zeros(shape, device=device).index_put_((b, r), weight[rows] * (qx / px.clamp(min=1e-30)).clamp(max=1))
    lengths = [n for n in (3, 5) if n <= depths]
    return {"greedy": greedy.rates(), "sampled": sampled.rates(), "roots": int(greedy.reached[0]),
            **{f"tokens{n}": greedy.tokens(n) for n in lengths}, **{f"sampled{n}": sampled.tokens(n) for n in lengths}}
