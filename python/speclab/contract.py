"""contract - what a drafter in Python has to keep (docs/python.md), checked on its class alone, without a model.

A drafter that breaks it causes no error: sampled tokens that were not drawn from the reported q give a false
distribution under every rule, and drafts that depend on more than the text make runs differ. The texts consist of
random tokens with repetitions. The hidden state of a place is a function of the text up to there, as a model's is.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from speclab import dlpack, plugins
from speclab.plugins import Wrong

LENGTH, PROMPT = 24, 12  # tokens of a text; those of them that are its prompt, whatever the advances were
TRIALS, TEXTS = 1000, 12  # drafts for the statistical tests; texts for the comparisons
ALPHA = 1e-6  # level of all statistical tests together


class Setting(NamedTuple):
    """The target that the drafter is made for."""

    vocab: int
    used_vocab: int
    width: int
    length: int = 256
    slots: int = 2


class Node(NamedTuple):
    parent: int
    token: int
    q: np.ndarray | None  # float64, (vocab,)
    engine: bool  # the engine drew it


class Request(plugins.Request):
    __slots__ = ("_tokens",)

    def __init__(self, slot: int, depth: int, tokens: np.ndarray):
        self.slot, self.prompt, self.depth, self._tokens = slot, PROMPT, depth, tokens

    @property
    def tokens(self) -> np.ndarray:
        return self._tokens


class Draft(plugins.Draft):
    """As the engine's draft; it keeps the rows of q."""

    def __init__(self, setting: Setting, most: int, root: int, random: np.random.Generator):
        self.nodes, self.setting, self.most, self.random, self.last = [Node(-1, root, None, True)], setting, most, random, 0

    def _add(self, token: int, parent: int | None, q: np.ndarray | None, engine: bool) -> int:
        parent = self.last if parent is None else parent
        if parent == -1 or len(self.nodes) >= self.most:
            return -1
        if not 0 <= parent < len(self.nodes):
            raise Wrong(f"expected a parent from 0 (the root) to {len(self.nodes) - 1}, found {parent}")
        token = plugins.integer("token", token)
        if not 0 <= token < self.setting.used_vocab:
            raise Wrong(f"expected a token from 0 to {self.setting.used_vocab - 1}, found {token}")
        self.nodes.append(Node(parent, token, q, engine))
        self.last = len(self.nodes) - 1
        return self.last

    def _row(self, q: Any) -> np.ndarray:
        row = np.array(q, dtype=np.float64)
        if row.shape != (self.setting.vocab,):
            raise Wrong(f"q: expected a shape ({self.setting.vocab},), found {row.shape}")
        wrong = np.flatnonzero(~(np.isfinite(row) & (row >= 0)))
        if len(wrong):
            raise Wrong(f"q: expected probabilities, found {row[wrong[0]]:g} for token {wrong[0]}")
        if abs(row.sum() - 1) > 1e-3:
            raise Wrong(f"q: expected probabilities whose sum is 1, found a sum of {row.sum():g}")
        return row

    def add(self, token: int, parent: int | None = None, q: Any = None) -> int:
        return self._add(token, parent, None if q is None else self._row(q), False)

    def sample(self, q: Any, parent: int | None = None) -> int:
        row = self._row(q)
        return self._add(int(self.random.choice(len(row), p=row / row.sum())), parent, row, True)

    def token(self, node: int) -> int:
        return self.nodes[node].token if 0 <= node < len(self.nodes) else -1


