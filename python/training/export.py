"""export.py - writes a trained head as a published checkpoint: model.safetensors, config.json and a model card.

eagle3        the form of SafeAILab/EAGLE, vLLM and SGLang (midlayer.*), or with form: speculators that of
               vllm-project/speculators
eagle         the form of SafeAILab/EAGLE
small         a Hugging Face Llama model, without its tokenizer, which is the target's
medusa        the form that vLLM's converter writes (blocks.*, lm_heads.*, token_map), with output: target without
               the last two
"""
import json
import os
import pathlib

import safetensors.torch
import torch

TYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}
LAYER = {"self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("gate_proj", "up_proj", "down_proj")}


def layer_tensors(layer, prefix):
    t = {f"{prefix}{part}.{name}.weight": getattr(layer, name).weight for part, names in LAYER.items() for name in names}
    return {**t, prefix + "post_attention_layernorm.weight": layer.post_attention_layernorm}


def vocabulary(ids, vocab):
    """Returns d2t [draft]: the target's id minus the draft id; t2d [vocab]: whether the token is in the draft
    vocabulary."""
    ids = ids.cpu()
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}


def layer_config(c):
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta",
             "max_position_embeddings", "vocab_size")
    return {"model_type": "llama", "num_hidden_layers": 1, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
            "rope_scaling": None, "tie_word_embeddings": False, **{k: c[k] for k in names}}


def eagle3(head, layers, form, target):
    prefix = "layers.0." if form == "speculators" else "midlayer."
    tensors = {"fc.weight": head.fc.weight, **layer_tensors(head.layer, prefix), prefix + "input_layernorm.weight": head.input_layernorm,
               prefix + "hidden_norm.weight": head.hidden_norm, "norm.weight": head.norm, "lm_head.weight": head.lm_head.weight,
               **vocabulary(head.ids, head.c["vocab_size"])}
    draft = len(head.ids)
    if form == "speculators":
        proposal = {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1, "accept_tolerance": 0.0}
        return tensors, {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.1.0",
                         "draft_vocab_size": draft, "norm_before_residual": False, "target_hidden_size": None,
                         "eagle_aux_hidden_state_layer_ids": layers, "transformer_layer_config": layer_config(head.c),
                         "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy",
                                                "proposal_methods": [proposal],
                                                "verifier": {"name_or_path": target, "architectures": ["LlamaForCausalLM"]}}}
    # vLLM reads the ids here: streams that enter these layers. SGLang reads those of eagle_config, as streams that
    # leave them, and without them takes the streams that enter 2, L/2 and L - 3.
    return tensors, {"architectures": ["LlamaForCausalLMEagle3"], **layer_config(head.c), "draft_vocab_size": draft,
                     "eagle_config": {"use_aux_hidden_state": True}, "eagle_aux_hidden_state_layer_ids": layers}


def eagle1(head):
    tensors = {"fc.weight": head.fc.weight, "fc.bias": head.fc.bias, **layer_tensors(head.layer, "layers.0.")}
    return tensors, {"architectures": ["LlamaForCausalLM"], **layer_config(head.c), "bias": True}


def medusa(head):
    tensors = {}
    for h, layers in enumerate(head.blocks):
        for n, block in enumerate(layers):
            tensors[f"blocks.{h}.layers.{n}.weight"], tensors[f"blocks.{h}.layers.{n}.bias"] = block.weight, block.bias
    if head.output != "target":
        tensors |= {f"lm_heads.{h}.weight": w for h, w in enumerate(head.lm_heads)}
    draft, vocab = len(head.ids), head.c["vocab_size"]
    if draft < vocab:
        tensors["token_map"] = head.ids
    return tensors, {"architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": head.n, "num_hidden_layers": head.layers,
                     "hidden_size": head.c["hidden_size"], "vocab_size": vocab, "truncated_vocab_size": draft, "medusa_fc_bias": True,
                     "original_lm_head": head.output != "own"}


def small(head):
    c, tensors = head.c, head.as_target()
    config = layer_config(c) | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": len(head.layers),
                                "attention_bias": any(n.endswith("q_proj.bias") for n in tensors),
                                "tie_word_embeddings": head.output is None, "layers_of_target": head.kept}
    config["rope_scaling"] = json.loads(c["rope_scaling"]) if c.get("rope_scaling") else None
    for name in ("bos_token_id", "eos_token_id"):
        if name in c:
            ids = [int(i) for i in str(c[name]).split(",")]
            config[name] = ids if len(ids) > 1 else ids[0]
    return tensors, config


def card(head, facts, result):
    """Returns the model card. facts: what the pipeline knows; result: the last held-out entry."""
    lines = [f"# {facts['title']}", "", f"A {'draft model' if head.kind == 'small' else f'draft head ({head.kind})'} for {facts['target']}, trained by speclab (docs/training.md).", "",
             "| what | value |", "|---|---|"]
    lines += [f"| {k} | {v} |" for k, v in facts["table"].items()]
    if result:
        lines += [f"| tokens seen | {result['tokens']} in {result['step']} steps |",
                  f"| held-out roots | {result['roots']} |",
                  "| held-out acceptance by depth, greedy | " + ", ".join(f"{r:.3f}" for r in result["greedy"]) + " |",
                  "| held-out acceptance by depth, temperature 1 | " + ", ".join(f"{r:.3f}" for r in result["sampled"]) + " |",
                  *(f"| tokens a step, chain of {n}, greedy (simulated) | {result[f'tokens{n}']:.2f} |" for n in (3, 5) if f"tokens{n}" in result)]
    lines += ["", "Acceptance at a depth is given that the draft tokens before it were accepted.", "", "Recipe:", "", "```yaml",
              facts["recipe"].rstrip(), "```", ""]
    return "\n".join(lines)


def write(head, out, kind_of_number, form, metadata, facts, result):
    """Writes the checkpoint. metadata: the features' (layers, model)."""
    out, kind = pathlib.Path(out), TYPES[kind_of_number]
    out.mkdir(parents=True, exist_ok=True)
    if head.kind == "small":
        tensors, config = small(head)
    elif head.kind == "eagle3":
        tensors, config = eagle3(head, [int(i) for i in metadata["layers"].split(",")], form, facts["target"])
    else:
        tensors, config = eagle1(head) if head.kind == "eagle" else medusa(head)
    tensors = {n: (t.detach().to(kind) if t.is_floating_point() else t).cpu().contiguous() for n, t in tensors.items()}
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
    if bad:
        raise SystemExit(f"{out}: not written: {bad[0]} has numbers that are not finite as {kind_of_number}")
    config["torch_dtype"] = {"bf16": "bfloat16", "f32": "float32", "f16": "float16"}[kind_of_number]
    # save_file lets only its owner read it.
    (out / "model.safetensors.part").write_bytes(safetensors.torch.save(tensors, {"format": "pt"}))
    os.replace(out / "model.safetensors.part", out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card(head, facts, result), encoding="utf-8")
    return sum(t.numel() * t.element_size() for t in tensors.values())
