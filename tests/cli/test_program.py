#!/usr/bin/env python3
"""test_program.py BUILD: generate, inspect, bench, replay and run as a user calls them: what they print and store. No time is asserted."""

import contextlib
import json
import math
import os
import re
import shlex
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, SOURCE = os.path.abspath(sys.argv.pop(1)), os.path.abspath(f"{os.path.dirname(__file__)}/../..")
PROGRAM, EMULATED = f"{BUILD}/speclab", f"{BUILD}/speclab_emulated"
MODELS = {"target": [], "target.gguf": [], "draft.gguf": ["layers=1"], "padded": ["layers=1", "vocab=296"], "bare": ["vocab=296", "tokenizer=0"],
          "inflated.gguf": ["inflated=target.gguf"]}  # fmt: skip
CONVERSATIONS = [{"id": "a", "turns": ["one two one two one", "and again", "enough"]}, {"id": "b", "prompt": "a b c a b c a b"},
                 {"id": "c", "turns": ["ping", "pong"]}, {"id": "d", "input_ids": [75, 104, 111, 75, 104, 111]}, {"id": "e", "prompt": "x = x + 1"}]  # fmt: skip
EXPERIMENT = "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: %s.jsonl, chat: none}\nlimits: {new_tokens: %d}\n%scells: {drafter: %s}\n"
MATCH = "--rule match --temperature 1 --seed 11"


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    os.chdir(folder.name)
    os.environ["SPECLAB_TOOL"] = "1"  # words of the Python package are named, not run
    for name, keys in MODELS.items():
        subprocess.run([f"{BUILD}/write_small_model", name, *keys], check=True)
    write("conversations.jsonl", jsonl(CONVERSATIONS))


def write(name, text):
    with open(name, "w") as f:
        f.write(text)


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def ended(words, stdin="", program=PROGRAM, **env):
    """A call that has ended: returncode, stdout, stderr."""
    return subprocess.run([program, *shlex.split(words)], input=stdin, capture_output=True, text=True, errors="surrogateescape", env=os.environ | env)


class Case(unittest.TestCase):
    def ok(self, words, *given, **how):
        """What it prints."""
        done = ended(words, *given, **how)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stdout

    def json(self, words, *given, **how):
        return json.loads(self.ok(words, *given, **how))

    def lines(self, words, *given, **how):
        return [*map(json.loads, self.ok(words, *given, **how).splitlines())]

    def said(self, words, *given, **how):
        """What it says of its way."""
        done = ended(words, *given, **how)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stderr

    def refused(self, status, words, says, *given, **how):
        done = ended(words, *given, **how)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (status, "", 1), f"{words}: {done.stderr}")
        self.assertIn(says, done.stderr)

    def query(self, db, sql):
        with contextlib.closing(sqlite3.connect(db)) as c:
            return c.execute(sql).fetchall()


