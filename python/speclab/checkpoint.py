"""checkpoint - models that are written anew: what the engine says of the source, its tensors as stored, and the files that become of them.

The engine reads a model's configuration and checks its tensors (`speclab inspect --checkpoint`); here bytes are read by their places in the files, a
tensor at a time, and written. GGUF's metadata are copied byte for byte but for the keys that change.
"""

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, NamedTuple

import gguf
import numpy as np
from tqdm import tqdm

from speclab import engine, files, safetensors_files
from speclab.command import Fault, Misuse
from speclab.safetensors_files import Tensor

FLOATS = {"F32": 0, "F16": 1, "BF16": 30}  # safetensors' names of types and ggml's numbers
CHUNK = 1 << 20  # numbers that are converted at a time


def facts(name: str) -> dict[str, Any]:
    """What the engine says of a model. Raises Fault with its sentence."""
    if name.startswith("shape:"):
        raise Misuse(f"{name}: expected a model in files, found a shape, which is made in any type and size: shape:llama-1b,type=q4_0,layers=4")
    return json.loads(engine.call("inspect", "--checkpoint", "--", name))


class Stored(NamedTuple):
    """A tensor in a file. `kind`: ggml's number of its type, or safetensors' name. `shape`: rows first."""

    name: str
    kind: Any
    shape: tuple[int, ...]
    path: str
    begin: int
    size: int

    def pieces(self) -> Iterable[bytes]:
        """All its bytes."""
        with files.open_input(self.path) as f:
            yield from safetensors_files.piece_of(f, self.begin, self.size)

    def rows(self, first: int, n: int) -> np.ndarray:
        """(n, bytes of a row) Rows of the matrix whose width is the last dimension."""
        each = self.size * self.width // max(1, self.numbers)
        read = np.empty((n, each), np.uint8)
        with files.open_input(self.path) as f:
            f.seek(self.begin + first * each)
            if f.readinto(read.reshape(-1).data) != read.nbytes:
                raise Fault(f"{self.path}: tensor {self.name}: expected {read.nbytes} bytes, found the file's end; is it being written?")
        return read

    @property
    def numbers(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def width(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def kind_number(self) -> int:
        """ggml's number of the type; -1: it has none."""
        return FLOATS.get(self.kind, -1) if isinstance(self.kind, str) else self.kind

    @property
    def ggml(self) -> int:
        """ggml's number of the type. Raises Fault if it is none that can be read."""
        if isinstance(self.kind, str) and self.kind not in FLOATS:
            raise Fault(f"{self.path}: tensor {self.name}: its type, {self.kind}, cannot be read")
        return self.kind_number


class Source(NamedTuple):
    """A model as stored. `left_out`: names of tensors that have no effect on texts."""

    facts: dict[str, Any]
    tensors: list[Stored]
    left_out: list[str]
    values: dict[str, bytes]  # GGUF: metadata, each with key and type as in the file
    reader: gguf.GGUFReader | None
    stamps: list[tuple[int, int]]  # sizes and times of the files, before they were read


def _stamps(tensors: Sequence[Stored]) -> list[tuple[int, int]]:
    return [(s.st_size, s.st_mtime_ns) for s in map(os.stat, sorted({t.path for t in tensors}))]


def _gguf(path: str) -> tuple[list[Stored], dict[str, bytes], gguf.GGUFReader]:
    try:
        reader = gguf.GGUFReader(path)
        for name in [f.name for f in reader.fields.values()] + [t.name for t in reader.tensors]:
            name.encode()
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as why:  # what the engine does not read, or reads otherwise
        raise Fault(f"{path}: expected a GGUF file that Python's gguf reads, found one that it does not: {str(why)[:200]}") from None
    values = {f.name: bytes(reader.data[f.offset : f.offset + sum(int(p.nbytes) for p in f.parts)])
              for f in reader.fields.values() if not f.name.startswith("GGUF.")}  # fmt: skip
    tensors = [Stored(t.name, int(t.tensor_type), tuple(int(n) for n in reversed(t.shape)), path, int(t.data_offset), int(t.n_bytes))
               for t in reader.tensors]  # fmt: skip
    return tensors, values, reader


def stored_in(path: str) -> list[Stored]:
    """The tensors of a safetensors file, or of a folder with one or with shards, by name. Raises Fault."""
    where, names, index = None, [path], f"{path}/model.safetensors.index.json"
    if os.path.exists(index):
        where = safetensors_files.indexed(index)
        names = [f"{path}/{name}" for name in sorted(set(where.values()))]
    elif os.path.isdir(path):
        names = [f"{path}/model.safetensors"]
    found = [Stored(name, dtype, shape, file, begin, size) for file in names for name, dtype, shape, begin, size in safetensors_files.read(file)
             if where is None or f"{path}/{where.get(name)}" == file]  # fmt: skip
    return sorted(found, key=lambda t: t.name.encode())


_FUSED = {".mlp.experts.gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")), ".mlp.experts.down_proj": (("down_proj",), ("w2",))}


