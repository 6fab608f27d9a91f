"""features - writes what a trained head, or the drafter `rest`, reads of texts (docs/training.md, docs/drafters.md)."""

import math
import os
import time
from typing import Any

from speclab import engine, files, safetensors_files
from speclab.command import Fault, Misuse, Options, integer
from speclab.safetensors_files import Tensor
from speclab.texts import features

_ABOUT = """\
Runs the target over training texts and writes what a head reads of each token: the hidden states, to the bit those of
drafting, and the target's most probable next tokens. DATA.jsonl: conversations with input_ids and loss_mask, as
`speclab distill` writes them. The output is a folder of safetensors (docs/training.md): target.safetensors with the
embedding, the LM head and the final norm, and shards features-00000.safetensors, .. of whole conversations. A folder
that lacks shards is continued.

With --datastore it writes a datastore for the drafter `rest` instead: the texts as tokens of MODEL's tokenizer, with
their suffix array. A .jsonl file has a document in each text of its lines (or `input_ids`, exactly these tokens); any
other file is one document. Building needs 30 bytes of memory a token, and some three minutes for 100 million tokens."""

_EXAMPLES = """\
  speclab features smollm2-135m-instruct texts.jsonl --out features
  speclab features smollm2-135m-instruct texts.jsonl --kind medusa --type bf16 --out features
  speclab features smollm2-135m-instruct data.jsonl --datastore chat.store --exclude experiments/data/prompts.jsonl
  speclab generate smollm2-135m-instruct --drafter rest:datastore=chat.store 'Why is the sky blue?'"""

_OF_STORES = ("datastore", "exclude")


def _options() -> Options:
    o = Options("features", _ABOUT, _EXAMPLES)
    o.option("--kind", choices=features.KINDS,
             help="of the head: streams entering three layers, or the final normed state; small: a draft model made of the target's layers, which "
                  "are written instead; default: eagle3")  # fmt: skip
    o.option("--layers", metavar="I,J,..", help="layers whose input an EAGLE-3 head reads; default: 2, L/2, L-3")
    o.option("--top-k", metavar="K", type=integer(1, 1024), help="probabilities of the target for each token; default: 32")
    o.option("--type", choices=("f32", "bf16"), help="element type of the states; default: f32")
    o.option("--shard-tokens", metavar="N", type=integer(1, 1 << 24), help="tokens of a shard, at least; default: 32768")
    o.option("--limit", metavar="N", type=integer(1, 2**31 - 1), help="the first N conversations; default: all")
    o.option("--context", metavar="N", type=integer(1, 1 << 24), help="longer texts are cut at the end; default: the model's")
    o.option("--out", metavar="DIR", help="the folder to write to, or to continue")
    o.option("--threads", metavar="N", type=integer(1, 1024), help="number of threads; default: one for each processor")
    o.option("--device", metavar="NAME", help="as of `speclab generate --help`")
    o.option("--activations", metavar="TYPE", help="as of `speclab generate --help`")
    o.option("--cache", metavar="TYPE", help="as of `speclab generate --help`")
    o.option("--packed", choices=("no", "keep"), help="as of `speclab generate --help`")
    o.option("--datastore", metavar="FILE", help="write a datastore of all texts to this file")
    o.add_argument("--exclude", metavar="FILE.jsonl", action="append",
                   # fmt: skip.
                   help="with --datastore: leaves out documents that share 13 words in a row with a text of this file; can be given several times")
    o.add_argument("model", metavar="MODEL")
    o.add_argument("data", metavar="DATA.jsonl", nargs="+")
    return o


def opened(given: dict[str, Any]) -> features.Features:
    """Opens the features that options and operands of this word describe, without --out. Raises Fault."""
    o = {key: value for key, value in given.items() if value is not None}
    if "layers" in o and o.get("kind", "eagle3") != "eagle3":
        raise Misuse(f"--layers is for --kind eagle3, not {o['kind']}")
    return features.Features(o.pop("model"), o.pop("data"), packed=o.pop("packed", "no") == "keep", log=engine.say, **o)


def read(words: list[str]) -> dict[str, Any]:
    """Returns options and operands by name, as `opened` takes them, and `out`. Raises Misuse."""
    o = {key: value for key, value in vars(_options().read(words)).items() if not key.startswith("_")}
    own = [key for key, value in o.items() if value is not None and key not in (*_OF_STORES, "model", "data")]
    if o["datastore"] is not None:
        if own:
            raise Misuse(f"--datastore and --{own[0].replace('_', '-')} exclude each other")
        return o
    if o["exclude"]:
        raise Misuse("--exclude requires --datastore")
    if len(o["data"]) > 1:
        raise Misuse(f'unexpected argument "{o["data"][1]}": several files go with --datastore')
    return {key: value for key, value in o.items() if key not in _OF_STORES} | {"data": o["data"][0]}


