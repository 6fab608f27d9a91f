"""losses.py - the losses that a head is trained to minimize, by name.

p: the target's distribution, known at its K most probable tokens; q: the head's, over the draft vocabulary. A token of
p outside the draft vocabulary is never proposed: it has no q, and its probability counts as lost, so that rows weigh by
what can be drafted.

ce        -log q(x), x the target's most probable token; rows whose x is outside the draft vocabulary have weight 0
kl        sum of p (log p - log q)
tv        1 - sum of min(p, q): total variation, one minus the probability that the token is accepted
lk_alpha  -log sum of min(p, q)
lk        w kl + (1 - w) tv, w = exp(-eta a), a the mean of sum of min(p, q) at that depth, without a gradient

lk_alpha and lk: "LK losses", arXiv 2602.23881 (its authors' code in SpecForge, pull request 492; eta = 3).
"""
import torch

ETA = 3.0


CHUNK = 128   # rows of logits as float32 at a time, which fit in a processor's cache


class LogQ(torch.autograd.Function):
    """Computes the log softmax of logits [N, V] at ids [N, K]. Its gradient needs q once, in the type of the logits:
    with d the gradient of the result, that of the logits is d at the ids, less the sum of d times q."""

    @staticmethod
    def forward(ctx, logits, ids):
        lse = torch.cat([torch.logsumexp(rows.float(), -1, keepdim=True) for rows in logits.split(CHUNK)])
        ctx.save_for_backward(logits, lse, ids)
        return logits.gather(-1, ids).float() - lse

    @staticmethod
    def backward(ctx, d):
        logits, lse, ids = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for to, x, z, at, g in zip(*(t.split(CHUNK) for t in (gradient, logits, lse, ids, d))):
            q = x.to(torch.float32, copy=True).sub_(z).exp_()
            to.copy_(q.mul_(-g.sum(-1, keepdim=True)).scatter_add_(-1, at, g))
        return gradient, None


def log_q_at(logits, ids):
    """Returns log q at draft ids [N, K]; -inf if the id is -1: outside the draft vocabulary. logits [N, V]."""
    return LogQ.apply(logits, ids.clamp(min=0)).masked_fill(ids < 0, float("-inf"))


def overlap(log_q, p):
    """Returns the sum of min(p, q) [N]: the probability that a token drawn from q is accepted."""
    return torch.minimum(p, log_q.exp()).sum(-1)


def ce(log_q, p):
    known = log_q[:, :1] > float("-inf")
    return -torch.where(known, log_q[:, :1], 0.0).sum(-1)


def kl(log_q, p):
    known = (log_q > float("-inf")) & (p > 0)
    return torch.where(known, p * (torch.log(p.clamp(min=1e-30)) - torch.where(known, log_q, 0.0)), 0.0).sum(-1)


def tv(log_q, p):
    return 1 - overlap(log_q, p)


def lk_alpha(log_q, p):
    drafted = (log_q > float("-inf")).any(-1)       # rows without any token in the draft vocabulary teach nothing
    return torch.where(drafted, -torch.log(overlap(log_q, p).clamp(min=1e-6)), 0.0)


def lk(log_q, p):
    w = torch.exp(-ETA * overlap(log_q, p).detach().mean())
    return w * kl(log_q, p) + (1 - w) * tv(log_q, p)


LOSSES = {"ce": ce, "kl": kl, "tv": tv, "lk_alpha": lk_alpha, "lk": lk}
