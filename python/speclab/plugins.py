"""plugins - the classes of which a plugin in Python makes its own: speclab.Drafter and speclab.Rule (docs/python.md).

    import speclab

    class Again(speclab.Drafter):
        "the last token again and again"
        tokens: int = 4

        def propose(self, request, draft):
            for _ in range(self.tokens):
                draft.add(request.tokens[-1])

`./run generate MODEL --plugin again.py --drafter again:tokens=2 PROMPT` loads the file, and `again` is a name as `ngram` is.
"""

import difflib
import inspect
import math
import operator
import re
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

FINAL = -1  # value in `layers`: the state that the LM head reads
DETERMINISTIC, SAMPLED, DISTINCT = range(3)  # how a draft token was obtained: Verified.how
KINDS = {"deterministic": 1, "sampled": 2, "distinct": 4, "chains": 8, "trees": 16}
SET = ("vocab", "used_vocab", "width", "slots", "length")  # the engine sets them in a drafter
MOST = 511  # draft tokens of a draft: core/draft.h, MAX_NODES
MEMORY = {"text": 0, "passes": 1, "others": 2}


class Wrong(Exception):
    """A plugin returned something wrong; the sentence tells what was expected. where: the function that returned it."""

    def __init__(self, text: str, where: Any = None):
        super().__init__(text)
        self.where = where


def integer(what: str, given: Any) -> int:
    """Raises Wrong."""
    try:
        number = operator.index(given)
    except TypeError:
        raise Wrong(f"{what}: expected an integer, found {given!r}") from None
    if abs(number) >= 2**31:
        raise Wrong(f"{what}: expected an integer of 32 bits, found {number}")
    return number


class Request:
    """A text to continue, whose first `prompt` tokens are its prompt. `slot` numbers the texts decoded together. Tokens
    deeper than `depth` are useless."""

    __slots__ = ("slot", "prompt", "depth")

    @property
    def tokens(self) -> np.ndarray:
        """The whole text, (n,) int32: the engine's memory, valid during the call."""
        raise NotImplementedError


class Draft:
    """The draft of a request: a tree of tokens. Node 0 is the root, the last token of the text."""

    def add(self, token: int, parent: int | None = None, q: Any = None) -> int:
        """Adds a draft token after node `parent` (default: the token added last) and returns its node; -1: it is full,
        the token is too deep, or `parent` is -1.

        q: the distribution, (vocab,), from which the token was drawn; the rule relies on it. None: it was picked in
        another way.
        """
        raise NotImplementedError

    def sample(self, q: Any, parent: int | None = None) -> int:
        """Draws a token from q by the engine's random numbers and adds it in the same way."""
        raise NotImplementedError

    def token(self, node: int) -> int:
        """The token of a node; -1: `node` is -1, which add returned."""
        raise NotImplementedError


class NoStates:
    """The states of a drafter without `layers`."""

    def __getattr__(self, _: str) -> Any:
        raise Wrong("a.states: declare `layers`, the hidden states that advance gets")

    def __getitem__(self, _: Any) -> Any:
        return self.shape

    def __len__(self) -> int:
        return self.shape

    def __iter__(self) -> Any:
        return self.shape


NONE = NoStates()


class Advance(NamedTuple):
    """What was appended to a text: the accepted draft tokens and the target's own, or a part of its prompt. Arrays are
    valid during the call."""

    slot: int
    tokens: np.ndarray  # (n,)
    nodes: np.ndarray | None  # (n,) tokens[i] follows this node of the draft; None: a prompt
    # (n, layers, width) hidden states that predicted the tokens: an array, or with on_device for from_dlpack. Without
    # `layers` an error says so
    states: Any
    text: np.ndarray  # the whole text, these tokens included


class Drafter:
    """A drafter: annotated attributes are its options. The option "tokens" is the maximum number of draft tokens that
    `propose` adds.

    A drafter has `propose`, or `row` or `rows`. With the last two it has the options of trees (tokens, widths, nodes,
    top, pick, distinct, tree), and the engine draws its tokens, so that q is true by construction. In __init__ its
    options are set, and `vocab`, `used_vocab` (ids from this one on are padding), `width` (the size of a hidden
    state), `slots` (texts decoded together) and `length` (the longest text).
    """

    name: ClassVar[str] = ""  # default: the class's, as small_model of SmallModel
    layers: ClassVar[Sequence[int]] = ()  # hidden states that `advance` gets: the stream entering a layer, or FINAL
    makes: ClassVar[Sequence[str]] = ("deterministic",)  # kinds of KINDS that `propose` makes
    on_device: ClassVar[bool] = False  # states stay where the target has them, for torch.from_dlpack
    remembers: ClassVar[str] = "text"  # what drafts depend on besides: "passes" over the same text, "others"
    tokens = 16

    vocab: ClassVar[int]
    used_vocab: ClassVar[int]
    width: ClassVar[int]
    slots: ClassVar[int]
    length: ClassVar[int]

    def propose(self, request: Request, draft: Draft) -> None:
        """Adds draft tokens, or none."""

    def row(self, slot: int, path: np.ndarray) -> Any:
        """Returns logits, (vocab,), for the token after `path`: the root, which is the last token of the text, and
        draft tokens after it. None: it drafts nothing there."""

    def rows(self, paths: list[tuple[int, np.ndarray]]) -> Any:
        """Returns logits, (len(paths), vocab), for all paths of a level, (slot, path) each, in one call; a list may
        have None in place of a row."""

    def advance(self, a: Advance) -> None:
        """A text has become longer."""

    def forget(self, slot: int) -> None:
        """The text of a slot has ended."""

    def close(self) -> None:
        """The drafter is not needed any more."""