class Generate(Case):
    def generated(self, words, program=PROGRAM):
        """generate --json; the numbers of its steps are those of its tokens."""
        made = self.json(f"generate --json {words}", program=program)
        steps = made["steps"]
        self.assertEqual(sum(s["kept"] for s in steps), len(made["new_ids"]))
        self.assertTrue(all(s["accepted"] <= s["depth"] <= s["drafted"] and s["verify_ns"] > 0 for s in steps))
        self.assertLessEqual(sum(s["accepted"] for s in steps), len(made["new_ids"]))
        return made

    def test_every_drafter_gives_the_text_of_none(self):
        small = "small:model=draft.gguf"
        for mode in ("", MATCH):
            plain = self.generated(f"target.gguf --ids '[5, 6, 7, 5, 6, 7, 5, 6]' --tokens 40 --ignore-end {mode}")["new_ids"]
            self.assertEqual(len(plain), 40)
            for drafter in ("ngram", "ngram:longest=2,tokens=5", f"{small},tokens=4,pick=greedy", f"{small},widths=[3,2,1]",
                            f"{small},nodes=9,tokens=4,pick=greedy"):  # fmt: skip
                words = f"target.gguf --ids '[5, 6, 7, 5, 6, 7, 5, 6]' --tokens 40 --ignore-end {mode} --drafter {drafter}"
                self.assertEqual(self.generated(words)["new_ids"], plain, words)

    @unittest.skipUnless(os.path.exists(EMULATED), "no emulated GPU was built")
    def test_a_draft_model_on_the_cpu_gives_the_text_of_a_target_on_a_gpu(self):
        """The drafts cross from one device to the other."""
        for mode in ("", MATCH):
            words = f"target.gguf --device cuda --ids '[5, 6, 7, 5, 6, 7]' --tokens 12 --ignore-end {mode}"
            plain = self.generated(words, EMULATED)["new_ids"]
            for shape in ("tokens=3,pick=greedy", "widths=[2,1]"):
                drafted = self.generated(f"{words} --drafter small:model=draft.gguf,device=cpu,{shape}", EMULATED)
                self.assertEqual(drafted["new_ids"], plain, shape)

    def test_both_formats_and_a_padded_draft_model_give_equal_texts(self):
        x, y = self.generated("target.gguf --tokens 20 Hello"), self.generated("target --tokens 20 Hello --drafter small:model=padded")
        self.assertEqual((x["new_ids"], x["text"]), (y["new_ids"], y["text"]))

    def test_a_trace_contains_each_draft(self):
        words = "target.gguf --ids '[5, 6, 7]' --tokens 12 --ignore-end --temperature 1 --trace --drafter small:model=draft.gguf,widths=[2,2]"
        for step in self.generated(words)["steps"]:
            draft = step["draft"]
            self.assertEqual({len(draft[key]) for key in ("tokens", "parents", "proposal", "p", "q", "accepted")}, {step["drafted"] + 1})
            self.assertEqual(len(step["out"]), sum(draft["accepted"]))  # the root counts as accepted, but is no draft token
            self.assertEqual((draft["parents"][0], draft["proposal"][0], draft["p"][0]), (-1, None, None))
            self.assertLessEqual({*draft["proposal"][1:]}, {"sampled_without_replacement"})

    def test_streamed_text_equals_json_text(self):
        how = "--rule match --temperature 1 --seed 5 --tokens 40 --ignore-end --logit-bias {3:-99}"  # no NUL bytes
        text = self.generated(f"target.gguf {how} Hello")["text"]
        self.assertGreater(len(text), 9)
        self.assertNotIn("\033", text)
        for words, stdin in ((f"generate target.gguf {how} Hello", ""), (f"generate target {how} --drafter ngram -", "Hello\n")):
            done = ended(words, stdin)
            self.assertEqual(done.stdout, text if text.endswith("\n") else text + "\n")
            self.assertIn("tokens/s", done.stderr)

    def test_a_stop_string_ends_the_text_and_is_left_out(self):
        tried = 0
        for seed in range(20):
            words = f"target.gguf --chat none --tokens 60 --ignore-end --rule match --temperature 1 --logit-bias {{3:-99}} --seed {seed} abc"
            text = self.generated(words)["text"]
            if found := re.search(r"[!-&(-~]{3}", text[1:]):
                stopped = self.generated(f"{words} --drafter small:model=draft.gguf --stop zzzzz --stop '{found[0]}'")
                self.assertEqual((stopped["stop"], stopped["text"]), ("string", text[: text.index(found[0])]))
                tried += 1
        self.assertGreater(tried, 0)

    def test_a_replacement_character_is_no_stop_string(self):
        words = "target.gguf --chat none --tokens 60 --ignore-end --temperature 1 abc"
        text, same = self.generated(words)["text"], self.generated(f"{words} --stop \ufffd")
        self.assertIn("\ufffd", text)
        self.assertEqual((same["stop"], same["text"]), ("limit", text))

    def test_ids_need_no_tokenizer(self):
        made = self.generated("bare --ids '[288, 0, 7]' --tokens 5")
        self.assertIsNone(made["text"])
        self.assertEqual(self.json("generate bare --ids '[288, 0, 7]' --tokens 5"), made["new_ids"])
        self.refused(1, "generate bare --tokens 5 abc", "no text without a tokenizer: ")

    def test_a_system_message_precedes_the_prompt(self):
        text = "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
        ids = self.json("inspect --tokenize target.gguf", json.dumps({"text": text}))["ids"]
        self.assertEqual(self.generated("target.gguf --system 'Be brief' --tokens 1 ab")["prompt_ids"], ids)

    def test_settings_are_reported(self):
        made = self.generated("target.gguf --seed 7 --temperature 0.5 --top-k 20 --rule match --drafter ngram:longest=2 --stop zzzz --ignore-end"
                              " --chat none abc")  # fmt: skip
        self.assertEqual(len(made["new_ids"]), 128)  # the default
        expected = {"drafter": {"kind": "ngram", "longest": 2, "shortest": 1, "tokens": 8}, "rule": {"kind": "match"}, "lossless": True,
                    "sampling": {"temperature": 0.5, "top_k": 20}, "seed": 7, "tokens": 128, "ignore_end": True, "stop": ["zzzz"], "chat": "none",
                    "activations": "f32", "cache": "f32", "type": "f32"}  # fmt: skip
        self.assertEqual({key: made["settings"][key] for key in expected}, expected)
        made = self.generated("target.gguf --ids [5] --tokens 2 --activations bf16 --drafter small:model=draft.gguf")["settings"]
        self.assertEqual([(s["activations"], s["cache"]) for s in (made, made["drafter"])], [("bf16", "f32"), ("f32", "f32")])

    def test_answers_to_ids_need_no_chat_template(self):
        subprocess.run([f"{BUILD}/write_small_model", "odd"], check=True)
        write("odd/tokenizer_config.json", '{"chat_template": "{{ odd"}')
        self.ok("inspect --score --answers odd", '{"input_ids": [9, 8, 7], "answer": "hello"}\n')
        self.refused(1, "inspect --score --answers odd", "chat: none", '{"prompt": "ab", "answer": "hello"}\n')
        self.refused(1, "generate odd --tokens 1 -", "chat: none", "ab")  # nor is a prompt from stdin accepted without one


