#!/usr/bin/env python3
"""compare_templates.py TEMPLATE.jinja...: chat_renderer.py beside transformers' render_jinja_template, on 200 conversations each, without variables and with two."""
import datetime
import json
import pathlib
import random
import subprocess
import sys

import strings
from transformers.utils.chat_template_utils import render_jinja_template

RENDERER = pathlib.Path(__file__).parents[2] / "tokenizers" / "chat_renderer.py"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def conversation(r):
    messages = [{"role": "system", "content": strings.text(r)}] if r.random() < 0.5 else []
    for turn in range(r.randint(1, 4)):
        if turn:
            messages.append({"role": "assistant", "content": strings.text(r) if r.random() < 0.8 else "<think>\nhm\n</think>\n\n" + strings.text(r)})
        messages.append({"role": "user", "content": r.choice([strings.text(r), "", "  x \n", "{{ 7*7 }}", "{% raw %}", "<|im_end|>", "</s>[INST]"])})
    return messages


def compare(name, template, variables):
    r, differ, errors = random.Random(1), [], 0
    now = datetime.date.today().isoformat()
    p = subprocess.Popen([sys.executable, "-I", str(RENDERER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def request(value):
        p.stdin.write(json.dumps(value) + "\n")
        p.stdin.flush()
        return json.loads(p.stdout.readline())
    started = request({"template": template, "variables": variables, "tokens": TOKENS, "now": now})
    assert "text" in started, started
    for _ in range(200):
        messages, prompt = conversation(r), r.random() < 0.8
        try:
            expected = render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=prompt, **TOKENS, **variables)[0][0]
        except Exception:
            expected = None
            errors += 1
        got = request({"messages": messages, "add_generation_prompt": prompt})
        if got.get("text") != expected:
            differ.append((messages, got, expected))
    print(f"{name} {json.dumps(variables)}: 200 conversations, {errors} refused by the template, {len(differ)} differ")
    for m, g, e in differ[:1]:
        print("  ", json.dumps(m)[:300], "\n  ", str(g)[:300], "\n  ", str(e)[:300])
    p.stdin.close()
    p.wait()
    return bool(differ)


def main():
    failed = False
    for path in sys.argv[1:]:
        for variables in {}, {"tools": [], "enable_thinking": False}:
            failed |= compare(pathlib.Path(path).name, pathlib.Path(path).read_text(encoding="utf-8"), variables)
    return failed


if __name__ == "__main__":
    sys.exit(main())
