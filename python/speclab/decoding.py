"""decoding - the engine in a notebook, over engine/speclab.h: speclab.Target and speclab.decode.

    import speclab

    with speclab.Target("smollm2-135m-instruct") as target:
        for text in speclab.decode(target, ["The sea", "A lamp"], drafter="ngram:tokens=4", tokens=64):
            print(text.text, text.accepted / text.steps)

`drafter` and `rule` are names with options, or classes of speclab.Drafter and speclab.Rule.
"""

import ctypes as c
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from speclab import door, plugins
from speclab.command import Fault

_INTERFACE = 5  # engine/speclab.h: SPECLAB_VERSION


class _Error(c.Structure):
    _fields_ = [("text", c.c_char * 1024)]


_LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class _TargetOptions(c.Structure):
    _fields_ = [("device", c.c_char_p), ("activations", c.c_char_p), ("cache", c.c_char_p), ("chat", c.c_char_p), ("chat_variables", c.c_char_p),
                ("folder", c.c_char_p), ("threads", c.c_int), ("rows", c.c_int), ("ids_only", c.c_bool), ("packed_cache", c.c_bool),
                ("log", _LOG), ("log_self", c.c_void_p)]  # fmt: skip


class _Tokens(c.Structure):
    _fields_ = [("id", c.POINTER(c.c_int32)), ("n", c.c_size_t)]


class _Message(c.Structure):
    _fields_ = [("role", c.c_char_p), ("content", c.c_char_p)]


class _Facts(c.Structure):
    _fields_ = [("path", c.c_char_p), ("device", c.c_char_p), ("processor", c.c_char_p), ("activations", c.c_char_p), ("cache", c.c_char_p),
                ("layers", c.c_int), ("width", c.c_int), ("vocab", c.c_int), ("varies", c.c_bool)]  # fmt: skip


class _States(c.Structure):
    _fields_ = [("layer", c.POINTER(c.c_int)), ("layers", c.c_int), ("state", c.c_void_p), ("top_k", c.c_int), ("top_id", c.c_void_p),
                ("top_p", c.c_void_p), ("logits", c.c_void_p)]  # fmt: skip


class _Step(c.Structure):  # its first members
    _fields_ = [("sequence", c.c_int64), ("slot", c.c_int), ("position", c.c_int), ("token", c.POINTER(c.c_int32)), ("n", c.c_int),
                ("drafted", c.c_int), ("accepted", c.c_int)]  # fmt: skip


class _End(c.Structure):  # its first members
    _fields_ = [("sequence", c.c_int64), ("token", c.POINTER(c.c_int32)), ("n", c.c_int), ("text", c.c_void_p), ("bytes", c.c_size_t),
                ("reason", c.c_char_p)]  # fmt: skip


_STEP = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(_Step))
_END = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(_End))


class _Listener(c.Structure):
    _fields_ = [("step", _STEP), ("end", _END), ("self", c.c_void_p), ("decided", c.c_void_p), ("scored", c.c_void_p)]


class _DecoderOptions(c.Structure):
    _fields_ = [("drafter", c.c_char_p), ("rule", c.c_char_p), ("sampling", c.c_char_p), ("slots", c.c_int), ("length", c.c_int),
                ("seed", c.c_uint64), ("listener", _Listener)]  # fmt: skip


class _Request(c.Structure):
    _fields_ = [("sequence", c.c_int64), ("prompt", c.POINTER(c.c_int32)), ("n", c.c_int), ("max_tokens", c.c_int), ("ignore_end", c.c_bool),
                ("stop", c.POINTER(c.c_char_p)), ("n_stop", c.c_int), ("sampling", c.c_char_p)]  # fmt: skip


