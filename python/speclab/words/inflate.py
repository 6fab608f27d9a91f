"""inflate - a model with the cost of a larger one and the texts of an existing one; a head for such a model."""

import json
import os
import re
from typing import Any

import numpy as np

from speclab import checkpoint, files, safetensors_files, strict_json
from speclab.checkpoint import FLOATS, Source, Stored, Tensor
from speclab.command import Fault, Misuse, Options, integer
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
    """The sizes, each the model's own where none is given. Raises Misuse if they are impossible for this model."""
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
    """The tensors of the larger model. Raises Fault."""
    about = source.facts
    w, same = sizes.small.width, sizes.small == sizes.large

    def one(t: Stored, name: str, added: bool) -> Tensor:
        if re.search(r"rotary_emb\.inv_freq|rope_freqs\.weight|[qk]_norm\.", t.name) or (same and not added):
            return checkpoint.copied(t, name)
        if re.search(r"norm\.weight$|layernorm\.weight$", t.name):
            return checkpoint.copied(t, name) if sizes.large.width == w else sizes.norm(t, name, 0 if about["gguf"] else "F32")
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
    checkpoint.new_output(about, to)
    source = checkpoint.open_source(about)
    d = about["head_dim"]
    sizes = Enlargement(Sizes(*(about[key] for key in OWN[:4]), d), Sizes(*(s[key] for key in OWN[:4]), d))
    tensors = enlarged(source, sizes, s["layers"])
    base = os.path.basename(about["path"])[:200]
    mark = about["inflated_from"] or (f"{base} (width {about['width']}, hidden {about['hidden']}, {about['heads']} heads on {about['kv_heads']}, "
                                      f"{about['layers']} layers)")  # fmt: skip
    eps = float(np.float32(about["norm_eps"] * about["width"] / s["width"]))
    a, fields = about["architecture"], source.reader.fields if source.reader else {}
    old = fields["general.name"].contents()[:4096] if "general.name" in fields else "model"
    new = {"block_count": s["layers"], "embedding_length": s["width"], "feed_forward_length": s["hidden"], "attention.head_count": s["heads"],
           "attention.head_count_kv": s["kv_heads"], "attention.key_length": d, "attention.value_length": d, "rope.dimension_count": d,
           "attention.layer_norm_rms_epsilon": eps}  # fmt: skip
    new = {f"{a}.{key}": v for key, v in new.items()}  # without the lengths a head's size would be the width divided by the heads
    new |= {GGUF_MARK: mark, "general.name": old + ("" if about["inflated_from"] else " (inflated)")}

    def change(config: dict[str, Any]) -> None:
        config.update(hidden_size=s["width"], intermediate_size=s["hidden"], num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"],
                      num_hidden_layers=s["layers"], head_dim=d, rms_norm_eps=eps)  # fmt: skip
        config[MARK] = mark
        checkpoint.keep_layer_lists(config, about["layers"], [i % about["layers"] for i in range(s["layers"])])

    values = checkpoint.changed(source, new) if about["gguf"] else ()
    seconds = checkpoint.write(source, to, tensors, values, None if about["gguf"] else change)
    made = checkpoint.facts(to)
    numbers = sum(int(np.prod(t.shape, dtype=np.int64)) for t in tensors)
    print(f"{to}: {numbers / 1e6:.1f} million parameters, {sum(t.size for t in tensors) / 1e6:.1f} MB, in {seconds:.1f} s; marked as inflated")
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

_BEGINS = (("medusa_head.", ""), ("medusa_heads.", ""), ("model.midlayer.", "layers.0."), ("midlayer.", "layers.0."), ("fusion_fc.", "fc."),
           ("transformer.", "layers.0."), ("model.", ""))  # fmt: skip


def _own_name(stored: str) -> str:
    """A head's name of a tensor without the prefixes that training programs put before it."""
    return next((to + stored[len(begin) :] for begin, to in _BEGINS if stored.startswith(begin)), stored)


def _head_sizes(path: str, config: dict[str, Any], inner: dict[str, Any], shapes: dict[str, tuple[int, ...]], kind: str, large: Sizes) -> Sizes:
    if kind == "medusa":
        first = shapes.get("0.0.linear.weight") or shapes["blocks.0.layers.0.weight"]
        return large._replace(width=first[-1])
    read: dict[str, int] = {}
    for key, other in (("hidden_size", 0), ("intermediate_size", 0), ("num_attention_heads", 0), ("num_key_value_heads", "num_attention_heads"),
                       ("head_dim", None)):  # fmt: skip
        default = read["hidden_size"] // read["num_attention_heads"] if other is None else read.get(other, 0) if other else 0
        v = inner.get(key)
        read[key] = v if type(v) is int else default
        if not 0 < read[key] <= MOST:
            raise Fault(f"{path}/config.json: {key}: expected a positive integer")
    s = Sizes(*read.values())
    if s.heads % s.kv_heads:
        raise Fault(f"{path}/config.json: num_attention_heads: expected a multiple of num_key_value_heads ({s.kv_heads}), found {s.heads}")
    if kind == "eagle3":  # layers 2, L / 2 and L - 3, the default, are others in a target with more layers
        key = "eagle_aux_hidden_state_layer_ids"
        eagle = config.get("eagle_config")
        ids = (eagle.get(key) if isinstance(eagle, dict) else None) or config.get(key)
        if not isinstance(ids, list):
            raise Fault(f"{path}/config.json: there is no {key}, and without it the layers depend on the target's number of layers")
        if shapes["fc.weight"][-1] != len(ids) * s.width:
            raise Fault(f"{path}: fc.weight: expected rows of {len(ids)} times the head's width {s.width}, found {shapes['fc.weight'][-1]}")
    if s.head_dim != large.head_dim:
        raise Fault(f"{path}: the head has attention heads of {s.head_dim} numbers, and the target of {large.head_dim}")
    if s.hidden > large.hidden or s.heads > large.heads or s.kv_heads > large.kv_heads or s.group > large.group:
        raise Fault(f"{path}: hidden {s.hidden}, {s.heads} heads on {s.kv_heads} cannot become smaller: the target has hidden {large.hidden}, "
                    f"{large.heads} heads on {large.kv_heads}")  # fmt: skip
    return s


