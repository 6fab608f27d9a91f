"""Recipes: mistakes are refused before any part runs, with a sentence; parts that are done go on, and damaged files are named."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import safetensors.torch
import tiny
import torch
import yaml

from training import data, pipeline, recipe

TRAIN = {"steps": 2, "held_out": 0.2, "depths": 4, "eval_tokens": 100, "batch_tokens": 128}

# What is added to a good recipe, and what the refusal says.
MISTAKES = [
    ({"head": 3}, "head: expected keys and values"),
    ({"head": {"kind": ["a"]}}, "head: kind: expected one of eagle3"),
    ({"head": {"kind": "medusa", "keep": 7}}, "unknown key keep"),
    ({"head": {"kind": "eagle", "draft_vocab": 9}}, "head of kind eagle: unknown key draft_vocab"),
    ({"head": {"kind": "medusa", "draft_vocab": 0}}, "head: draft_vocab: expected a positive integer, found 0"),
    ({"head": {"kind": "medusa", "output": "two"}}, "head: output: expected one of one, own, target"),
    ({"head": {"kind": "medusa", "output": "target", "draft_vocab": 9}}, "head: draft_vocab: expected nothing: with output: target"),
    ({"head": {"kind": "medusa", "heads": 7}}, "train: depths: expected at least 7"),
    ({"head": {"kind": "eagle3", "rope_theta": "large"}}, "head: rope_theta: expected a number"),
    ({"head": {"kind": "small", "keep": [1, "x"]}}, "head: keep: expected how many"),
    ({"train": {"steps": 0}}, "train: steps: expected an integer, at least 1, found 0"),
    ({"train": {"seed": "x"}}, "train: seed: expected an integer"),
    ({"train": {"lr": float("nan")}}, "train: lr: expected a number"),
    ({"train": {"held_out": 1}}, "train: held_out: expected more than 0 and less than 1"),
    ({"train": {"one_depth": 1.5}}, "train: one_depth: expected a number from 0 to 1"),
    ({"train": {"bf16": "no"}}, "train: bf16: expected one of auto, True, False, found 'no'"),
    ({"export": {"form": "specs"}}, "export: form: expected one of published, speculators"),
    ({"heads": {"positions": 3}}, "heads: prompts: expected a file of prompts, found None"),
    ({"heads": {"prompt": "a"}}, "heads: unknown key prompt"),
    ({"require": "a lot"}, "require: expected a number"),
    ({"data": "/nowhere.jsonl"}, "data: /nowhere.jsonl: there is no such file"),
    ({"data": {"out": "x"}}, "data: out: is chosen by the recipe"),
    ({"features": []}, "features: expected a list of folders"),
    ({"features": {"stream": "maybe"}, "data": {"invent": 3}}, "features: stream: expected true or false"),
    ({"features": {"kind": "medusa"}, "data": {"invent": 3}}, "features: kind: is chosen by the recipe"),
    ({"features": None}, "there is no key data"),
    ({"model": ["a"]}, "model: expected a name"),
    ({"out": 3}, "out: expected a name"),
    ({"depth": 3}, "top level: unknown key depth"),
]


class Recipe(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.dir.name)
        self.good = {"model": "tiny", "out": str(self.path / "out"), "features": str(self.path / "f"), "head": {"kind": "medusa"}, "train": TRAIN}

    def tearDown(self):
        self.dir.cleanup()

    def write(self, **more):
        path = self.path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**self.good, **more}), encoding="utf-8")
        return str(path)

    def features(self, kind):
        t = tiny.weights()
        tiny.write_features(self.path / "f", t, tiny.texts(t, 40, 16, 1.0), kind)

    def run_it(self, **more):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            pipeline.run(self.write(**more), "/nowhere")
        return said.getvalue()

    def test_mistakes_are_refused_before_anything_runs(self):
        for more, said in MISTAKES:
            with self.subTest(said), self.assertRaises(SystemExit) as e:
                recipe.read_recipe(self.write(**more))
            self.assertIn(said, str(e.exception))
        for text in ("[]", ": : :", ""):
            (self.path / "recipe.yaml").write_text(text, encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, "recipe.yaml: "):
                recipe.read_recipe(str(self.path / "recipe.yaml"))

    def test_numbers_that_yaml_takes_for_texts_are_numbers(self):
        (self.path / "recipe.yaml").write_text("model: m\nout: o\nfeatures: f\nhead: {kind: eagle3}\ntrain: {lr: 1e-3}", encoding="utf-8")
        r = recipe.read_recipe(str(self.path / "recipe.yaml"))
        self.assertEqual(pipeline.loop.read_options(r["train"])["lr"], 0.001)

    def test_a_draft_vocabulary_beyond_the_target_is_refused(self):
        self.features("medusa")
        with self.assertRaisesRegex(SystemExit, "draft_vocab: expected at most 96"):
            self.run_it(head={"kind": "medusa", "draft_vocab": 97})

    def test_layers_that_were_named_are_kept_when_a_run_goes_on(self):
        self.features("small")
        for more in ({"kind": "small", "keep": [1, 4, 6]}, {"kind": "small", "keep": 7}):
            self.good["out"] = str(self.path / str(more["keep"]))
            self.run_it(head=more)
            self.assertIn("prune is done", self.run_it(head=more))
            kept = pathlib.Path(self.good["out"]) / "kept.json"
            for text, said in (("[1", "damaged"), ("[1, 4, 99]", "expected [37] layers"), ("3", "expected [37] layers"), (None, ".*found None")):
                if text is None:
                    kept.unlink()
                else:
                    kept.write_text(text, encoding="utf-8")
                with self.assertRaisesRegex(SystemExit, f"kept.json: {said}"):
                    self.run_it(head=more)

    def test_a_resumed_run_has_the_vocabulary_of_its_checkpoint(self):
        self.features("medusa")
        more = {"head": {"kind": "medusa", "draft_vocab": 40}, "train": {**TRAIN, "steps": 4, "checkpoint_every": 2}}
        out, kept = self.path / "out", []

        def weights():
            return safetensors.torch.load_file(str(out / "head" / "model.safetensors"))

        def write(path, state):
            loop_write(path, state)
            kept.append(path.read_bytes())
        loop_write, count = pipeline.loop.write_checkpoint, data.count_answers
        try:
            pipeline.loop.write_checkpoint = write
            self.run_it(**more)
            whole = weights()
            (out / "checkpoint.pt").write_bytes(kept[0])                   # as after a kill at step 3
            data.count_answers = lambda texts, vocab: -count(texts, vocab)   # and texts that were replaced since
            self.assertIn("goes on from step 2", self.run_it(**more))
        finally:
            pipeline.loop.write_checkpoint, data.count_answers = loop_write, count
        self.assertEqual(len(kept), 3)
        again = weights()
        self.assertTrue(all(torch.equal(whole[n], again[n]) for n in whole))

    def test_a_run_begins_with_the_weights_of_another(self):
        self.features("medusa")
        first = {"head": {"kind": "medusa", "draft_vocab": 40}, "train": {**TRAIN, "steps": 4, "lr": 0.01}}
        self.run_it(**first)
        self.good["out"] = str(self.path / "second")
        checkpoint = str(self.path / "out" / "checkpoint.pt")
        def trained(folder):
            return torch.load(self.path / folder / "checkpoint.pt", weights_only=True)["head"]
        second = {"head": {"kind": "medusa", "init": checkpoint}, "train": {**TRAIN, "steps": 1, "lr": 1e-30}}  # weights that stay
        self.run_it(**second)
        a, b = trained("out"), trained("second")
        self.assertEqual(len(a["ids"]), 40)                                # the draft vocabulary, too
        self.assertEqual(a.keys(), b.keys())
        self.assertTrue(all(torch.equal(a[n], b[n]) for n in a))
        with self.assertRaisesRegex(SystemExit, "head: draft_vocab: expected nothing beside init"):
            self.run_it(head={"kind": "medusa", "draft_vocab": 40, "init": checkpoint})
        with self.assertRaisesRegex(SystemExit, "head: init: .*checkpoint.pt: not of this head"):
            self.good["out"] = str(self.path / "third")
            self.run_it(head={"kind": "medusa", "heads": 2, "init": checkpoint})
        with self.assertRaisesRegex(SystemExit, "head: init: expected checkpoint.pt of an earlier run, found '/nowhere'"):
            self.run_it(head={"kind": "medusa", "init": "/nowhere"})

    def test_files_that_are_no_checkpoints_are_refused(self):
        self.features("medusa")
        self.run_it()
        checkpoint = self.path / "out" / "checkpoint.pt"
        for content in ({"head": {}}, [1, 2]):
            torch.save(content, checkpoint)
            with self.assertRaisesRegex(SystemExit, "not a checkpoint of ./run train"):
                self.run_it()
        checkpoint.write_bytes(b"PK")
        with self.assertRaisesRegex(SystemExit, "checkpoint.pt: not a checkpoint"):
            self.run_it()

    def test_damaged_features_are_named(self):
        self.features("medusa")
        shard = self.path / "f" / "features-00000.safetensors"
        good, metadata = safetensors.torch.load_file(str(shard)), {"format": data.FORMAT, "kind": "medusa", "first": "0"}

        def refused(said, tensors, **more):
            safetensors.torch.save_file(tensors, str(shard), {**metadata, **more})
            with self.assertRaisesRegex(SystemExit, said):
                self.run_it()
        refused("there is no tensor states", {n: t for n, t in good.items() if n != "states"})
        refused("its offsets do not fit", {**good, "offsets": good["offsets"] + 1})
        refused("its offsets do not fit", {**good, "top_ids": good["top_ids"][1:].contiguous()})
        refused("expected first", good, first="x")
        refused("expected format", good, format="other")
        safetensors.torch.save_file(good, str(shard), metadata)
        other = self.path / "f" / "features-00003.safetensors"
        for first, more, said in (("41", {}, "begins with conversation 40, found 41"), ("40", {"kind": "eagle"}, "expected kind medusa")):
            safetensors.torch.save_file(good, str(other), {**metadata, "first": first, **more})
            with self.assertRaisesRegex(SystemExit, said):
                self.run_it()
        other.unlink()
        target = self.path / "f" / "target.safetensors"
        target.write_bytes(target.read_bytes()[:1000])
        with self.assertRaisesRegex(SystemExit, "target.safetensors: "):
            self.run_it()
        target.unlink()
        with self.assertRaisesRegex(SystemExit, "target.safetensors: "):
            self.run_it()

    def test_parts_that_are_done_are_not_taken_for_those_of_another_model_or_other_texts(self):
        texts = self.path / "a.jsonl"
        texts.write_text("{}\n", encoding="utf-8")
        more = {"features": {"top-k": 8}, "data": str(texts)}
        parts = pipeline.Parts(self.good["out"], "/nowhere")
        parts.done("features", {"model": "tiny", "texts": str(texts), "kind": "medusa", "top-k": 8})
        for other in ({"model": "other"}, {"data": str(self.write())}, {"features": {"top-k": 9}}, {"head": {"kind": "eagle3"}}):
            with self.assertRaisesRegex(SystemExit, "features was done with another recipe"):
                self.run_it(**{**more, **other})
        with self.assertRaisesRegex(SystemExit, "expected features-00000.safetensors"):                 # done
            self.run_it(**more)


if __name__ == "__main__":
    unittest.main()
