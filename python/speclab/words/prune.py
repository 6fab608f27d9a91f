"""prune - a smaller model that keeps some of a larger one's layers."""

import re
from typing import Any

from speclab import checkpoint
from speclab.command import Fault, Misuse, Options
from speclab.layers import listed

ABOUT = """Writes a smaller model that keeps some of a larger one's layers, copied bit for bit in the model's own format: a GGUF
file becomes a GGUF file, a Hugging Face directory a directory. Nothing is retrained, so how well it drafts depends on
which layers are removed; middle layers matter least. PATH must not exist yet."""
EXAMPLES = """  ./run prune smollm2-135m-instruct --keep 0-11,13,15,17,19-29 --out draft.gguf
  ./run generate smollm2-135m-instruct --drafter small:model=draft.gguf 'What is a prime number?'"""


def layers_of(text: str, layers: int) -> list[int]:
    """Returns the layers of "0-3,26-29", ascending. Raises Misuse."""
    one = "[0-9]{1,9}(-[0-9]{1,9})?"
    parts = [[int(n) for n in part.split("-")] for part in text.split(",")] if re.fullmatch(f"{one}(,{one})*", text) else []
    keep = [i for part in parts for i in range(part[0], min(part[-1], layers) + 1)]
    if not keep or keep[-1] >= layers or keep != sorted(set(keep)) or any(part[0] > part[-1] for part in parts):
        raise Misuse(f'--keep: layers "{text}": expected ascending numbers and ranges of layers 0 to {layers - 1}, such as 0-3,26-29')
    return keep


def keys(source: checkpoint.Source, keep: list[int]) -> dict[str, Any]:
    """Returns the metadata of GGUF that change with fewer layers; lists with a number for each layer keep those of the
    kept ones."""
    a, layers = source.facts["architecture"], source.facts["layers"]
    lists = {k: f.contents() for k, f in source.fields.items() if k.startswith((f"{a}.attention.head_count", f"{a}.feed_forward_length"))}
    name = source.fields["general.name"].contents() if "general.name" in source.fields else "model"
    return {f"{a}.block_count": len(keep), "general.name": f"{name[:4096]} (layers {listed(keep)})"} | {
        k: [v[i] for i in keep] for k, v in lists.items() if isinstance(v, list) and len(v) == layers}  # fmt: skip


def main(words: list[str]) -> int:
    options = Options("prune", ABOUT, EXAMPLES)
    options.add_argument("model", metavar="MODEL")
    options.option("--keep", metavar="LAYERS", required=True, help="numbers and ranges from 0, ascending: 0-3,26-29")
    options.option("--out", metavar="PATH", required=True, help="the file or directory to write")
    given = options.read(words)
    to = checkpoint.output_path(given.out)
    about = checkpoint.facts(given.model)
    keep = layers_of(given.keep, about["layers"])
    checkpoint.check_whole(about, Fault)
    source = checkpoint.open_source(about, to)
    tensors = []
    for t in source.tensors:
        before, layer, rest = checkpoint.layer_of(t.name)
        if layer < 0 or layer in keep:
            tensors.append(t._replace(name=f"{before}{keep.index(layer)}.{rest}") if layer >= 0 else t)

    def change(config):
        config["num_hidden_layers"] = len(keep)
        checkpoint.keep_layer_lists(config, about["layers"], keep)
        if about["qwen_experts"]:  # layers without experts are listed by number, whatever key listed them before
            config["mlp_only_layers"] = [i for i, layer in enumerate(keep) if layer in about["dense"]]
            config["decoder_sparse_step"] = 1

    checkpoint.write(source, to, tensors, keys(source, keep) if about["gguf"] else None, change)
    made = checkpoint.facts(to)
    print(f"{to}: {made['layers']} of {about['layers']} layers, {sum(t.size for t in tensors) / 1e6:.1f} MB")
    checkpoint.print_left_out(source)
    return 0
