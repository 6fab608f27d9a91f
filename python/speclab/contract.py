"""contract - what a drafter in Python has to keep (docs/python.md), checked on its class alone, without a model.

A drafter that breaks it causes no error: sampled tokens that were not drawn from the reported q give a false
distribution under every rule, and drafts that depend on more than the text make runs differ. The texts consist of
random tokens with repetitions. The hidden state of a place is a function of the text up to there, as a model's is.
"""

import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from speclab import dlpack, plugins
from speclab.plugins import Wrong

LENGTHS = 24, 90, 13, 45  # tokens of texts, in turn
PROMPT = 12  # those of them that are the prompt, whatever the advances were
TRIALS, TEXTS = 1000, 11  # drafts for the statistical tests; texts for the comparisons
SECONDS = 60  # that creating the drafters of the comparisons may take
ALPHA, FEW = 1e-6, 100  # level of a statistical test; of fewer tokens it says nothing


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
        if q is not None and any(n.parent == parent and n.q is not None and not np.allclose(n.q, q, rtol=1e-2) for n in self.nodes[1:]):
            raise Wrong(f"q: expected one row for all tokens behind node {parent}, found another")
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
        if not -1 <= node < len(self.nodes):
            raise Wrong(f"expected a node of the draft, or -1, found {node}")
        return self.nodes[node].token if node >= 0 else -1


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
        self.text = ""  # that it was called for last, in words
        self.drafter.__init__()

    def states(self, text: np.ndarray, first: int) -> np.ndarray | dlpack.Lent | plugins.NoStates:
        """The states that predicted text[first:]: each a function of the text before."""
        if not len(self.kind.layers):
            return plugins.NONE
        rows = [np.random.default_rng(zlib.crc32(text[:i].tobytes())).normal(size=(len(self.kind.layers), self.setting.width))
                for i in range(first, len(text))]  # fmt: skip
        self.lent = np.array(rows, np.float32)
        return dlpack.Lent(self.lent.ctypes.data, self.lent.shape, -1) if self.kind.on_device else self.lent

    def advance(self, slot: int, text: np.ndarray, new: int, nodes: np.ndarray | None = None) -> None:
        first, self.text = len(text) - new, f"a text of {len(text)} tokens"
        states = self.states(text, first)
        self.drafter.advance(plugins.Advance(slot, text[first:], nodes, states, text))
        if isinstance(states, dlpack.Lent):
            states.ended()

    def prompt(self, slot: int, text: np.ndarray, parts: int = 1) -> None:
        """Token 0 is reported in no advance: no state predicted it."""
        ends = np.unique(np.linspace(1, len(text), parts + 1).astype(int))
        for begin, end in zip(ends, ends[1:], strict=False):
            self.advance(slot, text[:end], int(end - begin))

    def propose(self, slot: int, text: np.ndarray) -> list[Node]:
        depth = self.setting.length - len(text)
        if len(text) == 1:
            self.text = "a text of one token, of which no advance was told"
        if self.drafts == "propose":
            draft = Draft(self.setting, 1 + int(self.drafter.tokens), int(text[-1]), self.random)
            self.drafter.propose(Request(slot, depth, text), draft)
            return draft.nodes
        path, nodes = [int(text[-1])], [Node(-1, int(text[-1]), None, True)]
        for _ in range(2):  # the most probable chain
            logits = self.logits(slot, np.array(path, np.int32))
            if logits is None:
                break
            nodes.append(Node(len(nodes) - 1, int(np.argmax(logits)), np.asarray(logits, np.float64), True))
            path.append(nodes[-1].token)
        return nodes

    def logits(self, slot: int, path: np.ndarray) -> np.ndarray | None:
        """None: it drafts nothing behind the path."""
        if self.drafts == "rows":
            given = self.drafter.rows([(slot, path)])
            row = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else plugins.logits(self.kind, given, (1, self.setting.vocab))[0]
        else:
            row = self.drafter.row(slot, path)
        return None if row is None else plugins.logits(self.kind, row, (self.setting.vocab,))


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
    for _, length in zip(range(count), itertools.cycle(LENGTHS)):
        few = random.choice(setting.used_vocab, 6, replace=setting.used_vocab < 6)
        yield random.choice(few, length).astype(np.int32)


# ---- sampled tokens against the reported q


def kolmogorov(u: np.ndarray) -> float:
    """Returns the p-value of uniform numbers on [0, 1]: Kolmogorov's limit with the correction of Stephens (1970)."""
    u, n = np.sort(u), len(u)
    d = max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())
    t = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    return 1.0 if t < 0.2 else min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * t) ** 2) for k in range(1, 40)))


def poisson(seen: int, mean: float) -> float:
    """Returns a bound of the p-value of a number of independent events whose expectation is `mean` (Chernoff)."""
    return min(1.0, 2 * math.exp(seen - mean - (seen * math.log(seen / mean) if seen else 0))) if mean > 0 else 1.0


class Truth(NamedTuple):
    drawn: int  # tokens that the drafter drew and declared with a row of q
    smallest: float  # p-value, times the number of tests: that of the first test below ALPHA
    what: str


