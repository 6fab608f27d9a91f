"""Draft models made of the target: the layers in torch are the target's in C, the choice of layers is that of a plain search, and
what is exported is read back by the engine.
"""
import io
import json
import pathlib
import tempfile
import unittest

import tiny
import torch

from training import data, export, small

FACTS = {"title": "t", "target": "tiny", "recipe": "", "table": {}}
EVERYTHING = list(range(tiny.CONFIG["num_hidden_layers"]))


class Small(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.dir.name)
        self.t = tiny.weights()
        tiny.write_model(self.path / "target", self.t)
        self.ids = tiny.texts(self.t, 6, 20, 1.0)

    def tearDown(self):
        self.dir.cleanup()

    def features(self, model, out):
        """What the engine computes of the texts."""
        texts = self.path / "texts.jsonl"
        texts.write_text("".join(json.dumps({"input_ids": i, "loss_mask": [0] * 4 + [1] * 16}) + "\n" for i in self.ids.tolist()),
                         encoding="utf-8")
        tiny.write_features_by_engine(self.path / out, model, texts, "--kind", "small", "--top-k", 16)
        return data.Folder(self.path / out)

    def head(self, source, keep, **more):
        return small.Small(*source.target(), None, {"keep": keep, **more})

    def batch(self, source):
        shard = next(source.shards(range))
        return data.collate([shard.conversation(s, 512) for s in range(len(shard))])

    @torch.no_grad()
    def check_p(self, head, b):
        """The engine's probabilities are those of the head in torch. Row r of depth 0 is the engine's row r + 1."""
        x = list(head.depths(b, 1))[0][:, :-1]
        q = head.logits(x, 0).softmax(-1).gather(-1, b["top_ids"][:, 1:])
        worst = float((q - b["top_p"][:, 1:]).abs().max())
        print(f"{len(head.layers)} layers: max difference of probabilities {worst:.2g}")
        self.assertLess(worst, 1e-5)

    def test_all_layers_are_the_target(self):
        source = self.features(self.path / "target", "f")
        self.check_p(self.head(source, EVERYTHING), self.batch(source))

    def test_the_choice_is_that_of_a_plain_search(self):
        source = self.features(self.path / "target", "f")
        head, b, log = self.head(source, 4), self.batch(source), io.StringIO()
        p = tiny.forward(self.t, self.ids)[2].softmax(-1)
        top = p.topk(16, -1)
        kept = EVERYTHING
        for _ in range(4):
            worth = []
            for without in kept:
                q = tiny.forward(self.t, self.ids, layers=[i for i in kept if i != without])[2].softmax(-1).gather(-1, top.indices)
                worth.append(float(torch.minimum(top.values, q).sum(-1)[:, 3:-1].mean()))   # rows that predict an answer
            kept = [k for i, k in enumerate(kept) if i != max(range(len(kept)), key=lambda i: worth[i])]
        head.prune(b, rows_limit=10**6, log=log)
        self.assertEqual(head.kept, kept)
        self.assertEqual(len(head.layers), 4)
        self.assertIn(f"4 layers, acceptance {max(worth):.4f}", log.getvalue())

    def test_a_trained_copy_is_read_back_by_the_engine(self):
        source = self.features(self.path / "target", "f")
        head = self.head(source, [1, 4, 6], train_embedding=True)
        torch.manual_seed(3)
        with torch.no_grad():
            for w in head.parameters():
                w += 0.1 * torch.randn_like(w)
        export.write(head, self.path / "copy", "f32", "published", source.metadata, FACTS, None)
        copied = self.batch(self.features(self.path / "copy", "g"))
        self.check_p(head, copied)
        config = json.loads((self.path / "copy" / "config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["num_hidden_layers"], config["layers_of_target"]), (3, [1, 4, 6]))

    def test_layers_that_the_target_lacks_are_refused(self):
        source = self.features(self.path / "target", "f")
        for keep in ([3, 2], [8], [-1], 0, 9, []):
            with self.assertRaisesRegex(SystemExit, "expected ascending layers from 0 to 7"):
                self.head(source, keep)


if __name__ == "__main__":
    unittest.main()
