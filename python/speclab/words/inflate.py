"""inflate - a model with the cost of a larger one and the texts of an existing one, or a head for such a model."""

import json
import os
import re
from typing import Any

import numpy as np

from speclab import checkpoint, engine, files, safetensors_files, strict_json
from speclab.checkpoint import FLOATS, Source, Tensor
from speclab.command import Fault, Misuse, Options, integer, placed
from speclab.inflation import HIDDEN, QUERIES, SAME, STREAM, Enlargement, Sizes, sides

ABOUT = """Writes a larger model that computes the same function: wider, with more heads, hidden units and layers, all of
which are computed and multiplied by zero. It costs what a model of its size costs and generates what the
smaller one does, so a drafter can be measured with a large target when only a small one exists. Its speeds are of
no real model: the file is marked as inflated, which inspect and every report show. Logits are equal up to
rounding, which int8 activations can make visible in a text; with four times the width (or the same) they
are equal to the last bit. Numbers are copied in the model's own types, so width and hidden must be multiples
of the block size (32, or 256 for q4_k to q6_k and iq4_xs); the head size stays the same, and as many
or more query heads share a key-value head. A GGUF file becomes a GGUF file, a Hugging Face directory
a directory. PATH must not exist yet. With --target, MODEL is a head of the smaller model, and becomes one of
TARGET, an inflated model: with its sizes, and with the drafts of the head."""
EXAMPLES = """  ./run inflate smollm2-135m-instruct --width 2304 --hidden 2816 --heads 32 --kv-heads 8 --out 1b.gguf
  ./run inflate smollm2-135m-instruct --layers 60 --out deep.gguf
  ./run inflate eagle3-head --target 1b.gguf --out eagle3-head-1b
  ./run generate 1b.gguf --drafter small:model=smollm2-135m-instruct 'What is a prime number?'"""
MOST = (1 << 24) - 1
OWN, GGUF_MARK, MARK = ("width", "hidden", "heads", "kv_heads", "layers"), "speclab.inflated_from", "speclab_inflated_from"


def resolved(about: dict[str, Any], given: dict[str, int | None], to: str) -> dict[str, int]:
    """Returns the sizes, each the model's own unless given. Raises Misuse if they are impossible for this model."""
    path, d = about["path"], about["head_dim"]
    if not about["enlargeable"]:
        raise Misuse(f"{path}: models of architecture {about['architecture']} cannot be inflated: a larger width changes their norms, or divides "
                     "their matrices elsewhere")  # fmt: skip
    if about["fp8"]:
        raise Misuse(f"{path}: a model of FP8 cannot be inflated: ./run quantize makes one of bf16 of it")
    s = {key: given[key] or about[key] for key in OWN}
    for key in OWN:
        if s[key] < about[key]:
            raise Misuse(f"{key.replace('_', '-')} {s[key]}: the model has {about[key]}, and can only become larger")
    if s["heads"] % s["kv_heads"]:
        raise Misuse(f"heads {s['heads']}: expected a multiple of the {s['kv_heads']} key-value heads")
    group, larger = about["heads"] // about["kv_heads"], s["heads"] // s["kv_heads"]
    if larger < group:
        raise Misuse(f"heads {s['heads']}: with {s['kv_heads']} key-value heads their groups are of {larger}, and the model's are of {group}")
    if s["heads"] * d > MOST:
        raise Misuse(f"heads {s['heads']}: with {d} numbers each, at most {MOST // d} are allowed")
    if all(s[key] == about[key] for key in OWN):
        own = f"width {s['width']}, hidden {s['hidden']}, {s['heads']} heads on {s['kv_heads']} and {s['layers']} layers"
        raise Misuse(f"nothing would become larger: the model has {own}")
    if about["gguf"] and not to.endswith(".gguf"):
        raise Misuse(f"{to}: the model is a GGUF file: expected an output name that ends with .gguf")
    if not about["gguf"] and to.endswith(".gguf"):
        raise Misuse(f"{to}: the model is a directory: expected a directory as output (./run quantize converts to GGUF)")
    return s


def enlarged(source: Source, sizes: Enlargement, layers: int) -> list[Tensor]:
    """Returns the tensors of the larger model. Raises Fault."""
    about = source.facts
    w, same = sizes.small.width, sizes.small == sizes.large

    def one(t: Tensor, name: str, added: bool) -> Tensor:
        norm = re.search(r"norm\.weight$|layernorm\.weight$", t.name)
        if re.search(r"rotary_emb\.inv_freq|rope_freqs\.weight|[qk]_norm\.", t.name) or (same and not added) or (norm and sizes.large.width == w):
            return t._replace(name=name)
        if norm:
            return sizes.norm(t, name)
        pair = sides(t.name)
        if pair is None:
            raise Fault(f"{about['path']}: tensor {t.name}: its purpose is unknown, so it cannot be enlarged")
        silent = added and pair[0] == STREAM and pair[1] in (QUERIES, HIDDEN)
        return sizes.matrix(t, name, pair, about["path"], silent)

    made = [one(t, t.name, False) for t in source.tensors]
    parts = [(t, *checkpoint.layer_of(t.name)) for t in source.tensors]
    for layer in range(about["layers"], layers):
        made += [one(t, f"{before}{layer}.{rest}", True) for t, before, number, rest in parts if number == layer % about["layers"]]
    return made


