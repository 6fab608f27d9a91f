"""torch_files - reads the tensors of PyTorch's files (.pt, .bin) without PyTorch, and without executing anything. It
needs the standard library alone.

torch.save writes a ZIP archive of a pickle, FOLDER/data.pkl, and of the raw storages that it refers to,
FOLDER/data/KEY. A pickle is a program for a stack machine that calls what it imports. Here only the opcodes and names
of a state_dict are accepted, and the names stand for functions of this module. Any other name is refused in a message
that gives it. Tensors are those of the dictionary or, if it has none, of its only value with tensors, if that is called
state_dict, model or module. Everything else is skipped.
"""

import io
import math
import pickle
import pickletools
import re
import struct
import zipfile
from collections.abc import Iterable
from typing import Any, NamedTuple

from speclab.command import Fault, placed
from speclab.files import open_input
from speclab.safetensors_files import CHUNK, Tensor

PICKLE = 16 << 20  # maximum bytes of a pickle; a checkpoint of 100,000 tensors has about 15 MB
STEPS = 1 << 22  # maximum number of opcodes
DIRECTORY = 64 << 20  # maximum bytes of a ZIP directory
COPIES = 16  # tensors that share a storage are written once each: together at most this many times the file
ADVICE = "load it with PyTorch where it is trusted, and save its state_dict as safetensors or with torch.save again"
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."


class Storage(NamedTuple):
    """The storage to which a persistent id refers."""

    dtype: str
    key: str
    elements: int


class View(NamedTuple):
    """A call of _rebuild_tensor_v2; its arguments are checked when it is read. `offset` and `stride` count elements."""

    storage: Any
    offset: Any
    shape: Any
    stride: Any

    def check(self) -> int:
        """Returns the number of elements. Raises Fault unless they are in the storage, row by row."""
        sizes = all(isinstance(s, tuple) and len(s) <= 8 and all(type(n) is int and 0 <= n < 1 << 62 for n in s) for s in (self.shape, self.stride))
        if not sizes or not isinstance(self.storage, Storage) or type(self.offset) is not int or len(self.shape) != len(self.stride):
            raise Fault("expected a storage, an offset, a size of at most 8 dimensions and as many strides, found other arguments")
        n, step = math.prod(self.shape), 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if n and size != 1 and stride != step:
                raise Fault(f"expected a contiguous tensor, found shape {list(self.shape)} with strides {list(self.stride)}, as of a transposed or "
                            "expanded one; save it after .contiguous()")  # fmt: skip
            step *= size
        if self.offset < 0 or self.offset + n > self.storage.elements:
            raise Fault(f"expected it to lie in its storage of {self.storage.elements} elements, found {n} from element {self.offset} on")
        return n


class Entries(dict):
    """A dictionary of the pickle; keys that are neither texts nor numbers are skipped."""

    __slots__ = ()

    def __setitem__(self, key, value):
        if isinstance(key, str) and key in self:
            raise Fault(f"two values are named {key[:100]}")
        super().__setitem__(key if isinstance(key, (str, int, float)) else object(), value)


class _Dtype(str):
    """The class of a storage: a value that no text of the pickle equals by identity."""


def _parameter(tensor: Any, *_: Any) -> View:
    if not isinstance(tensor, View):
        raise TypeError("expected a tensor")
    return tensor


_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): lambda: Entries(),
    ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, shape, stride, *_: View(storage, offset, shape, stride),
    ("torch._utils", "_rebuild_parameter"): _parameter,
}
for _name, _dtype in {"Float": "F32", "Double": "F64", "Half": "F16", "BFloat16": "BF16", "Long": "I64", "Int": "I32", "Short": "I16", "Char": "I8",
                      "Byte": "U8", "Bool": "BOOL"}.items():  # fmt: skip
    _NAMES["torch", f"{_name}Storage"] = _Dtype(_dtype)

_OPCODES = {o.code: o.name for o in pickletools.opcodes}
_ACCEPTED = re.findall(r"\w+", """MARK STOP BININT BININT1 BININT2 NONE BINPERSID REDUCE BINUNICODE APPEND GLOBAL APPENDS BINGET LONG_BINGET
    EMPTY_LIST BINPUT LONG_BINPUT SETITEM TUPLE EMPTY_TUPLE SETITEMS BINFLOAT TUPLE1 TUPLE2 TUPLE3 NEWTRUE NEWFALSE LONG1 SHORT_BINUNICODE
    STACK_GLOBAL MEMOIZE PROTO""")
