#!/usr/bin/env python3
"""compare_configurations.py SPECLAB [FAMILY..] [--key KEY] [--verbose] [--write PAGE.md]

Every key of config.json, in every family of models/architectures.c, against transformers: a tiny random model is built and saved by transformers' own
classes with one setting changed (or one key of the saved file missing or null), transformers reads the directory back, and so does `speclab inspect --score`.
Their log-probabilities of a text must agree, or the program must refuse the model by the key's name. Every key that any family has is tried in all
of them, as are keys that only transformers' base classes read and keys that no class reads.

Exit status: 1 if anything is wrong, 77 without transformers (SPECLAB_PYTHON may name a Python that has it). The whole takes about 10 minutes.
"""
import argparse
import collections
import copy
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
    if os.environ.get("SPECLAB_PYTHON") and sys.executable != os.environ["SPECLAB_PYTHON"]:
        os.execv(os.environ["SPECLAB_PYTHON"], [os.environ["SPECLAB_PYTHON"], *sys.argv])
    print("compare_configurations: no transformers in this Python, and SPECLAB_PYTHON names no other")
    sys.exit(77)

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import torch
import transformers

transformers.utils.logging.set_verbosity(50)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

VOCAB, LENGTH, TOLERANCE = 64, 40, 2e-3
AGREES, REFUSED, NO_REFERENCE, WRONG = "agrees", "refused by name", "no reference", "WRONG"
SYMBOL = {AGREES: "=", REFUSED: "r", NO_REFERENCE: ".", WRONG: "X"}
S, F = "sliding_attention", "full_attention"

BASE = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
RISE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128, "llama_4_scaling_beta": 0.1}
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
           "image_size": 8, "patch_size": 4, "num_channels": 3}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 8, "patch_size": 4, "vision_use_head": False}
# The rows of models/architectures.c by model_type: what a tiny model of it has besides BASE.
FAMILIES = {
    "llama": {}, "mistral": {"sliding_window": 8, "head_dim": 8}, "ministral": {"sliding_window": 8, "head_dim": 8},
    "ministral3": {"head_dim": 8, "rope_parameters": RISE}, "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "head_dim": 8},
    "qwen3_moe": {**EXPERTS, "use_sliding_window": True, "sliding_window": 8, "head_dim": 8},
    "gemma2": GEMMA, "gemma3_text": {**GEMMA, "sliding_window_pattern": 2}, "olmo2": {}, "granite": {"embedding_multiplier": 2.0, "attention_multiplier": 0.3, "logits_scaling": 2.0},
    "phi3": {"original_max_position_embeddings": 16}, "smollm3": {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 8},
}
# Models of texts and images; the keys are those of their text models, in text_config and (top:) beside it.
WRAPPERS = {"mistral3": ("mistral", PIXTRAL, {"image_token_index": 3, "spatial_merge_size": 2, "tie_word_embeddings": False}),
            "gemma3": ("gemma3_text", SIGLIP, {"image_token_index": 3, "mm_tokens_per_image": 1})}

