"""checkpoint - writes models anew: the engine's facts about the source, its tensors as stored, and the files that
become of them.

The engine reads a model's configuration and checks its tensors (`speclab inspect --checkpoint`). Here bytes are read by
their offsets in the files, one tensor at a time, and written. GGUF's metadata are copied byte for byte, except for the
keys that change.
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

CHUNK = 1 << 20  # numbers that are converted at a time
FLOATS = ("F32", "F16", "BF16")


def facts(name: str) -> dict[str, Any]:
    """Returns the engine's facts about a model. Raises Fault with the engine's sentence."""
    if name.startswith("shape:"):
        raise Misuse(f"{name}: expected a model in files, found a shape, which is made in any type and size: shape:llama-1b,type=q4_0,layers=4")
    return json.loads(engine.call("inspect", "--checkpoint", "--", name))


class Source(NamedTuple):
    """A model as stored. `left_out`: names of tensors that have no effect on texts."""

    facts: dict[str, Any]
    tensors: list[Tensor]
    left_out: list[str]
    values: dict[str, bytes]  # GGUF: metadata, each with key and type as in the file
    fields: dict[str, gguf.ReaderField]
    stamps: list[tuple[int, int]]  # sizes and times of the files before they were read


def _stamps(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(s.st_size, s.st_mtime_ns) for s in map(os.stat, sorted({t.path for t in tensors}))]


def stored_in_gguf(path: str) -> tuple[list[Tensor], dict[str, bytes], dict[str, gguf.ReaderField]]:
    """Returns the tensors and the metadata of a GGUF file. Raises Fault."""
    try:
        reader = gguf.GGUFReader(path)
        for name in [f.name for f in reader.fields.values()] + [t.name for t in reader.tensors]:
            name.encode()
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as why:  # the engine does not read this, or
                                                                                # reads it otherwise
        raise Fault(f"{path}: expected a GGUF file that Python's gguf reads, found one that it does not: {str(why)[:200]}") from None
    values = {f.name: bytes(reader.data[f.offset : f.offset + sum(int(p.nbytes) for p in f.parts)])
              for f in reader.fields.values() if not f.name.startswith("GGUF.")}  # fmt: skip
    tensors = [Tensor(t.name, t.tensor_type.name, tuple(int(n) for n in reversed(t.shape)), int(t.n_bytes), path, int(t.data_offset))
               for t in reader.tensors]  # fmt: skip
    return tensors, values, reader.fields


def stored_in(path: str) -> list[Tensor]:
    """Returns the tensors of a safetensors file, or of a folder with one or with shards, by name. Raises Fault."""
    where, names, index = None, [path], f"{path}/model.safetensors.index.json"
    if os.path.exists(index):
        where = safetensors_files.indexed(index)
        names = [f"{path}/{name}" for name in sorted(set(where.values()))]
    elif os.path.isdir(path):
        names = [f"{path}/model.safetensors"]
    found = [t for file in names for t in safetensors_files.read(file) if where is None or f"{path}/{where.get(t.name)}" == file]
    return sorted(found, key=lambda t: t.name.encode())


_FUSED = {".mlp.experts.gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")), ".mlp.experts.down_proj": (("down_proj",), ("w2",))}


def _parts(t: Tensor, about: dict[str, Any]) -> Iterable[Tensor]:
    """Returns the matrices of single experts in a tensor of all experts of a layer, under the names of other
    checkpoints."""
    m = re.fullmatch(r"(model\.layers\.\d+)(\.mlp\.experts\.(?:gate_up|down)_proj)(_scale_inv)?", t.name)
    mixtral = about["experts"] > 0 and not about["qwen_experts"]
    if not m or not about["experts"] or len(t.shape) != 3:
        yield t._replace(name=t.name.replace(".mlp.gate.weight", ".block_sparse_moe.gate.weight")) if mixtral else t
        return
    names = _FUSED[m[2]][mixtral]
    n = t.shape[0] * len(names)
    for i in range(n):
        name = f"{m[1]}.{'block_sparse_moe' if mixtral else 'mlp'}.experts.{i // len(names)}.{names[i % len(names)]}.weight{m[3] or ''}"
        yield Tensor(name, t.kind, (t.shape[1] // len(names), t.shape[2]), t.size // n, t.path, t.begin + i * (t.size // n))


def text_name(stored: str) -> str | None:
    """Returns the name in a model of texts of a tensor of a model of texts and images; None: the tensor is for images.
    """
    if re.match(r"(model\.)?(vision_tower|multi_modal_projector)\.", stored):
        return None
    return re.sub(r"^model\.language_model\.", "model.", re.sub(r"^language_model\.", "", stored))


def open_source(about: dict[str, Any], to: str) -> Source:
    """Opens the tensors of a model that the engine has described, to be written to a path that does not exist yet.
    Raises Fault."""
    if files.same(about["path"], to):
        raise Fault(f"{to}: a model cannot be written onto itself")
    if os.path.lexists(to):
        raise Fault(f"{to}: exists already; it is not overwritten")
    if about["gguf"]:
        tensors, values, fields = stored_in_gguf(about["path"])
        return Source(about, tensors, [], values, fields, _stamps(tensors))
    tensors, left_out = [], []
    for t in stored_in(about["path"]):
        for part in _parts(t, about):
            name = text_name(part.name) if about["wrapper"] else part.name
            if name is None or name.startswith("medusa_head."):
                left_out.append(part.name)
            else:
                tensors.append(part._replace(name=name))
    return Source(about, tensors, left_out, {}, {}, _stamps(tensors))


def layer_of(name: str) -> tuple[str, int, str]:
    """Returns ("blk.", 3, "attn_q.weight") for blk.3.attn_q.weight; the number is -1 if a tensor belongs to no layer.
    """
    m = re.match(r"(blk\.|model\.layers\.)(\d+)\.?(.*)", name)
    return (m[1], int(m[2]), m[3]) if m else ("", -1, name)


def is_scale(name: str) -> bool:
    """Returns whether the name is that of FP8's scales."""
    return name.endswith((".weight_scale", ".weight_scale_inv"))


