"""quantize - a model at another precision; a Hugging Face directory as a GGUF file."""

import os
from collections import Counter

import gguf
import numpy as np

from speclab import checkpoint, gguf_conversion
from speclab.command import Fault, Misuse, Options

ABOUT = """Writes the model with all its matrices (attention, feed-forward, embedding, head) in one type. Norms and
biases are unchanged, and so is, for q8_0 and q4_0, a matrix whose row length is not a multiple of 32; it is
named. A GGUF file, of any types that can be read, becomes a GGUF file; a Hugging Face directory becomes a
directory (bf16) or, with its tokenizer, a GGUF file. q8_0 and q4_0 equal ggml's reference, rounded
from the model's own numbers: converting to a larger type restores no precision. PATH must not
exist yet."""
EXAMPLES = """  ./run quantize smollm2-135m-instruct --type q8_0 --out smollm2-q8.gguf
  ./run quantize meta-llama/Llama-3.2-1B-Instruct --type q4_0 --out llama-1b-q4.gguf"""
TYPES = {"q8_0": 8, "q4_0": 2, "bf16": 30}


def mark(source: checkpoint.Source) -> str:
    """ "smollm2.gguf (q4_1)": the model's name, and the most common type of its matrices by numbers."""
    count: Counter[int] = Counter()
    for t in source.tensors:
        if len(t.shape) > 1 and (not isinstance(t.kind, str) or t.kind in checkpoint.FLOATS):
            count[t.ggml] += t.numbers
        elif t.kind == "F8_E4M3":
            count[-1] += t.numbers
    major = max(count, key=lambda k: count[k]) if count else 0
    before = source.facts["quantized_from"]
    name = "f8_e4m3" if major < 0 else checkpoint.type_name(major)
    return f"{os.path.basename(source.facts['path'])[:200]} ({name}){f', made from {before[:400]}' if before else ''}"


class Plan:
    """The tensors of the new model, and what was done to the matrices."""

    def __init__(self, source: checkpoint.Source, kind: int):
        self.source, self.kind, self.done, self.unchanged = source, kind, Counter(), []

    def type_of(self, t: checkpoint.Stored, name: str | None = None) -> int | str:
        """The new type of a matrix; one whose rows do not fill blocks keeps its own."""
        own = t.kind if t.kind == "F8_E4M3" else t.ggml
        if t.width % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(self.kind)][0]:
            self.unchanged.append(name or t.name)
            return own
        self.done["same" if own == self.kind else "changed"] += 1
        return self.kind

    def matrix(self, t: checkpoint.Stored, name: str, dtype: str | int, kind: int, order: np.ndarray | None = None) -> checkpoint.Tensor:
        """A matrix in another type, or with its rows in another order."""
        x = checkpoint.numbers(self.source, t)
        return checkpoint.Tensor(name, dtype, t.shape, checkpoint.size_as(t.shape, kind),
                                 lambda: checkpoint.converted(name, self.source.facts["path"], x, kind, order))  # fmt: skip

    def tensors(self, in_gguf: bool) -> list[checkpoint.Tensor]:
        """Those of the same format as the source's."""
        made = []
        for t in self.source.tensors:
            matrix = checkpoint.is_matrix(t)
            if checkpoint.is_scale(t.name):
                continue
            if t.kind == "F8_E4M3" and not matrix:
                raise Fault(f"{self.source.facts['path']}: tensor {t.name}: it is of F8_E4M3 and not converted")
            new = self.type_of(t) if matrix else None
            if new is None or new == (t.kind if t.kind == "F8_E4M3" else t.ggml):
                made.append(checkpoint.copied(t))
            else:
                made.append(self.matrix(t, t.name, new if in_gguf else "BF16", new))
        return made


def main(words: list[str]) -> int:
    options = Options("quantize", ABOUT, EXAMPLES)
    options.add_argument("model", metavar="MODEL")
    options.option("--type", choices=list(TYPES), required=True, help="of the matrices: q8_0, q4_0 or bf16")
    options.option("--out", metavar="PATH", required=True, help="the file (its name ends with .gguf) or the directory to write")
    given = options.read(words)
    to, kind = checkpoint.output_path(given.out), TYPES[given.type]
    about = checkpoint.facts(given.model)
    in_gguf = to.endswith(".gguf")
    if about["gguf"] and not in_gguf:
        raise Misuse(f"--out {to}: the model is a GGUF file: expected an output name that ends with .gguf")
    if not in_gguf and given.type != "bf16":
        raise Misuse(f"--out {to}: safetensors cannot store {given.type}: expected bf16, or an output name that ends with .gguf")
    if not in_gguf:
        checkpoint.check_whole(about, option="--out ")
    checkpoint.new_output(about, to)
    source = checkpoint.open_source(about)
    plan, marked = Plan(source, kind), mark(source)
    if in_gguf and not about["gguf"]:
        made = gguf_conversion.tensors(plan)
        seconds = checkpoint.write(source, to, made, gguf_conversion.metadata(source, kind, marked))
        gguf_conversion.check_made(source, to)
    elif in_gguf:
        made = plan.tensors(True)
        seconds = checkpoint.write(source, to, made, checkpoint.changed(source, gguf_conversion.settings_of(kind, marked)))
    else:
        made = plan.tensors(False)

        def change(config):
            config["dtype" if "dtype" in config else "torch_dtype"] = "bfloat16"
            config["speclab_quantised_from"] = marked
            config.pop("quantization_config", None)

        seconds = checkpoint.write(source, to, made, config=change)
    print(f"{to}: {sum(t.size for t in made) / 1e6:.1f} MB, from {sum(t.size for t in source.tensors) / 1e6:.1f} MB, in {seconds:.1f} s")
    print(f"{plan.done['changed']} matrices are {given.type} now" + (f", {plan.done['same']} were before" if plan.done["same"] else ""))
    if plan.unchanged:
        print(f"{len(plan.unchanged)} are unchanged, since their row lengths are not multiples of 32: {', '.join(plan.unchanged[:3])}"
              + (", ..." if plan.unchanged[3:] else ""))  # fmt: skip
    checkpoint.print_left_out(source)
    return 0