def enlarge(name: str, given: dict[str, int | None], to: str) -> int:
    """Writes a larger model."""
    about = checkpoint.facts(name)
    checkpoint.check_whole(about)
    s = resolved(about, given, to)
    source = checkpoint.open_source(about, to)
    d = about["head_dim"]
    sizes = Enlargement(Sizes(*(about[key] for key in OWN[:4]), d), Sizes(*(s[key] for key in OWN[:4]), d))
    tensors = enlarged(source, sizes, s["layers"])
    base = os.path.basename(about["path"])[:200]
    mark = about["inflated_from"] or (f"{base} (width {about['width']}, hidden {about['hidden']}, {about['heads']} heads on {about['kv_heads']}, "
                                      f"{about['layers']} layers)")  # fmt: skip
    eps = float(np.float32(about["norm_eps"] * about["width"] / s["width"]))
    a = about["architecture"]
    old = source.fields["general.name"].contents()[:4096] if "general.name" in source.fields else "model"
    new = {"block_count": s["layers"], "embedding_length": s["width"], "feed_forward_length": s["hidden"], "attention.head_count": s["heads"],
           "attention.head_count_kv": s["kv_heads"], "attention.key_length": d, "attention.value_length": d, "rope.dimension_count": d,
           "attention.layer_norm_rms_epsilon": eps}  # fmt: skip
    # Without the lengths a head's size would be the width divided by the heads.
    new = {f"{a}.{key}": v for key, v in new.items()}
    new |= {GGUF_MARK: mark, "general.name": old + ("" if about["inflated_from"] else " (inflated)")}

    def change(config: dict[str, Any]) -> None:
        config.update(hidden_size=s["width"], intermediate_size=s["hidden"], num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"],
                      num_hidden_layers=s["layers"], head_dim=d, rms_norm_eps=eps)  # fmt: skip
        config[MARK] = mark
        checkpoint.keep_layer_lists(config, about["layers"], [i % about["layers"] for i in range(s["layers"])])

    seconds = checkpoint.write(source, to, tensors, new if about["gguf"] else None, change)
    made = checkpoint.facts(to)
    parameters, size = (sum(n) / 1e6 for n in zip(*((t.numbers, t.size) for t in tensors), strict=True))
    print(f"{to}: {parameters:.1f} million parameters, {size:.1f} MB, in {seconds:.1f} s; marked as inflated")
    print("width {} ({}), hidden {} ({}), {} heads on {} ({} on {}), {} layers ({})".format(
        *(x for key in ("width", "hidden") for x in (made[key], about[key])), made["heads"], made["kv_heads"], about["heads"], about["kv_heads"],
        made["layers"], about["layers"]))  # fmt: skip
    w = about["width"]
    while w < s["width"]:
        w *= 4
    if w != s["width"]:
        print(f"its logits equal the model's up to rounding; with width {4 * about['width']} they would be equal to the last bit")
    checkpoint.print_left_out(source)
    return 0


# ---- heads


def _own_name(stored: str) -> str:
    """Returns a head's name of a tensor without the prefixes that training programs put before it."""
    short = re.sub(r"^(medusa_heads?|model)\.", "", stored)
    return re.sub(r"^fusion_fc\.", "fc.", re.sub(r"^(midlayer|transformer)\.", "layers.0.", short))


