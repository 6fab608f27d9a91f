"""Losses, batches, acceptance and the unrolled forward pass, each against the same thing computed in another way."""
import json
import math
import os
import pathlib
import sys
import tempfile
import unittest

import torch

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / "python"), str(pathlib.Path(__file__).parent)]
import tiny  # noqa: E402
from speclab.words import features  # noqa: E402
from training import accept, data, eagle3, induction, losses, loop, medusa  # noqa: E402


def rows(n=7, vocab=10, k=4, draft=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    p = torch.randn(n, vocab, generator=g).mul(2).softmax(-1)
    ids = torch.sort(torch.randperm(vocab, generator=g)[:draft]).values
    top = p.topk(k, -1)
    return torch.randn(n, draft, generator=g), accept.to_draft(ids, vocab)[top.indices], top.values, top.indices, ids


class Losses(unittest.TestCase):
    def test_each_loss_equals_its_definition_written_out(self):
        logits, at, p, top, ids = rows()
        log_q = losses.log_q_at(logits, at)
        for r in range(len(logits)):
            q = dict(zip(ids.tolist(), logits[r].softmax(-1).tolist()))
            pairs = [(float(x), q.get(int(i), 0.0)) for i, x in zip(top[r], p[r])]
            over = sum(min(a, b) for a, b in pairs)
            expected = {"tv": 1 - over, "kl": sum(a * math.log(a / b) for a, b in pairs if b), "lk_alpha": -math.log(max(over, 1e-6)),
                        "ce": -math.log(pairs[0][1]) if pairs[0][1] else 0.0}
            for name, value in expected.items():
                if name == "lk_alpha" and not over:
                    value = 0.0
                self.assertAlmostEqual(float(losses.LOSSES[name](log_q, p)[r]), value, 5, name)

    def test_lk_is_kl_where_nothing_overlaps_and_mixes_by_the_mean_overlap(self):
        logits, at, p, _, _ = rows()
        log_q = losses.log_q_at(logits, at)
        w = math.exp(-3 * float(losses.overlap(log_q, p).mean()))
        expected = w * losses.kl(log_q, p) + (1 - w) * losses.tv(log_q, p)
        torch.testing.assert_close(losses.lk(log_q, p), expected)

    def test_gradients_are_finite_when_tokens_are_outside_the_draft_vocabulary(self):
        for name, loss in losses.LOSSES.items():
            logits, at, p, _, _ = rows()
            at[2] = -1                                                      # a row without any token
            logits.requires_grad_()
            loss(losses.log_q_at(logits, at), p).mean().backward()
            self.assertTrue(torch.isfinite(logits.grad).all(), name)

    def test_log_q_and_its_gradient_are_those_of_log_softmax_over_several_chunks(self):
        n = 2 * losses.CHUNK + 5
        logits, at, p, _, _ = rows(n)
        known = at >= 0
        for x in (logits, other := logits.clone()):
            x.requires_grad_()
        ours, theirs = losses.log_q_at(logits, at), other.log_softmax(-1).gather(-1, at.clamp(min=0))
        torch.testing.assert_close(ours[known], theirs[known])
        (ours[known] * p[known]).sum().backward()
        (theirs[known] * p[known]).sum().backward()
        torch.testing.assert_close(logits.grad, other.grad)

    def test_the_gradient_of_kl_over_the_full_vocabulary_is_q_minus_p(self):
        logits = torch.randn(3, 8, requires_grad=True)
        p, ids = torch.randn(3, 8).softmax(-1).topk(8, -1)
        losses.kl(losses.log_q_at(logits, ids), p).sum().backward()
        torch.testing.assert_close(logits.grad, logits.softmax(-1).detach() - torch.zeros(3, 8).scatter(1, ids, p))


class Batches(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.t = tiny.weights()
        self.ids = torch.randint(0, 96, (40, 12), generator=torch.Generator().manual_seed(3))
        tiny.write_features(self.dir.name, self.t, self.ids, "eagle3", per_shard=7)
        self.source = data.Folder(self.dir.name)
        self.o = {**loop.DEFAULTS, "batch_tokens": 40, "mix_shards": 2, "held_out": 0.2, "eval_tokens": 10**6}

    def tearDown(self):
        self.dir.cleanup()

    def test_two_folders_are_one_source_and_of_the_same_target(self):
        with tempfile.TemporaryDirectory() as other:
            tiny.write_features(other, self.t, self.ids + 1 - 2 * (self.ids > 50).long(), "eagle3", per_shard=9)
            both = data.Folder([self.dir.name, other])
            self.assertEqual(sum(len(s) for s in both.shards(range)), 80)
            self.assertEqual(both.metadata["data"], "0 0")
            tiny.write_features(other, self.t, self.ids, "medusa", per_shard=9)
            with self.assertRaisesRegex(SystemExit, "expected kind eagle3, as in .*, found medusa"):
                data.Folder([self.dir.name, other])

    def test_an_epoch_has_every_conversation_once_and_no_held_out_one(self):
        seen = []
        for (epoch, _, _), b in data.training_batches(self.source, self.o, (0, 0, 0)):
            if epoch > 0:
                break
            self.assertLessEqual(b["ids"].numel(), 40)
            seen += [tuple(i) for i in b["ids"].tolist()]
        held = [tuple(i) for b in data.held_out_batches(self.source, self.o) for i in b["ids"].tolist()]
        self.assertTrue(2 <= len(held) <= 16)
        self.assertEqual(sorted(seen + held), sorted(tuple(i) for i in self.ids.tolist()))
        self.assertNotEqual(seen, sorted(seen))

    def test_answers_to_one_prompt_are_held_out_together(self):
        twice = self.ids.repeat(2, 1)
        twice[40:, 4:] = 95 - twice[40:, 4:]                                # another answer to each prompt
        with tempfile.TemporaryDirectory() as other:
            tiny.write_features(other, self.t, twice, "eagle3", per_shard=7)
            held = [h for shard in data.Folder(other).shards(range) for h in shard.held_out(0.3)]
        self.assertEqual(held[:40], held[40:])
        self.assertTrue(0 < sum(held) < 40)
        self.assertEqual(data.is_held_out([3, 4], [0, 0], 0.3), data.is_held_out([3, 4, 9], [0, 0, 1], 0.3))

    def test_the_order_goes_on_from_any_position(self):
        def first(position, n):
            it = data.training_batches(self.source, self.o, position)
            return [next(it) for _ in range(n)]
        all_of_them = first((0, 0, 0), 30)                                 # more than an epoch
        for at in (1, 5, 11, 20):
            again = first(all_of_them[at - 1][0], 30 - at)
            for (pa, a), (pb, b) in zip(all_of_them[at:], again):
                self.assertEqual(pa, pb)
                self.assertTrue(torch.equal(a["ids"], b["ids"]) and torch.equal(a["states"], b["states"]))

    @unittest.skipIf(os.environ["SANITIZED"], "torch and the library's sanitizers are not for one process")
    def test_a_stream_gives_the_shards_of_the_folder(self):
        model, texts, folder = (str(pathlib.Path(self.dir.name) / name) for name in ("model", "texts.jsonl", "folder"))
        tiny.write_model(model, self.t)
        pathlib.Path(texts).write_text("".join(json.dumps({"input_ids": i, "loss_mask": [0] * 4 + [1] * 8}) + "\n" for i in self.ids.tolist()),
                                       encoding="utf-8")
        os.environ["SPECLAB_PROGRAM"] = os.path.join(os.environ["BUILD"], "speclab")
        for kind, more in (("eagle3", ["--layers", "2,4,5"]), ("medusa", ["--type", "bf16"]), ("small", [])):
            words = [model, texts, "--kind", kind, "--shard-tokens", "100", "--top-k", "8", *more]
            tiny.write_features_by_engine(folder + kind, *words)
            files, stream = data.Folder(folder + kind), data.Stream(features.opened(features.read([*words, "--activations", "f32"])))
            self.assertEqual(stream.metadata, {k: v for k, v in files.metadata.items() if k != "first"})
            self.assertEqual(stream.target()[1], files.target()[1])
            for name, x in files.target()[0].items():
                self.assertTrue(torch.equal(stream.target()[0][name], x))
            for _ in range(2):                                             # epochs
                for a, b in zip(stream.shards(range), files.shards(range), strict=True):
                    self.assertEqual((a.first, a.offsets, a.rows), (b.first, b.offsets, b.rows))
                    self.assertTrue(all(torch.equal(a.read(t, 0, None), b.read(t, 0, None)) for t in a.rows))
            if kind != "small":                                            # a stream that is not read to its end
                self.assertTrue(all(torch.equal(a, b) and len(a) == 30 for a, b in zip(data.sample_states(stream, 0.2, 30),
                                                                                       data.sample_states(files, 0.2, 30), strict=True)))
            if kind == "eagle3":                                           # what torch computes
                streams = tiny.forward(self.t, self.ids)[0]
                states = torch.cat([s.read("states", 0, None) for s in stream.shards(range)]).view(40, 12, -1)
                self.assertLess(float((states - streams).abs().max()), 1e-4)

    def test_the_draft_vocabulary_is_the_most_frequent_answers(self):
        count = data.count_answers(data.answers_of(self.source, 0.2), 96)
        held = [data.is_held_out(c, [0, 0, 0, 0, 1], 0.2) for c in self.ids.tolist()]
        self.assertTrue(0 < sum(held) < 40)
        answers = self.ids[~torch.tensor(held), 4:].flatten().tolist()
        self.assertEqual(count.tolist(), [answers.count(i) for i in range(96)])
        ids = data.draft_vocabulary(count, 10)
        covered = data.coverage(count, ids)
        best = sorted(range(96), key=lambda i: (-answers.count(i), i))[:10]
        self.assertEqual(ids.tolist(), sorted(best))
        self.assertAlmostEqual(covered, sum(answers.count(i) for i in best) / len(answers))


def one_by_one(head, batch, root, depth):
    """What the LM head reads at `depth` from `root`, with a cache to which it adds a row at a time, as the drafter's does."""
    h, c = head, head.c
    eps, keys, values = c["rms_norm_eps"], [], []

    def row(token, g, position):
        e = eagle3.rms(h.embedding[token], h.input_layernorm, eps)
        read = torch.cat((e, eagle3.rms(g, h.hidden_norm, eps)))[None, None]
        tables = eagle3.rope_tables(torch.tensor([position]), c["head_dim"], c["rope_theta"])

        def heads(m):
            return m(read).view(-1, c["head_dim"])
        keys.append(eagle3.rotate(heads(h.layer.k_proj), *tables))
        values.append(heads(h.layer.v_proj))
        q, out = eagle3.rotate(heads(h.layer.q_proj), *tables), []
        for a in range(len(q)):
            of = a // (len(q) // c["num_key_value_heads"])
            p = torch.stack([q[a] @ k[of] / c["head_dim"] ** 0.5 for k in keys]).softmax(0)
            out.append(sum(w * v[of] for w, v in zip(p, values)))
        x = g + h.layer.o_proj(torch.cat(out))
        y = eagle3.rms(x, h.layer.post_attention_layernorm, eps)
        return x + h.layer.down_proj(torch.nn.functional.silu(h.layer.gate_proj(y)) * h.layer.up_proj(y))
    ids, states = batch["ids"][0], batch["states"][0]
    for i in range(root + 1):
        g = row(ids[i + 1], h.fc(states[i]), i)
    for j in range(1, depth + 1):
        g = row(ids[root + j + 1], g, root + j)
    return eagle3.rms(g, h.norm, eps)


class Forward(unittest.TestCase):
    def test_the_unrolled_pass_equals_a_cache_filled_row_by_row(self):
        torch.manual_seed(1)
        t = tiny.weights()
        target = {"embed_tokens.weight": t["model.embed_tokens.weight"], "lm_head.weight": t["lm_head.weight"],
                  "norm.weight": t["model.norm.weight"]}
        head = eagle3.Eagle3(target, tiny.CONFIG, torch.arange(0, 96, 2), {"state_width": 144})
        for p in head.layer.parameters():
            torch.nn.init.normal_(p, std=0.3)
        batch = {"ids": torch.randint(0, 96, (2, 14)), "states": torch.randn(2, 14, 144)}
        with torch.no_grad():
            out = list(head.depths(batch, 5))
            for root in (0, 3, 7):
                for depth in range(5):
                    torch.testing.assert_close(out[depth][0, root], one_by_one(head, batch, root, depth), rtol=1e-4, atol=1e-4)


class PerfectHead(torch.nn.Module):
    """Its rows are the target's own: everything that the target would write is drafted."""

    def __init__(self, logits):
        super().__init__()
        self.rows = logits

    def depths(self, batch, n):
        for j in range(n):
            yield eagle3.shifted(self.rows, j + 1)

    def logits(self, x, depth):
        return x


class Acceptance(unittest.TestCase):
    def batch(self, temperature):
        t = tiny.weights()
        ids = tiny.texts(t, 48, 24, temperature)
        logits = tiny.forward(t, ids)[2]
        top = logits.softmax(-1).topk(96, -1)
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask[:, :4] = False
        return logits, {"ids": ids, "mask": mask, "length": torch.full((48,), 24), "top_ids": top.indices, "top_p": top.values,
                        "states": torch.zeros(48, 24, 1)}

    def test_a_perfect_head_is_always_accepted(self):
        for temperature, key in ((0.0, "greedy"), (1.0, "sampled")):
            logits, batch = self.batch(temperature)
            r = accept.held_out(PerfectHead(logits), [batch], 3, torch.arange(96), "cpu")
            for rate in r[key]:
                self.assertAlmostEqual(rate, 1.0, 4)
            self.assertAlmostEqual(r["tokens3" if key == "greedy" else "sampled3"], 4.0, 3)
            self.assertEqual(r["roots"], 48 * 19)

    def test_acceptance_of_greedy_chains_equals_their_replay(self):
        logits, batch = self.batch(0.0)
        noise = logits + 3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
        r = accept.held_out(PerfectHead(noise), [batch], 3, torch.arange(96), "cpu")
        reached, accepted = [0] * 3, [0] * 3
        for s in range(48):
            for root in range(4, 23):                                       # the text is the target's greedy text
                for j in range(3):
                    if root + j + 1 > 23:
                        break
                    reached[j] += 1
                    if int(noise[s, root + j].argmax()) != int(batch["ids"][s, root + j + 1]):
                        break
                    accepted[j] += 1
        for j in range(3):
            self.assertAlmostEqual(r["greedy"][j], accepted[j] / reached[j], 6)

    def test_rows_of_prompts_do_not_count(self):
        _, batch = self.batch(0.0)
        batch["mask"][:, 10] = False
        for depth in range(4):
            some = accept.rows_at(batch, depth)
            all_of_them = accept.rows_at(batch, depth, answers_before=True)
            for r in range(24):
                predicted = r + depth + 2
                self.assertEqual(bool(some[0, r]), predicted < 24 and bool(batch["mask"][0, predicted]))
                self.assertEqual(bool(all_of_them[0, r]), predicted < 24 and bool(batch["mask"][0, r + 1:predicted + 1].all()))


class Induction(unittest.TestCase):
    """A text of random tokens, and again: a head that has not been trained copies it the second time."""

    def copied(self, begins):
        c = {**tiny.CONFIG, "hidden_size": 256, "head_dim": 64, "vocab_size": 96}
        target = {n.removeprefix("model."): x for n, x in tiny.weights(c=c).items()}
        g = torch.Generator().manual_seed(4)
        once = torch.randint(2, 96, (16, 30), generator=g)
        ids = torch.cat((once, once), 1)
        streams = torch.randn(16, 60, 768, generator=g)                    # which say nothing, but that the first one has the token
        streams[..., :256] = 3 * target["embed_tokens.weight"][ids] + 0.05 * streams[..., :256]
        torch.manual_seed(1)
        head = eagle3.Eagle3(target, c, None, {"state_width": 768})
        if begins:
            induction.begin(head, streams.reshape(-1, 768), ids.reshape(-1))
        with torch.no_grad():
            top = head.logits(next(iter(head.depths({"ids": ids, "states": streams}, 1))), 0).argmax(-1)
        rows = slice(31, 58)                                               # row r reads t[r + 1] and proposes t[r + 2]
        return float((top[:, rows] == ids[:, 33:60]).float().mean())

    def test_what_followed_a_token_is_proposed_again(self):
        plain, begun = self.copied(False), self.copied(True)
        print(f"copied: {plain:.2f} of the tokens, with induction {begun:.2f}")
        self.assertLess(plain, 0.1)
        self.assertGreater(begun, 0.5)

    def test_the_embedding_is_recovered_from_a_stream_that_has_it(self):
        g = torch.Generator().manual_seed(2)
        e, noise, mix = (torch.randn(n, 8, generator=g) for n in (5000, 5000, 8))
        m = induction.recover(e @ mix.T + 0.01 * noise + 3, e)
        self.assertGreater(float(torch.nn.functional.cosine_similarity(e @ mix.T @ m.T, e).mean()), 0.95)


class Steps(unittest.TestCase):
    def test_the_first_steps_train_depth_0_alone(self):
        calls = []

        class Counted(eagle3.Eagle3):
            def depths(self, batch, n):
                if torch.is_grad_enabled():
                    calls.append(n)
                return super().depths(batch, n)
        t = tiny.weights()
        with tempfile.TemporaryDirectory() as folder:
            tiny.write_features(folder + "/f", t, tiny.texts(t, 30, 12, 1.0), "eagle3")
            source = data.Folder(folder + "/f")
            target, config = source.target()
            head = Counted(target, config, None, {"state_width": 3 * config["hidden_size"]})
            loop.train(head, source, {"steps": 10, "one_depth": 0.4, "depths": 3, "batch_tokens": 60, "held_out": 0.2, "device": "cpu"},
                       folder + "/out", {})
        self.assertEqual(calls, [1] * 4 + [3] * 6)

    def test_muon_takes_the_matrices_within_a_head(self):
        t = tiny.weights()
        target = {n.removeprefix("model."): x for n, x in t.items()}
        for head, expected in (
                (eagle3.Eagle3(target, tiny.CONFIG, None, {"state_width": 144}),
                 {"fc.weight", *(f"layer.{m}_proj.weight" for m in ("q", "k", "v", "o", "gate", "up", "down"))}),
                (medusa.Medusa(target, tiny.CONFIG, None, {"heads": 2, "output": "own", "state_width": 48}), {"blocks.0.0.weight", "blocks.1.0.weight"})):
            o = loop.Optimizer(head, {**loop.DEFAULTS, "optimizer": "muon"})
            of = {id(p): n for n, p in head.named_parameters()}
            groups = [{of[id(p)] for group in part.param_groups for p in group["params"]} for _, part in o.parts]
            self.assertEqual(groups[1], expected)
            self.assertEqual(groups[0] | groups[1], {n for n, p in head.named_parameters() if p.requires_grad})
            self.assertFalse(groups[0] & groups[1])


class Options(unittest.TestCase):
    def test_an_unknown_key_is_named(self):
        with self.assertRaisesRegex(SystemExit, "unknown key stepz"):
            loop.read_options({"stepz": 1})
        with self.assertRaisesRegex(SystemExit, "loss: expected one of"):
            loop.read_options({"loss": "kll"})


if __name__ == "__main__":
    unittest.main()
