#!/usr/bin/env python3
"""heads.json: logits of tiny random heads of every published form, by PyTorch in float32.

    make_heads.py OUT.json REPOSITORIES

REPOSITORIES holds clones (bare ones will do): SafeAILab+EAGLE/repo, FasterDecoding+Medusa/repo and
vllm-project+speculators/repo.  What runs, of the commits below:

    medusa, medusa_shared, medusa_layers       Medusa's ResBlock (medusa/model/medusa_model.py)
    eagle, eagle_bias, eagle_own, eagle_layers EAGLE's Model (eagle/model/cnets1.py): forward, cache and tree mask
    eagle3, eagle3_narrow                      EAGLE's Model (eagle/model/cnets.py)
    eagle3_speculators, eagle3_norm_output, eagle3_fc_norm, eagle3_norm_before_fc
                                               speculators' first layer (models/eagle3/model_definitions.py); what its core.py
                                               does around it (norms, fc, head), in training only, is written out below
    eagle_speculators                          transformers' LlamaDecoderLayer without its first norm, and fusion_fc before it,
                                               as speculators' models/eagle.py (until 393bbec7) has it: written out below, since
                                               that file needs an older transformers
    medusa_vllm, medusa_one                    written out below, as vLLM's vllm/model_executor/models/medusa.py has them (one: of
                                               original_lm_head)

The target is tests/support/small_model.c's with the numbers of TARGET; of it only the embedding and the head are needed.  Weights of a
head are tests/support/small_heads.c's: a tensor's numbers are derived from SEED and its name, see `made`.  A head reads a chain of 5
tokens of a sequence with made-up features, then two draft tokens that follow the last of them and one that follows the second, with the
head's own states.  `rows` are the logits of these 8 rows; of a Medusa head, for each of its heads those of 3 states.
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import types

import numpy as np
import torch
from make_logits import tensor as small_tensor
from torch import nn

COMMITS = {"SafeAILab+EAGLE": "cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b",
           "FasterDecoding+Medusa": "e2a5d20c048a9b0a4092e6933c34313687422518",
           "vllm-project+speculators": "c05b95b303f7d4f21e8d7624e0ffa1c2d9b4d73b"}
FILES = {"SafeAILab+EAGLE": ("eagle/model", ["cnets.py", "cnets1.py", "configs.py", "utils_c.py", "choices.py"], "eagle_model"),
         "FasterDecoding+Medusa": ("medusa/model", ["medusa_model.py", "medusa_choices.py", "utils.py"], "medusa_model"),
         "vllm-project+speculators": ("src/speculators/models", ["eagle3/model_definitions.py", "base_components.py"],
                                      "speculators/models")}
TARGET = {"vocab": 96, "width": 64, "seed": 21}
SEED, HEADS, KV, HEAD_DIM, HIDDEN, DRAFT, MEDUSA = 5, 4, 2, 16, 96, 32, 4
CERTAIN, MASK = 5, (1 << 64) - 1


# ---- the originals

def extract(repositories):
    """The files of the originals as packages of their own, importable."""
    root = tempfile.mkdtemp()
    for name, (folder, files, package) in FILES.items():
        os.makedirs(os.path.join(root, package), exist_ok=True)
        for file in files:
            text = subprocess.run(["git", "-C", os.path.join(repositories, name, "repo"), "show", f"{COMMITS[name]}:{folder}/{file}"],
                                  check=True, capture_output=True).stdout
            with open(os.path.join(root, package, os.path.basename(file)), "wb") as out:
                out.write(text)
    sys.path.insert(0, root)
    for module, names in [("modeling_llama_kv", ["LlamaForCausalLM"]), ("modeling_mistral_kv", ["MistralForCausalLM"]),
                          ("kv_cache", ["initialize_past_key_values"])]:      # of the base model, which is not run
        stub = types.ModuleType(f"medusa_model.{module}")
        for n in names:
            setattr(stub, n, type(n, (), {}))
        sys.modules[stub.__name__] = stub


# ---- weights and inputs

def numbers(name, count):
    """splitmix64 of a hash of the name: (z >> 40) * 2^-23 - 1, exact in float32."""
    state = SEED * 1000003 & MASK
    for c in name.encode():
        state = (state * 31 + c) & MASK
    z = np.uint64(state) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1)


def made(name, rows, width, about=0):
    """tests/support/small_heads.c's `floats`; rows 0: a vector."""
    f = np.float32
    size = f(1.7) / np.sqrt(f(width)) if rows else f(0.2)
    v = f(about) + size * numbers(name, max(rows, 1) * width)
    assert v.dtype == f
    return torch.from_numpy(v.reshape((rows, width) if rows else width))