class Inspect(Case):
    def test_decoding_inverts_encoding(self):
        texts = jsonl([{"text": text} for text in ("plain words", "", "café \U0001f600 \0 \n", "<|im_start|>user")])
        ids = [self.ok(f"inspect --tokenize {model}", texts) for model in ("target", "target.gguf")]
        self.assertEqual(ids[0], ids[1])
        for model in ("target", "target.gguf"):
            self.assertEqual([*map(json.loads, texts.splitlines())], self.lines(f"inspect --detokenize {model}", ids[0]))
        done = ended("inspect --tokenize target.gguf", '{"text":"a"}\n\n{"text": "a" 5}\n')
        self.assertEqual(done.returncode, 1)
        self.assertIn("stdin:3:14: not valid JSON", done.stderr)  # its own line and column
        plain, whole = (self.json(f"inspect --tokenize {how} target.gguf", '{"text":"<|im_end|>"}\n')["ids"] for how in ("--no-special", ""))
        self.assertGreater(len(plain), len(whole))
        for form in ("model", "gguf", "json"):  # a vocabulary alone; the ids are those of the golden file
            self.assertEqual(self.json(f"inspect --tokenize {SOURCE}/tests/cases/pieces/unigram.{form}", '{"text": "  a  b  "}\n')["ids"], [507, 262, 269])

    def test_probabilities_of_all_next_tokens_sum_to_1(self):
        scored = self.lines("inspect --score target.gguf", jsonl([{"ids": [9, 8, 7, x]} for x in range(288)]))
        self.assertEqual({(len(s["logprobs"]), s["logprobs"][0]) for s in scored}, {(3, scored[0]["logprobs"][0])})
        self.assertAlmostEqual(math.fsum(math.exp(s["logprobs"][2]) for s in scored), 1, delta=1e-9)
        for s in scored:
            expected = math.exp(-sum(s["logprobs"]) / 3)
            self.assertAlmostEqual(s["perplexity"], expected, delta=1e-9 * expected)

    def test_texts_of_any_length_score_like_the_longest(self):
        """More tokens than one pass takes: later tokens, the borders of passes, and a cache made for a shorter text change nothing."""
        texts = [[i * i % 251 for i in range(n)] for n in (2, 129, 400, 130, 2)]
        done = ended("inspect --score target.gguf", jsonl([{"ids": ids} for ids in texts]))
        scored = [json.loads(line)["logprobs"] for line in done.stdout.splitlines()]
        self.assertEqual(scored, [scored[2][: len(ids) - 1] for ids in texts])
        self.assertEqual(len(scored[2]), 399)
        self.assertIn("5 texts, 658 tokens scored, perplexity", done.stderr)

    def test_an_answer_is_scored_after_its_prompt(self):
        """--answers gives an answer the same scores as the end of a text that begins with the prompt."""
        def ids_of(text, how=""):
            return self.json(f"inspect --tokenize {how} target.gguf", json.dumps({"text": text}))["ids"]

        turn = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n"
        first = self.json("generate --json target.gguf --chat chatml --tokens 1 ab")["prompt_ids"]
        rendered = self.json("inspect --detokenize target.gguf", json.dumps({"ids": first}))["text"]
        self.assertTrue(rendered.endswith(turn % "ab"))
        answers = ["wx y<|im_end|>", "z", "hello"]
        prompts = [ids_of(rendered), ids_of(f"{rendered}{answers[0]}<|im_end|>\n{turn % 'cd'}"), [9, 8, 7]]
        own = [ids_of(answer, "--no-special") for answer in answers]
        by_hand = self.lines("inspect --score target.gguf", jsonl([{"ids": p + a} for p, a in zip(prompts, own)]))
        expected = [h["logprobs"][-len(a) :] for h, a in zip(by_hand, own)] + [[]]
        done = ended("inspect --score --answers --chat chatml target.gguf", jsonl([
            {"id": "x", "turns": ["ab", "cd", "no answer"], "answer": answers[:2]}, {"input_ids": [9, 8, 7], "answer": answers[2]},
            {"prompt": "ab", "answer": ""}]))  # fmt: skip
        got = [*map(json.loads, done.stdout.splitlines())]
        self.assertEqual([g["logprobs"] for g in got], expected)
        self.assertEqual((got[0]["id"], got[1]["turn"], got[2]["id"]), ("x", 1, "1"))
        all_of_them = sum(expected, [])
        perplexity = math.exp(-math.fsum(all_of_them) / len(all_of_them))
        self.assertIn(f"4 answers, {len(all_of_them)} tokens scored, perplexity {perplexity:.6g} (activations f32, cache f32, ", done.stderr)

    def test_one_logit_far_from_the_others_is_scored(self):
        """The first token's logit is thousands above or below all others: the sum stays finite."""
        subprocess.run([f"{BUILD}/write_small_model", "outlier"], check=True)
        with open("outlier/model.safetensors", "r+b") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            at = 8 + n + json.loads(f.read(n))["lm_head.weight"]["data_offsets"][0]
            f.seek(at)
            row = struct.unpack("<64f", f.read(256))
            f.seek(at)
            f.write(struct.pack("<64f", *(1e4 * x for x in row)))
        ids = [9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 11, 0, 12, 0]
        of_token_0 = self.json("inspect --score outlier", json.dumps({"ids": ids}))["logprobs"][::2]
        self.assertEqual({"certain" if x == 0 else "never" if x < -1000 else x for x in of_token_0}, {"certain", "never"})

    def test_the_cost_of_a_pass(self):
        """The small model: 3 layers of q, o 64x64, k, v 32x64, three of 128x64, two norms; a last norm; a head and a table of 288x64, of which a pass
        reads the head."""
        matrices, vectors = 3 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) + 288 * 64, 7 * 64
        for how, size, kinds in (("", 4, ("f32", "f32")), ("--no-probe --cache bf16 --activations bf16", 2, ("bf16", "bf16"))):
            j = self.json(f"inspect target --json --threads 1 --context 10 {how}")
            self.assertEqual((j["cache"], j["activations"], j["layers"], j["ignored"]), (*kinds, 3, []))
            self.assertEqual((j["parameters"], j["cache_bytes_per_token"]), (matrices + vectors + 288 * 64, 3 * 2 * 32 * size))
            self.assertEqual(j["pass"]["bytes"], 4 * (matrices + vectors) + 10 * 192 * size)
            if not how:
                self.assertEqual(j["pass"]["flops"], 2 * matrices + 3 * 4 * 64 * 10)
                memory = j["memory"]  # the limit is bytes of a pass over bytes/s, as a time and as a rate
                seconds = j["pass"]["bytes"] / memory["bytes_per_second"]
                self.assertTrue(memory["bytes_per_second"] > 1e6 and memory["passes"] > 0 and memory["bytes"] > 0 and memory["threads"] == 1)
                self.assertAlmostEqual(memory["seconds_per_token"] / seconds, 1, delta=1e-9)
                self.assertAlmostEqual(memory["tokens_per_second"] * seconds, 1, delta=1e-9)
        shown = self.ok("inspect target.gguf --json --no-probe --tensors")
        self.assertTrue("model.layers.2.mlp.down_proj.weight" in shown and "chatml" in shown)


