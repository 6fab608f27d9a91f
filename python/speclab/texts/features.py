"""features - what a trainer reads of training texts: hidden states of the target, to the bit those of drafting, and its
most probable next tokens (docs/training.md).

    with Features("smollm2-135m-instruct", "texts.jsonl", kind="medusa") as features:
        for shard in features.shards():
            print(shard.first, shard.tensors["states"].shape)
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from speclab import engine, files
from speclab.command import Fault, placed
from speclab.decoding import Target
from speclab.digest import content_hash
from speclab.plugins import FINAL
from speclab.safetensors_files import Tensor
from speclab.strict_json import lines_of

KINDS = ("eagle3", "eagle", "medusa", "small")
TYPES = {"I64": "<i8", "I32": "<i4", "U8": "u1", "F32": "<f4", "BF16": "<u2"}
AT_ONCE = 2048  # tokens, at least, that the engine gets at a time: an interrupt waits for them
MAX_LAYERS = 8


def bf16(x: np.ndarray) -> np.ndarray:
    """The bits of floats as BF16, (..) of uint16: to nearest, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


class Shard(NamedTuple):
    """Whole conversations, the first of which has this number in the file. `states` of BF16 are their bits, uint16."""

    first: int
    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]

    def __len__(self) -> int:
        return len(self.tensors["offsets"]) - 1


class Texts:
    """Conversations of a file as token ids and masks, each cut at `context` tokens. `read` counts them, `cut` those
    that were longer. Errors name file and line."""

    def __init__(self, path: str, vocab: int, context: int, limit: int):
        self.path, self.vocab, self.context, self.limit = path, vocab, context, limit
        self.data = files.read(path, files.TEXTS)
        self.hash = content_hash(self.data)
        self.read = self.cut = 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for place, line in lines_of(self.path, io.BytesIO(self.data)):
            if self.limit and self.read == self.limit:
                return
            with placed(f"{place}: "):
                ids, mask = self._lists(line)
            self.read += 1
            self.cut += len(ids) > self.context
            yield np.array(ids[: self.context], np.int32), np.array(mask[: self.context], np.uint8)

    def _lists(self, line: Any) -> tuple[list[int], list[int]]:
        if not isinstance(line, dict):
            raise Fault('expected a JSON object, as in {"text": "..."}')
        ids, mask = line.get("input_ids"), line.get("loss_mask")
        if ids is None:
            raise Fault('expected "input_ids" and "loss_mask", as `speclab distill` writes them; a text without ids would be tokenized '
                        "otherwise than the target wrote it")  # fmt: skip
        check_ids(ids, self.vocab)
        if not ids:
            raise Fault('"input_ids": expected at least one token')
        if not isinstance(mask, list) or len(mask) != len(ids):
            raise Fault(f'"loss_mask": expected a list of {len(ids)} entries, as many as input_ids has')
        if (wrong := next((i for i, m in enumerate(mask) if type(m) is not int or m not in (0, 1)), None)) is not None:
            raise Fault(f'"loss_mask": entry {wrong + 1}: expected 0 or 1')
        return ids, mask


def check_ids(ids: Any, vocab: int) -> None:
    """Raises Fault unless this is a list of token ids."""
    if not isinstance(ids, list):
        raise Fault("\"input_ids\": expected a list of token ids, as in '[1, 2, 3]'")
    if (wrong := next((i for i, x in enumerate(ids) if type(x) is not int or not 0 <= x < vocab), None)) is not None:
        raise Fault(f'"input_ids": entry {wrong + 1}: expected a token id of this model, an integer from 0 to {vocab - 1}')


