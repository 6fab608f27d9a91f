#!/usr/bin/env python3
"""make_other_vocabulary.py MODEL.gguf OUT SHARE: a copy of a byte-level Llama model with another tokenizer, as a Hugging Face folder.

Ids are permuted at random, and of the tokens that merges make the last SHARE are left out, so that texts are divided into shorter tokens. What the
copy computes of the tokens that are left is what the model computes. For measuring draft models of another vocabulary; needs gguf, torch, safetensors.
"""
import json
import pathlib
import random
import sys

import gguf
import numpy
import safetensors.torch
import torch

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def unpermuted(w, heads):
    """Rows of q and k as transformers has them: llama.cpp's converter interleaves the halves of a head."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def main():
    r, out, left_out = gguf.GGUFReader(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])

    def field(name):
        return r.fields[name].contents()
    tokens, kinds, merges = (field(f"tokenizer.ggml.{n}") for n in ("tokens", "token_type", "merges"))
    keep_merges = merges[:round(len(merges) * (1 - left_out))]
    made = {m.replace(" ", "") for m in merges} - {m.replace(" ", "") for m in keep_merges}
    kept = [i for i, t in enumerate(tokens) if kinds[i] == 3 or t not in made]
    random.Random(4).shuffle(kept)
    new_id = {tokens[i]: n for n, i in enumerate(kept)}
    heads, kv = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    tensors = {}
    for t in r.tensors:
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(numpy.float32)
        if t.name in ("token_embd.weight", "output.weight"):
            name, w = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}[t.name], w[kept]
        elif t.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, part, _ = t.name.split(".")
            name = f"model.layers.{layer}.{NAMES[part]}.weight"
            w = unpermuted(w, heads) if part == "attn_q" else unpermuted(w, kv) if part == "attn_k" else w
        tensors[name] = torch.from_numpy(numpy.ascontiguousarray(w)).to(torch.bfloat16)
    out.mkdir(parents=True)
    safetensors.torch.save_file(tensors, str(out / "model.safetensors"), {"format": "pt"})
    width = field("llama.embedding_length")
    (out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16", "hidden_size": width,
        "intermediate_size": field("llama.feed_forward_length"), "num_hidden_layers": field("llama.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": width // heads, "vocab_size": len(kept), "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": float(field("llama.attention.layer_norm_rms_epsilon")), "rope_theta": float(field("llama.rope.freq_base")),
        "tie_word_embeddings": "lm_head.weight" not in tensors, "eos_token_id": new_id[tokens[field("tokenizer.ggml.eos_token_id")]]}), encoding="utf-8")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (out / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": byte_level,
        "added_tokens": [{"id": new_id[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for i, t in enumerate(tokens) if kinds[i] == 3],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": new_id, "merges": keep_merges}}), encoding="utf-8")
    print(f"{len(kept)} of {len(tokens)} tokens, {len(keep_merges)} of {len(merges)} merges")


if __name__ == "__main__":
    main()