def is_matrix(t: Tensor) -> bool:
    """Returns whether quantization changes the tensor's type: it is a matrix, but neither a mixture's router nor a
    table of scales."""
    return len(t.shape) > 1 and not is_scale(t.name) and not re.search(r"ffn_gate_inp\.|(mlp|block_sparse_moe)\.gate\.weight|inv_freq$", t.name)


# ---- numbers


def block_of(kind: str) -> tuple[int, int]:
    """Returns the numbers and the bytes of a block of a ggml type."""
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]


def size_as(shape: Sequence[int], kind: str) -> int:
    """Returns the bytes of a tensor of this shape in a ggml type."""
    block, each = block_of(kind)
    return math.prod(shape) // block * each


def raw_rows(t: Tensor, first: int, n: int) -> np.ndarray:
    """Returns rows (n, bytes of a row) of a stored tensor."""
    each = t.size * t.width // max(1, t.numbers)
    raw = np.fromfile(t.path, np.uint8, n * each, offset=t.begin + first * each)
    if raw.size < n * each:
        raise Fault(f"{t.path}: tensor {t.name}: expected {t.size} bytes, found the file's end; is it being written?")
    return raw.reshape(n, each)


_BYTE = np.arange(256, dtype=np.uint16)  # an F16 has FP8's bits with a bias that is larger by 8
_E4M3 = np.where(_BYTE & 127 == 127, np.float32(np.nan), ((_BYTE & 128) << 8 | (_BYTE & 127) << 7).view(np.float16) * np.float32(256))


