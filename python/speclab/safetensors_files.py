"""safetensors_files - tensors in a file, or made when one is written; safetensors' headers. It needs the standard
library alone.

A file is the length of its header (8 bytes, little-endian), the header as JSON, and the tensors' bytes in row-major
order.
"""

import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, NamedTuple

from speclab.command import Fault
from speclab.files import open_input, read_text
from speclab.strict_json import loads

HEADER = 100 << 20  # maximum bytes of a header, as in the safetensors library
CHUNK = 1 << 20  # bytes that are copied at a time
BESIDE = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt",
          "tokenizer.model")  # fmt: skip
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16,
        # fmt: skip.
        "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


class Tensor(NamedTuple):
    """A tensor, whose bytes are in a file, or are yielded by `made` when it is written. `kind`: its type by the
    formats' names, "BF16" or "Q4_0"."""

    name: str
    kind: str
    shape: tuple[int, ...]  # rows first
    size: int  # number of bytes
    path: str = ""
    begin: int = 0
    made: Callable[[], Iterable[Any]] | None = None

    def pieces(self) -> Iterable[Any]:
        """Yields all its bytes. Raises Fault if the file ends before them."""
        if self.made:
            yield from self.made()
            return
        with open_input(self.path) as f:
            f.seek(self.begin)
            for at in range(0, self.size, CHUNK):
                piece = f.read(min(CHUNK, self.size - at))
                if len(piece) < min(CHUNK, self.size - at):
                    raise Fault(f"{self.path}: tensor {self.name}: expected {self.size} bytes, found the file's end; is it being written?")
                yield piece

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Returns the numbers of a row; a vector has rows of one."""
        return self.shape[-1] if len(self.shape) > 1 else 1


def write(to: IO[bytes], tensors: Sequence[Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes a whole file, one tensor after another. Memory holds no more than a tensor's next piece."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    begin = 0
    for t in tensors:
        header[t.name] = {"dtype": t.kind, "shape": t.shape, "data_offsets": [begin, begin := begin + t.size]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    to.write(struct.pack("<Q", len(text)) + text)
    for t in tensors:
        put = sum(to.write(piece) for piece in t.pieces())
        assert put == t.size, t.name


def read(path: str) -> list[Tensor]:
    """Returns the tensors of a file. Raises Fault."""
    with open_input(path) as f:
        size = f.seek(0, 2)
        f.seek(0)
        n = int.from_bytes(f.read(8), "little")
        if size < 8 or not 2 <= n <= min(HEADER, size - 8):
            raise Fault(f"{path}: expected a safetensors file, found {size} bytes whose header would have {n}")
        try:
            header = json.loads(f.read(n))
            found = [Tensor(name, t["dtype"], tuple(t["shape"]), t["data_offsets"][1] - t["data_offsets"][0], path, 8 + n + t["data_offsets"][0])
                     for name, t in header.items() if name != "__metadata__"]  # fmt: skip
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as why:
            raise Fault(f"{path}: expected a safetensors file, found a header that is damaged: {why}") from None
    for t in found:
        numbers = all(type(i) is int and i >= 0 for i in (*t.shape, t.begin, t.size))
        if not numbers or t.begin + t.size > size or t.size * 8 != t.numbers * BITS.get(t.kind, -1):
            raise Fault(f"{path}: tensor {t.name}: expected a shape, a known type and its bytes in the file, found {t.kind} {list(t.shape)} in "
                        f"{t.size}")  # fmt: skip
    return found


def metadata(path: str) -> dict[str, str]:
    """Returns the metadata of a file that `read` has accepted."""
    with open_input(path) as f:
        return json.loads(f.read(int.from_bytes(f.read(8), "little"))).get("__metadata__") or {}


def indexed(index: str) -> dict[str, str]:
    """Returns the file of each tensor, from pytorch_model.bin.index.json. Raises Fault."""
    content = loads(read_text(index), index)
    where = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(where, dict) or not where or any(
            # fmt: skip.
            not isinstance(f, str) or f in ("", ".", "..") or "/" in f or "\0" in f for f in where.values()):
        raise Fault(f'{index}: expected an object "weight_map" of tensors, each with the name of a file beside the index')
    return where


def copy_beside(source: str, to: str, but: tuple[str, ...] = ()) -> None:
    """Copies a model's small files: configuration and tokenizer."""
    for name in sorted(os.listdir(source)):
        if name not in but and (name in BESIDE or (name.startswith("tokenizer") and name.endswith(".json"))):
            with open_input(f"{source}/{name}") as f, open(f"{to}/{name}", "wb") as out:
                shutil.copyfileobj(f, out)