QUICK = "--json --no-probe --repeats 1 --threads 1 --rows 1,2 --contexts 8 --prefill 16"
SHAPE = "layers=2,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=128"


class Bench(Case):
    def test_the_requested_measurements_are_taken_and_stored(self):
        for _ in range(2):
            j = self.json(f"bench target.gguf {QUICK} --draft draft.gguf --db bench.db")
        self.assertIn(len(j["rounds"]), (1, 2))  # a second one if other processes used the machine in the first
        self.assertEqual([(m["what"], m["n"]) for m in j["measured"]], [("pass", 1), ("pass", 2), ("draft_step", 1), ("prompt", 16)])
        self.assertTrue(all(m["ns"][0] > 0 for m in j["measured"]))
        placement = j["placements"][0]
        self.assertEqual((placement["placement"], placement["medians"][0]["n"], placement["medians"][0]["c"]), ("unprobed", 1, 1))
        self.assertTrue(isinstance(placement["cost"]["draft_step"], dict) and len(j["overheads"]) == 3)
        self.assertEqual(self.query("bench.db", "SELECT count(*), count(overhead_ns) FROM bench"), [(2, 2)])
        self.assertEqual(self.query("bench.db", "SELECT (SELECT count(*) FROM bench_pass WHERE what = 'pass'), (SELECT count(*) FROM cost)"), [(4, 2)])
        self.ok(f"bench target {QUICK}")
        self.ok("bench target.gguf --json --no-probe --repeats 1 --rows 1,2 --threads 1 --prefill 0 --contexts 300")  # the loop's prompt is a chunk

    @unittest.skipUnless(os.path.exists(EMULATED), "no emulated GPU was built")
    def test_on_a_gpu_the_host_is_not_probed(self):
        """The probes measure the host, which does not limit a GPU."""
        words = "bench draft.gguf --device cuda:1 --repeats 1 --rows 1 --contexts 8 --prefill 4 --threads 1 --json"
        j = self.json(words, program=EMULATED)
        self.assertIn("emulated GPU (cuda:1), compute capability ", j["machine"])
        self.assertEqual((j["device"], j["peaks"], len(j["rounds"]), j["placements"][0]["placement"]), ("cuda:1", [], 1, "unprobed"))
        self.assertTrue(len(j["measured"]) == 2 and all(m["ns"][0] > 0 for m in j["measured"]))
        memory = self.json("inspect draft.gguf --device cuda --json", program=EMULATED)["device_memory"]
        self.assertTrue(memory["bytes"] == 4 << 30 and memory["free_bytes"] < 4 << 30)
        for words, says in (("--device cuda --activations int8", "activations: int8: not supported by cuda (expected f32 or bf16)"),
                            ("--device cuda:9", "device cuda:9: expected one of the 2 here, from cuda:0 on")):  # fmt: skip
            self.refused(1, f"generate draft.gguf {words} x", says, program=EMULATED)

    def test_an_inflated_model_is_marked_everywhere(self):
        done = ended(f"bench inflated.gguf {QUICK} --packed keep --db inflated.db")
        self.assertIn("packed", done.stderr)
        self.assertTrue(json.loads(done.stdout)["model"]["inflated_from"])
        self.assertIsNone(self.json(f"bench target.gguf {QUICK} --db inflated.db")["model"]["inflated_from"])
        self.assertEqual(self.query("inflated.db", "SELECT marked_inflated FROM bench ORDER BY id"), [(1,), (0,)])

    def test_slots_are_measured_and_stored_apart(self):
        j = self.json("bench target.gguf --no-probe --repeats 1 --slots 1,3 --contexts 8 --prefill 0 --threads 1 --json --db slots.db")
        self.assertEqual([(m["slots"], m["n"]) for m in j["measured"]], [(1, 1), (3, 1)])
        self.assertEqual(self.query("slots.db", "SELECT slots, n FROM bench_pass ORDER BY 1"), [(1, 1), (3, 1)])
        self.assertEqual(self.query("slots.db", "SELECT count(*) FROM cost_of_pass WHERE c = 1"), [(1,)])

    def test_shapes_run(self):
        """Models with random weights in memory."""
        for kind in ("q4_0", "q8_0", "bf16", "f32", "iq4_nl", "mxfp4"):
            shape = f"shape:smollm2-135m,type={kind},{SHAPE}"
            perplexity = self.json(f"inspect --score {shape}", '{"ids": [1, 2, 3, 4, 5, 6, 7, 8]}\n')["perplexity"]
            self.assertTrue(200 < perplexity < 450, perplexity)  # 300 for a uniform distribution
            self.ok(f"bench {shape} {QUICK} --draft shape:smollm2-135m,{SHAPE}")
        j = self.json(f"inspect shape:smollm2-135m,type=f32,{SHAPE} --no-probe --json")
        expected = {key: int(n) for key, n in (pair.split("=") for pair in SHAPE.split(","))}
        self.assertEqual({key: j[key] for key in expected}, expected)
        self.assertEqual(j["model"], f"shape:smollm2-135m,type=f32,{SHAPE}")

    def test_a_name_is_always_the_same_model(self):
        for name, value in (
            ("llama-1b,layers=1,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=320,context=77,type=q8_0,seed=5",
             "4c49d35e4c0c6637aa92dbbb4278b348"),
            ("qwen3-30b-a3b,type=bf16,layers=1,vocab=512,width=256,heads=4,kv_heads=2,experts=8,experts_used=2,expert_hidden=64",
             "fe5bc6ae1bf9f12411e9600a22ee727a"),
        ):  # fmt: skip
            model = self.json(f"bench shape:{name} --no-probe --repeats 1 --rows 1 --contexts 8 --prefill 0 --threads 1 --json")["model"]
            self.assertEqual((model["hash"], model["path"]), (value, f"shape:{name}"))

    def test_mistakes_are_one_sentence(self):
        for status, words, says in (
            (2, "bench --json", "missing"), (2, "bench --json T --rows 0", '"0"'), (2, "bench --json T --rows 1,,2", '""'),
            (2, "bench --json T --rows 4,2", "ascending"), (2, "bench --json T --contexts -1", '"-1"'), (2, "bench --json T --slots 257", '"257"'),
            (2, "bench --json T --slots 1,64 --rows 2,9", "64 slots of 9 rows are 576 rows; expected at most 512"),
            (1, "bench --json T --contexts 512", "is 512 tokens"), (2, "bench --json T --repeats 0", "from 1 to"),
            (2, "bench T --compare", "./run bench"), (2, "bench T --peer-command=x", "./run bench"),
            (1, "bench --json T --draft nowhere.gguf", "--draft: nowhere.gguf"), (1, "bench --json T --db /nowhere/x.db", "/nowhere/x.db"),
            (1, "bench --json T --turns 999", "expected an open socket"), (1, "bench --json target --turns 3", "Hugging Face directory"),
            (1, "inspect --json shape:llama-2b", 'expected llama-1b, llama-3b, llama-8b, smollm2-135m or qwen3-30b-a3b, found "llama-2b"'),
            (1, "inspect --json shape:llama-1b,", "expected KEY=VALUE"), (1, "inspect --json shape:llama-1b,kind=x", 'no option "kind"'),
            (1, "inspect --json shape:llama-1b,width=100", "block size 32"), (1, "inspect --json shape:llama-1b,heads=30", "multiple of kv_heads"),
            (1, "inspect --json shape:llama-1b,layers=0", "layers: expected an integer from 1 to 1024, found 0"),
            (1, "inspect --json shape:qwen3-30b-a3b,experts=0", "experts: expected an integer from 1 to 4096, found 0"),
            (1, "inspect --json shape:llama-1b,experts_used=2", "experts_used: llama-1b has none"),
            (1, "inspect --json shape:qwen3-30b-a3b,experts=4,type=f32", "of 4 experts at most as many used"),
            (1, "inspect --json shape:llama-8b,type=f32,layers=1024,width=1048576", "GB of free memory for its weights, found "),
        ):  # fmt: skip
            with self.subTest(words):
                self.refused(status, words.replace(" T", " target.gguf"), says)


