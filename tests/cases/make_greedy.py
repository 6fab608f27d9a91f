#!/usr/bin/env python3
"""greedy_smollm2.jsonl: the first 64 greedy tokens of SmolLM2-135M-Instruct after 20 prompts.

    make_greedy.py MODEL.gguf OUT.jsonl

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
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(*turns, system=SYSTEM):
    roles = ["user", "assistant"]
    text = f"<|im_start|>system\n{system}<|im_end|>\n"
    for i, turn in enumerate(turns):
        text += f"<|im_start|>{roles[i % 2]}\n{turn}<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


PROMPTS = {
    "capital": "The capital of France is Paris, and the capital of Italy is",
    "story": "Once upon a time, in a small village at the edge of a dark forest, there lived an old clockmaker who",
    "count": "one, two, three, four, five, six, seven, eight, nine, ten, eleven,",
    "fibonacci": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        return n\n",
    "c_code": "#include <stdio.h>\n\n/* Prints the numbers from 1 to 10, one to a line. */\nint main(void)\n{\n    for (int i = 1;",
    "repeat": "The cat sat on the mat. The dog sat on the log. " * 6 + "The cat sat on",
    "json": "[\n  {\"id\": 1, \"name\": \"Alice\", \"age\": 31, \"city\": \"Lisbon\"},\n  {\"id\": 2, \"name\": \"Bob\", \"age\": 27, \"city\": \"Oslo\"},\n  {\"id\": 3,",
    "french": "Il était une fois une petite fille qui habitait avec sa grand-mère dans une maison près de la rivière. Un jour,",
    "photosynthesis": "Photosynthesis is the process by which green plants, algae and some bacteria turn light into chemical energy. "
                      "In the first stage, the light-dependent reactions, pigments in the thylakoid membranes absorb light and use its "
                      "energy to split water, giving off oxygen and making ATP and NADPH. In the second stage, the Calvin cycle, the "
                      "plant uses these to fix carbon dioxide from the air and build sugars. Several things limit the rate: the intensity "
                      "of the light, the concentration of carbon dioxide, the temperature, and the supply of water. Plants of hot and dry "
                      "places have found other ways: C4 plants concentrate carbon dioxide in special cells, and CAM plants open their pores "
                      "only at night, when the air is cooler and less water is lost. Together these organisms make almost all of the oxygen "
                      "in the air, and almost all food chains on Earth begin with them.\n\nIn summary,",
    "list": "Ten things to take on a camping trip:\n\n1. Tent\n2. Sleeping bag\n3.",
    "greeting_chat": chat("Hello! Who are you?"),
    "arithmetic_chat": chat("A shop sells pencils at 3 for 2 dollars. How much do 12 pencils cost? Explain step by step."),
    "poem_chat": chat("Write a short poem about the sea at night."),
    "python_chat": chat("Write a Python function that checks whether a string is a palindrome, and give two examples."),
    "turns_chat": chat("What is the largest planet of the solar system?", "The largest planet of the solar system is Jupiter.",
                       "And which one is the second largest? How many moons does it have?"),
    "summary_chat": chat("Summarize the following text in two sentences.\n\nThe printing press with movable type was developed in Mainz around "
                         "1440 by Johannes Gutenberg, a goldsmith. Before it, books in Europe were copied by hand, which took months and made them "
                         "costly; a large library might own a few hundred. Gutenberg brought together several things: a mould for casting pieces of "
                         "type quickly and evenly, an ink based on oil that stuck to metal, and a press like those used for wine and paper. Within "
                         "fifty years there were printing shops in more than two hundred towns, and they had made several million books. Prices differed, "
                         "more people learned to read, and scholars in distant places could work from the same text."),
    "translate_chat": chat("Translate to Spanish: The weather is nice today, and we are going to the beach with our friends."),
    "pirate_chat": chat("Where did you leave the treasure?", system="You are an old pirate. Answer in one or two sentences."),
    "facts_chat": chat("Give me five facts about elephants, as a numbered list."),
    "copy_chat": chat("Repeat this line three times: 3.14159 26535 89793 \u2014 caf\u00e9, na\u00efve, \u6771\u4eac, \U0001F600!"),
}
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
    tok, _, _ = make_tokenizer.from_gguf(gguf)
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
        for name, text in PROMPTS.items():
            ids = tok.encode(text, add_special_tokens=False).ids
            assert 10 <= len(ids) <= 300, (name, len(ids))
            assert tok.decode(ids, skip_special_tokens=False) == text
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