class Features:
    """The features of a file of texts for a kind of head. `metadata`: the settings that they depend on. Raises Fault.
    """

    def __init__(self, model: str, texts: str, *, kind: str = "eagle3", layers: str | None = None, top_k: int = 32, type: str = "f32",
                 shard_tokens: int = 32768, limit: int = 0, context: int = 0, device: str | None = None, activations: str | None = None,
                 cache: str | None = None, threads: int = 0, packed: bool = False, log: Callable[[str], None] | None = None):  # fmt: skip
        self.model, self.kind, self.type, self.top_k, self.shard_tokens = model, kind, type, top_k, shard_tokens
        self.engine = Target(model, device=device, activations=activations, cache=cache, chat="none", threads=threads, packed=packed, log=log)
        try:
            facts = self.facts = self.engine.facts
            if facts.varies:
                raise Fault(f"{facts.device}: its states depend on the rest of a pass, so a drafter would read others; use cuda")
            if top_k > self.engine.vocab:
                raise Fault(f"--top-k {top_k}: the vocabulary of {facts.path} has {self.engine.vocab} tokens")
            if context > self.engine.context:
                raise Fault(f"--context {context}: the context of {facts.path} is {self.engine.context}")
            self.layers = self._layers(layers)
            self.texts = Texts(texts, facts.vocab, context or self.engine.context, limit)
            named = {"layers": ",".join(map(str, self.layers))} if kind == "eagle3" else {}
            self.metadata = {
                "format": "speclab-features-1", "kind": kind, "model": model, "model_hash": self.engine.identity(), **named,
                "activations": facts.activations, "cache": facts.cache, "device": facts.device, "data": self.texts.hash,
                "vocab_size": str(facts.vocab), "context": str(self.texts.context), "top_k": str(top_k), "type": type}  # fmt: skip
        except BaseException:
            self.engine.close()
            raise

    def _layers(self, given: str | None) -> list[int]:
        last = self.facts.layers
        if self.kind != "eagle3":
            return [FINAL] * (self.kind != "small")
        if given is None:
            if last < 7:
                raise Fault(f"{self.facts.path} has only {last} layers: name those that the head reads with --layers")
            return [2, last // 2, last - 3]
        parts = given.split(",")
        if len(parts) > MAX_LAYERS or any(not (p.isascii() and p.isdigit() and len(p) < 10 and int(p) <= last) for p in parts):
            raise Fault(f'--layers "{given}": expected up to {MAX_LAYERS} numbers from 0 to {last}, separated by commas, as in 2,15,27')
        return list(map(int, parts))

    def shards(self, kept: Callable[[int], int] = lambda first: 0) -> Iterator[Shard]:
        """Computes the shards that are missing. kept(first): the number of conversations of a shard that begins with
        this one, if there is one already; 0: there is none."""
        texts, self.texts.read, self.texts.cut = iter(self.texts), 0, 0
        while True:
            first = self.texts.read
            if n := kept(first):
                have = sum(1 for _ in zip(range(n), texts, strict=False))
                if have < n:
                    raise Fault(f"{self.texts.path}: only {self.texts.read} conversations, and the finished shards have more")
                continue
            ids, masks, rows = [], [], []
            tokens = 0
            for some in self._groups(texts):
                ids += [i for i, _ in some]
                masks += [m for _, m in some]
                rows += self.engine.states([i for i, _ in some], layers=self.layers, top_k=self.top_k)
                tokens += sum(len(i) for i, _ in some)
                if tokens >= self.shard_tokens:
                    break
            if not ids:
                return
            yield self._shard(first, ids, masks, rows)

    def _groups(self, texts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
        """Yields conversations until they are a shard, AT_ONCE tokens at a time."""
        some, n, all_n = [], 0, 0
        for text in texts:
            some.append(text)
            n += len(text[0])
            if n >= AT_ONCE or all_n + n >= self.shard_tokens:
                yield some
                some, n, all_n = [], 0, all_n + n
        if some:
            yield some

    def _shard(self, first: int, ids: list[np.ndarray], masks: list[np.ndarray], rows: list[Any]) -> Shard:
        tensors = {"offsets": np.cumsum([0, *map(len, ids)], dtype=np.int64), "top_ids": np.concatenate([r.top_ids for r in rows]),
                   "top_p": np.concatenate([r.top_p for r in rows]), "input_ids": np.concatenate(ids)}  # fmt: skip
        if self.layers:
            states = np.concatenate([r.states for r in rows])
            states = states.reshape(len(states), -1)
            stored = states if self.type == "f32" else bf16(states)
            # A float that rounds to BF16's infinity has its bits.
            if not (np.isfinite(states) if self.type == "f32" else stored & 0x7F80 != 0x7F80).all():
                raise Fault(f"a state of the target is not finite as {self.type}")
            tensors["states"] = stored
        return Shard(first, {**tensors, "loss_mask": np.concatenate(masks)}, {**self.metadata, "first": str(first)})

    def target(self) -> tuple[dict[str, str], dict[str, str]]:
        """The weights of the target that a trainer needs, their names in the trainer's files and those that
        `engine.weight` takes; and the configuration under the names of Hugging Face's config.json. Raises Fault."""
        about = json.loads(engine.call("inspect", "--checkpoint", "--", self.model))
        names = ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"]
        if self.kind == "small":
            self._check_layers(about)
            names += [name for name in self.engine.weight_names() if name.startswith("model.layers.")]
        return {name.removeprefix("model."): name for name in names}, self._configuration(about)

    def _check_layers(self, about: dict[str, Any]) -> None:
        path, scaling = self.facts.path, about["rope"]["scaling"]
        if about["model_type"] != "llama" or about["experts"] > 0:
            raise Fault(f"{path}: --kind small: a draft model is trained of Llama's layers only, and this target's are those of "
                        f"{about['architecture']}")  # fmt: skip
        if scaling in ("yarn", "longrope"):
            raise Fault(f"{path}: --kind small: its RoPE is scaled by yarn or longrope, which the trainer does not compute")
        if scaling == "table":
            raise Fault(f"{path}: --kind small: its RoPE is scaled by a table (rope_freqs.weight), which no config.json of a draft model can say; "
                        "use the Hugging Face folder of this model")  # fmt: skip

    def _configuration(self, about: dict[str, Any]) -> dict[str, str]:
        rope, scaling = about["rope"], {}
        if rope["scaling"] in ("linear", "llama3"):
            keys = {"factor": "factor"} | ({"low_freq_factor": "low", "high_freq_factor": "high"} if rope["scaling"] == "llama3" else {})
            parts = [f'"rope_type": "{rope["scaling"]}"', *(f'"{key}": {rope[of]:.17g}' for key, of in keys.items())]
            parts += [f'"original_max_position_embeddings": {rope["original"]}'] if rope["scaling"] == "llama3" else []
            scaling = {"rope_scaling": f"{{{', '.join(parts)}}}"}
        return {
            "format": "speclab-target-1", "model": self.model, "model_hash": self.metadata["model_hash"], "hidden_size": str(about["width"]),
            "intermediate_size": str(about["hidden"]), "num_attention_heads": str(about["heads"]), "num_key_value_heads": str(about["kv_heads"]),
            "head_dim": str(about["head_dim"]), "max_position_embeddings": str(about["context"]), "vocab_size": str(about["vocab"]),
            "num_hidden_layers": str(about["layers"]), "used_vocab_size": str(self.engine.vocab), "rms_norm_eps": f"{about['norm_eps']:.9g}",
            "rope_theta": f"{rope['theta']:.17g}", **scaling, "tie_word_embeddings": str(about["tied"]).lower(),
            **({"bos_token_id": str(about["bos"])} if about["bos"] >= 0 else {}), "eos_token_id": ",".join(map(str, about["ends"]))}  # fmt: skip

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> "Features":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def stored(tensors: dict[str, np.ndarray]) -> list[Tensor]:
    """The tensors of a shard for safetensors_files.write, ordered by their alignment."""
    kinds = {np.dtype(numbers): kind for kind, numbers in TYPES.items()}
    return [Tensor(name, kinds[x.dtype], x.shape, x.nbytes, made=lambda x=x: [memoryview(x).cast("B")]) for name, x in tensors.items()]