class Driven:
    """A drafter that is called as the engine calls it."""

    def __init__(self, kind: type[plugins.Drafter], given: dict[str, Any], setting: Setting, seed: int = 1):
        self.kind, self.setting, self.random = kind, setting, np.random.default_rng(seed)
        self.drafts = plugins.how_it_drafts(kind)
        self.drafter = kind.__new__(kind)
        for o in plugins.options(kind):
            text = given.get(o.name, o.default)
            if text is None:
                raise Wrong(f"option {o.name}: expected a value, as in NAME:{o.name}=.., found none")
            setattr(self.drafter, o.name, converted(o, text))
        for key in ("vocab", "used_vocab", "width", "slots", "length"):
            setattr(self.drafter, key, getattr(setting, key))
        self.drafter.__init__()

    def states(self, text: np.ndarray, first: int) -> np.ndarray | dlpack.Lent | None:
        """The states that predicted text[first:]: each a function of the text before."""
        if not len(self.kind.layers):
            return None
        rows = [np.random.default_rng(zlib.crc32(text[:i].tobytes())).normal(size=(len(self.kind.layers), self.setting.width))
                for i in range(first, len(text))]  # fmt: skip
        self.lent = np.array(rows, np.float32)
        return dlpack.Lent(self.lent.ctypes.data, self.lent.shape, -1) if self.kind.on_device else self.lent

    def advance(self, slot: int, text: np.ndarray, new: int, nodes: np.ndarray | None = None) -> None:
        first = len(text) - new
        self.drafter.advance(plugins.Advance(slot, text[first:], nodes, self.states(text, first), text))

    def prompt(self, slot: int, text: np.ndarray, parts: int = 1) -> None:
        """Token 0 is reported in no advance: no state predicted it."""
        ends = np.unique(np.linspace(1, len(text), parts + 1).astype(int))
        for begin, end in zip(ends, ends[1:], strict=False):
            self.advance(slot, text[:end], int(end - begin))

    def propose(self, slot: int, text: np.ndarray) -> list[Node]:
        depth = self.setting.length - len(text)
        if self.drafts == "propose":
            draft = Draft(self.setting, 1 + int(self.drafter.tokens), int(text[-1]), self.random)
            self.drafter.propose(Request(slot, depth, text), draft)
            return draft.nodes
        path, nodes = [int(text[-1])], [Node(-1, int(text[-1]), None, True)]
        for _ in range(2):  # the most probable chain
            logits = self.logits(slot, np.array(path, np.int32))
            nodes.append(Node(len(nodes) - 1, int(np.argmax(logits)), np.asarray(logits, np.float64), True))
            path.append(nodes[-1].token)
        return nodes

    def logits(self, slot: int, path: np.ndarray) -> np.ndarray:
        vocab = self.setting.vocab
        if self.drafts == "rows":
            return plugins.logits(self.kind, self.drafter.rows([(slot, path)]), (1, vocab))[0]
        return plugins.logits(self.kind, self.drafter.row(slot, path), (vocab,))


def converted(o: plugins.Option, text: str) -> Any:
    """An option's value from its text. Raises Wrong."""
    expected = ("an integer", "a number", "true or false", "a text", "one of " + ", ".join(o.choices))[o.type]
    try:
        value = (int, float, lambda t: {"true": True, "false": False}[t], str, lambda t: o.choices[o.choices.index(t)])[o.type](text)
    except (ValueError, KeyError):
        raise Wrong(f'option {o.name}: expected {expected}, found "{text}"') from None
    if o.type < 2 and (o.least, o.most) != (0, 0) and not o.least <= value <= o.most:
        raise Wrong(f"option {o.name}: expected {expected} from {o.least:g} to {o.most:g}, found {text}")
    return value


def texts(setting: Setting, count: int) -> Iterator[np.ndarray]:
    """Texts with repetitions, so that drafters that look up have something to find."""
    random = np.random.default_rng(7)
    for _ in range(count):
        few = random.choice(setting.used_vocab, 6, replace=setting.used_vocab < 6)
        yield random.choice(few, LENGTH).astype(np.int32)


# ---- sampled tokens against the reported q


def kolmogorov(u: np.ndarray) -> float:
    """Returns the p-value of uniform numbers on [0, 1]: Kolmogorov's limit with the correction of Stephens (1970)."""
    u, n = np.sort(u), len(u)
    d = max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())
    t = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    return 1.0 if t < 0.2 else min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * t) ** 2) for k in range(1, 40)))


class Truth(NamedTuple):
    drawn: int  # tokens that the drafter drew and declared with a row of q
    smallest: float  # p-value, times the number of tests
    what: str


