"""tune: which probes are made, what they predict on steps of known costs, which candidates are confirmed; layers; all of it from outside."""

import json
import random
import re
import sqlite3

import pytest
from conftest import ROOT, call, engine

from speclab.command import Fault, Misuse
from speclab.engine import Process
from speclab.layers import best, exchanged, fewer, listed, predicted
from speclab.settings import inline, pairs, written
from speclab.tuning import Candidate, Searched, best_trees
from speclab.words.tune import Tuning, _options

# A pass of n rows takes PASS + ROW n, whatever the context; a step has OUTSIDE besides; a level of a draft takes LEVEL.
PASS, ROW, OUTSIDE, LEVEL = 1000, 100, 50, 30
ACCEPTED = [3, 0, 1, 2, 3, 1, 0, 3, 2, 0]
NONE, CHAIN, TREE = 1, 2, 3  # runs


@pytest.mark.parametrize("text, yaml", [
    ("ngram", "{kind: ngram}"),
    ("small:model=a b.gguf,widths=[4,2],tokens=3", "{kind: small, model: a b.gguf, widths: [4, 2], tokens: 3}"),
    ("small:tree=[[0], [0,1]],model=c:x", '{kind: small, tree: [[0], [0, 1]], model: "c:x"}'),
    ("ngram:length={by: confidence, threshold: 0.3},x=[]", "{kind: ngram, length: {by: confidence, threshold: 0.3}, x: []}"),
    ('layer_skip:keep="0\t', '{kind: layer_skip, keep: "\\"0\\x09"}'),
])  # fmt: skip
def test_settings_are_read_and_written(text, yaml):
    assert written(inline(text, "--drafter")) == yaml


@pytest.mark.parametrize("text, says", [
    (":x=1", 'expected a kind, found ":x=1"'), ("ngram:tokens", 'expected key=value, found "tokens" in "ngram:tokens"'),
    ("ngram:a=1,a=2", '"a" is given twice'), ("ngram:x={a}", 'expected KEY: VALUE, found "a"'), ("ngram:kind=y", "twice"),
])  # fmt: skip
def test_settings_that_are_none_are_refused(text, says):
    with pytest.raises(Misuse, match=re.escape(says)):
        inline(text, "--drafter")
    assert pairs("temperature=0,top_k=3", "--sampling") == {"temperature": "0", "top_k": "3"}


def tuning(folder, drafters, rule="rejection", sampling="temperature=0.7"):
    """A tuning with these drafters, up to the search."""
    words = [w for d in drafters for w in ("--drafter", d)]
    words += ["--rule", rule, "--sampling", sampling, "--longest", "5", "--context", "64", "--prompts", "p"]
    t = Tuning(_options().read(["m", *words]), str(folder))
    (folder / "probed.jsonl").write_text("")
    known = {d["name"]: d for d in t.known["drafters"]}
    for text in drafters:
        d = inline(text, "--drafter")
        kind = known[d["kind"]]
        t.search.add(Searched(d, {o["name"] for o in kind["options"]}, int(d.get("tokens", 5)), kind["remembers"]))
    return t.search


@pytest.mark.parametrize("drafter, rule, most, lengths, trees, themselves, rows", [
    ("ngram", "rejection", 40, 1, 0, 0, 5),
    ("ngram:tokens=7,shortest=2", "rejection", 2, 1, 0, 0, 7),
    ("small:model=x", "rejection", 40, 1, 1, 3, 63),
    ("small:model=x", "rejection", 12, 1, 1, 2, 63),
    ("small:model=x", "rejection", 2, 1, 1, 1, 63),
    ("small:model=x,widths=[2,2],pick=greedy", "rejection", 40, 1, 1, 3, 63),
    ("small:model=x", "block", 40, 1, 0, 0, 63),
    ("recycling", "rejection", 40, 0, 0, 4, 40),
    ("rest:datastore=x", "rejection", 40, 0, 0, 3, 40),
])  # fmt: skip
def test_a_probe_has_the_shape_that_says_most(tmp_path, drafter, rule, most, lengths, trees, themselves, rows):
    s = tuning(tmp_path, [drafter], rule)
    s.widen(most)
    forms = [p.form for p in s.probes]
    assert [forms.count(form) for form in ("length", "tree", "itself")] == [lengths, trees, themselves]
    assert s.rows() == rows and all("widths" not in p.settings for p in s.probes)
    assert all(p.settings["tokens"] == s.drafters[0].longest for p in s.probes if p.form == "length")


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_at_temperature_0_trees_are_of_the_largest_q(tmp_path, temperature):
    s = tuning(tmp_path, ["small:model=x"], sampling=f"temperature={temperature}")
    s.widen(12)
    assert s.probes[1].form == "tree" and ("pick" in s.probes[1].settings) == (temperature == "0")


