#!/usr/bin/env python3
"""greedy_smollm2.jsonl: the first 64 greedy tokens of SmolLM2-135M-Instruct after the 20 prompts that the file has.

    make_greedy.py MODEL.gguf FILE.jsonl

torch in float32 on the dequantized weights, through transformers with a KV cache; end-of-text tokens do not
stop it.  "margin" is the best logit less the second best one of each step: where it is small another order
of summation may choose otherwise.  Three lines also have "logprobs": the log-probability of each prompt token
but the first, given those before it.

Checked here: the loaded weights equal gguf-py's dequantization (with the rows of q and k put back in order),
and one pass over each whole sequence in float64 (norms, rotary tables and softmax stay float32 there) chooses the
same tokens.
"""
import json
import os
import sys

import numpy as np
import torch
from gguf import GGUFReader, quants
from transformers import AutoModelForCausalLM

import make_tokenizer

STEPS = 64
SCORED = ["repeat", "photosynthesis", "turns_chat"]


def check_weights(model, path):
    """Every tensor of three layers and the embedding, bit for bit."""
    state, c, done = model.state_dict(), model.config, 0
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for t in GGUFReader(path).tensors:
        part = t.name.split(".")
        if part[0] == "blk":
            if int(part[1]) not in (0, 13, c.num_hidden_layers - 1):
                continue
            name = f"model.layers.{part[1]}.{names[part[2]]}.weight"
        else:
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[t.name]
        w = quants.dequantize(t.data, t.tensor_type)
        if part[-2] in ("attn_q", "attn_k"):    # G[h*hd + 2i + s] = HF[h*hd + s*hd/2 + i]
            hd = c.hidden_size // c.num_attention_heads
            w = w.reshape(-1, hd // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        assert np.array_equal(w, state[name].numpy()), name
        done += 1
    assert done == 2 + 3 * len(names)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    return done


@torch.no_grad()
def greedy(model, ids):
    new, margin, cache, step = [], [], None, torch.tensor([ids])
    for _ in range(STEPS):
        out = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = out.logits[0, -1]
        assert logits.dtype == torch.float32
        best = torch.topk(logits, 2)
        new.append(best.indices[0].item())
        margin.append((best.values[0] - best.values[1]).item())
        step = torch.tensor([[new[-1]]])
    return new, margin


@torch.no_grad()
def logprobs(model, ids):
    lp = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float(), -1)
    return [lp[i, t].item() for i, t in enumerate(ids[1:])]


@torch.no_grad()
def agrees(double, ids, new):
    logits = double(input_ids=torch.tensor([ids + new]), use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    return logits[len(ids) - 1:-1].argmax(-1).tolist() == new


def main(gguf, path):
    torch.set_num_threads(2)
    tok, _ = make_tokenizer.from_gguf(gguf)
    with open(path, encoding="ascii") as f:
        prompts = [(line["name"], line["prompt_ids"]) for line in map(json.loads, f)]
    folder, name = os.path.split(os.path.abspath(gguf))

    def load(dtype):
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager")
        return model.to(dtype).eval()

    model, double = load(torch.float32), load(torch.float64)
    c = model.config
    assert (c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.num_key_value_heads) == (30, 576, 9, 3)
    assert c.rope_parameters["rope_theta"] == 1e5 and c.rope_parameters["rope_type"] == "default", c.rope_parameters
    assert abs(c.rms_norm_eps - 1e-5) < 1e-12
    print(f"{check_weights(model, gguf)} tensors equal gguf-py's")
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for name, ids in prompts:
            assert tok.encode(tok.decode(ids, skip_special_tokens=False), add_special_tokens=False).ids == ids, name
            new, margin = greedy(model, ids)
            same = agrees(double, ids, new)
            line = {"name": name, "prompt_ids": ids, "new_ids": new}
            text = json.dumps(line)[:-1] + ', "margin": [' + ", ".join(f"{m:.5g}" for m in margin) + "]"
            if name in SCORED:
                text += ', "logprobs": [' + ", ".join(f"{v:.7g}" for v in logprobs(model, ids)) + "]"
            json.loads(text + "}")
            out.write(text + "}\n")
            small = [f"{i}:{m:.2g}" for i, m in enumerate(margin) if m < 0.01]
            print(f"{name}: {len(ids)} tokens, least margin {min(margin):.5g}, below 0.01 at {small}, float64 {'agrees' if same else 'DIFFERS'}")
            print("   ", ascii(tok.decode(new, skip_special_tokens=False))[:150])
            assert same, name


if __name__ == "__main__":
    main(*sys.argv[1:])