def features(rows, width):
    return torch.from_numpy(numbers("features", rows * width).reshape(rows, width))


def tokens(vocab):
    return [int((x + 1) * 4096) % vocab for x in numbers("tokens", CERTAIN + 3).tolist()]


def layer(prefix, width, reads, heads=HEADS, kv=KV, head_dim=HEAD_DIM, hidden=HIDDEN):
    shapes = {"self_attn.q_proj.weight": (heads * head_dim, reads), "self_attn.k_proj.weight": (kv * head_dim, reads),
              "self_attn.v_proj.weight": (kv * head_dim, reads), "self_attn.o_proj.weight": (width, heads * head_dim),
              "mlp.gate_proj.weight": (hidden, width), "mlp.up_proj.weight": (hidden, width), "mlp.down_proj.weight": (width, hidden)}
    t = {prefix + n: made(prefix + n, *s) for n, s in shapes.items()}
    n = prefix + "post_attention_layernorm.weight"
    return {**t, n: made(n, 0, width, 1)}


def ends():
    w, v, seed = TARGET["width"], TARGET["vocab"], TARGET["seed"]     # lm_head.weight is the first of the sorted names
    return small_tensor(seed, 1, "model.embed_tokens.weight", (v, w)), small_tensor(seed, 0, "lm_head.weight", (v, w))


def fill(module, weights, besides=()):
    left = module.load_state_dict(weights, strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) <= set(besides), left


# ---- EAGLE by EAGLE

def published_config(**given):
    c = {"vocab_size": TARGET["vocab"], "hidden_size": TARGET["width"], "intermediate_size": HIDDEN, "num_hidden_layers": 1,
         "num_attention_heads": HEADS, "num_key_value_heads": KV, "hidden_act": "silu", "max_position_embeddings": 2048,
         "rms_norm_eps": 1e-5, "pretraining_tp": 1, "rope_scaling": None, "pad_token_id": None}
    return types.SimpleNamespace(**{**c, **given})


def run_published(model, head, width_of_features, vocab=TARGET["vocab"]):
    """The calls that topK_genrate makes: rows of the sequence, then the tree level by level, a mask over its rows."""
    token = tokens(vocab)
    model.reset()
    model.gradient_checkpointing = False
    out, past = model(features(CERTAIN, width_of_features)[None], input_ids=torch.tensor([token[:CERTAIN]]), use_cache=True)
    rows = [head(out[0])]
    model.tree_mask = torch.eye(2)[None, None]
    out, past = model(out[:, -1:].repeat(1, 2, 1), input_ids=torch.tensor([token[CERTAIN:CERTAIN + 2]]), past_key_values=past,
                      position_ids=torch.tensor([CERTAIN, CERTAIN]), use_cache=True)
    rows.append(head(out[0]))
    model.tree_mask = torch.cat((model.tree_mask[:, :, [1]], torch.eye(1)[None, None]), dim=3)
    out, past = model(out[:, [1]], input_ids=torch.tensor([token[CERTAIN + 2:]]), past_key_values=past,
                      position_ids=torch.tensor([CERTAIN + 1]), use_cache=True)
    return torch.cat(rows + [head(out[0])])


def eagle_weights(width, bias=True):
    t = {"fc.weight": made("fc.weight", width, 2 * width), **layer("layers.0.", width, width)}
    return {**t, "fc.bias": made("fc.bias", 0, width)} if bias else t


def eagle(kind):
    width = TARGET["width"]
    embedding, output = ends()
    weights, given, bias = eagle_weights(width), {}, True
    if kind == "eagle_bias":
        given = {"qkv_bias": True, "rope_theta": 1e6, "rms_norm_eps": 1e-6}
        for n, rows in ("q", HEADS * HEAD_DIM), ("k", KV * HEAD_DIM), ("v", KV * HEAD_DIM):
            n = f"layers.0.self_attn.{n}_proj.bias"
            weights[n] = made(n, 0, rows)
    if kind == "eagle_own":
        given, bias = {"rope_scaling": {"type": "linear", "factor": 2.0}}, False
        del weights["fc.bias"]
        embedding = made("embed_tokens.weight", TARGET["vocab"], width)
    if kind == "eagle_layers":
        given = {"num_hidden_layers": 2}
        weights |= layer("layers.1.", width, width)
        weights["layers.1.input_layernorm.weight"] = made("layers.1.input_layernorm.weight", 0, width, 1)
    model = importlib.import_module("eagle_model.cnets1").Model(published_config(**given), bias=bias)
    fill(model, {**weights, "embed_tokens.weight": embedding})
    return run_published(model, lambda x: x @ output.T, width)


