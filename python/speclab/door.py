"""door - the engine in this process: its library, the flat structs of engine/foreign.h, and plugins in Python, which it calls.

Errors of a plugin become one sentence with the plugin's file and line, which ends the cell that uses it. A plugin's own time is measured here, around
its function alone; the way from the engine and back is not counted as the drafter's (struct foreign_report).
"""

import ast
import contextlib
import ctypes as c
import gc
import importlib.util
import inspect
import math
import operator
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from speclab import dlpack, files, plugins
from speclab.command import Fault

VERSION, WHY = 4, 1000
_now = time.perf_counter_ns


class Report(c.Structure):
    _fields_ = [("own_ns", c.c_int64), ("why", c.c_char * WHY)]


class Option(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", c.c_int32), ("default", c.c_char_p), ("help", c.c_char_p),
                ("min", c.c_double), ("max", c.c_double), ("choices", c.c_char_p)]  # fmt: skip


class Value(c.Structure):
    _fields_ = [("number", c.c_double), ("text", c.c_char_p)]


class Setting(c.Structure):
    _fields_ = [(name, c.c_int32) for name in ("vocab", "used_vocab", "width", "slots", "length")]


class Request(c.Structure):
    _fields_ = [("slot", c.c_int32), ("n", c.c_int32), ("prompt", c.c_int32), ("token", c.c_void_p), ("depth", c.c_int32), ("draft", c.c_void_p)]


class Path_(c.Structure):
    _fields_ = [("slot", c.c_int32), ("n", c.c_int32), ("token", c.c_void_p)]


class Advance(c.Structure):
    _fields_ = [("slot", c.c_int32), ("n", c.c_int32), ("token", c.c_void_p), ("node", c.c_void_p), ("features", c.c_void_p), ("device", c.c_int32),
                ("sequence", c.c_void_p), ("length", c.c_int32)]  # fmt: skip


class Decision(c.Structure):
    _fields_ = [("n", c.c_int32), ("vocab", c.c_int32), ("token", c.c_void_p), ("parent", c.c_void_p), ("proposal", c.c_void_p),
                ("self", c.c_void_p), ("last", c.c_int32), ("chosen", c.c_int32)]  # fmt: skip


_CREATE = c.CFUNCTYPE(c.c_int64, c.POINTER(Setting), c.POINTER(Value), c.POINTER(c.c_int32))
_PROPOSE = c.CFUNCTYPE(c.c_int32, c.c_int64, c.POINTER(Request), c.c_int32)
_ROWS = c.CFUNCTYPE(c.c_int32, c.c_int64, c.POINTER(Path_), c.c_int32, c.c_void_p, c.POINTER(c.c_uint8))
_ADVANCE = c.CFUNCTYPE(c.c_int32, c.c_int64, c.POINTER(Advance), c.c_int32)
_FORGET = c.CFUNCTYPE(c.c_int32, c.c_int64, c.c_int32)
_DESTROY = c.CFUNCTYPE(c.c_int32, c.c_int64)
_VERIFY = c.CFUNCTYPE(c.c_int32, c.POINTER(Decision), c.POINTER(Value))
_LOAD = c.CFUNCTYPE(c.c_bool, c.c_char_p, c.POINTER(c.c_char), c.c_size_t)


class ForeignDrafter(c.Structure):
    _fields_ = [("version", c.c_int32), ("options", c.c_int32), ("layers", c.c_int32), ("name", c.c_char_p), ("summary", c.c_char_p),
                ("where", c.c_char_p), ("option", c.POINTER(Option)), ("layer", c.POINTER(c.c_int32)), ("kinds", c.c_uint32), ("memory", c.c_int32),
                ("on_device", c.c_int32), ("report", c.POINTER(Report)), ("create", _CREATE), ("propose", _PROPOSE),
                ("rows", _ROWS), ("advance", _ADVANCE), ("forget", _FORGET), ("destroy", _DESTROY)]  # fmt: skip


class ForeignRule(c.Structure):
    _fields_ = [("version", c.c_int32), ("options", c.c_int32), ("name", c.c_char_p), ("summary", c.c_char_p), ("option", c.POINTER(Option)),
                ("lossless", c.c_int32), ("takes", c.c_uint32), ("report", c.POINTER(Report)), ("verify", _VERIFY)]  # fmt: skip