def _head_tensor(path: str, sizes: Enlargement, own: str, name: str, t: Stored) -> Tensor:
    if t.kind in ("I64", "I32", "BOOL", "U8"):
        ids = np.frombuffer(b"".join(t.pieces()), {"I64": "<i8", "I32": "<i4", "BOOL": "u1", "U8": "u1"}[t.kind]).astype("<i8")
        return Tensor(name, "I64", (ids.size,), ids.nbytes, lambda: [ids.tobytes()])
    if t.kind not in FLOATS or len(t.shape) > 2:
        raise Fault(f"{path}: tensor {own}: expected f32, f16 or bf16, found {t.kind}")
    for first in range(0, t.numbers // max(1, t.width), max(1, checkpoint.CHUNK // max(1, t.width))):
        n = min(max(1, checkpoint.CHUNK // t.width), t.numbers // t.width - first)
        if not np.isfinite(checkpoint.Numbers(t).rows(first, n)).all():
            raise Fault(f"{path}: tensor {own}: expected finite numbers, found others")
    vector = len(t.shape) < 2
    # fc and Medusa's blocks write to a stream and read streams; Medusa's LM heads write logits
    pair = sides(own) or (STREAM if vector or own == "fc.weight" or t.shape[0] == t.width else SAME, STREAM)
    norm = vector and (own.endswith("norm.weight") or own.startswith("fc_norm."))
    if not sizes.fits(STREAM if norm else pair[0], t.shape[0]) or (not vector and not sizes.fits(pair[1], t.width)):
        rows = 1 if vector else t.shape[0]
        raise Fault(f"{path}: tensor {own} has {rows} rows of {t.width} numbers, which do not fit the sizes in {path}/config.json")
    return sizes.norm(t, name, "F32") if norm else sizes.matrix(t, name, pair, path)


def enlarge_head(path: str, target: str, to: str) -> int:
    """Writes a head for an inflated model."""
    path = path.rstrip("/") or path
    about = checkpoint.facts(target)
    if about["inflated_from"] is None:
        raise Fault(f"{about['path']}: not an inflated model (./run inflate MODEL makes one)")
    if os.path.lexists(to):
        raise Fault(f"{to}: exists already")
    medusa = f"{path}/medusa_lm_head.safetensors"
    stored = checkpoint.stored_in(medusa if os.path.exists(medusa) else path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.exists(f"{folder}/config.json"):
        raise Fault(f"{path}: there is no config.json beside it")
    config = strict_json.loads(files.read_text(f"{folder}/config.json"), f"{folder}/config.json")
    speculators = isinstance(config, dict) and "speculators_model_type" in config
    inner = config.get("transformer_layer_config") if speculators else config
    if not isinstance(inner, dict):
        raise Fault(f"{folder}/config.json: expected a head's configuration as a JSON object, found {strict_json.described(inner)}")
    tensors = sorted(((_own_name(t.name), t) for t in stored), key=lambda e: e[0].encode())
    shapes = {own: t.shape for own, t in tensors}
    if len(shapes) < len(tensors):
        raise Fault(f"{path}: two tensors have one name without the prefixes of training programs")
    kinds = {"medusa": ("0.0.linear.weight", "blocks.0.layers.0.weight"), "eagle3": ("layers.0.hidden_norm.weight",),
             "eagle": ("layers.0.self_attn.q_proj.weight",)}  # fmt: skip
    kind = next((k for k, names in kinds.items() if any(n in shapes for n in names) and (k == "medusa" or "fc.weight" in shapes)), None)
    if kind is None or not all(len(shape) > 0 and min(shape) > 0 for shape in shapes.values()):
        raise Fault(f"{path}: neither a Medusa head (there is no tensor 0.0.linear.weight or blocks.0.layers.0.weight) nor an EAGLE head "
                    "(no fc.weight with layers.0.* or midlayer.*)")  # fmt: skip
    large = Sizes(*(about[key] for key in OWN[:4]), about["head_dim"])
    small = _head_sizes(folder, config, inner, shapes, kind, large)
    if small.width >= large.width:
        raise Fault(f"{path}: a head of width {small.width}: the target's {large.width} is not larger")
    sizes = Enlargement(small, large)
    made = []
    for own, t in tensors:  # t2d says what d2t does, in a form with a number for each of the target's tokens
        if own != "t2d":
            midlayer = kind == "eagle3" and not speculators and own.startswith("layers.0.")
            made.append(_head_tensor(path, sizes, own, f"midlayer.{own[9:]}" if midlayer else own, t))
    inner["hidden_size"] = large.width
    if kind != "medusa":
        eps = inner.get("rms_norm_eps", 1e-6)
        inner.update(intermediate_size=large.hidden, num_attention_heads=large.heads, num_key_value_heads=large.kv_heads, head_dim=large.head_dim,
                     rms_norm_eps=(eps if isinstance(eps, float) else 1e-6) * small.width / large.width)  # fmt: skip
    config[MARK] = about["inflated_from"]
    with files.folder(to) as part:
        with open(f"{part}/model.safetensors", "xb") as f:
            safetensors_files.write(f, made)
        files.write(f"{part}/config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
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
