"""rows - the rows of p and q that a run has recorded (`record: {rows: N}`), from table `draft`
(experiments/replay/packed_rows.c).
"""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from speclab.command import Fault

_MOST = 1 << 29  # maximum bytes of a step's rows
_VOCAB = 1 << 20  # maximum tokens of a vocabulary
_ROWS = 1024  # maximum rows of a step: p and q of the nodes of a pass
SAMPLED = {1: "sampled", 2: "sampled without replacement"}  # values of `proposal`; 0: deterministic


@dataclass
class Row:
    """A row of probabilities: `token` (n, ascending) has the probabilities `p` (n); `rest` is the mass of tokens that
    were not kept."""

    token: np.ndarray
    p: np.ndarray
    rest: float

    def of(self, token: int) -> float | None:
        """Returns the probability of a token. None: it was not kept."""
        i = int(np.searchsorted(self.token, token))
        if i < len(self.token) and self.token[i] == token:
            return float(self.p[i])
        return None if self.rest > 0 else 0.0


def _words(raw: memoryview, n: int, kind: str) -> np.ndarray:
    """Returns words that are stored as planes: first the lowest byte of each."""
    return np.frombuffer(raw[: 4 * n], np.uint8).reshape(4, n).T.copy().view(kind).reshape(n)


def unpack(packed: bytes, what: str) -> list[Row]:
    """Returns the rows of a step, in their order: p of every node, then q of every node with sampled children. Raises
    Fault; what: for its message."""
    try:
        size, vocab = struct.unpack_from("<II", packed)
        expand = zlib.decompressobj()
        if size > _MOST or vocab > _VOCAB:
            raise ValueError(f"of {size} bytes and {vocab} tokens")
        raw = memoryview(expand.decompress(packed[8:], size + 1))
        if len(raw) != size:
            raise ValueError("another size")
        rows = []
        while raw:
            n, _, _, rest = struct.unpack_from("<iiid", raw)
            if not 1 <= n <= vocab or 20 + 8 * n > len(raw) or len(rows) == _ROWS:
                raise ValueError("another length")
            step = _words(raw[20:], n, "<i4")
            token = np.cumsum(step, dtype=np.int64)
            if step[0] < 0 or step[1:].min(initial=1) < 1 or token[-1] >= vocab:
                raise ValueError("tokens that do not ascend")
            rows.append(Row(token, _words(raw[20 + 4 * n :], n, "<f4"), rest))
            raw = raw[20 + 8 * n :]
        return rows
    except (struct.error, zlib.error, ValueError, TypeError) as why:
        raise Fault(f"{what}: rows: expected packed rows, found other bytes ({why})") from None


class Draft(NamedTuple):
    """A recorded draft, the root first: for each node token, parent (-1: the root) and proposal, as in table `trial`;
    the step's own tokens."""

    tokens: list[int]
    parents: list[int]
    proposals: list[int]
    out: list[int]
    packed: bytes
    what: str

    def rows(self) -> tuple[list[Row], dict[int, Row]]:
        """Returns p of every node, and q of those with sampled children. Raises Fault."""
        rows, n = unpack(self.packed, self.what), len(self.tokens)
        sampled = sorted({parent for parent, proposal in zip(self.parents[1:], self.proposals[1:], strict=True) if proposal in SAMPLED})
        if len(rows) != n + len(sampled):
            raise Fault(f"{self.what}: expected {n + len(sampled)} rows, found {len(rows)}")
        return rows[:n], dict(zip(sampled, rows[n:], strict=True))


def draft_of(s, what: str) -> Draft:
    """Returns the draft in a row of table `draft`. Raises Fault; what: for its message."""
    try:
        lists = [json.loads(text) for text in (s.tokens, s.parents, s.proposals, s.out)]
        integers = all(isinstance(values, list) and values and all(type(n) is int for n in values) for values in lists)
        if integers and len({len(values) for values in lists[:3]}) == 1 and all(-(i == 0) <= p < i for i, p in enumerate(lists[1])):
            return Draft(*lists, s.rows, what)
    except (ValueError, TypeError, RecursionError):
        pass
    raise Fault(f"{what}: its draft is damaged")