class _Functions:
    """Those of speclab.h, with a Fault where they fail."""

    def __init__(self) -> None:
        of, library = door.library().function, door.library().c
        interface = of("speclab_interface", c.c_int)() if hasattr(library, "speclab_interface") else 1
        if interface != _INTERFACE:
            raise Fault(f"expected an engine's library of interface {_INTERFACE}, found {interface}: build both of one revision")
        error, pointer = c.POINTER(_Error), c.c_void_p
        self.open = of("speclab_target_open", pointer, c.c_char_p, c.POINTER(_TargetOptions), error)
        self.close = of("speclab_target_close", None, pointer)
        self.vocab = of("speclab_target_vocab", c.c_int, pointer)
        self.context = of("speclab_target_context", c.c_int, pointer)
        self.encode = of("speclab_encode", c.c_bool, pointer, c.c_char_p, c.POINTER(_Tokens), error)
        self.encode_chat = of("speclab_encode_chat", c.c_bool, pointer, c.POINTER(_Message), c.c_int, c.POINTER(_Tokens), error)
        self.text = of("speclab_text", c.c_void_p, pointer, c.POINTER(c.c_int32), c.c_size_t, c.POINTER(c.c_size_t))
        self.facts = of("speclab_target_facts", None, pointer, c.POINTER(_Facts))
        self.identity = of("speclab_target_identity", None, pointer, c.c_char_p)
        self.weight_name = of("speclab_weight_name", c.c_char_p, pointer, c.c_int, error)
        self.weight = of("speclab_weight", c.c_bool, pointer, c.c_char_p, c.POINTER(c.c_int64), pointer, error)
        self.states = of("speclab_states", c.c_bool, pointer, pointer, pointer, c.c_int, c.POINTER(_States), error)
        self.open_tokenizer = of("speclab_tokenizer_open", pointer, c.c_char_p, error)
        self.close_tokenizer = of("speclab_tokenizer_close", None, pointer)
        self.tokenizer_size = of("speclab_tokenizer_size", c.c_int, pointer)
        self.tokenizer_identity = of("speclab_tokenizer_identity", None, pointer, c.c_char_p)
        self.tokenizer_encode = of("speclab_tokenizer_encode", c.c_bool, pointer, c.c_char_p, c.c_size_t, c.POINTER(_Tokens), error)
        self.score = of("speclab_score", c.c_bool, pointer, c.POINTER(c.c_int32), c.c_int, c.c_int, c.POINTER(c.c_double), error)
        self.create = of("speclab_decoder_create", pointer, pointer, c.POINTER(_DecoderOptions), error)
        self.destroy = of("speclab_decoder_destroy", None, pointer)
        self.has_free_slot = of("speclab_decoder_has_free_slot", c.c_bool, pointer)
        self.start = of("speclab_decoder_start", c.c_bool, pointer, c.POINTER(_Request), error)
        self.active = of("speclab_decoder_active", c.c_int, pointer)
        self.step = of("speclab_decoder_step", c.c_bool, pointer, error)
        self.free = of("free", None, c.c_void_p)

    @staticmethod
    def check(result: Any, error: _Error) -> Any:
        if not result:
            raise Fault(error.text.decode(errors="replace"))
        return result


_functions: _Functions | None = None


def _engine() -> _Functions:
    global _functions
    _functions = _functions or _Functions()
    return _functions


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Tokenizer:
    """The tokenizer of a model, or of a tokenizer.json, without the model. `size`: number of ids; `identity`: the hash
    of their texts. Raises Fault."""

    def __init__(self, model: str):
        self._f, error, identity = _engine(), _Error(), c.create_string_buffer(33)
        self._tokenizer = self._f.check(self._f.open_tokenizer(str(model).encode(), c.byref(error)), error)
        self._f.tokenizer_identity(self._tokenizer, identity)
        self.size, self.identity = self._f.tokenizer_size(self._tokenizer), identity.value.decode()

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text, (n,) of int32, without BOS; names of special tokens are ordinary text."""
        tokens, error, raw = _Tokens(), _Error(), text.encode()
        self._f.check(self._f.tokenizer_encode(self._tokenizer, raw, len(raw), c.byref(tokens), c.byref(error)), error)
        ids = np.ctypeslib.as_array(tokens.id, (tokens.n,)).copy() if tokens.n else np.zeros(0, np.int32)
        self._f.free(tokens.id)
        return ids

    def close(self) -> None:
        self._f.close_tokenizer(self._tokenizer)
        self._tokenizer = None


class Facts(NamedTuple):
    """What a target is: files, precisions, sizes. `vocab` counts padding; `varies`: the bits of a row depend on the
    other rows of its pass."""

    path: str
    device: str
    processor: str
    activations: str
    cache: str
    layers: int
    width: int
    vocab: int
    varies: bool


class States(NamedTuple):
    """What the target computes of a text's n tokens. Row i belongs to token i, and predicts token i + 1."""

    ids: np.ndarray  # (n,)
    states: np.ndarray  # (n, layers, width)
    top_ids: np.ndarray  # (n, top_k) in descending order of their probabilities
    top_p: np.ndarray  # (n, top_k)
    logits: np.ndarray | None  # (n, vocab)


