"""quantize - a model at another precision, or a Hugging Face directory as a GGUF file."""

import os
from collections import Counter

from speclab import checkpoint, gguf_conversion
from speclab.checkpoint import Source, Tensor
from speclab.command import Misuse, Options

ABOUT = """Writes the model with all its matrices (attention, feed-forward, embedding, head) in one type. Norms and
biases are unchanged, and so is, for q8_0 and q4_0, a matrix whose row length is not a multiple of 32; it is
named. A GGUF file, of any types that can be read, becomes a GGUF file; a Hugging Face directory becomes a
directory (bf16) or, with its tokenizer, a GGUF file. q8_0 and q4_0 equal ggml's reference, rounded
from the model's own numbers: converting to a larger type restores no precision. PATH must not
exist yet."""
EXAMPLES = """  ./run quantize smollm2-135m-instruct --type q8_0 --out smollm2-q8.gguf
  ./run quantize meta-llama/Llama-3.2-1B-Instruct --type q4_0 --out llama-1b-q4.gguf"""


def mark(source: Source) -> str:
    """Returns "smollm2.gguf (q4_1)": the model's name, and the most common type of its matrices by numbers."""
    count: Counter[str] = Counter()
    for t in source.tensors:
        if len(t.shape) > 1 and not checkpoint.is_scale(t.name):
            count[t.kind] += t.numbers
    before, major = source.facts["quantized_from"], max(count, key=lambda kind: count[kind], default="f32").lower()
    return f"{os.path.basename(source.facts['path'])[:200]} ({major}){f', made from {before[:400]}' if before else ''}"


class Plan:
    """Plans the tensors of the new model, and counts what was done to the matrices."""

    def __init__(self, source: Source, kind: str):
        self.source, self.kind, self.done, self.unchanged = source, kind, Counter(), []

    def type_of(self, t: Tensor, name: str | None = None) -> str:
        """Returns the new type of a matrix; one whose rows do not fill blocks keeps its own."""
        if t.width % checkpoint.block_of(self.kind)[0]:
            self.unchanged.append(name or t.name)
            return t.kind
        self.done["same" if t.kind == self.kind else "changed"] += 1
        return self.kind

    def tensors(self) -> list[Tensor]:
        """Returns the tensors if the format is the source's. Raises Fault."""
        kinds = [(t, self.type_of(t) if checkpoint.is_matrix(t) else t.kind) for t in self.source.tensors if not checkpoint.is_scale(t.name)]
        return [t if kind == t.kind != "F8_E4M3" else checkpoint.converted(self.source, t, t.name, kind) for t, kind in kinds]


def main(words: list[str]) -> int:
    options = Options("quantize", ABOUT, EXAMPLES)
    options.add_argument("model", metavar="MODEL")
    options.option("--type", choices=["q8_0", "q4_0", "bf16"], required=True, help="of the matrices: q8_0, q4_0 or bf16")
    options.option("--out", metavar="PATH", required=True, help="the file (its name ends with .gguf) or the directory to write")
    given = options.read(words)
    to, kind = checkpoint.output_path(given.out), given.type.upper()
    about = checkpoint.facts(given.model)
    in_gguf = to.endswith(".gguf")
    if about["gguf"] and not in_gguf:
        raise Misuse(f"--out {to}: the model is a GGUF file: expected an output name that ends with .gguf")
    if not in_gguf and given.type != "bf16":
        raise Misuse(f"--out {to}: safetensors cannot store {given.type}: expected bf16, or an output name that ends with .gguf")
    if not in_gguf:
        checkpoint.check_whole(about, option="--out ")
    source = checkpoint.open_source(about, to)
    plan, marked = Plan(source, kind), mark(source)

    def change(config):
        config["dtype" if "dtype" in config else "torch_dtype"] = "bfloat16"
        config["speclab_quantised_from"] = marked
        config.pop("quantization_config", None)

    converts = in_gguf and not about["gguf"]
    made = gguf_conversion.tensors(plan) if converts else plan.tensors()
    keys = gguf_conversion.keys(source, kind, marked) if converts else gguf_conversion.type_keys(kind, marked)
    seconds = checkpoint.write(source, to, made, keys if in_gguf else None, change)
    if converts:
        gguf_conversion.check_made(source, to)
    print(f"{to}: {sum(t.size for t in made) / 1e6:.1f} MB, from {sum(t.size for t in source.tensors) / 1e6:.1f} MB, in {seconds:.1f} s")
    print(f"{plan.done['changed']} matrices are {given.type} now" + (f", {plan.done['same']} were before" if plan.done["same"] else ""))
    if plan.unchanged:
        print(f"{len(plan.unchanged)} are unchanged, since their row lengths are not multiples of 32: {', '.join(plan.unchanged[:3])}"
              + (", ..." if plan.unchanged[3:] else ""))  # fmt: skip
    checkpoint.print_left_out(source)
    return 0