# ---- files


class _Folder:
    """The files of a folder. An earlier one with other settings, or other conversations, is a Fault."""

    def __init__(self, path: str, of: features.Features):
        self.path, self.of, self.number, self.kept = path, of, 0, 0
        try:
            os.makedirs(path, exist_ok=True)
        except OSError:
            raise Fault(f"{path}: the folder cannot be created") from None

    def _earlier(self, path: str, wanted: dict[str, str]) -> tuple[list[Tensor], dict[str, str]]:
        """All settings must be equal, except the path of the model, which is identified by its hash."""
        tensors, found = safetensors_files.read(path), safetensors_files.metadata(path)
        for key, value in wanted.items():
            if key != "model" and found.get(key) != value:
                raise Fault(f'{path}: made with {key} "{found.get(key, "")}", not "{value}"; use another folder, or remove this one')
        return tensors, found

    def write_target(self) -> None:
        path, small = f"{self.path}/target.safetensors", self.of.kind == "small"
        names, configuration = self.of.target()
        if os.path.exists(path):
            tensors, _ = self._earlier(path, configuration)
            if small != (len(tensors) > 3):
                why = "there are no layers, which --kind small needs" if small else "made with --kind small"
                raise Fault(f"{path}: {why}; use another folder, or remove this one")
            return
        tensors = []
        for name, of in names.items():
            shape = self.of.engine.weight_shape(of)
            made = lambda of=of: [memoryview(self.of.engine.weight(of)).cast("B")]  # noqa: E731
            tensors.append(Tensor(name, "F32", shape, 4 * math.prod(shape), made=made))
        with files.writing(path) as to:
            safetensors_files.write(to, tensors, configuration)

    def name(self) -> str:
        return f"{self.path}/features-{self.number:05}.safetensors"

    def keep(self, first: int) -> int:
        """Returns the number of conversations of the next shard, if it exists."""
        path = self.name()
        if not os.path.exists(path):
            return 0
        tensors, metadata = self._earlier(path, self.of.metadata)
        n = next((t.shape[0] - 1 for t in tensors if t.name == "offsets" and t.kind == "I64" and len(t.shape) == 1), 0)
        if n < 1:
            raise Fault(f"{path}: expected a tensor offsets of 64-bit integers, found none")
        if metadata.get("first") != str(first):
            raise Fault(f"{path}: expected a shard that begins with conversation {first}, found {metadata.get('first')}; remove it")
        self.number, self.kept = self.number + 1, self.kept + n
        return n

    def write(self, shard: features.Shard) -> None:
        with files.writing(self.name()) as to:
            safetensors_files.write(to, features.stored(shard.tensors), shard.metadata)
        self.number += 1


def _write_all(of: features.Features, out: str) -> None:
    folder, computed, tokens, seconds = _Folder(out, of), 0, 0, 0.0
    folder.write_target()
    began = time.monotonic()
    for shard in of.shards(folder.keep):
        folder.write(shard)
        n, took = int(shard.tensors["offsets"][-1]), time.monotonic() - began
        computed, tokens, seconds = computed + len(shard), tokens + n, seconds + took
        engine.say(f"shard {folder.number - 1}: {len(shard)} conversations, {n} tokens, {n / took:.0f} tokens/s")
        began = time.monotonic()
    if folder.kept + computed == 0:
        raise Fault(f"{of.texts.path}: there are no conversations")
    line = f"{folder.kept + computed} conversations" + (f", of which {folder.kept} were there" if folder.kept else "")
    line += f", {of.texts.cut} cut at {of.texts.context} tokens" if of.texts.cut else ""
    line += f"; {tokens} tokens computed, {tokens / seconds:.0f} tokens/s" if tokens else ""
    engine.say(f"{line} ({of.facts.processor}, activations {of.facts.activations}, cache {of.facts.cache})")


def main(words: list[str]) -> int:
    o = read(words)
    if o.get("datastore") is not None:
        from speclab.texts import datastore

        engine.say(datastore.make(o["model"], o["data"], o["exclude"] or [], o["datastore"]))
        return 0
    if (out := o.pop("out")) is None:
        raise Misuse("expected either --out DIR or --datastore FILE")
    with opened(o) as of:
        _write_all(of, out)
    return 0