class Target:
    """A model on a device, with its tokenizer: a GGUF file, a Hugging Face folder, or a name in the model cache.

    packed: packed weights are read from, or written to, a file beside the model. log: gets sentences about that, and
    about the device. Raises Fault.
    """

    def __init__(self, model: str, *, device: str | None = None, activations: str | None = None, cache: str | None = None,
                 chat: str | None = None, threads: int = 0, packed: bool = False, log: Callable[[str], None] | None = None):  # fmt: skip
        self._f, error = _engine(), _Error()
        self._log = _LOG(lambda _, sentence: log(sentence.decode(errors="replace"))) if log else _LOG()
        how = _TargetOptions(device=_bytes(device), activations=_bytes(activations), cache=_bytes(cache), chat=_bytes(chat), threads=threads,
                             packed_cache=packed, log=self._log)  # fmt: skip
        self._target = self._f.check(self._f.open(str(model).encode(), c.byref(how), c.byref(error)), error)
        self.vocab, self.context = self._f.vocab(self._target), self._f.context(self._target)
        self._f.facts(self._target, c.byref(facts := _Facts()))
        values = (getattr(facts, name) for name, _ in facts._fields_)
        self.facts = Facts(*(v.decode(errors="surrogateescape") if isinstance(v, bytes) else v for v in values))

    def _ids(self, encode: Any, *what: Any) -> list[int]:
        tokens, error = _Tokens(), _Error()
        self._f.check(encode(self._target, *what, c.byref(tokens), c.byref(error)), error)
        ids = tokens.id[: tokens.n]
        self._f.free(tokens.id)
        return ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        return self._ids(self._f.encode, text.encode())

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of messages, {"role": .., "content": ..} each, under the model's chat template."""
        table = (_Message * len(messages))(*((m["role"].encode(), m["content"].encode()) for m in messages))
        return self._ids(self._f.encode_chat, table, len(messages))

    def text(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        n = c.c_size_t()
        text = self._f.text(self._target, (c.c_int32 * len(ids))(*ids), len(ids), c.byref(n))
        if not text:
            raise Fault("the model has no tokenizer that is supported")
        found = c.string_at(text, n.value).decode(errors="replace")
        self._f.free(text)
        return found

    def score(self, texts: Any) -> list[np.ndarray]:
        """The log-probabilities of the tokens of texts, or of lists of token ids, (n - 1,) each: of every token but
        the first, given those before it. They are the model's own: the softmax of its logits, without a sampling stage.
        """
        scores = []
        for text in [texts] if isinstance(texts, str) else texts:
            ids, error = self.encode(text) if isinstance(text, str) else [int(x) for x in text], _Error()
            row = np.zeros(max(0, len(ids) - 1))
            to = row.ctypes.data_as(c.POINTER(c.c_double))
            self._f.check(self._f.score(self._target, (c.c_int32 * len(ids))(*ids), len(ids), 1, to, c.byref(error)), error)
            scores.append(row)
        return scores

    def states(self, texts: Any, *, layers: Sequence[int] = (), top_k: int = 0, logits: bool = False) -> list[States]:
        """Runs the target over texts, or lists of token ids, without a drafter or sampling. layers: hidden states, as
        in a drafter's `layers`: j is the one that enters layer j, speclab.FINAL the one that the LM head multiplies.
        top_k: so many most probable next tokens, with their probabilities at temperature 1. The arrays of a call are
        parts of common ones."""
        texts = [texts] if isinstance(texts, str) else texts
        ids = [np.asarray(self.encode(t) if isinstance(t, str) else t, np.int32) for t in texts]
        all_ids, offset = np.concatenate([np.zeros(0, np.int32), *ids]), np.cumsum([0, *map(len, ids)], dtype=np.int64)
        n, width, vocab = len(all_ids), self.facts.width, self.facts.vocab if logits else 0
        made = (np.empty((n, len(layers), width), np.float32), np.empty((n, top_k), np.int32), np.empty((n, top_k), np.float32),
                np.empty((n, vocab), np.float32))  # fmt: skip
        state, top_id, top_p, rows = (a.ctypes.data for a in made)
        to = _States((c.c_int * len(layers))(*layers), len(layers), state, top_k, top_id, top_p, rows if logits else None)
        error = _Error()
        self._f.check(self._f.states(self._target, all_ids.ctypes.data, offset.ctypes.data, len(ids), c.byref(to), c.byref(error)), error)
        parts = (np.split(a, offset[1:-1]) for a in (all_ids, *made))
        return [States(*some[:4], some[4] if logits else None) for some in zip(*parts, strict=True)] if ids else []

    def identity(self) -> str:
        """The hash of weights and configuration. The first call reads all weights."""
        to = c.create_string_buffer(33)
        self._f.identity(self._target, to)
        return to.value.decode()

    def weight_names(self) -> list[str]:
        """The names of the weights, as in Hugging Face's checkpoints, whatever the format of the file."""
        names: list[str] = []
        error = _Error()
        while name := self._f.weight_name(self._target, len(names), c.byref(error)):
            names.append(name.decode())
        self._f.check(not error.text, error)
        return names

    def weight_shape(self, name: str) -> tuple[int, ...]:
        """(rows, width), or (width,) of a vector."""
        return self._weight(name, None)

    def weight(self, name: str) -> np.ndarray:
        """A weight as float32, dequantized as the target does it."""
        x = np.empty(self.weight_shape(name), np.float32)
        self._weight(name, x.ctypes.data)
        return x

    def _weight(self, name: str, to: Any) -> tuple[int, ...]:
        shape, error = (c.c_int64 * 2)(), _Error()
        self._f.check(self._f.weight(self._target, name.encode(), shape, to, c.byref(error)), error)
        return tuple(shape) if shape[0] > 1 else (shape[1],)

    def close(self) -> None:
        self._f.close(self._target)
        self._target = None

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Text(NamedTuple):
    """What was decoded for a prompt: new tokens, in how many steps, and how many draft tokens are in the text."""

    ids: list[int]
    text: str
    reason: str  # "end", "string", "limit" or "context"
    steps: int
    drafted: int
    accepted: int


_names: dict[type, str] = {}


def _name(given: Any, base: type) -> str | None:
    """A name with options, or that of a class, which gets another name if it is defined again."""
    if given is None or isinstance(given, str):
        return given
    if not (inspect.isclass(given) and issubclass(given, base)):
        raise Fault(f"expected a name or a class of speclab.{base.__name__}, found {given!r}")
    if given not in _names:
        name, taken = plugins.name(given), set(_names.values())
        free = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 65))) if n not in taken)
        functions = [f for f in vars(given).values() if inspect.isfunction(f)]
        file = functions[0].__code__.co_filename if functions else "<notebook>"
        given.name = free
        door.register(given, file)
        _names[given] = free
    return _names[given]


