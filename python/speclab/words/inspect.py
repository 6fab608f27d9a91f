"""inspect - a checkpoint, or a head beside its target, described in text: what `speclab inspect --json` prints, by a
table of lines. Its other forms are C, and so are all measurements. This file needs the standard library alone.
"""
# without --checkpoint --detokenize --json --score --tokenize

import string
from collections.abc import Sequence
from typing import Any

from speclab import engine

Facts = dict[str, Any]

# A line whose value is missing, or null, is left out. {x:~B} is an amount of bytes.
MODEL = """\
model       {model}
family      {architecture}, {form}{wrapped}
shape       {layers} layers, width {width}, hidden {hidden}, vocabulary {vocab}, context {context}
attention   {heads} heads of {head_dim}, {kv_heads} for keys and values{biases}
windows     of {window} tokens in {windowed_layers} of {layers} layers
experts     {experts_used} of {experts} for a token, hidden {expert_hidden}, in {expert_layers} of {layers} layers
rope        theta {rope_theta:g}, {rope_scaling}{factor}
head        {head}
inflated    marked as inflated from {inflated_from}; its speed is not that of a real model
quantized   from {quantized_from}
tokenizer   none: {no_tokenizer}
tokenizer   byte-level BPE, {tokens} tokens{padding}
ends with  {ends}
begins with {bos_id}{begin}
chat        {chat_form}
chat        none: {no_chat}
parameters  {parameters:~}{active}
tensors     {n_tensors}, {bytes:~B}
{type_lines}
            ignored: {ignored_of_images} tensors of the model of images: texts do not use them
{ignored_lines}
activations {activations}
cache       {cache_bytes_per_token:~B} per token ({cache}), {cache_bytes_of_context:~B} for the full context
pass        one token at context {pass[context]}: {pass[flops]:~FLOP}, {pass[bytes]:~B} read, of which {pass[weight_bytes]:~B} weights: {per_byte}
{union_lines}
memory      {device_memory[bytes]:~B}, of which {device_memory[free_bytes]:~B} free with the model loaded: {device_memory[device]}
memory      {unmeasured}
memory      {memory[bytes_per_second]:~B}/s read by {memory[threads]} threads (median of {memory[passes]} passes over {memory[bytes]:~B})
limit       {ms:.3g} ms per token, {memory[tokens_per_second]:.3g} tokens/s without speculation, if all data comes from memory
            (fits into the processor's cache of {small_cache:~B} and may be faster)
{tensor_lines}
"""

HEAD = """\
head        {head}
kind        {description} (drafter {kind})
heads       {heads}: one for each depth of the draft
target      {target}: fits
reads       {states}
vocabulary  {vocab} tokens, width {width}
uses        {uses}
pass        reads {megabytes:.1f} MB of weights
"""

UNIONS = """\
mixture     experts of a layer, and bytes of weights, that a pass of n rows reads: expected values, if rows choose
            their experts independently and uniformly (`bench` counts them)
                n   experts    weights"""


def amount(n: float, unit: str) -> str:
    """Returns "92.0 MB": three significant digits, decimal prefixes."""
    k = 0
    while n >= 999.5 and k < 4:
        n, k = n / 1000, k + 1
    return f"{n:.{0 if k == 0 or n >= 99.95 else 1 if n >= 9.995 else 2}f} {['', 'k', 'M', 'G', 'T'][k]}{unit}"


class _Line(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if value is None:
            raise KeyError(spec)
        return amount(value, spec[1:]) if spec.startswith("~") else super().format_field(value, spec)


def _text(lines: str, facts: Facts) -> str:
    out = []
    for line in lines.splitlines():
        try:
            out.append(_Line().vformat(line, (), facts) + "\n")
        except (KeyError, TypeError):
            continue
    return "".join(out)


def _joined(lines: list[str]) -> str | None:
    return "\n".join(lines) or None


def _type_line(name: str, t: Facts) -> str:
    bits = 8 * t["bytes"] / t["parameters"] if t["parameters"] else 0
    return f"            {t['tensors']:5} {name:<6} {amount(t['bytes'], 'B'):>9}, {bits:.2f} bits per parameter"


def model_text(j: Facts) -> str:
    """Returns the text of a model's facts."""
    memory, one_pass, system = j.get("memory"), j.get("pass"), j["chat_system"]
    seconds = memory and memory["seconds_per_token"]
    ends = "".join(f" {id_} {token}" if token is not None else f" {id_}" for id_, token in zip(j["end_ids"], j["end_tokens"], strict=True))
    unions = [f"            {u['n']:5} {u['experts_per_layer']:9.2f} {amount(u['weight_bytes'], 'B'):>10}" for u in j.get("expected_unions", [])]
    tensors = [f"{t['name']:<48} {t['type']:<6} {t['rows']:8} x {t['width']:<8} {t['bytes']:12}" for t in j.get("tensors", [])]
    title = f"\n{'tensor':<48} {'type':<6} {'rows':>8} x {'width':<8} {'bytes':>12}"
    mine = {
        "form": {"gguf": "GGUF"}.get(j["format"], "Hugging Face"), "wrapped": f", the text model of {j['wrapper']}" if j["wrapper"] else "",
        "biases": ", with biases" * j["attention_bias"], "experts": j["experts"] or None,
        "factor": f", factor {j['rope_factor']:g}" if j["rope_factor"] is not None else "",
        "head": "tied to the embedding" if j["tied"] else "separate", "padding": "; larger ids are padding" * ((j["tokens"] or 0) < j["vocab"]),
        "ends": ends or " no end-of-text token", "begin": f" {j['bos_token']}" if j["bos_token"] is not None else "",
        "chat_form": {"chatml": f"chatml{'' if system is None else f', system: {system}'}", "jinja": "its own template, by Jinja"}.get(j["chat"]),
        "active": f", of which {amount(j['active_parameters'], '')} active for a token" if j["experts"] else "",
        "n_tensors": sum(t["tensors"] for t in j["types"].values()), "type_lines": _joined([_type_line(*item) for item in j["types"].items()]),
        "ignored_lines": _joined([f"            ignored: {name}" for name in j["ignored"]]),
        "per_byte": f"{one_pass['flops_per_byte']:.2f} FLOP per byte" if one_pass else None,
        "union_lines": _joined([UNIONS, *unions]) if unions else None,
        "unmeasured": "not enough free to measure the read bandwidth" if memory and seconds is None else None,
        "ms": 1e3 * seconds if seconds else None,
        "small_cache": memory["processor_cache_bytes"] if seconds and one_pass["bytes"] < (memory["processor_cache_bytes"] or 0) else None,
        "tensor_lines": _joined([title, *tensors]) if "tensors" in j else None,
    }  # fmt: skip
    return _text(MODEL, j | mine)


def head_text(j: Facts) -> str:
    """Returns the text of a head's facts."""
    layers = ", ".join(str(layer) for layer in j["reads"] if layer != "final")
    states = [f"the target's hidden states entering layers {layers}"] * bool(layers) + ["the target's last hidden state"] * ("final" in j["reads"])
    uses = [
        f"{'its own' if j[own] else 'the target' + chr(39) + 's'} {what}" for own, what in (("own_head", "LM head"), ("own_embedding", "embedding"))
    ]
    return _text(HEAD, j | {"states": "".join(states), "uses": ", ".join(uses), "megabytes": j["bytes"] / 1e6})


def main(words: Sequence[str]) -> int:
    return engine.print_text("inspect", words, lambda j: head_text(j) if "target" in j else model_text(j))