def truthful(make: Callable[[], Driven]) -> Truth:
    """Whether declared tokens are drawn from the declared rows, independently of each other.

    A token drawn from q has a uniform place in the running sum of q, in any order of the tokens: by id, and from the
    most probable on. Two siblings drawn from one row are equal with the probability that is the sum of q^2.
    """
    d, random = make(), np.random.default_rng(11)
    by_id, by_rank, equal, expected, variance = [], [], 0, 0.0, 0.0
    for i, text in enumerate(texts(d.setting, 4)):
        for _ in range(TRIALS // 4):
            d.prompt(0, text)
            nodes = d.propose(0, text)
            d.drafter.forget(0)
            for n in nodes[1:]:
                if n.q is None or n.engine:
                    continue
                q, v = n.q / n.q.sum(), random.random()
                by_id.append(q[: n.token].sum() + v * q[n.token])
                above = q > q[n.token]
                ties = (q == q[n.token]).sum()
                by_rank.append(q[above].sum() + v * ties * q[n.token])
            for a, b in itertools.combinations(nodes[1:], 2):
                if a.parent == b.parent and a.q is not None and b.q is not None and not (a.engine and b.engine):
                    meeting = float((a.q * b.q).sum() / a.q.sum() / b.q.sum())
                    equal, expected, variance = equal + (a.token == b.token), expected + meeting, variance + meeting * (1 - meeting)
        if i == 0 and not by_id:
            return Truth(0, 1.0, "")
    tests = [(kolmogorov(np.array(by_id)), "they do not have the frequencies of their rows"),
             (kolmogorov(np.array(by_rank)), "probable tokens are not as frequent as their rows say")]  # fmt: skip
    if variance > 0:
        z = abs(equal - expected) / math.sqrt(variance)
        tests.append((math.erfc(z / math.sqrt(2)), f"siblings of a row are not independent: {equal:g} pairs are equal, expected {expected:.4g}"))
    p, what = min(tests)
    return Truth(len(by_id), min(1.0, p * len(tests)), what)


# ---- drafts that depend on the text alone


def _same(a: list[Node], b: list[Node]) -> str:
    """What differs, of what the text determines: picked tokens, and rows below the same path. "": nothing."""
    for i, (x, y) in enumerate(zip(a[1:], b[1:], strict=False), 1):
        if (x.q is None) != (y.q is None):
            return f"node {i} has a row of q in one of them"
        if x.q is not None and not np.allclose(x.q, y.q, rtol=1e-4, atol=1e-5):
            return f"node {i} has another row of q"
        if x.parent != y.parent or (x.q is None and x.token != y.token):
            return f"node {i} is token {x.token} behind node {x.parent} in one, {y.token} behind {y.parent} in the other"
        if x.token != y.token:
            return ""  # drawn differently: what follows may differ
    return "" if len(a) == len(b) else f"one has {len(a) - 1} draft tokens, the other {len(b) - 1}"


def _in_parts(d: Driven, text: np.ndarray, before: np.ndarray) -> None:
    d.prompt(0, text, parts=5)


def _after_another(d: Driven, text: np.ndarray, before: np.ndarray) -> None:
    d.prompt(0, before)
    d.propose(0, before)
    d.drafter.forget(0)
    d.prompt(0, text)


def _beside_another(d: Driven, text: np.ndarray, before: np.ndarray) -> None:
    d.prompt(1, before)
    d.propose(1, before)
    d.prompt(0, text)


def _after_rejections(d: Driven, text: np.ndarray, before: np.ndarray) -> None:
    d.prompt(0, text[:PROMPT])
    for i in range(PROMPT, len(text)):
        d.propose(0, text[:i])
        d.advance(0, text[: i + 1], 1, np.zeros(1, np.int32))


HISTORIES = {
    "the prompt comes in parts": _in_parts,
    "another text was in its slot before": _after_another,
    "another text is in the next slot": _beside_another,
    "its drafts before were rejected": _after_rejections,
}


class Dependence(NamedTuple):
    history: str
    difference: str
    text: list[int]


def depends_on_more(make: Callable[[], Driven], histories: dict[str, Callable] = HISTORIES) -> Dependence | None:
    """The first history under which a draft differs from that of the text alone."""
    given = list(texts(make().setting, TEXTS))
    for text, before in zip(given, given[1:], strict=False):
        plain = make()
        plain.prompt(0, text)
        expected = plain.propose(0, text)
        for history, run in histories.items():
            d = make()
            run(d, text, before)
            if difference := _same(expected, d.propose(0, text)):
                return Dependence(history, difference, text.tolist())
    return None
