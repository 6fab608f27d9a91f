"""A run of 200 steps that is killed and resumed ends in the bits of an uninterrupted one; a checkpoint of another recipe is refused."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tiny
import torch

RECIPE = """model: tiny
out: {out}
features: {features}
head: {{kind: {kind}, {more}}}
train: {{steps: 200, batch_tokens: 256, checkpoint_every: {every}, eval_every: 100, held_out: 0.1, lr: {lr}, depths: 3, eval_tokens: 500, optimizer: {optimizer}}}
"""


def same(a, b):
    if torch.is_tensor(a):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return all(same(x, y) for x, y in zip(a, b, strict=True)) if isinstance(a, list) else a == b


class Resume(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.dir.name)
        t = tiny.weights()
        ids = tiny.texts(t, 120, 24, 1.0)
        for kind in ("eagle3", "medusa", "small"):
            tiny.write_features(self.path / kind, t, ids, kind)

    def tearDown(self):
        self.dir.cleanup()

    def start(self, name, kind, every=20, lr=0.002):
        recipe = self.path / f"{name}.yaml"
        recipe.write_text(RECIPE.format(out=self.path / name, features=self.path / kind, kind=kind, every=every, lr=lr,
                                         optimizer="muon" if kind == "eagle3" else "adamw",
                                         more={"small": "keep: 3", "medusa": "draft_vocab: 64, heads: 3", "eagle3": "draft_vocab: 64"}[kind]), encoding="utf-8")
        return subprocess.Popen([sys.executable, "-B", "-m", "training.pipeline", str(recipe)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def finish(self, *arguments, **more):
        p = self.start(*arguments, **more)
        out, err = p.communicate()
        self.assertEqual(p.returncode, 0, err)
        return err

    def kill_after_a_checkpoint(self, name, kind):
        p, checkpoint = self.start(name, kind), self.path / name / "checkpoint.pt"
        while not checkpoint.exists() and p.poll() is None:
            time.sleep(0.002)
        time.sleep(0.1)
        self.assertIsNone(p.poll(), "the run ended before it could be killed")
        os.kill(p.pid, signal.SIGKILL)
        p.communicate()

    def check(self, kind):
        self.finish("whole", kind)
        self.kill_after_a_checkpoint("killed", kind)
        at = torch.load(self.path / "killed" / "checkpoint.pt", weights_only=True)["step"]
        self.assertTrue(20 <= at < 200, at)
        self.assertIn(f"goes on from step {at}", self.finish("killed", kind))
        a, b = (torch.load(self.path / n / "checkpoint.pt", weights_only=True) for n in ("whole", "killed"))
        for part in ("step", "tokens", "position", "head", "optimizer", "rng"):
            self.assertTrue(same(a[part], b[part]), f"{part} differs after a kill at step {at}")
        one, two = ((self.path / n / "head" / "model.safetensors").read_bytes() for n in ("whole", "killed"))
        self.assertEqual(one, two)
        print(f"{kind}: killed after step {at} of 200, resumed: the same {a['tokens']} tokens, weights, optimizer and exported head")

    def test_eagle3(self):
        self.check("eagle3")

    def test_medusa(self):
        self.check("medusa")

    def test_small(self):
        self.check("small")

    def test_another_recipe_is_refused(self):
        self.finish("first", "medusa")
        p = self.start("first", "medusa", lr=0.003)
        _, err = p.communicate()
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("written with lr 0.002, but now lr is 0.003", err)


if __name__ == "__main__":
    unittest.main()