_OWN = {"EMPTY_DICT": lambda m: m.append(Entries()), "BUILD": lambda m: m.attributes(), "FRAME": lambda m: m.read(8)}


# This is the machine in Python: the one in C allocates what a pickle's largest memo number requests.
class _Machine(pickle._Unpickler):
    def __init__(self, content: bytes):
        self.content, self.steps = io.BytesIO(content), 0
        super().__init__(self.content)
        self.dispatch = self

    def __getitem__(self, code: int):
        self.steps += 1
        name = _OPCODES.get(chr(code), "none")
        if self.steps > STEPS:
            raise Fault(f"expected a state_dict, found more than {STEPS} opcodes")
        if name in _OWN:
            return _OWN[name]
        if name not in _ACCEPTED:
            raise Fault(f"expected the opcodes of a state_dict, found {name} (0x{code:02x}); the pickle was not executed. {ADVICE}")
        return pickle._Unpickler.dispatch[code]

    def attributes(self) -> None:
        """Drops the attribute of an OrderedDict, `_metadata`."""
        self.stack.pop()
        if not isinstance(self.stack[-1], Entries):
            raise Fault("expected attributes of an OrderedDict, found those of another value")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise Fault(f"expected the names of a state_dict, found {module[:100]} {name[:100]}; the pickle was not executed. {ADVICE}")
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        kind, dtype, key, _, elements = pid
        if kind != "storage" or not isinstance(dtype, _Dtype) or type(key) is not str or type(elements) is not int:
            raise Fault("expected a storage: its type, key, place and number of elements, found something else")
        return Storage(dtype, key, elements)


def _unpickled(content: bytes) -> Any:
    """Returns the value of a pickle. Raises Fault, without the file's name."""
    if len(content) < 2 or content[0] != 0x80 or not 2 <= content[1] <= 5:
        raise Fault(f"expected a pickle of protocol 2 to 5, found one that begins with {content[:2].hex(' ')}")
    machine = _Machine(content)
    try:
        value = machine.load()
        if machine.stack or machine.metastack or machine.content.read(1):
            raise ValueError("something after its end")
    except MemoryError:
        raise
    except Exception as why:  # a damaged program may raise anything
        said = str(why) if isinstance(why, Fault) else f"the pickle is damaged: {type(why).__name__}: {why}"[:300]
        raise Fault(f"byte {machine.content.seek(0, io.SEEK_CUR)}: {said}") from None
    return value


def _state(root: Any) -> dict[Any, Any]:
    """Returns the dictionary of tensors."""

    def has(values: Any) -> bool:
        return isinstance(values, Entries) and any(isinstance(v, View) for v in values.values())

    if has(root):
        return root
    inner = [key for key, value in root.items() if has(value)] if isinstance(root, Entries) else []
    if len(inner) == 1 and inner[0] in ("state_dict", "model", "module"):
        return root[inner[0]]
    names = " and ".join(str(key)[:100] for key in inner[:2])
    found = f"several, {names}" if inner[1:] else f"tensors only under {names}, not state_dict, model or module" if inner else "one without tensors"
    raise Fault(f"expected a state_dict, a dictionary of tensors, found {'a tensor' if isinstance(root, View) else found}")


