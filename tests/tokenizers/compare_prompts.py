#!/usr/bin/env python3
"""compare_prompts.py SPECLAB VOCABULARIES TEMPLATES: prompt ids of conversations, from template to id, beside transformers' apply_chat_template.

VOCABULARIES has llama-2.gguf and phi-3.gguf (llama.cpp's models/ggml-vocab-llama-spm.gguf, -phi-3.gguf), qwen.tiktoken (PyPI's dashscope), and
gemma.json (bpe_gemma.json of make_small.py: Gemma's own vocabulary is not public); Llama 3's and Mistral's come from PyPI's llama-models and
mistral-common. TEMPLATES: folder of *.jinja, of the models' own names. Of each family a checkpoint's tokenizer files are made by transformers.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import llama_models
import mistral_common
import strings
from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
LLAMA2_TEMPLATE = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}"
                   "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
                   "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
                   "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
                   "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
                   "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
# FastChat's vicuna_v1.1, whose prompt is a text like any other: the tokenizer puts BOS before it.
VICUNA_TEMPLATE = ("{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set rest = messages[1:] %}{% else %}"
                   "{{ 'A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
                   "user\\'s questions.' }}{% set rest = messages %}{% endif %}{{ ' ' }}{% for m in rest %}{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
                   "{% else %}{{ 'ASSISTANT: ' + m['content'] + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")


def special(names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


def of_ranks(path, pattern, names, bos, eos):
    t = TikTokenConverter(vocab_file=str(path), pattern=pattern).converted()
    t.add_special_tokens(special(names))
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos)


def of_gguf(folder, name):
    return AutoTokenizer.from_pretrained(str(folder), gguf_file=name)


def llama3(names, bos, eos):
    known = ["<|begin_of_text|>", "<|end_of_text|>"]
    return of_ranks(pathlib.Path(llama_models.__file__).parent / "llama3" / "tokenizer.model", LLAMA3, known + names, bos, eos)


def tekken():
    """Mistral Nemo's: the ranks of tekken.json as a tiktoken file."""
    path = pathlib.Path(mistral_common.__file__).parent / "data" / "tekken_240718.json"
    j = json.loads(path.read_text(encoding="utf-8"))
    first = j["config"]["default_num_special_tokens"]
    with tempfile.NamedTemporaryFile("w", suffix=".tiktoken") as f:
        for v in j["vocab"][:j["config"]["default_vocab_size"] - first]:
            f.write(f"{v['token_bytes']} {v['rank']}\n")
        f.flush()
        t = TikTokenConverter(vocab_file=f.name, pattern=j["config"]["pattern"]).converted()
    t.add_special_tokens(special(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"]))
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>")


def gemma(path):
    t = Tokenizer.from_file(str(path))
    t.add_special_tokens(special(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]))
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<bos>", eos_token="<eos>")


def families(folder, templates):
    """name, tokenizer, template, whether a system message is allowed, option of --chat."""
    def own(name):
        return (templates / f"{name}.jinja").read_text(encoding="utf-8")
    heads = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>", "<|eom_id|>"]
    chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    yield "Vicuna", of_gguf(folder, "llama-2.gguf"), VICUNA_TEMPLATE, True, "vicuna"
    yield "Llama-2", of_gguf(folder, "llama-2.gguf"), LLAMA2_TEMPLATE, True, "auto"
    yield "Llama-3.1", llama3(heads, "<|begin_of_text|>", "<|eot_id|>"), own("meta-llama-Llama-3.1-8B-Instruct"), True, "auto"
    yield "Mistral-Nemo", tekken(), own("mistralai-Mistral-Nemo-Instruct-2407"), True, "auto"
    yield "Qwen2.5", of_ranks(folder / "qwen.tiktoken", QWEN, chatml, None, "<|im_end|>"), own("Qwen-Qwen2.5-7B-Instruct"), True, "auto"
    yield "Qwen3", of_ranks(folder / "qwen.tiktoken", QWEN, [*chatml, "<think>", "</think>"], None, "<|im_end|>"), own("Qwen-Qwen3-0.6B"), True, "auto"
    yield "Gemma-2", gemma(folder / "gemma.json"), own("google-gemma-2-2b-it"), False, "auto"
    yield "Phi-3.5", of_gguf(folder, "phi-3.gguf"), own("microsoft-Phi-3.5-mini-instruct"), True, "auto"
    yield "SmolLM3", llama3(["<|im_start|>", "<|im_end|>", "<think>", "</think>"], "<|begin_of_text|>", "<|im_end|>"), own("HuggingFaceTB-SmolLM3-3B"), True, "auto"


def conversation(r, system):
    messages = [{"role": "system", "content": strings.text(r)}] if system and r.random() < 0.5 else []
    for turn in range(3):
        messages += [{"role": "user", "content": strings.text(r)}, {"role": "assistant", "content": strings.text(r)}]
    return messages[:-1]


def main():
    speclab, folder, templates = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    failed = False
    for name, t, template, system, chat in families(folder, templates):
        r = random.Random(3)
        t.chat_template = template
        with tempfile.TemporaryDirectory() as to:
            t.save_pretrained(to)
            t = AutoTokenizer.from_pretrained(to)
            if chat != "auto":
                (pathlib.Path(to) / "chat_template.jinja").unlink(missing_ok=True)
            some = [conversation(r, system) for _ in range(100)]
            done = subprocess.run([speclab, "inspect", "--tokenize", to, "--chat", chat], input="".join(json.dumps({"messages": m}) + "\n" for m in some),
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: {done.stderr.strip()}")
                failed = True
                continue
            lines = [json.loads(line) for line in done.stdout.split("\n") if line]
            if chat == "auto":
                expected = [t.apply_chat_template(m, add_generation_prompt=True, tokenize=True, return_dict=False) for m in some]
            else:
                expected = [t.encode(t.apply_chat_template(m, add_generation_prompt=True, tokenize=False)) for m in some]
            differ = [i for i in range(100) if lines[i]["ids"] != expected[i]]
            print(f"{name}: 100 conversations of three turns, {sum(map(len, expected))} ids, {len(differ)} differ")
            for i in differ[:1]:
                print("  ", t.apply_chat_template(some[i], add_generation_prompt=True, tokenize=False)[:300].encode(), "\n  ", lines[i].get("text", "")[:300].encode(),
                      "\n  ", expected[i][:40], "\n  ", lines[i]["ids"][:40])
            failed |= bool(differ)
    return failed


if __name__ == "__main__":
    sys.exit(main())