def _parts(t: Stored, about: dict[str, Any]) -> Iterable[Stored]:
    """The matrices of single experts that a tensor of all experts of a layer has, under the names of other checkpoints."""
    m = re.fullmatch(r"(model\.layers\.\d+)(\.mlp\.experts\.(?:gate_up|down)_proj)(_scale_inv)?", t.name)
    mixtral = about["experts"] > 0 and not about["qwen_experts"]
    if not m or not about["experts"] or len(t.shape) != 3:
        name = t.name.replace(".mlp.gate.weight", ".block_sparse_moe.gate.weight") if mixtral else t.name
        yield t._replace(name=name)
        return
    names = _FUSED[m[2]][mixtral]
    size = t.size // (t.shape[0] * len(names))
    for i in range(t.shape[0] * len(names)):
        name = f"{m[1]}.{'block_sparse_moe' if mixtral else 'mlp'}.experts.{i // len(names)}.{names[i % len(names)]}.weight{m[3] or ''}"
        yield Stored(name, t.kind, (t.shape[1] // len(names), t.shape[2]), t.path, t.begin + i * size, size)


def text_name(stored: str) -> str | None:
    """The name in a model of texts of a tensor of a model of texts and images; None: it is of images."""
    if re.match(r"(model\.)?(vision_tower|multi_modal_projector)\.", stored):
        return None
    return re.sub(r"^model\.language_model\.", "model.", re.sub(r"^language_model\.", "", stored))


def open_source(about: dict[str, Any]) -> Source:
    """The tensors of a model that the engine has described."""
    if about["gguf"]:
        tensors, values, reader = _gguf(about["path"])
        return Source(about, tensors, [], values, reader, _stamps(tensors))
    tensors, left_out = [], []
    for t in stored_in(about["path"]):
        for part in _parts(t, about):
            name = text_name(part.name) if about["wrapper"] else part.name
            if name is None or name.startswith("medusa_head."):
                left_out.append(part.name)
            else:
                tensors.append(part._replace(name=name))
    return Source(about, tensors, left_out, {}, None, _stamps(tensors))


def layer_of(name: str) -> tuple[str, int, str]:
    """("blk.", 3, "attn_q.weight") of blk.3.attn_q.weight; the number is -1 where a tensor belongs to no layer."""
    m = re.match(r"(blk\.|model\.layers\.)(\d+)\.?(.*)", name)
    return (m[1], int(m[2]), m[3]) if m else ("", -1, name)


def is_scale(name: str) -> bool:
    """Whether it is the name of FP8's scales."""
    return name.endswith((".weight_scale", ".weight_scale_inv"))


def is_matrix(t: Stored) -> bool:
    """Whether quantization changes its type: a matrix that is neither a mixture's router nor a table of scales."""
    return len(t.shape) > 1 and not is_scale(t.name) and not re.search(r"ffn_gate_inp\.|(mlp|block_sparse_moe)\.gate\.weight|inv_freq$", t.name)


# ---- numbers


def _e4m3(b: int) -> float:
    size = (b & 7) / 512 if b & 120 == 0 else (1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7)
    return math.nan if b & 127 == 127 else -size if b > 127 else size


_E4M3 = np.array([_e4m3(b) for b in range(256)], np.float32)


class Numbers(NamedTuple):
    """A matrix as floats: `rows(first, n)` is (n, width) of float32."""

    t: Stored
    scales: Stored | None = None  # FP8: one for a block of `block` rows and columns, for a row or for all
    block: tuple[int, int] = (0, 0)

    def rows(self, first: int, n: int) -> np.ndarray:
        raw = self.t.rows(first, n)
        if self.scales is None:
            x = gguf.dequantize(raw, gguf.GGMLQuantizationType(self.t.ggml))
            return x if self.t.ggml in FLOATS.values() else x + np.float32(0)  # a block has no zeros with a sign
        s = gguf.dequantize(np.frombuffer(b"".join(self.scales.pieces()), np.uint8), gguf.GGMLQuantizationType(self.scales.ggml))
        at = np.arange(first, first + n)
        if self.block[0]:
            s = s.reshape(-1, -(-self.t.width // self.block[1]))[at // self.block[0]][:, np.arange(self.t.width) // self.block[1]]
        else:
            s = s.reshape(-1, 1)[at] if s.size == self.t.numbers // self.t.width else s.reshape(1, 1)
        return _E4M3[raw] * s


def numbers(source: Source, t: Stored) -> Numbers:
    """The floats of a tensor; of one of FP8, with its scales."""
    if t.kind != "F8_E4M3":
        return Numbers(t)
    found = next((s for s in source.tensors if s.name in (f"{t.name}_scale_inv", f"{t.name}_scale")), None)
    if found is None or not source.facts["fp8"] or not is_matrix(t):
        raise Fault(f"{source.facts['path']}: tensor {t.name}: it is of F8_E4M3 and not converted")
    return Numbers(t, found, tuple(source.facts["fp8_blocks"]))


def encoded(x: np.ndarray, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows (n, width) in a type of ggml's, as bytes, and of each row whether all its numbers are finite in it."""
    with np.errstate(all="ignore"):
        y = gguf.quantize(x, gguf.GGMLQuantizationType(kind)).view(np.uint8).reshape(len(x), -1)
    good = np.isfinite(x).all(axis=1)
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    if kind == FLOATS["BF16"]:
        good &= (y.view(np.uint16) & 0x7F80 != 0x7F80).all(axis=1)
    elif block[0] > 1:
        good &= np.isfinite(y.reshape(len(y), -1, block[1])[:, :, :2].copy().view(np.float16)).all(axis=(1, 2))
    return y, good


def type_name(kind: int) -> str:
    """ "q4_1" of ggml's number."""
    return gguf.GGMLQuantizationType(kind).name.lower()


def size_as(shape: Sequence[int], kind: int) -> int:
    """Bytes of a tensor of this shape in a type of ggml's."""
    block, each = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    return int(np.prod(shape, dtype=np.int64)) // block * each


def converted(name: str, path: str, x: Numbers, kind: int, order: np.ndarray | None = None, more: float = 0) -> Iterable[bytes]:
    """The bytes of a matrix, or of a vector as one row, in another type: its rows in this order, and `more` added to each number. Raises Fault."""
    vector = len(x.t.shape) < 2
    rows, width = (1 if vector else x.t.numbers // x.t.width), x.t.width
    step = max(1, CHUNK // width)
    for first in range(0, rows, step):
        n = min(step, rows - first)
        if order is None:
            v = x.rows(first, n)
        elif vector:
            v = x.rows(0, 1)[:, order]
        else:
            of = order[first : first + n]
            v = x.rows(int(of.min()), int(of.max() - of.min()) + 1)[of - of.min()]
        y, good = encoded(v + np.float32(more) if more else v, kind)
        if not good.all():
            bad = first + int(np.argmin(good))
            bad = bad if order is None or vector else order[bad]
            raise Fault(f"{path}: tensor {name}: row {bad} holds a number that is not finite, or too large for {type_name(kind)}")
        yield y.tobytes()


# ---- writing


def copied(t: Stored, name: str | None = None) -> Tensor:
    """A tensor as it is stored, under another name."""
    return Tensor(name or t.name, t.kind, t.shape, t.size, t.pieces)


def _u32(n: int) -> bytes:
    return n.to_bytes(4, "little")


def _u64(n: int) -> bytes:
    return n.to_bytes(8, "little")


def _text(s: str) -> bytes:
    raw = s.encode(errors="surrogateescape")
    return _u64(len(raw)) + raw


def value(key: str, v: Any, kind: gguf.GGUFValueType = gguf.GGUFValueType.UINT32) -> bytes:
    """A key of GGUF's metadata: a text, a list of texts or of integers, a float of 32 bits, a boolean, or an integer of this type."""
    types = gguf.GGUFValueType
    if isinstance(v, str):
        return _text(key) + _u32(types.STRING) + _text(v)
    if isinstance(v, list):
        texts = not v or isinstance(v[0], str)
        body = b"".join(map(_text, v)) if texts else np.array(v, "<i4").tobytes()
        return _text(key) + _u32(types.ARRAY) + _u32(types.STRING if texts else types.INT32) + _u64(len(v)) + body
    kind = types.BOOL if isinstance(v, bool) else types.FLOAT32 if isinstance(v, float) else kind
    return _text(key) + _u32(kind) + np.array(v, gguf.GGUFReader.gguf_scalar_to_np[kind]).tobytes()


def changed(source: Source, new: dict[str, Any]) -> list[bytes]:
    """All metadata of a GGUF file with some keys set anew; an integer keeps the type that the key has. Bytes are a key with its value."""

    def of(key: str) -> bytes:
        field = source.reader.fields.get(key)
        known = field is not None and field.types[0].name in ("UINT32", "INT32", "UINT64", "INT64")
        return new[key] if isinstance(new[key], bytes) else value(key, new[key], field.types[0] if known else gguf.GGUFValueType.UINT32)

    return [of(k) if k in new else v for k, v in source.values.items()] + [of(k) for k in new if k not in source.values]


def _observed(tensors: Sequence[Tensor], bar: tqdm) -> list[Tensor]:
    """The tensors, whose bytes are counted as they are written."""

    def put(t: Tensor) -> Iterable[bytes]:
        for piece in t.put():
            bar.update(len(piece))
            yield piece

    return [t._replace(put=lambda t=t: put(t)) for t in tensors]


def _write_gguf(f: IO[bytes], values: Sequence[bytes], tensors: Sequence[Tensor]) -> None:
    alignment, key = 32, _text("general.alignment")
    for v in values:
        if v.startswith(key):
            alignment = int.from_bytes(v[len(key) + 4 :], "little")
    head, offset = b"GGUF" + _u32(3) + _u64(len(tensors)) + _u64(len(values)) + b"".join(values), 0
    for t in tensors:
        head += _text(t.name) + _u32(len(t.shape)) + b"".join(map(_u64, reversed(t.shape))) + _u32(t.dtype) + _u64(offset)
        offset += -(-t.size // alignment) * alignment
    f.write(head + bytes(-len(head) % alignment))
    for t in tensors:
        put = sum(f.write(piece) for piece in t.put())
        assert put == t.size, t.name
        f.write(bytes(-put % alignment))


def output_path(given: str) -> str:
    """The path without trailing slashes. Raises Misuse if it is empty."""
    if not given:
        raise Misuse("--out PATH is needed")
    return given.rstrip("/") or "/"


def new_output(source: dict[str, Any], to: str) -> None:
    """Raises Fault if a name exists."""
    if files.same(source["path"], to):
        raise Fault(f"{to}: a model cannot be written onto itself")
    if os.path.lexists(to):
        raise Fault(f"{to}: exists already; it is not overwritten")


def write(source: Source, to: str, tensors: Sequence[Tensor], values: Sequence[bytes] = (), config: Callable[[dict], None] | None = None) -> float:
    """Writes a GGUF file of these metadata, or with `config`, which changes config.json, a folder. Returns seconds."""
    parent = os.path.dirname(to) or "."
    need = sum(t.size for t in tensors)
    if os.path.isdir(parent) and need > (free := shutil.disk_usage(parent).free):
        raise Fault(f"{to}: not enough disk space: {need / 1e6:.1f} MB are required, and {free / 1e6:.1f} MB are available")
    began, bar = time.monotonic(), tqdm(total=need, unit="B", unit_scale=True, leave=False, disable=None)  # on a terminal
    tensors = _observed(tensors, bar)
    with bar, files.writing(to) if config is None else files.folder(to) as part:
        if config is None:
            _write_gguf(part, values, tensors)
        else:
            described = json.loads(files.read_text(f"{source.facts['path']}/config.json"))
            config(described)
            with open(f"{part}/model.safetensors", "xb") as f:
                safetensors_files.write(f, tensors, {"format": "pt"})
            files.write(f"{part}/config.json", json.dumps(described, indent=2, ensure_ascii=False) + "\n")
            safetensors_files.copy_beside(source.facts["path"], part, but=("config.json",))
        if _stamps(source.tensors) != source.stamps:
            raise Fault(f"{source.facts['path']}: it was written to while it was read; nothing was made of it")
    return time.monotonic() - began


def keep_layer_lists(config: dict[str, Any], layers: int, keep: Sequence[int]) -> None:
    """Lists of config.json with an entry for each layer: layer i of the new model is layer keep[i] of the old one."""
    for key in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if isinstance(config.get(key), list) and len(config[key]) == layers:
            config[key] = [config[key][i] for i in keep]


def check_whole(about: dict[str, Any], kind: type[Fault] = Misuse, option: str = "") -> None:
    """Raises `kind` if a folder of it would lack the model of images."""
    if about["wrapper"]:
        raise kind(f"{option}{about['path']}: a directory of it would lack what the model has for images; `quantize` writes its text model "
                   "to a GGUF file")  # fmt: skip


def print_left_out(source: Source) -> None:
    """A line about the tensors that were not written."""
    if source.left_out:
        print(f"left out: {len(source.left_out)} tensors that the model does not use: {source.left_out[0]}{', ...' if source.left_out[1:] else ''}")
