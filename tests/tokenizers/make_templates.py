#!/usr/bin/env python3
"""make_templates.py: writes tests/cases/chat_templates.json: small templates with what published ones use, and transformers' renderings."""
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

TEMPLATES = {
    "headers": ("{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}", {}),
    "instructions": ("{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set loop_messages = messages[1:] %}"
                     "{%- else %}{% set loop_messages = messages %}{%- endif %}\n{{- bos_token }}\n{%- for m in loop_messages %}\n"
                     "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n        {{- raise_exception('roles must alternate') }}\n    {%- endif %}\n"
                     "    {%- if m['role'] == 'user' %}\n        {%- if loop.last and system is defined %}\n            {{- '[INST] ' + system + '\\n\\n' + m['content'] + '[/INST]' }}\n"
                     "        {%- else %}\n            {{- '[INST] ' + m['content'] + '[/INST]' }}\n        {%- endif %}\n    {%- else %}\n        {{- ' ' + m['content'] + eos_token }}\n"
                     "    {%- endif %}\n{%- endfor %}", {}),
    "thoughts": ("{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
                 "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
                 "<|{{ m.role }}|>{{ c }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}"
                 "<think></think>{% endif %}{% endif %}", {"enable_thinking": False}),
    "dates": ("{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}Today: {{ date_string }}\n"
              "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m | tojson }}\n{% endfor %}", {}),
    "blocks": ("  {% for m in messages %}\n    {% if m.role == 'assistant' %}\n{% generation %}\n{{ m.content }}{% endgeneration %}\n    {% else %}\n"
               "  > {{ m.content }}\n    {% endif %}\n  {% endfor %}\n{{ messages | map(attribute='role') | join(',') }}", {"custom": "x"}),
    "macros": ("{% macro turn(m, i) %}{{ i }}:{{ m.role[0] | upper }}={{ m.content.replace('a', 'b') }};{% endmacro %}"
               "{% for m in messages %}{{ turn(m, loop.index) }}{% endfor %}{{ '%.2f' | format(1.5) }}{{ custom or none }}", {"custom": ""}),
}
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Hallo <b>&amp;</b> \u00e9\u4e2d\U0001f600 \"x\" 'y'"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb {{ 1 }}"}, {"role": "user", "content": ""}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class January(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 1, 31)


def main():
    chat_template_utils.datetime = January
    out = []
    for name, (template, variables) in TEMPLATES.items():
        runs = []
        for messages in CONVERSATIONS:
            try:
                text = chat_template_utils.render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=True,
                                                                 **TOKENS, **variables)[0][0]
            except Exception:                                              # the template refuses it
                text = None
            runs.append({"messages": messages, "text": text})
        out.append({"name": name, "template": template, "variables": variables, "tokens": TOKENS, "runs": runs})
    path = pathlib.Path(__file__).parents[1] / "cases" / "chat_templates.json"
    path.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


main()
