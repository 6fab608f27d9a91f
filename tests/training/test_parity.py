"""Every kind of head: torch's logits equal those of the drafters in C to 1e-4, and the drafted tokens are the same.

A trained head is exported, and tests/training/head_rows.c reads it and the same states. Each published form is read back.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import safetensors.torch
import tiny
import torch

from training import eagle3, export, medusa

CHAIN = 4
FACTS = {"title": "t", "target": "tiny", "recipe": "", "table": {}}


def trained(kind, target, ids, options, seed=7):
    """A head with weights that are not special in any way, as training leaves them. seed: one whose chain has several tokens."""
    torch.manual_seed(seed)
    head = kind(target, tiny.CONFIG, ids, {"state_width": 3 * tiny.CONFIG["hidden_size"], **options})
    with torch.no_grad():
        for p in (p for p in head.parameters() if p.requires_grad):
            p += torch.randn_like(p) * (0.15 if p.dim() == 2 else 0.1)
    return head.eval()


def worst(a, b):
    """max |difference| / max |reference|"""
    return float((a - b).abs().max() / b.abs().max())


class Parity(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.dir.name)
        self.t = tiny.weights()
        tiny.write_model(self.path / "target", self.t)
        self.target = {"embed_tokens.weight": self.t["model.embed_tokens.weight"], "lm_head.weight": self.t["lm_head.weight"],
                       "norm.weight": self.t["model.norm.weight"]}
        self.ids = tiny.texts(self.t, 1, 40, 1.0)
        self.streams, self.final, _ = tiny.forward(self.t, self.ids)
        self.draft = torch.sort(torch.randperm(96, generator=torch.Generator().manual_seed(2))[:40]).values

    def tearDown(self):
        self.dir.cleanup()

    def in_c(self, head, form, states):
        """Rows of logits, and the target's ids of the drafted chain, as head_rows prints them."""
        folder = self.path / f"{head.kind}-{form}"
        metadata = {"layers": ",".join(map(str, tiny.LAYERS))}
        export.write(head, folder, "f32", form, metadata, FACTS, None)
        safetensors.torch.save_file({"input_ids": self.ids[0].int(), "states": states[0].contiguous()}, str(self.path / "rows.safetensors"))
        done = subprocess.run([os.path.join(os.environ["BUILD"], "head_rows"), str(self.path / "target"), str(folder),
                               str(self.path / "rows.safetensors")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        drafted = [int(x.split()[1]) for x in lines if x.startswith("draft")]
        return torch.tensor([[float(v) for v in x.split()] for x in lines if not x.startswith("draft")]), drafted

    @torch.no_grad()
    def check_eagle(self, head, form, states):
        n = self.ids.shape[1]
        got, drafted = self.in_c(head, form, states)
        self.assertEqual(got.shape, (n - 1 + CHAIN, len(head.ids)))
        # The chain starts at the last row with a token after it; the text is followed by the tokens that torch drafts.
        ids, root, chain = torch.cat((self.ids, torch.zeros(1, CHAIN + 1).long()), 1), n - 2, []
        padded = torch.cat((states, torch.zeros(1, CHAIN + 1, states.shape[-1])), 1)
        for j in range(CHAIN + 1):
            x = list(head.depths({"ids": ids, "states": padded}, j + 1))[j]
            if j == 0:
                rows = [head.logits(x[0, :n - 1], 0)]
            else:
                rows.append(head.logits(x[0, root:root + 1], j))
            if j < CHAIN:
                chain.append(int(head.ids[rows[-1][-1].argmax()]))
                ids[0, root + j + 2] = chain[-1]
        self.assertEqual(drafted, chain)
        self.assertGreater(len(set(chain)), 2)
        d = worst(got, torch.cat(rows))
        print(f"{head.kind}, form {form}: {len(got)} rows, max |difference| / max |reference| {d:.2g}; drafted {drafted}")
        self.assertLess(d, 1e-4)

    def test_eagle3_in_both_forms(self):
        head = trained(eagle3.Eagle3, self.target, self.draft, {}, seed=12)
        for form in ("published", "speculators"):
            self.check_eagle(head, form, self.streams)

    def test_layer_ids_are_where_vllm_reads_them_as_streams_that_enter_and_not_where_sglang_adds_one(self):
        head = trained(eagle3.Eagle3, self.target, self.draft, {})
        export.write(head, self.path / "head", "f32", "published", {"layers": "2,4,5"}, FACTS, None)
        config = json.loads((self.path / "head" / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["eagle_aux_hidden_state_layer_ids"], [2, 4, 5])
        self.assertEqual(config["eagle_config"], {"use_aux_hidden_state": True})

    def test_numbers_that_the_type_cannot_hold_are_refused(self):
        head = trained(eagle3.Eagle3, self.target, self.draft, {})
        with torch.no_grad():
            head.fc.weight[0, 0] = 1e5
        with self.assertRaisesRegex(SystemExit, "fc.weight has numbers that are not finite as f16"):
            export.write(head, self.path / "head", "f16", "published", {"layers": "2,4,5"}, FACTS, None)

    def test_eagle1(self):
        self.check_eagle(trained(eagle3.Eagle1, self.target, None, {}, seed=0), "published", self.final)

    @torch.no_grad()
    def test_medusa_with_one_output_with_its_own_and_with_the_targets(self):
        for options in ({"heads": 3}, {"heads": 3, "output": "own", "layers": 2}, {"heads": 2, "output": "target"}):
            for ids in (self.draft, None) if options.get("output") != "target" else (None,):
                head = trained(medusa.Medusa, self.target, ids, options)
                got, _ = self.in_c(head, "published", self.final)
                expected = torch.cat([head.logits(x[0], h) for h, x in enumerate(head.depths({"states": self.final}, options["heads"]))])
                d = worst(got, expected)
                print(f"medusa {options}: {len(got)} rows of {got.shape[1]}, max |difference| / max |reference| {d:.2g}")
                self.assertLess(d, 1e-4)
                self.assertTrue(torch.equal(got.argmax(-1), expected.argmax(-1)))


if __name__ == "__main__":
    unittest.main()