class Verified:
    """The draft that a rule decides about. Node 0 is the root."""

    __slots__ = ("tokens", "parents", "how", "_children")

    def __init__(self, tokens: np.ndarray, parents: np.ndarray, how: np.ndarray):
        self.tokens, self.parents, self.how = tokens, parents, how
        self._children: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> list[int]:
        """Nodes in the order in which they are tried."""
        if not 0 <= node < len(self):
            raise Wrong(f"expected a node from 0 to {len(self) - 1}, found {node}")
        if self._children is None:
            parents = self.parents.tolist()
            self._children = [[] for _ in parents]
            for child in range(1, len(parents)):
                self._children[parents[child]].append(child)
        return self._children[node][:]


class Rule:
    """A rule: annotated attributes are its options. It draws by `accept` and `pick` alone, so that `speclab exact
    --rules` can enumerate it."""

    name: ClassVar[str] = ""
    lossless: ClassVar[bool] = False  # it declares that the output has the target's distribution
    takes: ClassVar[Sequence[str]] = ("deterministic", "sampled", "distinct", "chains", "trees")

    def verify(self, draft: Verified, p: Any, q: Any, accept: Any, pick: Any) -> tuple[int, int]:
        """Returns the last accepted node and the target's token after it.

        p(node): the target's distribution after a node, (vocab,). q(node): the distribution from which a node's token
        was drawn, 1 at a token that was not drawn. accept(node, num, den): True with probability min(1, num / den), at
        most once for a node. pick(node, weights): the token after a node, x with probability weights[x] / sum, at most
        once for a node.
        """
        raise NotImplementedError


# ---- what a class says


def name(kind: type) -> str:
    return kind.__dict__.get("name") or re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def summary(kind: type) -> str:
    """The first line of its description."""
    return ((kind.__dict__.get("__doc__") or "").strip().splitlines() or [f"class {kind.__name__} of a plugin"])[0]


def spelt(kind: type) -> None:
    """Raises Wrong for a function or a value whose name is nearly one of speclab's that the class does not have."""
    base = Drafter if issubclass(kind, Drafter) else Rule
    own = [k for k in kind.__mro__ if k not in (object, Drafter, Rule)]
    has = {key: value for k in own for key, value in vars(k).items() if not key.startswith("_")}
    options = {key for k in own for key in vars(k).get("__annotations__", {})}
    here = {key for k in own if k.__module__ == kind.__module__ for key in vars(k)}
    for key, value in has.items():
        if key in here and key not in options and not hasattr(base, key):
            free = [name for name, of in vars(base).items() if name[0] != "_" and name not in has and callable(of) == callable(value)]
            if near := difflib.get_close_matches(key, free, 1, 0.85):
                wrong = f"class {kind.__name__}: {key} is no name that speclab reads; did you mean {near[0]}?"
                raise Wrong(wrong, value if callable(value) else None)


def line(kind: Any) -> int:
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return 1


def kinds(words: Any, kind: type) -> int:
    words = (words,) if isinstance(words, str) else words
    for word in words:
        if word not in KINDS:
            raise Wrong(f"class {kind.__name__}: expected kinds of drafts of {', '.join(KINDS)}, found {word!r}")
    return sum(KINDS[word] for word in set(words))


def layers(kind: type[Drafter]) -> tuple[int, ...]:
    """Returns its `layers`. Raises Wrong."""
    try:
        return tuple(map(operator.index, kind.layers))
    except TypeError:
        raise Wrong(f"class {kind.__name__}: layers: expected integers, as in layers = (0, speclab.FINAL), found {kind.layers!r}") from None


def made(kind: type[Drafter]) -> int:
    """Returns the kinds of what its `propose` makes. Raises Wrong."""
    sum_ = kinds(kind.makes, kind)
    if sum_ & (KINDS["deterministic"] | KINDS["sampled"]) == 0:
        raise Wrong(f'class {kind.__name__}: makes: expected "deterministic" or "sampled" among its words, found {kind.makes!r}')
    return sum_