class Library:
    """libspeclab_program.so with the types of its functions. Loaded once in a process."""

    def __init__(self) -> None:
        path = files.library()
        try:
            self.c = c.CDLL(path)
        except OSError as why:
            raise Fault(f"{path}: cannot be loaded: {why}") from None
        self.main = self.function("speclab_main", c.c_int, c.c_int, c.POINTER(c.c_char_p))
        self.host = self.function("speclab_python_plugins", None, _LOAD)
        self.interrupt_also = self.function("speclab_interrupt_also", None, c.c_void_p)
        self.add = self.function("speclab_foreign_add", c.c_int32, c.c_void_p, c.c_int32, c.c_int32, c.c_void_p)
        self.sample = self.function("speclab_foreign_sample", c.c_int32, c.c_void_p, c.c_int32, c.c_void_p)
        self.token = self.function("speclab_foreign_token", c.c_int32, c.c_void_p, c.c_int32)
        self.p = self.function("speclab_foreign_p", None, c.c_void_p, c.c_int32, c.c_void_p)
        self.q = self.function("speclab_foreign_q", None, c.c_void_p, c.c_int32, c.c_void_p)
        self.accept = self.function("speclab_foreign_accept", c.c_int32, c.c_void_p, c.c_int32, c.c_double, c.c_double)
        self.pick = self.function("speclab_foreign_pick", c.c_int32, c.c_void_p, c.c_int32, c.c_void_p)
        self.register_drafter = self.function("speclab_register_foreign_drafter", c.c_int32, c.POINTER(ForeignDrafter))
        self.register_rule = self.function("speclab_register_foreign_rule", c.c_int32, c.POINTER(ForeignRule))

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self.c, name)
        function.restype, function.argtypes = result, arguments
        return function


_library: Library | None = None


def library() -> Library:
    global _library
    if _library is None:
        _library = Library()
    return _library


# ---- errors

_inside = False  # a plugin's function is running: Ctrl-C ends it


def sentence(why: BaseException, file: str, called: Any = None) -> str:
    """What went wrong, where in the plugin's file. called: the function that was called, whose place is named if no
    line is known."""
    if isinstance(why, SyntaxError) and why.filename:
        return f"{why.filename}:{why.lineno}: {why.msg}"
    lines = [f.lineno for f in traceback.extract_tb(why.__traceback__) if f.filename == os.path.abspath(file)]
    code = getattr(getattr(why, "where", None) or called, "__code__", None)
    place = f"{file}:{lines[-1]}: " if lines else f"{file}:{code.co_firstlineno}: " if code else f"{file}: "
    text = " ".join(str(why).split())
    if isinstance(why, ModuleNotFoundError):
        text += f": {sys.executable} has no such package; SPECLAB_PYTHON=/path/to/python names another Python"
    if isinstance(why, KeyboardInterrupt):
        return place + "interrupted"
    return place + (text if isinstance(why, plugins.Wrong) else f"{type(why).__name__}: {text}" if text else type(why).__name__)


class Entry:
    """A class of a plugin as the engine sees it. Its functions never raise: they leave a sentence and return 0."""

    kept: list[Any] = []  # what the engine has pointers to, for the rest of the process

    def __init__(self, kind: type, file: str):
        plugins.spelt(kind)
        self.kind, self.file, self.report = kind, file, Report()
        self.library = library()

    def guarded(self, type_: Any, function: Callable[..., int]) -> Any:
        named = getattr(self.kind, {"create": "__init__", "destroy": "close"}.get(function.__name__, function.__name__), None)
        # That of speclab.Drafter has no place in the file.
        called = named if getattr(named, "__module__", None) == self.kind.__module__ else None

        def call(*arguments: Any) -> int:
            global _inside
            self.report.own_ns = 0
            try:
                _inside = True
                return function(*arguments)
            except BaseException as why:  # all of it: an exception would be lost in the engine
                self.report.why = sentence(why, self.file, called).encode(errors="replace")[: WHY - 1]
                return 0
            finally:
                _inside = False

        pointer = type_(call)
        Entry.kept.append(pointer)
        return pointer

    def options(self) -> Any:
        read = plugins.options(self.kind)
        table = (Option * max(1, len(read)))()
        for to, o in zip(table, read, strict=False):
            to.name, to.type, to.help, to.min, to.max = o.name.encode(), o.type, o.help.encode(), o.least, o.most
            to.default = None if o.default is None else o.default.encode()
            to.choices = "|".join(o.choices).encode() if o.choices else None
        Entry.kept.append(table)
        self.read = read
        return table

    def values(self, value: Any) -> dict[str, Any]:
        return {o.name: o.value(value[i].number, value[i].text) for i, o in enumerate(self.read)}

    def registered(self, ok: int) -> None:
        Entry.kept.append(self)
        if not ok:
            raise Fault(f"{self.file}:{plugins.line(self.kind)}: {self.report.why.decode(errors='replace')}")