class Numbers(NamedTuple):
    """A matrix as floats: `rows(first, n)` returns (n, width) of float32."""

    t: Tensor
    scales: Tensor | None = None  # FP8: one for a block of `block` rows and columns, for a row or for all
    block: tuple[int, int] = (0, 0)

    def rows(self, first: int, n: int) -> np.ndarray:
        raw = raw_rows(self.t, first, n)
        if self.scales is None:
            x = gguf.dequantize(raw, gguf.GGMLQuantizationType[self.t.kind])
            return x if self.t.kind in FLOATS else x + np.float32(0)  # a block has no negative zeros
        s, rows = Numbers(self.scales._replace(shape=(self.scales.numbers, 1))).rows(0, self.scales.numbers), np.arange(first, first + n)
        if self.block[0]:
            s = s.reshape(-1, -(-self.t.width // self.block[1]))[rows // self.block[0]][:, np.arange(self.t.width) // self.block[1]]
        elif s.size > 1:
            s = s[rows]
        return _E4M3[raw] * s


def numbers(source: Source, t: Tensor) -> Numbers:
    """Returns the floats of a tensor, for FP8 with its scales. Raises Fault."""
    if t.kind in FLOATS or (t.kind in gguf.GGMLQuantizationType.__members__ and block_of(t.kind)[0] > 1):
        return Numbers(t)
    scales = next((s for s in source.tensors if s.name in (f"{t.name}_scale_inv", f"{t.name}_scale")), None)
    if t.kind != "F8_E4M3" or scales is None or scales.kind not in FLOATS or not source.facts["fp8"] or not is_matrix(t):
        raise not_converted(source, t)
    return Numbers(t, scales, tuple(source.facts["fp8_blocks"]))


def not_converted(source: Source, t: Tensor) -> Fault:
    return Fault(f"{source.facts['path']}: tensor {t.name}: it is of {t.kind} and not converted")


def encoded(x: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows (n, width) in a ggml type as bytes, and for each row whether all its numbers are finite in it.
    """
    with np.errstate(all="ignore"):
        y = gguf.quantize(x, gguf.GGMLQuantizationType[kind]).view(np.uint8).reshape(len(x), -1)
    good, (block, each) = np.isfinite(x).all(axis=1), block_of(kind)
    if kind == "BF16":
        good &= (y.view(np.uint16) & 0x7F80 != 0x7F80).all(axis=1)
    elif block > 1:
        good &= np.isfinite(y.reshape(len(y), -1, each)[:, :, :2].copy().view(np.float16)).all(axis=(1, 2))
    return y, good


def converted(source: Source, t: Tensor, name: str, kind: str, order: np.ndarray | None = None, more: float = 0) -> Tensor:
    """Returns a tensor in another type, under another name, with its rows in this order and `more` added to each
    number. Raises Fault, also when the tensor is written."""
    x, rows, step = numbers(source, t), t.numbers // max(1, t.width), max(1, CHUNK // max(1, t.width))

    def made() -> Iterable[bytes]:
        for first in range(0, rows, step):
            of = np.arange(first, min(first + step, rows)) if order is None else order[first : first + step]
            v = x.rows(int(of.min()), int(np.ptp(of)) + 1)[of - of.min()]
            y, good = encoded(v + np.float32(more) if more else v, kind)
            if not good.all():
                raise Fault(f"{source.facts['path']}: tensor {name}: row {of[np.argmin(good)]} holds a number that is not finite, or too large for "
                            f"{kind.lower()}")  # fmt: skip
            yield y.tobytes()

    return Tensor(name, kind, t.shape, size_as(t.shape, kind), made=made)


# ---- writing


def _u32(n: int) -> bytes:
    return n.to_bytes(4, "little")


def _u64(n: int) -> bytes:
    return n.to_bytes(8, "little")


def _text(s: str) -> bytes:
    raw = s.encode(errors="surrogateescape")
    return _u64(len(raw)) + raw


def value(key: str, v: Any, kind: gguf.GGUFValueType | None = None) -> bytes:
    """Returns the bytes of a key's value in GGUF's metadata: a text, a list of texts or of integers, a float of 32
    bits, a boolean, or an integer of this type."""
    types = gguf.GGUFValueType
    if isinstance(v, str):
        return _text(key) + _u32(types.STRING) + _text(v)
    if isinstance(v, list):
        kind = types.STRING if not v or isinstance(v[0], str) else kind or types.INT32
        body = b"".join(map(_text, v)) if kind == types.STRING else np.array(v, gguf.GGUFReader.gguf_scalar_to_np[kind]).tobytes()
        return _text(key) + _u32(types.ARRAY) + _u32(kind) + _u64(len(v)) + body
    kind = types.BOOL if isinstance(v, bool) else types.FLOAT32 if isinstance(v, float) else kind or types.UINT32
    return _text(key) + _u32(kind) + np.array(v, gguf.GGUFReader.gguf_scalar_to_np[kind]).tobytes()


def changed(source: Source, new: dict[str, Any]) -> list[bytes]:
    """Returns all metadata of a GGUF file with some keys set anew; integers keep the type that the key has."""

    def of(key: str) -> bytes:
        known = key in source.fields and source.fields[key].types[-1]
        return value(key, new[key], known if known and "INT" in known.name else None)

    return [of(k) if k in new else v for k, v in source.values.items()] + [of(k) for k in new if k not in source.values]


def write_gguf(f: IO[bytes], values: Sequence[bytes], tensors: Sequence[Tensor]) -> None:
    """Writes a whole file of these keys with their values and these tensors, one after another."""
    alignment, key = 32, _text("general.alignment")
    for v in values:
        if v.startswith(key):
            alignment = int.from_bytes(v[len(key) + 4 :], "little")
    head, offset = b"GGUF" + _u32(3) + _u64(len(tensors)) + _u64(len(values)) + b"".join(values), 0
    for t in tensors:
        head += _text(t.name) + _u32(len(t.shape)) + b"".join(map(_u64, reversed(t.shape))) + _u32(gguf.GGMLQuantizationType[t.kind]) + _u64(offset)
        offset += -(-t.size // alignment) * alignment
    f.write(head + bytes(-len(head) % alignment))
    for t in tensors:
        put = sum(f.write(piece) for piece in t.pieces())
        assert put == t.size, t.name
        f.write(bytes(-put % alignment))


def output_path(given: str) -> str:
    """Returns the path without trailing slashes. Raises Misuse if it is empty."""
    if not given:
        raise Misuse("--out PATH is needed")
    return given.rstrip("/") or "/"


def write(source: Source, to: str, tensors: Sequence[Tensor], keys: dict[str, Any] | None, config: Callable[[dict], None]) -> float:
    """Writes a GGUF file, with `keys` set anew, or, without them, a folder, whose config.json `config` changes. Returns
    seconds."""
    parent, path = os.path.dirname(to) or ".", source.facts["path"]
    need = sum(t.size for t in tensors)
    if os.path.isdir(parent) and need > (free := shutil.disk_usage(parent).free):
        raise Fault(f"{to}: not enough disk space: {need / 1e6:.1f} MB are required, and {free / 1e6:.1f} MB are available")
    began = time.monotonic()

    def shown(f: IO[bytes]):  # a person at a terminal sees the progress
        return tqdm.wrapattr(f, "write", total=need, leave=False, disable=None)

    with files.folder(to) if keys is None else files.writing(to) as part:
        if keys is not None:
            with shown(part) as f:
                write_gguf(f, changed(source, keys), tensors)
        else:
            described = json.loads(files.read_text(f"{path}/config.json"))
            config(described)
            with open(f"{part}/model.safetensors", "xb") as plain, shown(plain) as f:
                safetensors_files.write(f, tensors, {"format": "pt"})
            files.write(f"{part}/config.json", json.dumps(described, indent=2, ensure_ascii=False) + "\n")
            safetensors_files.copy_beside(path, part, but=("config.json",))
        if _stamps(source.tensors) != source.stamps:
            raise Fault(f"{path}: it was written to while it was read; nothing was made of it")
    return time.monotonic() - began


def keep_layer_lists(config: dict[str, Any], layers: int, keep: Sequence[int]) -> None:
    """Returns lists of config.json with an entry for each layer: layer i of the new model is layer keep[i] of the old
    one."""
    for key in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if isinstance(config.get(key), list) and len(config[key]) == layers:
            config[key] = [config[key][i] for i in keep]


def check_whole(about: dict[str, Any], kind: type[Fault] = Misuse, option: str = "") -> None:
    """Raises `kind` if a folder of the model would lack the part for images."""
    if about["wrapper"]:
        raise kind(f"{option}{about['path']}: a directory of it would lack what the model has for images; `quantize` writes its text model "
                   "to a GGUF file")  # fmt: skip


def print_left_out(source: Source) -> None:
    """Prints a line about the tensors that were not written."""
    if source.left_out:
        print(f"left out: {len(source.left_out)} tensors that the model does not use: {source.left_out[0]}{', ...' if source.left_out[1:] else ''}")