def how_it_drafts(kind: type[Drafter]) -> str:
    """Which of the functions it has."""
    has = [f for f in ("propose", "rows", "row") if getattr(kind, f) is not getattr(Drafter, f)]
    if not has or (has[0] == "propose" and len(has) > 1):
        raise Wrong(f"class {kind.__name__}: expected propose, or row or rows, found {' and '.join(has) or 'none of them'}")
    if kind.remembers not in MEMORY:
        raise Wrong(f"class {kind.__name__}: remembers: expected one of {', '.join(MEMORY)}, found {kind.remembers!r}")
    return has[0]


def logits(kind: type[Drafter], given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What `row` or `rows` returned, (vocab,) or (paths, vocab). Raises Wrong, with the place of the function."""
    function = getattr(kind, how_it_drafts(kind))
    try:
        given = np.asarray(given)
        with np.errstate(over="ignore"):
            made = given.astype(np.float32, copy=False) if given.dtype.kind in "fiub" else given
    except Exception as why:  # anything: the library of the tensor raises it
        raise Wrong(f"{function.__name__}: expected logits that numpy reads, found {type(given).__name__}: {why}", function) from None
    if made.shape != shape:
        wrong = f"logits of a shape {shape}, found {made.shape}"
    elif made.dtype.kind not in "fiub":
        wrong = f"logits, found an array of {made.dtype}"
    elif np.isfinite(tops := made.max(axis=-1)).all():  # nan if one is nan
        return made
    else:
        first = int(np.argmin(np.isfinite(tops)))
        row, top = np.atleast_2d(made)[first], np.atleast_1d(tops)[first]
        token = int(np.argmax(np.isnan(row) | (row == top)))
        found = "-inf for all tokens" if top == -np.inf else f"{np.atleast_2d(given)[first][token]:g} for token {token}"
        wrong = f"finite logits, or -inf for tokens that are impossible, found {found}"
    raise Wrong(f"{function.__name__}: expected {wrong}", function)


class Option(NamedTuple):
    """A row of engine/foreign.h: struct foreign_option."""

    name: str
    type: int
    default: str | None
    help: str
    least: float
    most: float
    choices: tuple[str, ...]

    def value(self, number: float, text: bytes | None) -> Any:
        if self.type == 3:
            return (text or b"").decode(errors="surrogateescape")
        return self.choices[int(number)] if self.type == 4 else (int, float, bool)[self.type](number)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _option(kind: type, option: str, hint: Any) -> Option | None:
    about = list(getattr(hint, "__metadata__", ()))
    plain = typing.get_args(hint)[0] if about else hint
    if typing.get_origin(plain) is ClassVar:
        return None
    choices = tuple(map(str, typing.get_args(plain))) if typing.get_origin(plain) is typing.Literal else ()
    types = {int: 0, float: 1, bool: 2, str: 3}
    if not choices and plain not in types:
        raise Wrong(f"class {kind.__name__}: {option}: expected an option of type int, float, bool, str or Literal, found {plain}")
    bounds = next((x for x in about if isinstance(x, tuple)), (0, 0))
    text = next((x for x in about if isinstance(x, str)), "")
    default = getattr(kind, option, None)
    if isinstance(default, float) and not math.isfinite(default):
        raise Wrong(f"class {kind.__name__}: {option}: expected a finite default, found {default}")
    written = None if default is None else _written(default)
    if option == "tokens" and issubclass(kind, Drafter) and bounds == (0, 0):
        bounds = (0, MOST)
    return Option(option, 4 if choices else types[plain], written, text, *map(float, bounds), choices)


def options(kind: type) -> list[Option]:
    """Returns its annotated attributes: `period: int = 1`, `scale: Annotated[float, "what it is", (0, 1)] = 0.5`,
    `by: Literal["a", "b"] = "a"`."""
    hints: dict[str, Any] = {}
    for k in reversed(kind.__mro__):
        if k not in (object, Drafter, Rule) and "__annotations__" in vars(k):
            hints |= typing.get_type_hints(k, include_extras=True)
    own = [k for k in kind.__mro__ if issubclass(k, Drafter) and k is not Drafter]
    if taken := [key for key in SET if any(key in vars(k) or key in vars(k).get("__annotations__", {}) for k in own)]:
        raise Wrong(f"class {kind.__name__}: {taken[0]}: expected another name, as the engine sets this one")
    fixed = set(typing.get_type_hints(Drafter)) | set(typing.get_type_hints(Rule))
    made = [_option(kind, o, hint) for o, hint in hints.items() if o not in fixed and not o.startswith("_")]
    return [o for o in made if o is not None]
