"""inflation - larger models and heads that compute the same function. They cost what their size costs, and draft or
generate what the original does.

Width w becomes W. The residual stream is zero beyond its first w numbers: everything that writes to it (embedding, o,
down) has rows of zeros there, and everything that reads it (q, k, v, gate, up, head) has columns of zeros. An RMS norm
now divides the same sum of squares by W. With eps' = eps w / W and gains g' = g sqrt(w / W),

     x g' / sqrt(sum / W + eps') = x g / sqrt(sum / w + eps).

Added heads and hidden units are copies of existing ones, and o and down have columns of zeros for them. Key-value head
j keeps its own query heads as the first of its larger group. Added layers are copies whose o and down are zeros. So
everything added is computed, is finite, and is multiplied by zero. The factor sqrt(w / W) is rounded, so logits differ
in their last bits. At four or sixteen times the width it is a power of two and every bit is equal. Quantized blocks are
copied unchanged. A block of zero bytes, whose scale is zero, is zeros in every format.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from speclab import checkpoint
from speclab.checkpoint import Tensor
from speclab.command import Fault

SAME, STREAM, QUERIES, KEYS, HIDDEN = range(5)  # the sides to which the rows of a matrix write, or from which its
                                               # columns read

_NAMES = {(QUERIES, STREAM): ("attn_q", "self_attn.q_proj"), (KEYS, STREAM): ("attn_k", "attn_v", "self_attn.k_proj", "self_attn.v_proj"),
          (STREAM, QUERIES): ("attn_output", "self_attn.o_proj"), (HIDDEN, STREAM): ("ffn_gate", "ffn_up", "mlp.gate_proj", "mlp.up_proj"),
          # fmt: skip.
          (STREAM, HIDDEN): ("ffn_down", "mlp.down_proj"), (SAME, STREAM): ("token_embd", "output", "embed_tokens", "lm_head")}
_SIDES = {name: pair for pair, names in _NAMES.items() for name in names}


def sides(name: str) -> tuple[int, int] | None:
    """Returns what rows and columns of a matrix belong to, for GGUF's names and Hugging Face's; None: no layer's
    matrix."""
    stem = name.rpartition(".")[0]
    return next((s for key, s in _SIDES.items() if stem == key or stem.endswith(f".{key}")), None)


class Sizes(NamedTuple):
    """The sizes of a model's or a head's layers."""

    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Returns the number of query heads that share a key-value head."""
        return self.heads // self.kv_heads

    def described(self) -> str:
        return f"width {self.width}, hidden {self.hidden} and {self.heads} heads of {self.head_dim} numbers on {self.kv_heads}"


def _padded(n: int, large: int) -> np.ndarray:
    return np.where(np.arange(large) < n, np.arange(large), -1)


class Enlargement:
    """A map from one size to another: for each side, the original of each row or column of the large size; -1: zeros.
    Added rows are copies."""

    def __init__(self, small: Sizes, large: Sizes):
        self.small, self.large = small, large
        kv, inside, d = *divmod(np.arange(large.heads), large.group), large.head_dim

        def numbers(heads: np.ndarray) -> np.ndarray:
            return np.where(heads[:, None] < 0, -1, heads[:, None] * d + np.arange(d)).reshape(-1)

        stream, known = _padded(small.width, large.width), (kv < small.kv_heads) & (inside < small.group)
        self.rows = {STREAM: stream, HIDDEN: np.arange(large.hidden) % small.hidden, KEYS: numbers(np.arange(large.kv_heads) % small.kv_heads),
                     QUERIES: numbers(kv % small.kv_heads * small.group + inside % small.group)}  # fmt: skip
        self.columns = {STREAM: stream, HIDDEN: _padded(small.hidden, large.hidden), QUERIES: numbers(np.where(known, kv * small.group + inside, -1))}

    def of(self, side: int, n: int, maps: dict[int, np.ndarray]) -> np.ndarray:
        """Returns the originals of a side with n rows or columns."""
        if side == SAME:
            return np.arange(n)
        one, w = maps[side], self.small.width
        if side != STREAM or n == w:
            return one  # all tensors share it
        return np.concatenate([np.where(one < 0, -1, one + i) for i in range(0, n, w)])  # several concatenated streams

    def fits(self, side: int, n: int) -> bool:
        """Returns whether a side of n rows or columns has the small size."""
        return side == SAME or (n % self.small.width == 0 if side == STREAM else n == self.rows[side].max() + 1)

    def norm(self, t: Tensor, name: str) -> Tensor:
        """Returns gains as floats of 32 bits, since scaled ones need not be exact in the model's type."""
        of = self.of(STREAM, t.numbers, self.rows)

        def made() -> Iterable[bytes]:
            gain = checkpoint.Numbers(t).rows(0, t.numbers).reshape(-1).astype(np.float64) * np.sqrt(self.small.width / self.large.width)
            yield np.where(of >= 0, gain[of], 0).astype(np.float32).tobytes()

        return Tensor(name, "F32", of.shape, 4 * of.size, made=made)

    def matrix(self, t: Tensor, name: str, pair: tuple[int, int], path: str, silent: bool = False) -> Tensor:
        """Returns a matrix, or a bias whose numbers are rows, with rows and columns of zeros or copies; `silent`: all
        zeros. Raises Fault."""
        to, of = pair if len(t.shape) > 1 else (pair[0], SAME)
        block, each = checkpoint.block_of(t.kind)
        row, column = self.of(to, t.shape[0], self.rows), self.of(of, t.width, self.columns)
        rows, width = row.size, column.size
        before, after = (s.group * s.head_dim for s in (self.small, self.large))
        if of == QUERIES and before != after and (before % block or after % block):
            raise Fault(f"{path}: tensor {t.name}: {t.kind.lower()} has blocks of {block} numbers, and a group of {self.small.group} heads of "
                        f"{self.small.head_dim} is not a multiple of the block size: no head can be added")  # fmt: skip
        if width % block:
            raise Fault(f"{path}: tensor {t.name}: its rows would have {width} numbers, which is not a multiple of the block size {block} of "
                        f"{t.kind.lower()} ({-(-width // block) * block} is)")  # fmt: skip
        wide = width // block * each

        def made() -> Iterable[bytes]:
            if silent:
                yield from (bytes(wide) for _ in range(rows))
                return
            own = checkpoint.raw_rows(t, 0, t.shape[0]).reshape(-1, t.width // block, each)
            columns, step = column[::block] // block, max(1, checkpoint.CHUNK // wide)
            for first in range(0, rows, step):
                part = row[first : first + step]
                new = own[part][:, columns]
                new[part < 0] = new[:, columns < 0] = 0
                yield new.tobytes()

        return Tensor(name, t.kind, (rows, width)[: len(t.shape)], rows * wide, made=made)