_DTYPES = {t: np.dtype(t) for t in (c.c_int32, c.c_float, c.c_double, c.c_uint8)}  # found once, as that takes longer


def view(address: int, n: int, type_: Any) -> np.ndarray:
    """Memory of the engine as an array that cannot be written, without a copy: valid during the call alone."""
    array = np.frombuffer((type_ * n).from_address(address), _DTYPES[type_])
    array.flags.writeable = False
    return array


class Lent:
    """Views that a plugin gets for one call."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.views: list[np.ndarray] = []

    def view(self, name: str, address: int, n: int, type_: Any) -> np.ndarray:
        self.names.append(name)
        self.views.append(view(address, n, type_))
        return self.views[-1]

    def _kept(self) -> str:
        """The name of a view that something else refers to, as parts of it do; "": there is none."""
        return next((name for i, name in enumerate(self.names) if sys.getrefcount(self.views[i]) > 2), "")

    def ended(self) -> None:
        """Raises Wrong if the plugin still has a view."""
        if self._kept() and gc.collect() >= 0 and (name := self._kept()):
            raise plugins.Wrong(f"{name}, or a part of it, is kept after the call, and would show later values: keep a copy, as np.array makes one")


# ---- drafters


class _Request(plugins.Request):
    __slots__ = ("_of", "_lent")

    def __init__(self, of: Request):
        self._of, self.slot, self.prompt, self.depth, self._lent = of, of.slot, of.prompt, of.depth, Lent()

    @property
    def tokens(self) -> np.ndarray:
        if self._of is None:
            raise plugins.Wrong("request: its text is there during the call of propose alone; keep a copy of request.tokens")
        return self._lent.views[0] if self._lent.views else self._lent.view("request.tokens", self._of.token, self._of.n, c.c_int32)


class _Draft(plugins.Draft):
    __slots__ = ("_draft", "_owner", "_last")

    def __init__(self, draft: int, owner: "DrafterEntry"):
        self._draft, self._owner, self._last = draft, owner, 0

    def _at(self, parent: int | None) -> int:
        if self._draft is None:
            raise plugins.Wrong("draft: it takes tokens during the call of propose alone")
        return self._last if parent is None else parent

    def _added(self, node: int) -> int:
        if node == -2:
            raise plugins.Wrong(self._owner.report.why.decode(errors="replace"))
        self._last = node if node > 0 else self._last
        return node

    def _row(self, q: Any) -> np.ndarray:
        q = np.ascontiguousarray(q, dtype=np.float32)
        if q.shape != (self._owner.vocab,):
            raise plugins.Wrong(f"q: expected a shape ({self._owner.vocab},), found {q.shape}")
        return q

    def add(self, token: int, parent: int | None = None, q: Any = None) -> int:
        parent = self._at(parent)
        if parent == -1:
            return -1
        row = None if q is None else self._row(q)  # the name keeps a converted array until the call has ended
        token = plugins.integer("token", token)
        return self._added(self._owner.library.add(self._draft, parent, token, None if row is None else row.ctypes.data))

    def sample(self, q: Any, parent: int | None = None) -> int:
        parent = self._at(parent)
        if parent == -1:
            return -1
        row = self._row(q)  # kept by its name, too
        return self._added(self._owner.library.sample(self._draft, parent, row.ctypes.data))

    def token(self, node: int) -> int:
        self._at(node)
        token = self._owner.library.token(self._draft, plugins.integer("node", node))
        if token < 0 and node != -1:
            raise plugins.Wrong(f"expected a node of the draft, or -1, found {node}")
        return token


class DrafterEntry(Entry):
    def __init__(self, kind: type[plugins.Drafter], file: str):
        super().__init__(kind, file)
        self.alive: dict[int, plugins.Drafter] = {}
        self.next = 1
        layers = plugins.layers(kind)
        self.layers = len(layers)
        where = f"{file}:{plugins.line(kind)}: ".encode(errors="surrogateescape")
        drafts = plugins.how_it_drafts(kind)
        table, own = self.options(), kind.__mro__
        has = {name: any(name in vars(k) for k in own if k not in (plugins.Drafter, object)) for name in ("advance", "forget")}
        layer = (c.c_int32 * max(1, len(layers)))(*layers)
        self.struct = ForeignDrafter(
            version=VERSION, options=len(self.read), layers=len(layers), name=plugins.name(kind).encode(), summary=plugins.summary(kind).encode(),
            where=where, option=table, layer=layer, kinds=plugins.made(kind), memory=plugins.MEMORY[kind.remembers],
            on_device=int(bool(kind.on_device)), report=c.pointer(self.report), create=self.guarded(_CREATE, self.create),
            destroy=self.guarded(_DESTROY, self.destroy))  # fmt: skip
        if drafts == "propose":
            self.struct.propose = self.guarded(_PROPOSE, self.propose)
        else:
            self.struct.rows = self.guarded(_ROWS, self.rows if drafts == "rows" else self.row)
        if has["advance"] or layers:
            self.struct.advance = self.guarded(_ADVANCE, self.advance)
        if has["forget"]:
            self.struct.forget = self.guarded(_FORGET, self.forget)
        self.kept.append(layer)
        self.registered(self.library.register_drafter(c.byref(self.struct)))

    def create(self, setting: Any, value: Any, nodes: Any) -> int:
        s = setting.contents
        d = self.kind.__new__(self.kind)
        for key, v in self.values(value).items():
            setattr(d, key, v)
        d.vocab, d.used_vocab, d.width, d.slots, d.length = s.vocab, s.used_vocab, s.width, s.slots, s.length
        self.vocab, self.width = s.vocab, s.width
        d.__init__()
        nodes[0] = 1 + plugins.integer("tokens", d.tokens)
        number, self.next = self.next, self.next + 1
        self.alive[number] = d
        return number

    def destroy(self, number: int) -> int:
        self.alive.pop(number).close()
        return 1

    def propose(self, number: int, request: Any, n: int) -> int:
        propose, own = self.alive[number].propose, 0
        for i in range(n):
            of = request[i]
            r, d = _Request(of), _Draft(of.draft, self)
            began = _now()
            result = propose(r, d)
            own += _now() - began
            d._draft = r._of = None
            r._lent.ended()
            if result is not None and not isinstance(result, int):
                raise plugins.Wrong(f"propose: expected tokens that draft.add adds, and no result, found {result!r:.80}", self.kind.propose)
        self.report.own_ns = own
        return 1

    def _paths(self, path: Any, n: int, lent: Lent) -> list[tuple[int, np.ndarray]]:
        return [(path[i].slot, lent.view("path", path[i].token, path[i].n, c.c_int32)) for i in range(n)]

    def row(self, number: int, path: Any, n: int, to: int, declined: Any) -> int:
        row, own, lent, tokens, logits = self.alive[number].row, 0, Lent(), None, None
        out = np.frombuffer((c.c_float * (n * self.vocab)).from_address(to), dtype=np.float32).reshape(n, self.vocab)
        for i, (slot, tokens) in enumerate(self._paths(path, n, lent)):
            began = _now()
            logits = row(slot, tokens)
            own += _now() - began
            declined[i] = logits is None
            out[i] = 0 if logits is None else plugins.logits(self.kind, logits, (self.vocab,))
        del tokens, logits
        lent.ended()
        self.report.own_ns = own
        return 1

    def rows(self, number: int, path: Any, n: int, to: int, declined: Any) -> int:
        out = np.frombuffer((c.c_float * (n * self.vocab)).from_address(to), dtype=np.float32).reshape(n, self.vocab)
        lent = Lent()
        paths = self._paths(path, n, lent)
        began = _now()
        logits = self.alive[number].rows(paths)
        self.report.own_ns = _now() - began
        if isinstance(logits, (list, tuple)) and len(logits) == n:
            for i, row in enumerate(logits):
                declined[i] = row is None
                out[i] = 0 if row is None else plugins.logits(self.kind, row, (self.vocab,))
        else:
            out[:] = plugins.logits(self.kind, logits, out.shape)
        del paths, logits
        lent.ended()
        return 1

    def advance(self, number: int, advance: Any, n: int) -> int:
        d, own = self.alive[number], 0
        for i in range(n):
            a, lent = advance[i], Lent()
            states = plugins.NONE
            shape = (a.n, self.layers, self.width)
            if self.layers and d.on_device:
                states = dlpack.Lent(a.features, shape, a.device)
            elif self.layers:
                states = lent.view("a.states", a.features, math.prod(shape), c.c_float).reshape(shape)
            tokens = lent.view("a.tokens", a.token, a.n, c.c_int32)
            nodes = lent.view("a.nodes", a.node, a.n, c.c_int32) if a.node else None
            what = plugins.Advance(a.slot, tokens, nodes, states, lent.view("a.text", a.sequence, a.length, c.c_int32))
            began = _now()
            d.advance(what)
            own += _now() - began
            del what, tokens, nodes
            if d.on_device and self.layers:
                states.ended()
            del states
            lent.ended()
        self.report.own_ns = own
        return 1

    def forget(self, number: int, slot: int) -> int:
        self.alive[number].forget(slot)
        return 1


# ---- rules


class RuleEntry(Entry):
    def __init__(self, kind: type[plugins.Rule], file: str):
        super().__init__(kind, file)
        self.made: dict[tuple, plugins.Rule] = {}
        table = self.options()
        if kind.verify is plugins.Rule.verify:
            raise Fault(f"{file}:{plugins.line(kind)}: class {kind.__name__}: expected a function verify, found none")
        self.struct = ForeignRule(
            version=VERSION, options=len(self.read), name=plugins.name(kind).encode(), summary=plugins.summary(kind).encode(), option=table,
            lossless=int(bool(kind.lossless)), takes=plugins.kinds(kind.takes, kind), report=c.pointer(self.report),
            verify=self.guarded(_VERIFY, self.verify))  # fmt: skip
        self.registered(self.library.register_rule(c.byref(self.struct)))

    def rule(self, value: Any) -> plugins.Rule:
        given = self.values(value) if self.read else {}
        key = tuple(given.values())
        if key not in self.made:
            rule = self.kind.__new__(self.kind)
            for name, v in given.items():
                setattr(rule, name, v)
            rule.__init__()
            self.made[key] = rule
        return self.made[key]

    def verify(self, decision: Any, value: Any) -> int:
        d = decision.contents
        lib, this, vocab, n = self.library, d.self, d.vocab, d.n
        draft = plugins.Verified(view(d.token, n, c.c_int32), view(d.parent, n, c.c_int32), view(d.proposal, n, c.c_uint8))

        def row(of: Any, node: int) -> np.ndarray:
            if not 0 <= node < n:
                raise plugins.Wrong(f"expected a node from 0 to {n - 1}, found {node}")
            to = (c.c_double * vocab)()
            of(this, node, to)
            return np.frombuffer(to, _DTYPES[c.c_double])

        def p(node: int) -> np.ndarray:
            return row(lib.p, node)

        def q(node: int) -> np.ndarray:
            if node == 0:
                raise plugins.Wrong("q: expected a draft token's node, from 1 on, found the root, 0")
            return row(lib.q, node)

        def accept(node: int, num: float, den: float) -> bool:
            if not 0 < node < n or not (num >= 0 and den >= 0):
                raise plugins.Wrong(f"accept: expected a node from 1 to {n - 1} and two numbers of at least 0, found {node}, {num} and {den}")
            if (taken := lib.accept(this, node, num, den)) < 0:
                raise plugins.Wrong(self.report.why.decode(errors="replace"))
            return bool(taken)

        def pick(node: int, weight: Any) -> int:
            weight = np.ascontiguousarray(weight, dtype=np.float64)
            if weight.shape != (vocab,) or not 0 <= node < n:
                raise plugins.Wrong(f"pick: expected a node from 0 to {n - 1} and weights of a shape ({vocab},), found {node} and {weight.shape}")
            if (token := lib.pick(this, node, weight.ctypes.data)) < 0:
                raise plugins.Wrong(self.report.why.decode(errors="replace"))
            return token

        answer = self.rule(value).verify(draft, p, q, accept, pick)
        try:
            last, chosen = map(operator.index, answer)
        except (TypeError, ValueError):
            raise plugins.Wrong(f"verify: expected the last accepted node and a token, found {answer!r}", self.kind.verify) from None
        if not (0 <= last < n and 0 <= chosen < vocab):
            said = f"verify: expected a node from 0 to {n - 1} and a token from 0 to {vocab - 1}, found node {last} and token {chosen}"
            raise plugins.Wrong(said, self.kind.verify)
        d.last, d.chosen = last, chosen
        return 1


# ---- files


def _classes(module: types.ModuleType) -> list[type]:
    made = [k for k in vars(module).values() if inspect.isclass(k) and k.__module__ == module.__name__ and not k.__name__.startswith("_")]
    return [k for k in made if issubclass(k, (plugins.Drafter, plugins.Rule))]


def _defined_once(path: Path, file: str) -> None:
    """Raises Fault for a class, or a function of a class, that Python replaces by a later one of its name."""
    tree = ast.parse(path.read_bytes())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [[f for f in k.body if isinstance(f, ast.FunctionDef) and not f.decorator_list] for k in classes]
    for nodes in (classes, *functions):
        first: dict[str, int] = {}
        for node in nodes:
            if first.setdefault(node.name, node.lineno) != node.lineno:
                raise Fault(f"{file}:{node.lineno}: {node.name} is defined in line {first[node.name]} and again here, which replaces it")


def register(kind: type, file: str) -> None:
    """Raises Fault."""
    try:
        (DrafterEntry if issubclass(kind, plugins.Drafter) else RuleEntry)(kind, file)
    except plugins.Wrong as why:
        raise Fault(f"{file}:{plugins.line(why.where or kind)}: {why}") from None


def load(file: str) -> list[type]:
    """Runs a plugin's file and registers its classes. Raises Fault."""
    global _inside
    path = Path(file).resolve()
    spec = importlib.util.spec_from_file_location(f"speclab_plugin_{path.stem}", path)
    if spec is None:
        raise Fault(f"{file}: expected a file in Python, whose name ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    _inside = True
    try:
        spec.loader.exec_module(module)
        kinds = _classes(module)
        _defined_once(path, file)
        if not kinds:
            raise Fault(f"{file}: expected a class of speclab.Drafter or speclab.Rule, found none")
        for kind in kinds:
            register(kind, file)
        return kinds
    except Fault:
        raise
    except BaseException as why:
        raise Fault(sentence(why, file)) from None
    finally:
        _inside = False
        sys.path.remove(str(path.parent))


def _load(file: bytes, why: Any, size: int) -> bool:
    try:
        load(os.fsdecode(file))
        return True
    except BaseException as fault:
        text = str(fault).encode(errors="replace")[: size - 1] + b"\0"
        c.memmove(why, text, len(text))
        return False


_load_pointer = _LOAD(_load)


def _interrupted(*_: Any) -> None:
    if _inside:
        raise KeyboardInterrupt


def main(words: list[str]) -> int:
    """`speclab WORDS` in this process, with plugins in Python. Returns its exit status."""
    lib = library()
    lib.host(_load_pointer)
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, _interrupted)
        # The engine's handler calls Python's; where a command has none, a signal has its default action.
        lib.interrupt_also(c.cast(c.pythonapi.PyErr_SetInterrupt, c.c_void_p))
        c.CDLL(None).signal(signal.SIGINT, c.c_void_p(0))
    sys.stdout.flush()
    argv = [b"speclab", *map(os.fsencode, words)]
    with contextlib.redirect_stdout(sys.stderr):  # what a plugin prints is no part of the output
        status = lib.main(len(argv), (c.c_char_p * (len(argv) + 1))(*argv, None))
    return status