class _Archive:
    def __init__(self, path: str):
        self.path, self.file = path, (file := open_input(path))
        begin, size = file.read(262), file.seek(0, 2)
        if not begin.startswith(b"PK\3\4"):
            kinds = {LEGACY: "the format before it", b"\x80": "a bare pickle", b"version ": "a pointer of Git LFS, not the file itself"}
            found = next((kind for magic, kind in kinds.items() if begin.startswith(magic)), f"a file that begins with {begin[:8]!r}")
            found = "a tar archive, as its first versions wrote" if begin[257:] == b"ustar" else found
            raise Fault(f"expected the ZIP archive that torch.save writes since PyTorch 1.6, found {found}; {ADVICE}")
        file.seek(max(0, size - 98))
        end = file.read()
        large = end[:4] == b"PK\6\6" and len(end) == 98
        known = len(end) == 98 and end[-22:-18] == b"PK\5\6"
        if not known or (struct.unpack_from("<Q", end, 40) if large else struct.unpack_from("<I", end, 88))[0] > DIRECTORY:
            raise Fault("expected a ZIP archive's directory at its end: the file was cut short, or something was added to it")
        self.zip = zipfile.ZipFile(file)
        entries = sorted(self.zip.infolist(), key=lambda e: e.header_offset)
        self.entry = {e.filename: e for e in entries}
        reached = 0
        for e in entries:
            if e.header_offset < reached or self.entry[e.filename] is not e:
                raise Fault(f"ZIP entry {e.filename}: expected one of that name, beside the others, found two, or bytes of another in it")
            reached = e.header_offset + e.compress_size
        self.folder = self.zip.infolist()[0].filename.partition("/")[0] if entries else ""

    def find(self, name: str) -> zipfile.ZipInfo | None:
        e = self.entry.get(f"{self.folder}/{name}")
        if e and (e.compress_type or e.flag_bits & 1 or e.file_size != e.compress_size):
            raise Fault(f"ZIP entry {e.filename}: it is compressed or encrypted, and torch.save stores; unpack it, and pack it with zip -0")
        return e

    def word(self, name: str, most: int) -> bytes | None:
        """Returns the whole content of an entry; its checksum is compared."""
        e = self.find(name)
        if e and e.file_size > most:
            raise Fault(f"ZIP entry {e.filename}: expected at most {most} bytes, found {e.file_size}")
        return self.zip.read(e) if e else None

    def check(self, s: Storage) -> int:
        """Returns where a storage begins in the file; its size and checksum are compared."""
        e = self.find(f"data/{s.key}")
        if e is None or e.file_size != s.elements * SIZES[s.dtype]:
            found = f"{e.file_size} bytes" if e else "none"
            raise Fault(f"expected storage {s.key[:100]} of {s.elements} elements of {s.dtype} in the archive, found {found}")
        with self.zip.open(e) as f:
            while f.read(CHUNK):
                pass
        self.file.seek(e.header_offset)
        header = self.file.read(30)
        return e.header_offset + 30 + sum(struct.unpack_from("<HH", header, 26))


def _tensors(archive: _Archive) -> Iterable[Tensor]:
    content = archive.word("data.pkl", PICKLE)
    if content is None:
        raise Fault(f"expected an archive of torch.save, found no data.pkl in its folder {archive.folder}")
    version, order = archive.word("version", 64) or archive.word(".data/version", 64) or b"", archive.word("byteorder", 64)
    if version.strip() not in [b"%d" % n for n in range(1, 11)]:
        raise Fault(f"expected version 1 to 10 of torch.save's format, found {version!r}")
    if order not in (None, b"little"):
        raise Fault(f"expected numbers in little-endian order, found byteorder {order!r}; {ADVICE}")
    with placed(f"{archive.folder}/data.pkl: "):
        state = _state(_unpickled(content))
    begins: dict[Storage, int] = {}
    total = 0
    for key, v in sorted(((k, v) for k, v in state.items() if isinstance(v, View)), key=lambda entry: str(entry[0])):
        name = str(key)
        with placed(f"tensor {name[:100]}: "):
            if name is not key or len(name) > 1000 or "\0" in name or any("\ud800" <= c <= "\udfff" for c in name):
                raise Fault("expected a name of at most 1000 characters of UTF-8")
            n = v.check()
            if v.storage not in begins:
                begins[v.storage] = archive.check(v.storage)
        each = SIZES[v.storage.dtype]
        total += n * each
        if total > COPIES * archive.file.seek(0, 2):
            raise Fault(f"tensor {name[:100]}: expected tensors of at most {COPIES} times the file's size, found more, which share their storages")
        begin = begins[v.storage] + v.offset * each
        yield Tensor(name, v.storage.dtype, v.shape, n * each, archive.path, begin)


def read(path: str) -> list[Tensor]:
    """Returns the tensors of a file of torch.save, by name; their bytes remain in the file. Raises Fault."""
    try:
        return list(_tensors(_Archive(path)))
    except Fault as why:
        raise Fault(f"{path}: {why}" if not str(why).startswith(path) else str(why)) from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, struct.error, OverflowError, OSError) as why:
        raise Fault(f"{path}: expected a ZIP archive of torch.save, found a damaged one: {why}") from None