class Draws:
    """The tokens that a drafter drew itself and declared with a row of q.

    One that was drawn from q has a uniform place in the running sum of q, in any order of the tokens: by id, and from
    the most probable on. Two siblings, and the first tokens of two drafts of one text, are equal with the probability
    that is the sum of q^2. A token that is dropped after a look at it is missing among the places.
    """

    def __init__(self) -> None:
        self.by_id: list[float] = []
        self.by_rank: list[float] = []
        self.pairs = {"siblings of a row": [0, 0.0], "drafts of one text": [0, 0.0]}  # equal ones, their expectation
        self.first: dict[bytes, Node] = {}  # the first token of a draft whose text waits for another one
        self.random = np.random.default_rng(11)

    def _pair(self, of: str, a: Node, b: Node) -> None:
        self.pairs[of][0] += a.token == b.token
        self.pairs[of][1] += float((a.q * b.q).sum() / a.q.sum() / b.q.sum())

    def take(self, text: np.ndarray, nodes: list[Node]) -> None:
        """Reads a draft of a text."""
        own = [n for n in nodes[1:] if n.q is not None and not n.engine]
        for n in own:
            q, v = n.q / n.q.sum(), self.random.random()
            self.by_id.append(q[: n.token].sum() + v * q[n.token])
            self.by_rank.append(q[q > q[n.token]].sum() + v * (q == q[n.token]).sum() * q[n.token])
        for a, b in itertools.combinations((n for n in nodes[1:] if n.q is not None), 2):
            if a.parent == b.parent and not (a.engine and b.engine):
                self._pair("siblings of a row", a, b)
        if own and (before := self.first.pop(key := text.tobytes(), None)):
            self._pair("drafts of one text", before, own[0])
        elif own:
            self.first[key] = own[0]

    def truth(self) -> Truth:
        if not self.by_id:
            return Truth(0, 1.0, "")
        tests = [(kolmogorov(np.array(self.by_id)), "they do not have the frequencies of their rows"),
                 (kolmogorov(np.array(self.by_rank)), "probable tokens are not as frequent as their rows say")]  # fmt: skip
        for of, (equal, mean) in self.pairs.items():
            tests.append((poisson(equal, mean), f"{of} are not independent: {equal} pairs are equal, expected {mean:.4g}"))
        p, what = next((t for t in tests if t[0] * len(tests) < ALPHA), min(tests))
        return Truth(len(self.by_id), min(1.0, p * len(tests)), what)


def truthful(make: Callable[[], Driven]) -> Truth:
    """Whether declared tokens are drawn from the declared rows, independently of each other, for random texts."""
    d, draws = make(), Draws()
    for text in texts(d.setting, len(LENGTHS)):
        before = len(draws.by_id)
        for i in range(TRIALS // len(LENGTHS)):
            d.prompt(0, text)
            draws.take(text, d.propose(0, text))
            d.drafter.forget(0)
            if i == TRIALS // 100 and len(draws.by_id) == before:
                break  # it draws none for this text
    return draws.truth()


class Seen(plugins.Draft):
    """The engine's draft, whose nodes are noted."""

    def __init__(self, draft: plugins.Draft, root: int):
        self.draft, self.nodes = draft, [Node(-1, root, None, True)]

    def _noted(self, node: int, parent: int | None, q: Any, engine: bool) -> int:
        if node > 0:
            parent = len(self.nodes) - 1 if parent is None else parent
            self.nodes.append(Node(parent, self.draft.token(node), None if q is None else np.array(q, np.float64), engine))
        return node

    def add(self, token: int, parent: int | None = None, q: Any = None) -> int:
        return self._noted(self.draft.add(token, parent, q), parent, q, False)

    def sample(self, q: Any, parent: int | None = None) -> int:
        return self._noted(self.draft.sample(q, parent), parent, q, True)

    def token(self, node: int) -> int:
        return self.draft.token(node)


def sums_to_one(make: Callable[[], Driven]) -> bool:
    """Whether the rows of a text look as probabilities do. Each has a token that is neither certain nor impossible."""
    d = make()
    text = next(texts(d.setting, 1))
    d.prompt(0, text)
    rows = [n.q for n in d.propose(0, text)[1:]]
    return bool(rows) and all(row.min() >= 0 and 0 < row.max() < 0.999 and abs(row.sum() - 1) < 1e-3 for row in rows)


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


def _again(d: Driven, text: np.ndarray, before: np.ndarray) -> None:
    d.prompt(0, text)


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
    "it is made again, for the same text": _again,
    "the prompt comes in parts": _in_parts,
    "another text was in its slot before": _after_another,
    "another text is in the next slot": _beside_another,
    "its drafts before were rejected": _after_rejections,
}


class Dependence(NamedTuple):
    history: str
    difference: str
    text: list[int]


def affordable(make: Callable[[], Driven]) -> int:
    """The number of texts to compare; fewer, but 2 at least, for a drafter that takes long to create."""
    began = time.monotonic()
    make()
    return max(2, min(TEXTS, int(SECONDS / (1 + len(HISTORIES)) / max(time.monotonic() - began, 1e-9))))


def depends_on_more(make: Callable[[], Driven], count: int = TEXTS, histories: dict[str, Callable] = HISTORIES) -> Dependence | None:
    """The first history under which a draft differs from that of the text alone."""
    given = list(texts(make().setting, 1 + count))
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