def _head_sizes(path: str, config: dict[str, Any], large: Sizes) -> Sizes:
    """Returns the sizes that a head's configuration states. Raises Fault unless they can become the target's."""
    n = {key: config.get(key) for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")}
    n["num_key_value_heads"] = n["num_key_value_heads"] or n["num_attention_heads"]
    if all(type(v) is int and v > 0 for key, v in n.items() if key != "head_dim"):
        n["head_dim"] = n["head_dim"] or n["hidden_size"] // n["num_attention_heads"]
    for key, v in n.items():
        if type(v) is not int or not 0 < v <= MOST:
            raise Fault(f"{path}/config.json: {key}: expected a positive integer, found {json.dumps(v)[:100]}")
    s = Sizes(*n.values())
    if s.heads % s.kv_heads or any(a > b for a, b in zip((*s, s.group), (*large, large.group), strict=True)) or s.head_dim != large.head_dim:
        raise Fault(f"{path}/config.json: expected sizes that can become the target's, {large.described()}, found {s.described()}")
    return s


def _head_tensor(path: str, sizes: Enlargement, own: str, t: Tensor) -> Tensor:
    if t.kind in ("I64", "I32", "BOOL", "U8"):  # these are ids of tokens
        return t
    if t.kind not in FLOATS or len(t.shape) not in (1, 2) or not t.numbers:
        raise Fault(f"{path}: tensor {own}: expected f32, f16 or bf16 numbers in rows, found {t.kind} {list(t.shape)}")
    vector = len(t.shape) < 2
    # fc and Medusa's blocks write to a stream and read streams; Medusa's LM heads write logits
    pair = sides(own) or (STREAM if vector or own == "fc.weight" or t.shape[0] == t.width else SAME, STREAM)
    norm = vector and (own.endswith("norm.weight") or own.startswith("fc_norm."))
    if not sizes.fits(STREAM if norm else pair[0], t.shape[0]) or (not vector and not sizes.fits(pair[1], t.width)):
        raise Fault(f"{path}: tensor {own} has {t.shape[0]} rows of {t.width} numbers, which do not fit the sizes in {path}/config.json")
    return sizes.norm(t, t.name) if norm else sizes.matrix(t, t.name, pair, path)


def enlarge_head(path: str, target: str, to: str) -> int:
    """Writes a head for an inflated model; the engine checks that it fits."""
    path, about = path.rstrip("/") or path, checkpoint.facts(target)
    if about["inflated_from"] is None:
        raise Fault(f"{about['path']}: not an inflated model (./run inflate MODEL makes one)")
    medusa = f"{path}/medusa_lm_head.safetensors"
    found = checkpoint.stored_in(medusa if os.path.exists(medusa) else path)
    stored = {_own_name(t.name): t for t in found}
    if len(stored) < len(found):
        raise Fault(f"{path}: two tensors have one name without the prefixes of training programs")
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    config = strict_json.loads(files.read_text(f"{folder}/config.json"), f"{folder}/config.json")
    inner = config.get("transformer_layer_config", config) if isinstance(config, dict) else config
    if not isinstance(inner, dict):
        raise Fault(f"{folder}/config.json: expected a head's configuration as a JSON object, found {strict_json.described(inner)}")
    large = Sizes(*(about[key] for key in OWN[:4]), about["head_dim"])
    first = stored.get("0.0.linear.weight") or stored.get("blocks.0.layers.0.weight")  # Medusa's weights
    small = large._replace(width=first.width) if first else _head_sizes(folder, inner, large)
    if small.width >= large.width:
        raise Fault(f"{path}: expected a head that is narrower than the target's {large.width}, found one of width {small.width}")
    # Layers 2, L / 2 and L - 3, the default of EAGLE-3, are different layers in a larger target.
    key, eagle = "eagle_aux_hidden_state_layer_ids", config.get("eagle_config")
    if "layers.0.hidden_norm.weight" in stored and not (isinstance(eagle, dict) and eagle.get(key)) and not config.get(key):
        raise Fault(f"{path}/config.json: there is no {key}, and without it the layers depend on the target's number of layers")
    # t2d repeats d2t with a number for each of the target's tokens.
    made = [_head_tensor(path, Enlargement(small, large), own, t) for own, t in sorted(stored.items(), key=lambda e: e[0].encode()) if own != "t2d"]
    inner["hidden_size"] = large.width
    if not first:
        eps = inner.get("rms_norm_eps", 1e-6)
        inner.update(intermediate_size=large.hidden, num_attention_heads=large.heads, num_key_value_heads=large.kv_heads, head_dim=large.head_dim,
                     rms_norm_eps=(eps if isinstance(eps, float) else 1e-6) * small.width / large.width)  # fmt: skip
    config[MARK] = about["inflated_from"]
    with files.folder(to) as part:
        with open(f"{part}/model.safetensors", "xb") as f:
            safetensors_files.write(f, made)
        files.write(f"{part}/config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        with placed(f"{path}: what becomes of it does not fit the target: "):
            engine.call("inspect", "--json", part, "--target", target)
    print(f"{to}: a head for {target}, of width {large.width}; marked as inflated")
    return 0


def main(words: list[str]) -> int:
    options = Options("inflate", ABOUT, EXAMPLES)
    options.add_argument("model", metavar="MODEL")
    options.option("--width", metavar="N", type=integer(1, MOST), help="of the residual stream; default of all of these: the model's own")
    options.option("--hidden", metavar="N", type=integer(1, MOST), help="units of the feed-forward network")
    options.option("--heads", metavar="N", type=integer(1, 1 << 14), help="query heads of the model's head size, a multiple of --kv-heads")
    options.option("--kv-heads", metavar="N", type=integer(1, 1 << 14), help="key-value heads; their groups cannot become smaller")
    options.option("--layers", metavar="N", type=integer(1, 1024), help="added layers are copies that write zeros")
    options.option("--target", metavar="TARGET", help="MODEL is a head, which becomes one of this inflated model")
    options.option("--out", metavar="PATH", required=True, help="the file (its name ends with .gguf) or the directory to write")
    given = options.read(words)
    to, sizes = checkpoint.output_path(given.out), {key: getattr(given, key) for key in OWN}
    if given.target is None:
        return enlarge(given.model, sizes, to)
    if any(sizes.values()):
        raise Misuse(f"--target: the sizes are those of {given.target}, so none can be given")
    return enlarge_head(given.model, given.target, to)