@pytest.mark.parametrize("ngram, first, second, wide", [
    (1, 1, 0.95, [0, 3, 3]), (1, 1, 0.85, [0, 3, 0]), (1.2, 1, 0.95, [0, 3, 0]), (2, 1, 1, [0, 0, 0]),
])  # fmt: skip
def test_drafters_far_behind_have_a_chain_only(tmp_path, ngram, first, second, wide):
    s = tuning(tmp_path, ["ngram", "small:model=x", "small:model=y"])
    s.candidates = [Candidate(i, 3 * i, {}, 1, speedup) for i, speedup in enumerate((ngram, first, second))]
    s.widen(12)
    assert [sum(p.of == i for p in s.probes) - 1 for i in range(3)] == wide


@pytest.mark.parametrize("drafter", ["none", "lookahead", "ladder:of=[ngram]"])
def test_a_drafter_without_a_shape_is_refused(tmp_path, drafter):
    with pytest.raises(Misuse, match="has no option that tune searches: tokens, tree or nodes"):
        tuning(tmp_path, [drafter])


def test_the_best_trees_are_those_of_an_enumeration():
    def every(nodes):  # trees of so many nodes, as sorted paths
        if nodes == 0:
            return {()}
        larger = set()
        for tree in every(nodes - 1):
            for parent in ((), *tree):
                child = (*parent, sum(len(p) == len(parent) + 1 and p[:-1] == parent for p in tree))
                if len(child) <= 3 and child[-1] < 3:
                    larger.add(tuple(sorted((*tree, child), key=lambda p: (len(p), p))))
        return larger

    share = [[0.6, 0.2, 0.1] + [0.0] * 7, [0.5, 0.125] + [0.0] * 8, [0.4, 0.3] + [0.0] * 8]

    def value(tree):
        total = 0.0
        for path in tree:
            product = 1.0
            for depth, rank in enumerate(path):
                product *= share[depth][rank]
            total += product
        return total

    for size, (expected, paths) in zip(range(1, 7), best_trees(share, list(range(1, 7))), strict=True):
        assert expected == pytest.approx(max(map(value, every(size)))) == pytest.approx(value(paths)) and len(paths) == size


