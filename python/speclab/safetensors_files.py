"""safetensors_files - headers of safetensors files, and files written tensor by tensor. Standard library alone.

A file is the length of its header (8 bytes, little-endian), the header as JSON, and the tensors' bytes in row-major order.
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

HEADER = 100 << 20  # bytes: limit of a header, as in the safetensors library
CHUNK = 1 << 20  # bytes that are copied at a time
BESIDE = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt",
          "tokenizer.model")  # fmt: skip
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16,
        "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}  # fmt: skip


class Tensor(NamedTuple):
    """A tensor to write: `put` yields its bytes, `size` of them, when the file is written."""

    name: str
    dtype: Any  # safetensors' name, as "BF16"; ggml's number in a GGUF file
    shape: tuple[int, ...]
    size: int
    put: Callable[[], Iterable[Any]]


def write(to: IO[bytes], tensors: Sequence[Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes a whole file, one tensor after the other. No more than a tensor's next piece is in memory."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    begin = 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [begin, begin := begin + t.size]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    to.write(struct.pack("<Q", len(text)) + text)
    for t in tensors:
        put = sum(to.write(piece) for piece in t.put())
        assert put == t.size, t.name


def piece_of(file: IO[bytes], begin: int, size: int) -> Iterable[bytes]:
    """These bytes of a file, in pieces. Raises Fault where the file ends before them."""
    file.seek(begin)
    while size > 0:
        piece = file.read(min(size, CHUNK))
        if not piece:
            raise Fault(f"{file.name}: expected {size} bytes more, found its end; is it being written?")
        yield piece
        size -= len(piece)


def read(path: str) -> list[tuple[str, str, tuple[int, ...], int, int]]:
    """(name, dtype, shape, offset in the file, bytes) of each tensor. Raises Fault."""
    with open_input(path) as f:
        size = f.seek(0, 2)
        f.seek(0)
        n = int.from_bytes(f.read(8), "little")
        if size < 8 or not 2 <= n <= min(HEADER, size - 8):
            raise Fault(f"{path}: expected a safetensors file, found {size} bytes whose header would have {n}")
        try:
            header = json.loads(f.read(n))
            found = [(name, t["dtype"], tuple(t["shape"]), 8 + n + t["data_offsets"][0], t["data_offsets"][1] - t["data_offsets"][0])
                     for name, t in header.items() if name != "__metadata__"]  # fmt: skip
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as why:
            raise Fault(f"{path}: expected a safetensors file, found a header that is damaged: {why}") from None
    for name, dtype, shape, begin, bytes_ in found:
        numbers = all(type(i) is int and i >= 0 for i in (*shape, begin, bytes_))
        if not numbers or begin + bytes_ > size or bytes_ * 8 != math.prod(shape) * BITS.get(dtype, -1):
            raise Fault(f"{path}: tensor {name}: expected a shape, a known type and its bytes in the file, found {dtype} {list(shape)} in {bytes_}")
    return found


def indexed(index: str) -> dict[str, str]:
    """The file of each tensor, from pytorch_model.bin.index.json. Raises Fault."""
    content = loads(read_text(index), index)
    where = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(where, dict) or not where or any(
            not isinstance(f, str) or f in ("", ".", "..") or "/" in f or "\0" in f for f in where.values()):  # fmt: skip
        raise Fault(f'{index}: expected an object "weight_map" of tensors, each with the name of a file beside the index')
    return where


def copy_beside(source: str, to: str, but: tuple[str, ...] = ()) -> None:
    """Copies a model's small files: configuration and tokenizer."""
    for name in sorted(os.listdir(source)):
        if name not in but and (name in BESIDE or (name.startswith("tokenizer") and name.endswith(".json"))):
            with open_input(f"{source}/{name}") as f, open(f"{to}/{name}", "wb") as out:
                shutil.copyfileobj(f, out)