def task(number, count, least):
    return {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(count), "SLURM_ARRAY_TASK_MIN": str(least),
            "SLURM_ARRAY_TASK_STEP": "1"}  # fmt: skip


class Run(Case):
    """Of one experiment with `none` and ngram, of five prompts."""

    @classmethod
    def setUpClass(cls):
        write("x.yaml", EXPERIMENT % ("conversations", 4, "", "[none, {kind: ngram, tokens: 2}]"))

    def prompts(self, db):
        return self.query(db, "SELECT count(DISTINCT prompt) FROM sequence")[0][0]

    def test_a_shard_has_a_database_of_its_own(self):
        for i in range(2):
            said = self.said(f"run x.yaml --no-probe --shard {i}/2")
            self.assertIn(f"Shard {i}/2 is done, its results are in results-{i}-of-2.db; `speclab merge`", said)
        self.assertEqual(self.prompts("results-0-of-2.db") + self.prompts("results-1-of-2.db"), 5)
        self.assertFalse(os.path.exists("results.db"))
        shown = self.json("run x.yaml --dry-run --json --shard 1/2 --db new.db")
        self.assertEqual(shown["shard"], {"index": 1, "of": 2, "by_slurm": False, "pairs": 3, "conversations": 6})
        self.assertEqual([(cell["conversations"], cell["done"]) for cell in shown["cells"]], [(3, 0), (3, 0)])
        done = self.json("run x.yaml --dry-run --json --shard 0/2")["cells"]
        self.assertEqual([(cell["conversations"], cell["done"], cell["turns"]) for cell in done], [(2, 2, 0), (2, 2, 0)])

    def test_a_task_of_an_array_goes_on_with_its_part(self):
        for _ in range(2):
            said = self.said("run x.yaml --no-probe --db task.db", **task(7, 3, 5))
            self.assertIn("speclab run: shard 2/3, by SLURM_ARRAY_TASK_ID; --shard none runs all of it\n", said)
            self.assertEqual(self.prompts("task.db"), 2)
        # Submitted again with another task, it would be half of the work.
        says = "task.db has shard 2/3 of x, and by SLURM_ARRAY_TASK_ID this is shard 1/2: give --shard 2/3, or --shard none"
        self.refused(1, "run x.yaml --no-probe --db task.db", says, **task(7, 2, 6))
        self.assertEqual(self.prompts("task.db"), 2)
        said = self.said("run x.yaml --no-probe --db task.db --shard none", **task(7, 2, 6))
        self.assertIn("Results are in task.db; `speclab report --db task.db` prints them.\n", said)
        self.assertEqual(self.prompts("task.db"), 5)

    def test_bad_shards_are_mistakes_of_the_call(self):
        self.refused(2, "run x.yaml --shard 4/4", '--shard: expected I from 0 to 3 in I/4, found "4/4": the first shard is 0')
        self.refused(2, "run x.yaml --shard one", '--shard: expected I/N, as in 0/4, N up to 65536, or none, found "one"')
        self.refused(2, "run x.yaml", "SLURM_ARRAY_TASK_ID is 3: expected one of at most 65536 evenly spaced tasks", **task(3, 2, 0))

    def test_a_value_that_is_set_is_as_one_in_the_file(self):
        """A file with these values in it has the same cells and texts."""
        write("same.yaml", EXPERIMENT.replace("}\n%s", ", stop: [x, '=']}\n%s", 1) % ("conversations", 3, "", "[none, {kind: ngram, tokens: 3}]"))
        sets = "--set limits.new_tokens=3 --set 'limits.stop=[x, \"=\"]' --set cells.drafter.1.tokens=3"
        cells = []
        for db, words in (("set.db", f"x.yaml {sets}"), ("same.db", "same.yaml"), ("given.db", "x.yaml")):
            self.ok(f"run {words} --db {db} --no-probe")
            cells.append(self.query(db, "SELECT cell, (SELECT group_concat(tokens) FROM sequence WHERE run = run.id) FROM run ORDER BY cell"))
        self.assertEqual(cells[0], cells[1])
        self.assertNotEqual(cells[0], cells[2])

    def test_what_cannot_be_set_is_one_sentence_with_the_option(self):
        for words, says in (
            ("x", '--set: expected KEY=VALUE, as in limits.new_tokens=64, found "x"'), ("repeat=", "repeat=: expected a value behind =, found none"),
            ("limits..stop=3", "expected a key on each side of a dot, found none"),
            ("cells.drafter.2.tokens=3", 'expected the index of one of 2 values, from 0, found "2"'),
            ("name.x=2", '"x" is a key of a value, "x", which has no keys'), ("repeat={", "--set repeat: --set:2:1: not valid YAML"),
            ("limits.new_token=3 --set repeat=2", "did you mean new_tokens? (with --set limits.new_token=3, --set repeat=2)"),
            ("limits.new_tokens=lots", 'new_tokens: expected an integer, found "lots" (with --set limits.new_tokens=lots)'),
        ):  # fmt: skip
            self.refused(2, f"run x.yaml --set {words}", says)

    def test_a_quiet_run_prints_nothing_and_a_log_has_times(self):
        for _ in range(2):
            done = ended("run x.yaml --db quiet.db --no-probe --quiet --log log.txt")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        with open("log.txt") as f:
            log = [*f]
        self.assertRegex(log[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ temperature=0, batch 1: 2 cells, ")
        self.assertIn("Z temperature=0, batch 1: 2 cells, 0 conversations decoded, ", "".join(log[1:]))
        self.refused(2, "run x.yaml --log ./none/log.txt", "--log ./none/log.txt: No such file or directory")

    def test_an_interrupted_run_says_how_to_resume(self):
        write("many.jsonl", jsonl([{"id": str(i), "prompt": f"abc {i}"} for i in range(400)]))  # minutes of work
        write("long.yaml", EXPERIMENT % ("many", 400, "", "[none]"))
        with subprocess.Popen([PROGRAM, "run", "long.yaml", "--db", "long.db"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            caught = 0
            while run.poll() is None and not caught >> (signal.SIGINT - 1) & 1:  # until it has installed a handler
                with open(f"/proc/{run.pid}/status") as f:
                    caught = int(re.search("SigCgt:\t(.*)", f.read())[1], 16)
                time.sleep(0.002)
            run.send_signal(signal.SIGINT)
            said = run.communicate()[0]
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("speclab run: interrupted; finished texts are in long.db; the same command resumes from there\n", said)


class Replay(Case):
    @classmethod
    def setUpClass(cls):
        write("p.jsonl", jsonl([{"prompt": "abc abc abc"}, {"prompt": "one two one two"}]))
        for name, record in (("rows", "record: {rows: full}\n"), ("bare", "")):
            write("r.yaml", EXPERIMENT.replace("}\n%s", ", ignore_end: true}\n%s", 1) % ("p", 20, record, "{kind: small, model: draft.gguf, tokens: 3}"))
            subprocess.run([PROGRAM, "run", "r.yaml", "--db", f"{name}.db", "--no-probe"], check=True, capture_output=True)

    def test_table_and_json_say_the_same(self):
        shown, (run,) = self.ok("replay rows.db --rule match"), self.json("replay rows.db --rule match --json")
        covered = run["covered"]
        self.assertEqual((run["complete"], covered["tokens"]), (2, 40))
        line = f"  covered        {covered['steps']:7} {covered['tokens_per_step']:12.2f} {covered['drafted']:10} {covered['accepted']:9}"
        for part in (line, "rows: full\nreplay: match\n", "  2 of 2 texts are covered to their end\n"):
            self.assertIn(part, shown)
        self.assertIn("replay: rejection, drafts at most 1 deep\n", self.ok("replay rows.db --run 2 --tokens 1"))

    def test_mistakes_are_named(self):
        for words, status, says in (
            ("", 2, "missing argument"), ("/nowhere.db", 2, "/nowhere.db: no such database"),
            ("rows.db --tokens 0", 2, "--tokens: expected an integer from 1"), ("rows.db --tree none", 2, "none"),
            ("rows.db --rule rejektion", 2, 'unknown rule "rejektion"'), ("rows.db --rule typical:epsilon=x", 2, "epsilon"),
            ("rows.db --run 1", 1, "run 1 (none, rejection) has no recorded rows"), ("rows.db --run 7", 2, "there is no run 7 in it"),
            ("bare.db", 1, "no run has recorded rows: run an experiment with `record: {rows: full}`"),
        ):  # fmt: skip
            self.refused(status, f"replay {words}", says)


if __name__ == "__main__":
    unittest.main()