@pytest.fixture
def known_costs(tmp_path):
    """A database with steps whose costs are known, of none, a chain and a fixed tree."""
    db = sqlite3.connect(tmp_path / "known.db")
    order = re.findall(r"\b(\w+)_sql\b", re.search(r"schema_views\[[^;]*;", (ROOT / "results/store/store_schema.c").read_text())[0])
    for name in ["schema", "schema_shards", "schema_bench", "schema_exact", *order]:
        (path,) = ROOT.glob(f"results/**/{name}.sql")
        db.executescript(path.read_text())
    tokens = sum(ACCEPTED) + len(ACCEPTED)
    db.execute("INSERT INTO pair (id, experiment, started) VALUES (1, 'e', '2026-01-01T00:00:00Z')")
    steps = len(ACCEPTED)
    for run, kind, n, new, ns in (
        (NONE, "none", 20, 20, 20 * (PASS + ROW + OUTSIDE)), (CHAIN, "ngram", steps, tokens, steps * (PASS + 4 * ROW + 3 * LEVEL + OUTSIDE)),
        (TREE, "small", steps, steps, steps * (PASS + 5 * ROW + 2 * LEVEL + OUTSIDE)),
    ):  # fmt: skip
        db.execute("INSERT INTO run (id, experiment, cell, peers, settings, target, target_hash, model_type, activations, cache, drafter,"
                   " drafter_kind, rule, lossless, drafter_invariant, marked_inflated, sampling, prompts, seed, batch, device, machine, revision,"
                   " started) VALUES (?, 'e', 'c' || ?1, 'A', '{}', 't', '00', 'f32', 'f32', 'f32', ?2, ?2, 'rejection', 1, 0, 0,"
                   " 'temperature=0', 'p', 1, 1, 'cpu', 'm', 'r', '2026-01-01T00:00:00Z')", [run, kind])  # fmt: skip
        db.execute("INSERT INTO sequence VALUES (?1, ?1, 1, 0, 'p', NULL, 0, 0, 5, ?2, ?3, 0, 7, ?4, ?4, ?5, '00', NULL, 'limit', NULL)",
                   [run, new, n, ns, json.dumps([1] * new)])  # fmt: skip
    for run, drafted, depth, rights in ((NONE, 0, 0, [0] * 20), (CHAIN, 3, 3, ACCEPTED), (TREE, 4, 2, [0] * steps)):
        for step, right in enumerate(rights):
            db.execute("INSERT INTO step (sequence, step, drafted, depth, accepted, tokens, propose_ns, verify_ns, advance_ns, at_ns, batch, round)"
                       " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 1, 0)",
                       [run, step, drafted, depth, right, right + 1, LEVEL * depth, PASS + ROW * (drafted + 1), 10000 * (step + 1)])  # fmt: skip
    # Of depth 1 ten tokens of rank 0 are tested and six accepted, then four of rank 1 and two; of depth 2 eight and four, four and one.
    for i, (tested, right) in enumerate(((10, 6), (4, 2), (8, 4), (4, 1))):
        for k in range(tested):
            db.execute("INSERT INTO trial VALUES (?, ?, ?, ?, ?, 1, 0, NULL, NULL, ?, NULL)", [TREE, k, i + 1, i // 2 + 1, i % 2, k < right])
    return db


def speedup_of(tokens, rows, depth):
    return pytest.approx(tokens / (PASS + ROW * rows + LEVEL * depth + OUTSIDE) * (PASS + ROW + OUTSIDE), rel=1e-9)


def test_a_chain_predicts_every_shorter_one(tmp_path, known_costs):
    s = tuning(tmp_path, ["ngram:tokens=3,shortest=2"])
    s.read(s.probes[0], known_costs, CHAIN)
    assert [c.settings for c in s.candidates] == [{"kind": "ngram", "shortest": "2", "tokens": n} for n in (1, 2, 3)]
    for length, c in enumerate(s.candidates, 1):
        tokens = sum(1 + min(a, length) for a in ACCEPTED) / len(ACCEPTED)
        assert c.tokens == pytest.approx(tokens) and c.speedup == speedup_of(tokens, length + 1, length)


def test_a_tree_predicts_every_other_one(tmp_path, known_costs):
    s = tuning(tmp_path, ["small:model=x"])
    s.widen(40)
    assert s.probes[1].form == "tree"
    s.read(s.probes[1], known_costs, TREE)
    # The shares are 0.6 and 0.4 * 0.5 at depth 1, 0.5 and 0.5 * 0.25 at depth 2.
    expected = [(1, 2, 1.8), (2, 3, 2.1), (2, 4, 2.2), (2, 5, 2.275), (2, 6, 2.3)]
    assert [len(c.settings["tree"]) for c in s.candidates] == [nodes for _, nodes, _ in expected]
    for c, (depth, nodes, tokens) in zip(s.candidates, expected, strict=True):
        assert c.tokens == pytest.approx(tokens) and c.speedup == speedup_of(tokens, nodes + 1, depth)


def test_candidates_to_confirm_come_first_and_differ(tmp_path):
    s = tuning(tmp_path, ["ngram"])

    def order(n, *candidates):
        s.candidates = [Candidate(0, family, {}, tokens, speedup) for family, tokens, speedup in candidates]
        s.order(n)
        return [(c.tokens, c.speedup) for c in s.candidates]

    # A family close behind comes before the second of the best; one far behind does not.
    assert [x for _, x in order(2, (0, 1, 2), (0, 2, 1.9), (1, 1, 1.8))] == [2, 1.8, 1.9]
    assert [x for _, x in order(2, (0, 1, 2), (0, 2, 1.9), (1, 1, 1.5))] == [2, 1.9, 1.5]
    assert [x for _, x in order(3, (0, 1, 2), (0, 2, 1.9), (1, 1, 1.8), (1, 9, 1.7))] == [2, 1.9, 1.8, 1.7]  # all three by prediction
    tokens = (1.84, 1.81, 1.78, 1.65, 1.5, 1.49)
    assert [x for x, _ in order(3, *((0, x, 1.4 - 0.01 * i) for i, x in enumerate(tokens)))] == [1.84, 1.65, 1.5, 1.81, 1.78, 1.49]


def write_prompts(folder, n):
    lines = [json.dumps({"id": str(i), "input_ids": [5 + i, 7, 8, 9, 7, 8, 9, 7, 8]}) for i in range(n)]
    (folder / "prompts.jsonl").write_text("\n\n".join(lines) + "\n" if n else "")


def test_the_experiment_it_writes_is_one_that_run_takes(speclab, tiny, tmp_path):
    """Which setting is best depends on times; that the best one runs, and that the database says what was measured, does not."""
    write_prompts(tmp_path, 5)
    drafters = [w for d in ("ngram:tokens=2", "ngram:tokens=3", f"small:model={tiny},tokens=2") for w in ("--drafter", d)]
    r = speclab("tune", tiny, *drafters, "--prompts", "prompts.jsonl", "--limit", 2, "--tokens", 6, "--confirm", 2, "--context", 64,
                "--threads", 2, "--db", "tune.db", "--out", "best.yaml")  # fmt: skip
    assert r.status == 0, r.err
    assert " probes on 2 prompts of " in r.out and "\n{kind: " in r.out
    assert ", 2 confirmed on 2 others.\nDo not evaluate with these prompts what was tuned on them.\n" in r.out
    assert "2 cells" in engine("run", "best.yaml", "--dry-run", "--db", "tune.db", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tune.db") as db:
        names = [name for (name,) in db.execute("SELECT DISTINCT experiment FROM run ORDER BY 1")]
        assert [name[:-9] for name in names] == ["tune-confirm", "tune-probe"]
    predicted = call("predict", "--db", tmp_path / "tune.db", "--experiment", names[1], "--cost", "bench")
    assert predicted.status == 0 and "bench 1" in predicted.out


def test_a_single_prompt_serves_twice_and_nothing_needs_confirmation(speclab, tiny, tmp_path):
    write_prompts(tmp_path, 1)
    words = ["tune", tiny, "--drafter", "ngram:tokens=2", "--prompts", "prompts.jsonl", "--tokens", 6, "--context", 64]
    once = speclab(*words, "--confirm", 1)
    assert " on 1 prompt of " in once.out and ", 1 confirmed on the same one." in once.out, once.err
    none = speclab(*words, "--confirm", 0)
    assert "confirmed" not in none.out and "It is predicted only: nothing was measured." in none.out


@pytest.mark.parametrize("status, says, words", [
    (2, "DATA.jsonl and --drafter exclude each other", ["prompts.jsonl", "--drafter", "ngram"]),
    (2, "--drafter requires --prompts", ["--drafter", "ngram"]),
    (2, "missing argument: DATA.jsonl, or --drafter and --prompts", ["--prompts", "prompts.jsonl"]),
    (2, "--drafter ngram: given twice", ["--drafter", "ngram", "--drafter", "ngram", "--prompts", "prompts.jsonl"]),
    (1, "--prompts: /nowhere.jsonl: No such file", ["--drafter", "ngram", "--prompts", "/nowhere.jsonl"]),
    (1, "expected prompts, found an empty file", ["--drafter", "ngram", "--prompts", "empty.jsonl"]),
    (2, "no option that tune searches", ["--drafter", "ladder:of=[ngram]", "--prompts", "prompts.jsonl"]),
    (2, "wrong", ["--drafter", "ngram", "--prompts", "prompts.jsonl", "--chat", "wrong", "--context", "64"]),
    (2, "expected another file than --prompts", ["--drafter", "ngram", "--prompts", "prompts.jsonl", "--out", "prompts.jsonl"]),
    (1, "/nowhere", ["--drafter", "ngram", "--prompts", "prompts.jsonl", "--out", "/nowhere/x.yaml"]),
    (1, "prompts.jsonl", ["--drafter", "ngram", "--prompts", "prompts.jsonl", "--db", "prompts.jsonl"]),
    (1, "/nowhere", ["/nowhere", "--drafter", "ngram", "--prompts", "prompts.jsonl"]),
])  # fmt: skip
def test_mistakes_are_named(speclab, tiny, tmp_path, status, says, words):
    write_prompts(tmp_path, 5)
    (tmp_path / "empty.jsonl").write_text("\n \n")
    r = speclab("tune", *([tiny] if words[0] != "/nowhere" else []), *words)
    assert r.status == status and says in r.err and r.err.count("\n") == 1, r.err


# ---- layers of layer_skip


@pytest.mark.parametrize("seed", range(20))
def test_each_removal_and_exchange_is_the_best_one(seed):
    """Against plain loops over the same scores: integers, so that equal ones happen."""
    draw = random.Random(seed)
    weight = [[draw.randrange(4) for _ in range(9)] for _ in range(9)]

    def score(kept):
        return sum(weight[i][k] for i in kept for k in kept)

    kept = tuple(range(9))
    while len(kept) > 1:
        found, reached = best(fewer(kept), lambda sets: list(map(score, sets)))
        (removed,) = set(kept) - set(found)
        assert score(found) == reached
        assert all((score(set(kept) - {i}), i) <= (reached, removed) for i in kept)
        kept = found
    kept = tuple(sorted({seed % 9, (seed + 1) % 9, (seed + 4) % 9}))
    while (found := best(exchanged(kept, 9), lambda sets: list(map(score, sets)), score(kept))) is not None:
        assert len(set(found[0]) - set(kept)) == 1 and len(found[0]) == len(kept)
        assert found[1] == score(found[0]) == max(score({*kept, k} - {i}) for i in kept for k in range(9) if k not in kept) > score(kept)
        kept = found[0]


def test_lists_and_speedups_of_layers():
    assert listed([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8" and listed([3]) == "3"
    assert predicted(0.5, 2, [10, 11, 12], 1) == pytest.approx(1.75 * 10 / (2 + 12))


def write_texts(path, n, answers=True):
    texts = [{"id": str(i), "input_ids": [(11 * i + 5 * k) % 250 for k in range(30)], "loss_mask": [int(answers and k >= 10) for k in range(30)]}
             for i in range(n)]  # fmt: skip
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


def test_the_drafter_it_prints_is_one_that_generate_takes(speclab, tiny, tmp_path):
    write_texts(tmp_path / "texts.jsonl", 7)
    r = speclab("tune", tiny, "texts.jsonl", "--positions", 3, "--least", 1, "--threads", 2)
    assert "chosen by 12 positions, held out 9 others" in r.out and "without " in r.out, r.err
    keep, tokens = re.search(r'^\{kind: layer_skip, keep: "([0-9,-]+)", tokens: ([1-8])\}$', r.out, re.M).groups()
    engine("generate", tiny, "--ids", "[5,6,7]", "--drafter", f"layer_skip:keep={keep},tokens={tokens}", "--tokens", 4, "--temperature", 0)


@pytest.mark.parametrize("status, says, words", [
    (2, "missing argument: DATA.jsonl, or --drafter and --prompts", []),
    (1, "/nowhere.jsonl", ["/nowhere.jsonl"]),
    (1, "--least 99: expected fewer than the 3 layers", ["texts.jsonl", "--least", "99"]),
    (1, "expected at least 2 conversations", ["one.jsonl"]),
    (1, "there are no answers to choose by", ["silent.jsonl"]),
    (1, "cuda", ["texts.jsonl", "--device", "cuda"]),
])  # fmt: skip
def test_mistakes_with_texts_are_named(speclab, tiny, tmp_path, status, says, words):
    write_texts(tmp_path / "texts.jsonl", 7)
    write_texts(tmp_path / "one.jsonl", 1)
    write_texts(tmp_path / "silent.jsonl", 4, answers=False)
    r = speclab("tune", tiny, *words)
    assert r.status == status and says in r.err and r.err.count("\n") == 1, r.err


@pytest.mark.parametrize("says, line", [
    ('expected choose or evaluate, found "x"', "x 0"), ("expected lists of layers, found none", "choose"), ("9", "choose 0-9"), ('found ""', ""),
])  # fmt: skip
def test_the_engine_refuses_what_is_no_set(tiny, tmp_path, says, line):
    write_texts(tmp_path / "texts.jsonl", 3)
    scorer = Process("inspect", "--score", "--layers", str(tiny), str(tmp_path / "texts.jsonl"))
    assert scorer.next()["layers"] == 3
    scorer.send(line)
    with pytest.raises(Fault, match=re.escape(says)):
        scorer.next()
