#!/usr/bin/env python3
"""architectures.jsonl: logits of tiny random models of each family, by transformers in float32.

    make_architectures.py OUT.jsonl [NAME..]

Each model is built from its config.json, saved as transformers publishes it, its tensors are replaced by numbers that a C program can make
(tensor() of make_logits.py, over the sorted names in the file), and it is read again by from_pretrained. A line has the config.json as it is
written, the shape of every tensor, the tokens, and the logits of some rows. Rows of a window: the text is longer than every window. Tensors of a
model of images have their shapes under `images`: no logit depends on their numbers.
"""
import copy
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from make_logits import COUNT, ROWS, hashes, number, tensor


def config(kind, class_name, width, hidden, layers, heads, kv, vocab, **more):
    return {"architectures": [class_name], "model_type": kind, "vocab_size": vocab, "hidden_size": width, "intermediate_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **{"max_position_embeddings": 256, **more}}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "factor": 2.0}
QWEN2, QWEN3 = ("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM")
MISTRAL, OLMO2 = ("mistral", "MistralForCausalLM"), ("olmo2", "Olmo2ForCausalLM")
GEMMA2, GEMMA3 = ("gemma2", "Gemma2ForCausalLM"), ("gemma3_text", "Gemma3ForCausalLM")
MIXTRAL, QWEN3MOE = ("mixtral", "MixtralForCausalLM"), ("qwen3_moe", "Qwen3MoeForCausalLM")
PHI3 = ("phi3", "Phi3ForCausalLM")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GRANITE, SMOLLM3 = ("granite", "GraniteForCausalLM"), ("smollm3", "SmolLM3ForCausalLM")
MINISTRAL, MINISTRAL3 = ("ministral", "MinistralForCausalLM"), ("ministral3", "Ministral3ForCausalLM")
RISE = {"rope_type": "yarn", "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
S, F = "sliding_attention", "full_attention"


def whole(kind, class_name, text, images, **more):
    """A model of texts and images: its text model's configuration without what published files leave to the whole."""
    return {"architectures": [class_name], "model_type": kind, "image_token_index": 3, "text_config": {
        k: v for k, v in text.items() if k not in ("architectures", "bos_token_id", "eos_token_id", "pad_token_id")}, "vision_config": images, **more}


PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
           "image_size": 8, "patch_size": 4, "num_channels": 3}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 8, "patch_size": 4, "vision_use_head": False}
