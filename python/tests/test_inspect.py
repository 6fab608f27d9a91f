"""`inspect` in text: the reviewed texts of the facts that the program prints, every line of the table, and models that cannot be run."""

import json
import re

import pytest
from conftest import ROOT, expect_golden, refused

from speclab.words.inspect import HEAD, MODEL, amount, head_text, model_text


def shown():
    """The calls of tests/cli/test_command_texts.c, and the facts that they print."""
    text = (ROOT / "tests/cases/commands.txt").read_text()
    return [(re.sub(" --json", "", call), json.loads(line)) for call, line in re.findall(r"^\$ speclab (inspect HERE.*)\n(.*)\n", text, re.M)]


def test_the_texts_are_the_golden_file():
    expect_golden("inspect.txt", "\n".join(f"$ speclab {call}\n{(head_text if 'target' in j else model_text)(j)}" for call, j in shown()))


def test_every_line_is_printed_where_its_facts_are_known():
    j = next(j for call, j in shown() if "padded" in call)
    j |= {"window": 8, "windowed_layers": 1, "experts": 8, "experts_used": 2, "expert_hidden": 16, "expert_layers": 1, "inflated_from": "a.gguf",
          "quantized_from": "b.gguf", "bos_id": 1, "bos_token": None, "chat_system": "Be brief.", "wrapper": "mistral3", "ignored": ["x"],
          "ignored_of_images": 3, "device_memory": {"bytes": 8e10, "free_bytes": 7.5e10, "device": "a GPU"},
          "expected_unions": [{"n": 4, "experts_per_layer": 5.47, "weight_bytes": 123456}],
          "memory": {"bytes_per_second": 1.5e10, "threads": 2, "passes": 7, "bytes": 2 << 30, "seconds_per_token": 0.00125, "tokens_per_second": 800,
                     "processor_cache_bytes": 1 << 25}}  # fmt: skip
    text = model_text(j)
    for line in ["family      llama, Hugging Face, the text model of mistral3", "windows     of 8 tokens in 1 of 1 layers", "begins with 1",
                 "experts     2 of 8 for a token, hidden 16, in 1 of 1 layers",
                 "inflated    marked as inflated from a.gguf; its speed is not that of a real model",
                 "quantized   from b.gguf", "chat        chatml, system: Be brief.", "parameters  74.9 k, of which 74.9 k active for a token",
                 "            ignored: 3 tensors of the model of images: texts do not use them", "            ignored: x",
                 "                n   experts    weights\n                4      5.47     123 kB",
                 "memory      80.0 GB, of which 75.0 GB free with the model loaded: a GPU",
                 "memory      15.0 GB/s read by 2 threads (median of 7 passes over 2.15 GB)",
                 "limit       1.25 ms per token, 800 tokens/s without speculation, if all data comes from memory",
                 "            (fits into the processor's cache of 33.6 MB and may be faster)"]:  # fmt: skip
        assert f"\n{line}\n" in text, line
    j |= {"no_tokenizer": "none", "no_chat": "none", "memory": {**j["memory"], "bytes_per_second": None, "seconds_per_token": None}}
    text += model_text(j)
    assert "\nmemory      not enough free to measure the read bandwidth\n" in text
    for line in [*MODEL.splitlines()[:-1], *HEAD.splitlines()[:3]]:
        label = line.split("{")[0]
        assert label in text or label in "head        kind        heads       ", line


@pytest.mark.parametrize(
    "n, text", [(0, "0 B"), (999.4, "999 B"), (999.5, "1.00 kB"), (12345, "12.3 kB"), (99960, "100 kB"), (9.5e14, "950 TB"), (3e15, "3000 TB")]
)
def test_amounts_have_three_digits(n, text):
    assert amount(n, "B") == text


def test_a_model_that_cannot_be_run_is_described_and_the_reason_is_said(within, tiny, tmp_path):
    done = within("inspect", tiny, "--no-probe")
    assert done.status == 0 and done.out.startswith(f"model       {tiny}\n") and "\npass        one token at context " in done.out and not done.err
    broken = tmp_path / "broken.gguf"
    content = bytearray(tiny.read_bytes())
    content[-4:] = b"\xff\xff\xff\x7f"
    broken.write_bytes(content)
    done = within("inspect", broken, "--no-probe")
    assert "\ntensors     " in done.out and "activations" not in done.out
    refused(done, "holds a number that is not finite")


def test_calls_that_cannot_have_a_meaning_are_the_program_s_to_refuse(within, tiny, heads):
    refused(within("inspect", tiny, "--answers"), "--answers requires --score", 2)
    refused(within("inspect"), "missing argument", 2)
    refused(within("inspect", "--", "--help"), "--help: there is no such model")
    refused(within("inspect", heads / "eagle"), "name its target with --target MODEL", 2)
    assert "\nreads       the target's last hidden state\n" in within("inspect", heads / "eagle", "--target", tiny).out
    text = within("inspect", "--help").out
    assert text.startswith("Usage: speclab inspect [OPTION...] MODEL") and "\n  --tokenize " in text