SHORT, LONG = [1.0, 1.2, 1.5, 2.0], [2.0, 3.0, 4.0, 8.0]
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
ROPES = [{"rope_type": "default", "rope_theta": 5e3}, LINEAR, LLAMA3, YARN, LONGROPE, {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
         {**YARN, "truncate": False, "attention_factor": 1.3, "beta_fast": 16.0}, {**YARN, "mscale": 2.0, "mscale_all_dim": 0.5},
         {**YARN, "llama_4_scaling_beta": 0.3}, {**LONGROPE, "factor": 8.0}, {**LONGROPE, "attention_factor": 1.5},
         {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, {**LINEAR, "partial_rotary_factor": 0.5},
         {"rope_type": "default", "rope_theta": 1e4, "factor": 4.0}, {"rope_theta": 1e4, "type": "linear", "factor": 2.0},
         {"rope_theta": 3e3}, {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
         {F: LINEAR, S: {"rope_type": "default", "rope_theta": 3e3}}, {F: {**YARN, "truncate": False}, S: {"rope_type": "default"}}, {S: LINEAR}]
OLD_ROPES = [None, {"type": "linear", "factor": 2.0}, {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, {"type": "dynamic", "factor": 2.0},
             {"type": "su", "short_factor": SHORT, "long_factor": LONG}, {"rope_type": "default", "type": "linear", "factor": 2.0}, {"factor": 2.0}]
# Values of a key, in every family that takes them; others follow from the type of what the base has (changed()).
VALUES = {
    "hidden_size": [48], "num_attention_heads": [2, 8], "num_key_value_heads": [1, 4], "head_dim": [8, 16], "vocab_size": [80],
    "num_hidden_layers": [2, 4], "max_position_embeddings": [64, 4096],
    "hidden_act": ["gelu", "gelu_pytorch_tanh", "relu"], "hidden_activation": ["silu", "gelu", "relu"],
    "rope_parameters": ROPES, "rope_theta": [5e2], "rope_scaling": OLD_ROPES, "rope_local_base_freq": [5e2], "partial_rotary_factor": [0.5],
    "original_max_position_embeddings": [64, 4096],
    "layer_types": [[F] * 3, [S] * 3, [F, S, F], [S, F, S]], "sliding_window": [5, None], "max_window_layers": [0, 2, 28],
    "sliding_window_pattern": [2], "_sliding_window_pattern": [2], "use_sliding_window": [True, False], "attention_chunk_size": [8],
    "no_rope_layers": [[1, 0, 1], [0, 0, 0]], "no_rope_layer_interval": [3], "use_bidirectional_attention": [True], "is_causal": [True, False],
    "attention_bias": [True, False], "mlp_bias": [True], "tie_word_embeddings": [True, False], "rms_norm_eps": [1e-2],
    "final_logit_softcapping": [2.0, None], "attn_logit_softcapping": [0.5, None], "query_pre_attn_scalar": [32],
    "embedding_multiplier": [3.0], "attention_multiplier": [0.5], "residual_multiplier": [0.3], "logits_scaling": [4.0],
    "num_experts": [6], "num_local_experts": [6], "num_experts_per_tok": [1, 3], "moe_intermediate_size": [24], "norm_topk_prob": [True, False],
    "decoder_sparse_step": [2], "mlp_only_layers": [[1]], "router_jitter_noise": [0.5], "output_router_logits": [True], "router_aux_loss_coef": [0.1],
    "n_shared_experts": [1], "shared_expert_intermediate_size": [8], "routed_scaling_factor": [2.0], "scoring_func": ["sigmoid"], "n_group": [2],
    "first_k_dense_replace": [1], "llama_4_scaling_beta": [0.2], "clip_qkv": [1.0], "pretraining_tp": [2], "resid_pdrop": [0.3], "embd_pdrop": [0.3],
    "attention_dropout": [0.3], "initializer_range": [0.5], "use_cache": [False], "output_hidden_states": [True], "return_dict": [True],
    "output_attentions": [True], "chunk_size_feed_forward": [8], "is_encoder_decoder": [True], "is_decoder": [True], "add_cross_attention": [True],
    "num_labels": [5], "problem_type": ["regression"], "dtype": ["bfloat16"], "torch_dtype": ["float16"], "tokenizer_class": ["T"],
    "per_layer_config": [{"1": {"intermediate_size": 32}}], "num_nextn_predict_layers": [1], "scale_emb": [2.0], "scale_depth": [1.4],
    "dim_model_base": [16], "logit_scale": [0.5], "use_qk_norm": [True], "qk_layernorm": [True], "alibi": [True], "use_parallel_residual": [True],
    "auto_map": [{"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}, {"AutoModelForCausalLM": "modeling_other.OtherForCausalLM"}],
    "rope_interleaved": [True], "norm_type": ["layernorm"], "swiglu_limit": [1.0], "qkv_bias": [True], "cache_implementation": ["hybrid"],
    "bos_token_id": [5], "eos_token_id": [7, [2, 9]], "pad_token_id": [3, None],
}
NEVER = {"architectures", "model_type", "transformers_version", "text_config", "vision_config", "id2label", "label2id"}


def seeded(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(p, 0.5, 1.5)
            elif name.endswith("bias"):
                torch.nn.init.normal_(p, std=0.3)
    return model.eval()


def kind_of(cfg):
    return transformers.AutoModelForImageTextToText if "text_config" in cfg else transformers.AutoModelForCausalLM


def config_of(family):
    if family in FAMILIES:
        return {"model_type": family, **BASE, **FAMILIES[family]}
    text, images, more = WRAPPERS[family]
    own = {k: v for k, v in config_of(text).items() if not k.endswith("_token_id")}
    return {"model_type": family, "text_config": own, "vision_config": images, **more}


def with_key(cfg, key, value):
    """key: of the text model, or top:KEY of the whole."""
    cfg = copy.deepcopy(cfg)
    to = cfg if key.startswith("top:") else cfg.get("text_config", cfg)
    to[key.removeprefix("top:")] = copy.deepcopy(value)
    return cfg


def build(cfg, folder, original_format=True):
    """What transformers makes of the settings and saves; original_format False: the experts of a layer are two tensors."""
    torch.manual_seed(0)
    c = transformers.AutoConfig.for_model(**copy.deepcopy(cfg))
    model = kind_of(cfg).from_config(c, dtype=torch.float32, attn_implementation="eager")
    seeded(model).save_pretrained(folder, save_original_format=original_format)


def reference(folder, wrapped, tokens):
    """Log-probabilities by transformers, and the tensors that it does not use; None: it has none."""
    try:
        kind = transformers.AutoModelForImageTextToText if wrapped else transformers.AutoModelForCausalLM
        model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info["missing_keys"] or info["mismatched_keys"]:
            return None, []
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([tokens]), use_cache=False, return_dict=True).logits[0].float()
        p = logits.log_softmax(-1)
        return ([float(p[i - 1, tokens[i]]) for i in range(1, len(tokens))], sorted(info["unexpected_keys"])) if torch.isfinite(p).all() else (None, [])
    except Exception as e:                                                 # any refusal of transformers is one
        return None, [f"{type(e).__name__}: {e}".splitlines()[0][:150]]


def compare(speclab, folder, key, wrapped, value=None):
    tokens = [3 + (i * i * 7 + i * 5) % (VOCAB - 3 - 1) for i in range(LENGTH)]
    tokens = [t if t != 3 else 4 for t in tokens]                           # 3 is an image
    expected, unused = reference(folder, wrapped, tokens)
    if expected is None:
        return NO_REFERENCE, unused[0] if unused else ""
    text = folder.parent / "text.jsonl"
    text.write_text(json.dumps({"ids": tokens}) + "\n")
    done = subprocess.run([speclab, "inspect", "--score", folder, text, "--activations", "f32", "--cache", "f32", "--threads", "1"], capture_output=True, text=True)
    said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    said = said.replace(str(folder) + "/", "").replace(str(folder), "")
    if done.returncode in (1, 2):
        names = {key.removeprefix("top:"), *ALIASES.get(key.removeprefix("top:"), ()), *(value if isinstance(value, dict) else ())}
        named = any(n in said for n in names) or any(t in said for t in unused)
        return (REFUSED if named else WRONG), said
    if done.returncode != 0:
        return WRONG, f"exit status {done.returncode}: {said}"
    got = json.loads(done.stdout.splitlines()[0])["logprobs"]
    worst = max(abs(a - b) for a, b in zip(expected, got)) if len(got) == len(expected) else float("inf")
    return (AGREES, "") if worst <= TOLERANCE else (WRONG, f"differs by {worst:.3g}")


# Names under which a sentence may speak of a key: what the file has instead, or the other key of a pair.
ALIASES = {"num_experts": ["num_local_experts"], "num_local_experts": ["num_experts"], "rope_scaling": ["rope_parameters", "rope_type"],
           "partial_rotary_factor": ["rope_parameters"], "num_hidden_layers": ["layer_types", "no_rope_layers"], "attention_bias": ["bias"], "mlp_bias": ["bias"],
           "sliding_window": ["layer_types"], "use_sliding_window": ["layer_types"], "rope_theta": ["rope_parameters"]}


def changed(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 2]
    return [value * 1.5 + 0.1] if isinstance(value, float) else []


def fields(family):
    text = WRAPPERS[family][0] if family in WRAPPERS else family
    cls = transformers.CONFIG_MAPPING[text]
    return {f.name: getattr(cls(), f.name, None) for f in dataclasses.fields(cls) if not f.name.startswith("_")}


def variants(family):
    """(key, what is done to it, settings, the value, edit of the saved file or None)"""
    cfg, own = config_of(family), fields(family)
    keys = [k for k in dict.fromkeys([*own, *VALUES]) if k not in NEVER]
    for key in keys + [f"top:{k}" for k in keys if family in WRAPPERS]:
        for value in VALUES.get(key.removeprefix("top:"), changed(own.get(key))):
            yield key, f"= {json.dumps(value)}", with_key(cfg, key, value), value, None
            yield key, f"= {json.dumps(value)} in the file", cfg, value, (key, value)
    if "num_experts_per_tok" in own:
        yield "save_original_format", "= false", cfg, None, None
    for key in keys + (["top:tie_word_embeddings"] if family in WRAPPERS else []):
        yield key, "missing", cfg, None, (key, ...)
        yield key, "null", cfg, None, (key, None)


def edit(folder, key, value):
    """Changes the saved file; False: there is nothing to change."""
    path = folder / "config.json"
    cfg = json.loads(path.read_text())
    to = cfg if key.startswith("top:") else cfg.get("text_config", cfg)
    key = key.removeprefix("top:")
    if value is ... and key not in to or value is None and to.get(key, ...) is None:
        return False
    if value is ...:
        del to[key]
    else:
        to[key] = value
    if key in ("rope_scaling", "rope_theta", "rope_local_base_freq") and value not in (..., None):
        to.pop("rope_parameters", None)                                     # a file of transformers 4
    path.write_text(json.dumps(cfg))
    return True


def check_family(speclab, family, only, verbose):
    results, saved = collections.defaultdict(collections.Counter), {}
    with tempfile.TemporaryDirectory() as scratch:
        base = pathlib.Path(scratch) / "base"
        build(config_of(family), base)
        result, why = compare(speclab, base, "", family in WRAPPERS)
        if result != AGREES:
            raise SystemExit(f"{family}: the unchanged model: {result}: {why}")
        for number, (key, how, cfg, value, change) in enumerate(variants(family)):
            if only and key != only:
                continue
            folder = pathlib.Path(scratch) / f"model{number}"
            try:
                if change is None:
                    build(cfg, folder, key != "save_original_format")
                    result, why = compare(speclab, folder, key, family in WRAPPERS, value)
                else:
                    shutil.copytree(base, folder)
                    if not edit(folder, *change):
                        continue
                    result, why = compare(speclab, folder, key, family in WRAPPERS, value)
            except Exception as e:                                         # its class refuses the settings
                result, why = NO_REFERENCE, f"{type(e).__name__}: {e}".splitlines()[0][:150]
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            results[key][result] += 1
            if verbose or result == WRONG:
                print(f"{family}: {key} {how}: {result}{': ' if why else ''}{why}", flush=True)
    return results


def lines_of(cells, families):
    """A row for all keys with the same cells, {key: {family: cell}}: the cell of most families, and those that have another."""
    rows = collections.defaultdict(list)
    for key in sorted(cells):
        rows[tuple(cells[key][f] for f in families)].append(key)
    for row, keys in sorted(rows.items(), key=lambda r: r[1]):
        most = collections.Counter(c for c in row if c).most_common(1)[0][0]
        others = {c: [f for f, x in zip(families, row, strict=True) if x == c] for c in dict.fromkeys(row) if c and c != most}
        said = [f"`{c}`: {', '.join(of)}" for c, of in others.items()]
        if not all(row):
            said.append(f"tried in {', '.join(f for f, x in zip(families, row, strict=True) if x)} alone")
        yield keys, most, "; ".join(said)


def table(all_results):
    """Lines of Markdown: for each key what is so in most families, and in which it is not; then the same of keys beside text_config."""
    cells = {key: {f: "".join(SYMBOL[x] for x in SYMBOL if r.get(key, {}).get(x)) for f, r in all_results.items()}
             for key in sorted({k for r in all_results.values() for k in r})}  # fmt: skip
    inner, outer = ({k: c for k, c in cells.items() if k.startswith("top:") == top and any(c.values())} for top in (False, True))
    lines = [f"Families: {', '.join(f'`{f}`' for f in all_results)}.", "", "| key | most families | others |", "|---|---|---|"]
    lines += [f"| {', '.join(f'`{k}`' for k in keys)} | {most} | {others} |" for keys, most, others in lines_of(inner, list(all_results))]
    rows = list(lines_of(outer, [f for f in all_results if f in WRAPPERS]))
    for keys, most, others in rows:
        names = ", ".join(f"`{k}`" for k in keys)
        if len(keys) == max(len(r[0]) for r in rows):
            untried = ", ".join(f"`{k}`" for k in inner if f"top:{k}" not in outer)
            names = "`top:` of every other key" + (f" but {untried}, which are not tried" if untried else "")
        lines.append(f"| {names} | {most} | {others} |")
    return lines


def main():
    p = argparse.ArgumentParser()
    p.add_argument("speclab")
    p.add_argument("family", nargs="*")
    p.add_argument("--key")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--write", help="the page whose table between <!-- configurations --> lines is replaced")
    o = p.parse_args()
    speclab, wanted = os.path.abspath(o.speclab), o.family or [*FAMILIES, *WRAPPERS]
    results = {f: check_family(speclab, f, o.key, o.verbose) for f in wanted}
    total = sum((c for r in results.values() for c in r.values()), collections.Counter())
    lines = table(results)
    print("\n".join(lines))
    summary = f"{sum(total.values())} configurations, transformers {transformers.__version__}: " + ", ".join(f"{total[x]} {x}" for x in SYMBOL)
    print(summary)
    if o.write:
        page = pathlib.Path(o.write)
        before, rest = page.read_text().split("<!-- configurations -->\n", 1)
        after = rest.split("<!-- /configurations -->", 1)[1]
        page.write_text(f"{before}<!-- configurations -->\n{summary}.\n\n" + "\n".join(lines) + f"\n<!-- /configurations -->{after}")
    return 1 if total[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
