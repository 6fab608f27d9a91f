"""gguf_conversion - converts a Hugging Face directory to a GGUF file: llama.cpp's names, its order of the rows of q and
k, its metadata, the tokenizer.

The engine decides whether such a file can store the model, and lists its tokens (`speclab inspect --checkpoint`). The
file is compared with its source before the conversion succeeds.
"""

import os
import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from speclab import checkpoint
from speclab.checkpoint import FLOATS, Source, Tensor, converted
from speclab.command import Fault

if TYPE_CHECKING:
    from speclab.words.quantize import Plan

UNUSED = 5  # kind of a token that occurs in no text


def type_keys(kind: str, mark: str) -> dict[str, Any]:
    """Returns the metadata about the matrices' type: llama.cpp's enum llama_ftype, and ggml's version of the formats.
    """
    new = {"general.file_type": {"Q8_0": 7, "Q4_0": 2, "BF16": 32}[kind], "speclab.quantised_from": mark}
    return new if kind == "BF16" else new | {"general.quantization_version": 2}


def _order(rows: int, heads: int) -> np.ndarray:
    """Returns the source row of each row. The two numbers that rope rotates together are adjacent: G[h d + 2 i + s] =
    HF[h d + s d / 2 + i]."""
    d, i = rows // heads, np.arange(rows)
    at = i % d
    return i - at + at % 2 * (d // 2) + at // 2


def _floats(name: str, v: list[float]) -> Tensor:
    x = np.array(v, np.float32)
    return Tensor(name, "F32", (len(v),), x.nbytes, made=lambda: [x.tobytes()])


def tensors(plan: "Plan") -> list[Tensor]:
    """Returns the tensors of the GGUF file. Raises Fault."""
    source, about = plan.source, plan.source.facts
    if about["not_gguf"]:
        raise Fault(about["not_gguf"])
    names = gguf.get_tensor_name_map({n: a for a, n in gguf.MODEL_ARCH_NAMES.items()}[about["architecture"]], about["layers"])
    made = [_floats(f"{key}.weight", about[key]) for key in ("rope_freqs", "rope_factors_short", "rope_factors_long") if key in about]
    for t in source.tensors:
        if re.search(r"rotary_emb\.inv_freq|rope_freqs\.weight", t.name) or (t.name == "lm_head.weight" and about["tied"]) \
                or checkpoint.is_scale(t.name):  # fmt: skip
            continue
        expert = re.fullmatch(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(?:(gate|up|down)_proj|w([123]))\.weight", t.name)
        if expert and expert[2] != "0":
            continue
        known = t.name
        if expert:
            known = f"model.layers.{expert[1]}.mlp.experts.{expert[3] or {'1': 'gate', '2': 'down', '3': 'up'}[expert[4]]}_proj.weight"
        name = names.get_name(known, (".weight", ".bias"))
        if name is None:
            raise Fault(f"{about['path']}: tensor {t.name}: a GGUF file of this family cannot store it")
        made.append(_experts(plan, t, name) if expert else _one(plan, t, name))
    return made


def _one(plan: "Plan", t: Tensor, name: str) -> Tensor:
    about, kind, order, more = plan.source.facts, t.kind, None, 0.0
    if len(t.shape) < 2:
        kind, more = "F32", 1.0 if about["norms_from_zero"] and "norm" in name else 0.0
    elif "ffn_gate_inp" not in name:  # the router of a mixture keeps its type
        kind = plan.type_of(t)
    if moved := {"attn_q": about["heads"], "attn_k": about["kv_heads"]}.get(name.split(".")[-2]) if about["moves_rows"] else None:
        order = _order(t.shape[0], moved)
    if kind not in (*FLOATS, plan.kind):
        raise checkpoint.not_converted(plan.source, t)
    same = kind == t.kind and order is None and len(t.shape) > 1
    return t._replace(name=name) if same else converted(plan.source, t, name, kind, order, more)


def _experts(plan: "Plan", first: Tensor, name: str) -> Tensor:
    """Returns the matrices of all experts of a layer, one after another; `first` is that of expert 0."""
    source, n = plan.source, plan.source.facts["experts"]
    by_name = {t.name: t for t in source.tensors}
    all_of = [by_name[first.name.replace(".experts.0.", f".experts.{e}.")] for e in range(n)]
    kind = plan.type_of(first, name)
    if kind == "F8_E4M3" or (kind != plan.kind and any(t.kind != first.kind for t in all_of)):
        kind = "F32"  # the width of these fits no block
    parts = [t if t.kind == kind else converted(source, t, name, kind) for t in all_of]
    return Tensor(name, kind, (n, *first.shape), sum(t.size for t in parts), made=lambda: (piece for t in parts for piece in t.pieces()))


# ---- metadata


def _sizes(about: dict[str, Any]) -> dict[str, Any]:
    rope, f = about["rope"], lambda key: float(about[key])
    new = {"block_count": about["layers"], "context_length": about["context"], "embedding_length": about["width"],
           "feed_forward_length": about["hidden"], "attention.head_count": about["heads"], "attention.head_count_kv": about["kv_heads"],
           "attention.key_length": about["head_dim"], "attention.value_length": about["head_dim"], "rope.dimension_count": rope["rotated"],
           # fmt: skip.
           "rope.freq_base": float(rope["theta"]), "attention.layer_norm_rms_epsilon": f("norm_eps"), "vocab_size": about["vocab"]}
    if about["experts"]:
        new |= {"expert_count": about["experts"], "expert_used_count": about["experts_used"]}
    if about["qwen_experts"]:
        new |= {"expert_feed_forward_length": about["expert_hidden"]}
    if about["has_windows"]:
        new |= {"attention.sliding_window": about["window"]}
    if about["window_rope"]:
        new |= {"rope.freq_base_swa": float(about["window_rope"]["theta"])}
    if about["has_attention_cap"]:
        new |= {"attn_logit_softcapping": f("attention_cap")}
    if about["has_logit_cap"]:
        new |= {"final_logit_softcapping": f("logit_cap")}
    if about["has_multipliers"]:  # llama.cpp divides by logit_scale
        new |= {"attention.scale": f("attention_scale"), "embedding_scale": f("embedding_scale"), "residual_scale": f("residual_scale"),
                "logit_scale": float(np.float32(1) / np.float32(about["logit_scale"]))}  # fmt: skip
    if rope["scaling"] in ("yarn", "linear"):
        new |= {"rope.scaling.type": rope["scaling"], "rope.scaling.factor": float(rope["factor"])}
    if rope["scaling"] in ("yarn", "longrope"):
        new |= {"rope.scaling.original_context_length": rope["original"]}
    if rope["scaling"] == "yarn":
        new |= {"rope.scaling.yarn_beta_fast": float(rope["high"]), "rope.scaling.yarn_beta_slow": float(rope["low"])}
    if rope["scaling"] == "longrope":
        new |= {"rope.scaling.attn_factor": float(rope["angle_factor"])}
    return {f"{about['architecture']}.{key}": v for key, v in new.items()}


def _tokens(about: dict[str, Any]) -> dict[str, Any]:
    """Returns the tokenizer's keys. llama.cpp takes as many tokens as the embedding has rows, so unused ones fill the
    list."""
    v = about["vocabulary"]
    if v is None:
        return {"tokenizer.ggml.model": "none"}  # llama.cpp needs the key
    more = about["vocab"] - len(v["tokens"])
    # llama.cpp's converter fills holes so.
    texts = [f"[PAD{i}]" if s is None else s for i, s in enumerate(v["tokens"] + [None] * more)]
    return ({"speclab.token_count": len(v["tokens"])} if more else {}) | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": about["pre"], "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": v["kinds"] + [UNUSED] * more, "tokenizer.ggml.merges": v["merges"]}  # fmt: skip


def keys(source: Source, kind: str, mark: str) -> dict[str, Any]:
    """Returns all metadata of the file."""
    about = source.facts
    new = {"general.architecture": about["architecture"], "general.type": "model", "general.name": os.path.basename(about["path"])}
    new |= type_keys(kind, mark) | ({"speclab.inflated_from": about["inflated_from"]} if about["inflated_from"] else {})
    new |= _sizes(about) | _tokens(about)
    # Ids that end a text: a reader that does not recognize one by its token's name needs one of three keys.
    ends = [token for i, (token, known) in enumerate(zip(about["ends"], about["ends_known"], strict=True)) if i == 0 or not known]
    new |= {f"tokenizer.ggml.{key}_token_id": token for key, token in zip(("eos", "eot", "eom"), ends, strict=False)}
    if about["bos"] >= 0:
        new["tokenizer.ggml.bos_token_id"] = about["bos"]
    new |= {"tokenizer.ggml.add_bos_token": about["add_bos"], "tokenizer.ggml.add_space_prefix": False}
    return new if about["chat_template"] is None else new | {"tokenizer.chat_template": about["chat_template"]}


# ---- comparison with the source


def _layers(about: dict[str, Any]) -> list[Any]:
    """Returns the properties of the layers other than shapes."""
    swa, rope = about["window_rope"] or {}, about["rope"]
    keys = ("attention_scale", "attention_cap", "logit_cap", "embedding_scale", "residual_scale", "logit_scale", "windowed", "unrotated")
    return [[about[key] for key in keys], np.float32(swa.get("theta", 0)), swa.get("scaling", "plain"),
            # fmt: skip.
            [rope[key] for key in ("rotated", "untruncated", "angle_factor")], about["window"] if about["windowed"] else 0]


def _experts_of(about: dict[str, Any]) -> list[Any]:
    return [about["experts"]] + [about[key] for key in ("dense", "experts_used", "expert_hidden", "experts_normalized") if about["experts"]]


_COMPARED = (
    ("the tokens that end a text", lambda about: sorted(about["ends"])),
    ("the token that begins a text", lambda about: (about["bos"], about["add_bos"])),
    ("the chat template", lambda about: about["chat_template"]),
    ("its windows, the scale of its attention or its RoPE, which files of this architecture do not state", _layers),
    ("its experts: those of files are in all layers, and the weights of the used ones sum to 1", _experts_of),
    ("the shape of the model", lambda about: (about["tied"], about["attention_bias"], about["norm_eps"])),
)


def _tokenizes_alike(a: dict[str, Any] | None, b: dict[str, Any] | None) -> bool:
    if a is None or b is None:
        return a is None
    used = [i for i, s in enumerate(a["tokens"]) if s is not None]
    return (len(a["tokens"]) == len(b["tokens"]) and a["merges"] == b["merges"] and a["ignore_merges"] == b["ignore_merges"]
            and all(a["tokens"][i] == b["tokens"][i] and a["kinds"][i] == b["kinds"][i] for i in used))  # fmt: skip


def check_made(source: Source, to: str) -> None:
    """Compares a file with its source, by the engine's reading of both. Raises Fault, and removes the file, if they
    differ."""
    try:
        made, path = checkpoint.facts(to), source.facts["path"]
        for what, of in _COMPARED:
            if of(source.facts) != of(made):
                raise Fault(f"{path}: a GGUF file of it would differ in {what}")
        if not _tokenizes_alike(source.facts["vocabulary"], made["vocabulary"]):
            raise Fault(f"{path}: a GGUF file of it would tokenize some texts differently")
    except BaseException:
        os.unlink(to)
        raise