IMAGES = "vision_tower.", "multi_modal_projector."
MISTRAL3, GEMMA3_WHOLE = ("mistral3", "Mistral3ForConditionalGeneration"), ("gemma3", "Gemma3ForConditionalGeneration")
CONFIGS = {
    "qwen2-gqa": config(*QWEN2, 48, 80, 3, 6, 2, 101, rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6, use_sliding_window=False,
                        sliding_window=32, max_window_layers=3, hidden_act="silu"),
    "qwen2-window": config(*QWEN2, 32, 56, 4, 4, 4, 96, rope_theta=1e4, tie_word_embeddings=False, rms_norm_eps=1e-6, use_sliding_window=True,
                           sliding_window=9, max_window_layers=2, hidden_act="silu"),
    "qwen2-types": config(*QWEN2, 32, 56, 3, 4, 2, 96, rope_scaling=LINEAR, rope_theta=1e4, use_sliding_window=True, sliding_window=5,
                          layer_types=[S, F, S], hidden_act="silu"),
    "qwen3-heads": config(*QWEN3, 40, 64, 3, 4, 2, 97, head_dim=16, rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6),
    "qwen3-bias": config(*QWEN3, 32, 48, 2, 4, 1, 96, head_dim=12, attention_bias=True, rope_parameters={"rope_theta": 1e5, **LLAMA3}),
    "mistral-full": config(*MISTRAL, 48, 64, 2, 6, 2, 96, head_dim=12, rope_theta=1e6, sliding_window=None, rms_norm_eps=1e-5),
    "mistral-window": config(*MISTRAL, 32, 64, 3, 4, 2, 96, rope_theta=1e4, sliding_window=12, rms_norm_eps=1e-5),
    "mistral-one": config(*MISTRAL, 32, 64, 2, 4, 4, 96, sliding_window=1),
    "gemma2": config(*GEMMA2, 48, 80, 4, 4, 2, 97, head_dim=16, sliding_window=8, query_pre_attn_scalar=24, attn_logit_softcapping=5.0,
                     final_logit_softcapping=8.0, hidden_activation="gelu_pytorch_tanh", hidden_act="gelu_pytorch_tanh"),
    "gemma2-plain": config(*GEMMA2, 32, 48, 2, 4, 4, 96, head_dim=8, attn_logit_softcapping=None, final_logit_softcapping=None,
                           query_pre_attn_scalar=8, tie_word_embeddings=False),
    "gemma3": config(*GEMMA3, 40, 64, 7, 4, 1, 97, head_dim=16, sliding_window=6, query_pre_attn_scalar=16, rope_theta=1e6,
                     rope_local_base_freq=1e4, rope_scaling=LINEAR, rms_norm_eps=1e-6),
    "gemma3-pattern": config(*GEMMA3, 32, 48, 4, 4, 4, 96, head_dim=8, sliding_window=4, sliding_window_pattern=2, query_pre_attn_scalar=20),
    "gemma3-types": config(*GEMMA3, 32, 48, 3, 4, 2, 96, head_dim=8, sliding_window=10, layer_types=[S, F, S], final_logit_softcapping=10.0,
                           rope_parameters={F: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, S: {"rope_type": "default", "rope_theta": 2e4}}),
    "olmo2": config(*OLMO2, 48, 64, 3, 6, 2, 96, rope_theta=5e5, rms_norm_eps=1e-6, tie_word_embeddings=False),
    "olmo2-mha": config(*OLMO2, 32, 56, 2, 4, 4, 96, attention_bias=False),
    "granite": config(*GRANITE, 48, 64, 3, 6, 2, 96, embedding_multiplier=12.0, attention_multiplier=0.03, residual_multiplier=0.22,
                      logits_scaling=8.0, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=1e7),
    "granite-bias": config(*GRANITE, 32, 56, 2, 4, 4, 96, attention_bias=True, mlp_bias=False),
    "phi3": config(*PHI3, 48, 64, 2, 6, 2, 97, rope_theta=1e4, sliding_window=None, rms_norm_eps=1e-5, tie_word_embeddings=False, resid_pdrop=0.0,
                   embd_pdrop=0.0, hidden_act="silu", original_max_position_embeddings=256, rope_scaling=None),
    "phi3-window": config(*PHI3, 32, 56, 3, 4, 4, 96, sliding_window=11),
    "phi3-long": config(*PHI3, 48, 64, 2, 3, 3, 96, partial_rotary_factor=0.75, original_max_position_embeddings=16, rope_scaling={
        "type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.5, 2.0, 2.5], "long_factor": [1.0, 1.5, 2.5, 4.0, 8.0, 16.0]}, sliding_window=None),
    "phi3-short": config(*PHI3, 32, 56, 2, 4, 4, 96, max_position_embeddings=8192, original_max_position_embeddings=4096, rope_scaling={
        "type": "su", "original_max_position_embeddings": 4096, "short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0, 16.0]}, sliding_window=None),
    "mixtral": config(*MIXTRAL, 48, 40, 3, 6, 2, 97, num_local_experts=5, num_experts_per_tok=2, rope_theta=1e6, sliding_window=None, rms_norm_eps=1e-5),
    "mixtral-one": config(*MIXTRAL, 32, 24, 2, 4, 4, 96, num_local_experts=8, num_experts_per_tok=1, sliding_window=14),
    "qwen3moe": config(*QWEN3MOE, 48, 80, 3, 6, 2, 97, head_dim=16, num_experts=9, num_experts_per_tok=4, moe_intermediate_size=24, norm_topk_prob=True,
                       rope_theta=1e6, decoder_sparse_step=1, mlp_only_layers=[]),
    "qwen3moe-mixed": config(*QWEN3MOE, 32, 56, 4, 4, 2, 96, head_dim=8, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=False,
                             decoder_sparse_step=2, mlp_only_layers=[1], tie_word_embeddings=True),
    "qwen2-yarn": config(*QWEN2, 32, 56, 2, 4, 2, 96, rope_theta=1e6, rope_scaling=YARN),
    "qwen3-yarn": config(*QWEN3, 32, 56, 2, 4, 2, 96, head_dim=16, rope_parameters={**YARN, "rope_theta": 1e5, "beta_fast": 16.0, "beta_slow": 2.0,
                         "attention_factor": 1.2, "truncate": False}),
    "smollm3": config(*SMOLLM3, 48, 64, 5, 6, 2, 97, rope_theta=5e6, no_rope_layers=[1, 1, 0, 1, 0], rms_norm_eps=1e-6, layer_types=[F] * 5),
    "smollm3-window": config(*SMOLLM3, 32, 56, 4, 4, 4, 96, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=7),
    "ministral": config(*MINISTRAL, 48, 64, 4, 6, 2, 97, head_dim=12, rope_theta=1e6, sliding_window=9, rms_norm_eps=1e-5, layer_types=[F, S, S, S]),
    "ministral-window": config(*MINISTRAL, 32, 56, 2, 4, 4, 96, head_dim=8, sliding_window=7, tie_word_embeddings=True),
    "ministral3": config(*MINISTRAL3, 48, 64, 3, 6, 2, 97, head_dim=16, rope_parameters={**RISE, "rope_theta": 1e6}, sliding_window=None, rms_norm_eps=1e-5),
    "ministral3-tied": config(*MINISTRAL3, 32, 56, 2, 4, 4, 96, head_dim=8, tie_word_embeddings=True, rope_parameters={**RISE, "mscale_all_dim": 0.5, "rope_theta": 1e4}),
    "mistral3": whole(*MISTRAL3, config(*MISTRAL, 48, 64, 2, 6, 2, 97, head_dim=12, rope_theta=1e6, sliding_window=None, rms_norm_eps=1e-5), PIXTRAL,
                      tie_word_embeddings=False, spatial_merge_size=2),
    "mistral3-ministral3": whole(*MISTRAL3, config(*MINISTRAL3, 32, 56, 2, 4, 2, 96, head_dim=8, tie_word_embeddings=True, rope_parameters={**RISE, "rope_theta": 1e4}),
                                 PIXTRAL, tie_word_embeddings=True, spatial_merge_size=2),
    "gemma3-images": whole(*GEMMA3_WHOLE, config(*GEMMA3, 40, 64, 7, 4, 1, 97, head_dim=16, sliding_window=6, query_pre_attn_scalar=16,
                           rope_scaling=LINEAR), SIGLIP, mm_tokens_per_image=1),
    "gemma3-untied": whole(*GEMMA3_WHOLE, config(*GEMMA3, 32, 48, 3, 4, 2, 96, head_dim=8, sliding_window=10, query_pre_attn_scalar=20, layer_types=[S, F, S],
                           tie_word_embeddings=False), SIGLIP, mm_tokens_per_image=1, tie_word_embeddings=False),
    # what a class ignores or reads otherwise than its name says, and what transformers 5 writes
    "qwen3moe-window": config(*QWEN3MOE, 32, 56, 3, 4, 2, 96, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20,
                              use_sliding_window=True, sliding_window=8, max_window_layers=2),
    "mistral-types": config(*MISTRAL, 32, 56, 3, 4, 2, 96, head_dim=8, sliding_window=7, layer_types=[F, S, S]),
    "gemma3-cap": config(*GEMMA3, 32, 48, 2, 4, 2, 96, head_dim=8, sliding_window=10, query_pre_attn_scalar=8, attn_logit_softcapping=1.0,
                         hidden_act="gelu"),
    "qwen3moe-fused": config(*QWEN3MOE, 32, 56, 3, 4, 2, 96, head_dim=8, num_local_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                             decoder_sparse_step=2),
    "mixtral-fused": config(*MIXTRAL, 32, 24, 2, 4, 4, 96, num_local_experts=6, num_experts=6, num_experts_per_tok=2, router_jitter_noise=0.1),
}
FUSED = "qwen3moe-fused", "mixtral-fused"                                   # the experts of a layer are two tensors


def build(cfg, seed, folder, fused):
    torch.manual_seed(0)
    c = AutoConfig.for_model(**copy.deepcopy(cfg))                          # it writes into the objects of RoPE
    kind = AutoModelForImageTextToText if "text_config" in cfg else AutoModelForCausalLM
    kind.from_config(c, dtype=torch.float32, attn_implementation="eager").save_pretrained(
        folder, save_original_format=not fused)
    saved = load_file(folder / "model.safetensors")
    texts = sorted(n for n in saved if not any(n.startswith(p) for p in IMAGES))
    made = {n: tensor(seed, t, n, tuple(saved[n].shape)) for t, n in enumerate(texts)}
    save_file({**saved, **made}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(cfg))
    model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.eval(), made, {n: list(saved[n].shape) for n in sorted(saved) if n not in made}


def line(name, seed, cfg):
    with tempfile.TemporaryDirectory() as folder:
        model, made, images = build(cfg, seed, pathlib.Path(folder), name in FUSED)
    vocab = cfg.get("text_config", cfg)["vocab_size"]
    tokens = [int(z) % vocab for z in hashes(seed, 1000000, COUNT)]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    assert logits.dtype == torch.float32 and torch.isfinite(logits).all()
    print(f"{name}: standard deviation {logits.std():.3f}, largest {logits.abs().max():.3f}")
    return ('{"name": %s, "seed": %d, "config": %s, "shapes": %s, %s"first": {%s}, "tokens": %s, "rows": %s, "logits": [%s]}\n' %
            (json.dumps(name), seed, json.dumps(cfg), json.dumps({n: list(made[n].shape) for n in sorted(made)}),
             '"images": %s, ' % json.dumps(images) if images else "",
             ", ".join('"%s": %s' % (n, number(made[n].flatten()[0].item())) for n in sorted(made)), json.dumps(tokens), json.dumps(ROWS),
             ", ".join("[" + ", ".join(map(number, logits[r].tolist())) + "]" for r in ROWS)))


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[2:]
    with open(sys.argv[1], "w", encoding="ascii", newline="\n") as out:
        for seed, (name, cfg) in enumerate(CONFIGS.items(), 1):
            if not wanted or name in wanted:
                out.write(line(name, seed, cfg))


if __name__ == "__main__":
    main()