def d2t(draft, vocab):
    return torch.tensor([i * vocab // draft - i for i in range(draft)])


def eagle3_weights(prefix, width, of_target, draft, **shape):
    t = {"fc.weight": made("fc.weight", width, 3 * of_target), **layer(prefix, width, 2 * width, **shape)}
    for n in prefix + "input_layernorm.weight", prefix + "hidden_norm.weight", "norm.weight":
        t[n] = made(n, 0, width, 1)
    return {**t, "lm_head.weight": made("lm_head.weight", draft, width)}


def eagle3(kind):
    vocab, of_target = TARGET["vocab"], TARGET["width"]
    if kind == "eagle3":
        width, given = of_target, {"draft_vocab_size": DRAFT}
        weights = eagle3_weights("midlayer.", width, of_target, DRAFT)
        embedding = ends()[0]
    else:
        width, given = 48, {"draft_vocab_size": vocab, "hidden_size": 48, "target_hidden_size": of_target}
        weights = eagle3_weights("midlayer.", width, of_target, vocab, head_dim=12)
        embedding = made("embed_tokens.weight", vocab, width)
    model = importlib.import_module("eagle_model.cnets").Model(published_config(**given))
    if kind == "eagle3":
        weights["d2t"] = d2t(DRAFT, vocab)
    fill(model, {**weights, "embed_tokens.weight": embedding}, ["d2t", "t2d"])
    return run_published(model, lambda x: model.lm_head(model.norm(x)), 3 * of_target)


# ---- EAGLE by speculators

def llama_config():
    from transformers import LlamaConfig
    c = LlamaConfig(vocab_size=TARGET["vocab"], hidden_size=TARGET["width"], intermediate_size=HIDDEN, num_hidden_layers=1,
                    num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=HEAD_DIM, rms_norm_eps=1e-5, max_position_embeddings=2048,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    c._attn_implementation = "eager"
    return c


def run_layer(the_layer, config, enter, leave, head, f, first_position):
    """enter(token, states, own): the input of the layer; leave(output of the layer): the states."""
    from transformers import DynamicCache
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    rope, cache, token = LlamaRotaryEmbedding(config), DynamicCache(), torch.tensor(tokens(TARGET["vocab"]))

    def step(ids, states, own, places, sees):
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)[None, None]
        x = enter(ids, states, own)[None]
        position = torch.tensor([places]) + first_position
        out = the_layer(x, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
                        position_embeddings=rope(x, position))
        return leave(out[0])
    chain = torch.ones(CERTAIN, CERTAIN).tril().bool()
    a = step(token[:CERTAIN], f, False, list(range(CERTAIN)), chain)
    sees = torch.cat((torch.ones(2, CERTAIN), torch.eye(2)), 1).bool()
    b = step(token[CERTAIN:CERTAIN + 2], a[-1:].repeat(2, 1), True, [CERTAIN] * 2, sees)
    sees = torch.tensor([[1] * CERTAIN + [0, 1, 1]]).bool()
    c = step(token[CERTAIN + 2:], b[1:], True, [CERTAIN + 1], sees)
    return head(torch.cat((a, b, c)))


def eagle_speculators():
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    width, (embedding, output) = TARGET["width"], ends()
    weights = {"fusion_fc.weight": made("fusion_fc.weight", width, 2 * width), "fusion_fc.bias": made("fusion_fc.bias", 0, width)}
    the_layer = LlamaDecoderLayer(llama_config(), 0)
    the_layer.input_layernorm = nn.Identity()
    fill(the_layer, {n.removeprefix("transformer."): t for n, t in layer("transformer.", width, width).items()})

    def enter(ids, states, own):
        return torch.cat((embedding[ids], states), -1) @ weights["fusion_fc.weight"].T + weights["fusion_fc.bias"]
    return run_layer(the_layer, llama_config(), enter, lambda x: x, lambda x: x @ output.T, features(CERTAIN, width), 0)


def eagle3_speculators(kind):
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    width, embedding = TARGET["width"], ends()[0]
    definitions = importlib.import_module("speculators.models.model_definitions")
    config = llama_config()
    the_layer = definitions.LlamaDecoderEagle3FirstLayer(config, 0, norm_before_residual=kind == "eagle3_speculators")
    weights = eagle3_weights("layers.0.", width, width, DRAFT)
    fill(the_layer, {n.removeprefix("layers.0."): t for n, t in weights.items() if n.startswith("layers.0.")})

    def norm_of(name, n):
        m = LlamaRMSNorm(n, eps=config.rms_norm_eps)
        m.weight.data = weights[name] if name in weights else made(name, 0, n, 1)
        return m
    norm, input_norm = norm_of("norm.weight", width), norm_of("input_norm.weight", 3 * width)
    fc_norm = [norm_of(f"fc_norm.{i}.weight", width) for i in range(3)]

    def enter(ids, states, own):                     # core.py, forward: before its loop
        if not own:
            if kind == "eagle3_norm_before_fc":
                states = input_norm(states)
            if kind == "eagle3_fc_norm":
                states = torch.cat([n(s) for n, s in zip(fc_norm, states.chunk(3, dim=-1), strict=True)], dim=-1)
            states = states @ weights["fc.weight"].T
        return torch.cat((embedding[ids], states), -1)

    def head(x):
        return (x if kind == "eagle3_norm_output" else norm(x)) @ weights["lm_head.weight"].T
    leave = norm if kind == "eagle3_norm_output" else lambda x: x
    return run_layer(the_layer, config, enter, leave, head, features(CERTAIN, 3 * width), 1)


# ---- Medusa

def medusa(kind):
    width, vocab, layers = TARGET["width"], TARGET["vocab"], 2 if kind == "medusa_layers" else 1
    block = importlib.import_module("medusa_model.medusa_model").ResBlock
    output, states, rows = ends()[1], features(3, width), []
    for h in range(MEDUSA):
        head = nn.Sequential(*[block(width) for _ in range(layers)], nn.Linear(width, vocab, bias=False))
        weights = {}
        for l in range(layers):
            weights[f"{l}.linear.weight"] = made(f"{h}.{l}.linear.weight", width, width)
            weights[f"{l}.linear.bias"] = made(f"{h}.{l}.linear.bias", 0, width)
        weights[f"{layers}.weight"] = output if kind == "medusa_shared" else made(f"{h}.{layers}.weight", vocab, width)
        fill(head, weights)
        rows.append(head(states))
    return torch.cat(rows)


def medusa_vllm(kind):
    width, states, rows = TARGET["width"], features(3, TARGET["width"]), []
    for h in range(MEDUSA):
        w = made(f"blocks.{h}.layers.0.weight", width, width)
        x = states + nn.functional.silu(states @ w.T)
        output = made(f"lm_heads.{h}.weight", DRAFT, width) if kind == "medusa_vllm" else made("lm_heads.0.weight", TARGET["vocab"], width)
        rows.append(x @ output.T)
    return torch.cat(rows)


# ---- the file

KINDS = {"medusa": medusa, "medusa_shared": medusa, "medusa_layers": medusa, "medusa_vllm": medusa_vllm, "medusa_one": medusa_vllm,
         "eagle": eagle, "eagle_bias": eagle, "eagle_own": eagle, "eagle_layers": eagle,
         "eagle_speculators": lambda kind: eagle_speculators(),
         "eagle3": eagle3, "eagle3_narrow": eagle3, "eagle3_speculators": eagle3_speculators,
         "eagle3_norm_output": eagle3_speculators, "eagle3_fc_norm": eagle3_speculators, "eagle3_norm_before_fc": eagle3_speculators}


def number(x):
    text = f"{x:.9g}"
    assert np.float32(text) == np.float32(x)
    return text


def main():
    out_path, repositories = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    extract(repositories)
    with open(out_path, "w", encoding="ascii", newline="\n") as out:
        out.write('{"tokens": %s' % json.dumps(tokens(TARGET["vocab"])))
        for kind, run in KINDS.items():
            with torch.no_grad():
                rows = run(kind)
            assert rows.dtype == torch.float32 and torch.isfinite(rows).all()
            assert (rows.std(0) > 0).all() and len(rows) == (3 * MEDUSA if kind.startswith("medusa") else CERTAIN + 3)
            out.write(',\n "%s": [\n' % kind + ",\n".join("  [" + ", ".join(map(number, r)) + "]" for r in rows.tolist()) + "]")
            print(f"{kind}: {tuple(rows.shape)}, standard deviation {rows.std():.3f}, largest {rows.abs().max():.3f}")
        out.write("}\n")
    print(os.path.getsize(out_path), "bytes")


if __name__ == "__main__":
    main()