def decode(target: Target, prompts: Any, *, drafter: Any = None, rule: Any = None, sampling: str | None = None, tokens: int = 128,
           seed: int = 0, slots: int = 1, length: int = 0, ignore_end: bool = False, stop: Sequence[str] = ()) -> list[Text]:  # fmt: skip
    """Decodes prompts, texts or lists of token ids, `slots` at a time. sampling: "temperature=0.8,top_p=0.95"; None: temperature 1.

    Raises Fault.
    """
    f, error = _engine(), _Error()
    prompts = [prompts] if isinstance(prompts, str) else list(prompts)
    ids = [target.encode(p) if isinstance(p, str) else [int(x) for x in p] for p in prompts]
    steps, made = [[0, 0, 0] for _ in ids], {}

    def step(_: Any, s: Any) -> None:
        of, s = steps[s.contents.sequence], s.contents
        of[:] = of[0] + 1, of[1] + s.drafted, of[2] + s.accepted

    def end(_: Any, e: Any) -> None:
        e = e.contents
        text = c.string_at(e.text, e.bytes).decode(errors="replace") if e.text else ""
        made[e.sequence] = (e.token[: e.n], text, e.reason.decode())

    how = _DecoderOptions(drafter=_bytes(_name(drafter, plugins.Drafter)), rule=_bytes(_name(rule, plugins.Rule)), sampling=_bytes(sampling),
                          slots=slots, length=length, seed=seed, listener=_Listener(step=_STEP(step), end=_END(end)))  # fmt: skip
    stops = (c.c_char_p * max(1, len(stop)))(*map(str.encode, stop))
    decoder = f.check(f.create(target._target, c.byref(how), c.byref(error)), error)
    try:
        waiting = list(enumerate(ids))[::-1]
        while waiting or f.active(decoder):
            while waiting and f.has_free_slot(decoder):
                number, prompt = waiting.pop()
                request = _Request(sequence=number, prompt=(c.c_int32 * len(prompt))(*prompt), n=len(prompt), max_tokens=tokens,
                                   ignore_end=ignore_end, stop=stops, n_stop=len(stop))  # fmt: skip
                f.check(f.start(decoder, c.byref(request), c.byref(error)), error)
            f.check(f.step(decoder, c.byref(error)), error)
    finally:
        f.destroy(decoder)
    return [Text(*made[i], *steps[i]) for i in range(len(ids))]
