"""The plugins in examples/, and `check-drafter`: what it says of drafters that keep the contract and of those that do not."""

import contextlib
import json
import math
import multiprocessing
import os
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, call, forked

from speclab import contract, door, engine
from speclab.words import check_drafter

pytestmark = pytest.mark.library
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SETTING = contract.Setting(vocab=40, used_vocab=36, width=8)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.name)
def test_an_example_is_short(file):
    assert len(file.read_text().splitlines()) <= 40


def generated(tiny, *words):
    done = call("generate", tiny, "--tokens", 60, "--threads", 1, "--ignore-end", "--json", *words, "red, green, red, green, red, green", cwd=ROOT)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_the_bigram_table_drafts_and_the_text_stays(tiny):
    plain = generated(tiny)
    drafted = generated(tiny, "--plugin", "examples/bigram.py", "--drafter", "bigram:tokens=3")
    assert drafted["new_ids"] == plain["new_ids"] and len(drafted["steps"]) < len(plain["steps"])


def test_the_lossy_rule_is_enumerated(tiny):
    done = call("exact", "--rules", "--instances", 2, "--plugin", "examples/lossy_rule.py", cwd=ROOT)
    rows = [line.split() for line in done.out.splitlines() if line.split()[:1] == ["near"]]
    assert done.status == 0 and rows[0][-3:] == ["lossy,", "as", "declared"] and float(rows[0][3]) > 0.1


def test_the_example_of_a_gru(tiny):
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
        pytest.skip("there is no torch")
    assert generated(tiny, "--plugin", "examples/gru.py", "--drafter", "gru:tokens=3")["new_ids"] == generated(tiny)["new_ids"]


# ---- check-drafter


def in_processes_forked_from_this_one():
    """check-drafter, whose processes are made by one that has not loaded the plugin: neither it nor they start Python."""
    here, other = multiprocessing.Pipe()
    if os.fork() == 0:
        here.close()
        with contextlib.suppress(EOFError):
            while words := other.recv():
                other.send(call(*words[2:]) if words[0] == "-m" else forked(lambda code=words[1]: exec(code, {}), *words[2:]))
        os._exit(0)
    other.close()

    def process(*words):
        here.send([str(w) for w in words])
        done = here.recv()
        if done.status != 0:
            raise engine.failure(done.status, done.err)
        return done.out

    check_drafter._process = process
    runpy.run_module("speclab", run_name="__main__")


@pytest.fixture
def checked(tiny, tmp_path):
    """Calls check-drafter on one of the drafters below; the last test here starts processes as a user does."""
    (tmp_path / "idea.py").write_text(DRAFTERS)
    return lambda name: forked(in_processes_forked_from_this_one, "check-drafter", "idea.py", name, "--target", tiny, cwd=tmp_path)


DRAFTERS = """
import numpy as np
import speclab

class Own(speclab.Drafter):
    "draws from the row that it reports"
    makes = ("sampled", "trees")
    def __init__(self):
        self.random = np.random.default_rng(5)
    def row_of(self, token):
        q = np.zeros(self.vocab)
        q[: self.used_vocab] = 1.0 / (1 + (np.arange(self.used_vocab) + token) % 7)
        return q / q.sum()
    def propose(self, request, draft):
        token, node = int(request.tokens[-1]), 0
        q = self.row_of(token)
        first = draft.add(self.random.choice(self.vocab, p=q), parent=0, q=q)
        second = draft.add(self.random.choice(self.vocab, p=q), parent=0, q=q)
        q = self.row_of(draft.token(first))
        draft.add(self.random.choice(self.vocab, p=q), parent=first, q=q)

class Best(Own):
    "reports a row, and takes its most probable token"
    def propose(self, request, draft):
        q = self.row_of(int(request.tokens[-1]))
        draft.add(int(q.argmax()), q=q)

class Sharp(Own):
    "reports the row before it is sharpened"
    def propose(self, request, draft):
        q = self.row_of(int(request.tokens[-1]))
        sharp = q**2 / (q**2).sum()
        draft.add(self.random.choice(self.vocab, p=sharp), q=q)

class Twins(Own):
    "two tokens of a row that are never equal"
    def propose(self, request, draft):
        q = self.row_of(int(request.tokens[-1]))
        for token in self.random.choice(self.vocab, 2, replace=False, p=q):
            draft.add(int(token), parent=0, q=q)

class Later(Own):
    "reports a false row, in texts whose prompts are not those of the contract"
    def propose(self, request, draft):
        if request.prompt != 12 and len(request.tokens) >= request.prompt + 24:
            Sharp.propose(self, request, draft)

class Drops(Own):
    "drops every second token after a look at it, and draws by the length of the text"
    def propose(self, request, draft):
        q = self.row_of(int(request.tokens[-1]))
        token = int(np.random.default_rng(len(request.tokens)).choice(self.vocab, p=q))
        if request.prompt != 12 and q[token] > 0.01:
            draft.add(token, q=q)

class Rarely(Own):
    "reports one row in a text"
    def propose(self, request, draft):
        if request.prompt != 12 and len(request.tokens) == request.prompt + 20:
            Own.propose(self, request, draft)

class Samples(Own):
    "leaves all draws to the engine"
    def propose(self, request, draft):
        draft.sample(self.row_of(int(request.tokens[-1])))

class Seeds(Own):
    "draws by the text"
    def propose(self, request, draft):
        q = self.row_of(int(request.tokens[-1]))
        draft.add(int(np.random.default_rng(request.tokens).choice(self.vocab, p=q)), q=q)

class Others(Own):
    "two rows for the tokens behind the root"
    def propose(self, request, draft):
        for token in (3, 4):
            draft.add(3, parent=0, q=self.row_of(token))

class Clock(speclab.Drafter):
    "has another row whenever it is made"
    def __init__(self):
        self.first = np.random.default_rng().normal(size=self.vocab)
    def row(self, slot, path):
        return self.first

class Counts(speclab.Drafter):
    "counts its drafts"
    drafts = 0
    def propose(self, request, draft):
        self.drafts += 1
        draft.add(self.drafts % self.used_vocab)

class Keeps(speclab.Drafter):
    "keeps a slot's text after it has ended"
    def __init__(self):
        self.seen = {}
    def advance(self, a):
        self.seen.setdefault(a.slot, []).extend(a.tokens.tolist())
    def propose(self, request, draft):
        draft.add(self.seen[request.slot][0])

class Mixes(speclab.Drafter):
    "mixes slots up"
    last = 0
    def advance(self, a):
        self.last = int(a.text[0]) if self.last == 0 else self.last
    def propose(self, request, draft):
        draft.add(self.last)

class Advances(speclab.Drafter):
    "depends on how the text was divided"
    def advance(self, a):
        self.n = len(a.tokens)
    def propose(self, request, draft):
        draft.add(self.n % self.used_vocab)

class Looks(speclab.Drafter):
    "the token before the prompt's end"
    def propose(self, request, draft):
        draft.add(int(request.tokens[request.prompt - 1]))

class First(speclab.Drafter):
    "the end of the text that it drafted for first"
    def __init__(self):
        self.ends = {}
    def forget(self, slot):
        self.ends.pop(slot, None)
    def propose(self, request, draft):
        draft.add(int(request.tokens[self.ends.setdefault(request.slot, len(request.tokens)) - 1]))

class Says(Counts):
    remembers = "passes"

class Network(speclab.Drafter):
    layers = (0, -1)
    def __init__(self):
        self.state = np.zeros((self.slots, self.width))
        self.w = np.random.default_rng(1).normal(size=(self.vocab, self.width))
    def advance(self, a):
        self.state[a.slot] = a.states[-1].sum(0)
    def row(self, slot, path):
        return self.w @ self.state[slot] + path[-1]

class Starts(Network):
    "has nothing before its first advance"
    def __init__(self):
        super().__init__()
        self.state = {}
    def advance(self, a):
        self.state[a.slot] = a.states[-1].sum(0)

class Far(speclab.Drafter):
    def propose(self, request, draft):
        draft.add(self.used_vocab)

class Heavy(speclab.Drafter):
    makes = ("sampled",)
    def propose(self, request, draft):
        draft.sample(np.ones(self.vocab))
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    space = {}
    exec(compile(DRAFTERS, "drafters.py", "exec"), space)
    return space


def made(kinds, name, **given):
    return lambda: contract.Driven(kinds[name], given, SETTING)


def test_a_drafter_that_draws_from_its_row_is_truthful(kinds):
    t = contract.truthful(made(kinds, "Own"))
    assert t.drawn == 3 * contract.TRIALS and t.smallest > 1e-4


@pytest.mark.parametrize("mean", [0.01, 0.5, 3.0, 40.0])
def test_the_bound_of_a_number_of_events_is_above_their_probability(mean):
    """Compared with the sums of Poisson's distribution, which has longer tails than events of a probability each."""
    weight = [math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(200)]
    for seen in range(100):
        exact = 2 * min(sum(weight[: seen + 1]), sum(weight[seen:]))
        assert contract.poisson(seen, mean) >= min(1.0, exact) * 0.999
    assert contract.poisson(int(10 * mean) + 10, mean) < 1e-6


@pytest.mark.parametrize("name, says", [("Best", "frequen"), ("Sharp", "frequen"), ("Seeds", "frequen"),
                                        ("Twins", "siblings of a row are not independent: 0 pairs are equal")])  # fmt: skip
def test_a_row_that_was_not_drawn_from_shows(name, says, kinds):
    t = contract.truthful(made(kinds, name))
    assert t.smallest < contract.ALPHA and says in t.what, t


def test_draws_by_the_text_show_although_their_places_are_uniform():
    draws, q = contract.Draws(), np.full(40, 1 / 40)
    for text in [np.array([i, 7]) for i in range(150)] * 2:
        token = int(np.random.default_rng(text).integers(40))
        draws.take(text, [contract.Node(-1, 7, None, True), contract.Node(0, token, q, False)])
    t = draws.truth()
    assert t.drawn == 300 and t.smallest < contract.ALPHA
    assert "drafts of one text are not independent: 150 pairs are equal, expected 3.75" in t.what, t


def test_p_values_of_truthful_drafters_are_not_small(kinds):
    """Of 60 truthful drafters few have a p-value below 0.05: the tests have their level."""
    random = np.random.default_rng(3)
    small = sum(contract.kolmogorov(random.random(200)) < 0.05 for _ in range(2000))
    assert 60 < small < 145  # binomial(2000, 0.05): 100 +- 4.5 deviations


@pytest.mark.parametrize("name, history", [("Counts", "its drafts before were rejected"), ("Keeps", "another text was in its slot before"),
                                           ("Mixes", "another text"), ("Advances", "the prompt comes in parts"),
                                           ("Clock", "it is made again, for the same text"),
                                           ("First", "its drafts before were rejected")])  # fmt: skip
def test_a_draft_that_depends_on_more_than_the_text_shows(name, history, kinds):
    d = contract.depends_on_more(made(kinds, name))
    assert d is not None and (history in d.history or name == "Counts"), d


@pytest.mark.parametrize("name", ["Own", "Network", "Looks"])
def test_a_draft_of_the_text_alone_is_the_same_in_every_history(name, kinds):
    assert contract.depends_on_more(made(kinds, name)) is None


@pytest.mark.parametrize("name, says", [("Far", "expected a token from 0 to 35, found 36"),
                                        ("Others", "expected one row for all tokens behind node 0, found another"),
                                        ("Heavy", "expected probabilities whose sum is 1, found a sum of 40")])  # fmt: skip
def test_a_wrong_draft_is_named(name, says, kinds):
    with pytest.raises(contract.Wrong, match=says):
        contract.truthful(made(kinds, name))


@pytest.mark.parametrize("given, says", [({"tokens": "x"}, 'option tokens: expected an integer, found "x"'), ({"share": "2"}, "from 0 to 1")])
def test_options_are_checked(given, says):
    kind = door.plugins  # a class of its own, as annotations are read where it was written
    space = {"__name__": "optioned"}
    exec("from typing import Annotated\nimport speclab\nclass O(speclab.Drafter):\n    tokens: int = 2\n    share: Annotated[float, (0, 1)] = 0.5\n"
         "    def propose(self, request, draft):\n        pass\n", space)  # fmt: skip
    assert kind.options(space["O"])
    with pytest.raises(contract.Wrong, match=says):
        contract.Driven(space["O"], given, SETTING)


@pytest.mark.parametrize("name, says, status", [
    ("later", r"WRONG  declares truthfully in greedy texts: \d+ tokens were not drawn from the q", 1),
    ("drops", r"WRONG  declares truthfully in greedy texts: \d+ tokens were not drawn from the q", 1),
    ("rarely", r"-      declares truthfully in greedy texts: 72 tokens with a q that add reported are too few", 0),
    ("samples", r"-      declares truthfully in greedy texts: add reported no q, so none was tested", 0),
    ("own", r"ok     declares truthfully in random texts: 3000 .*\n(.*\n)*  ok     declares truthfully in greedy texts: \d{4} tokens agree", 0),
])  # fmt: skip
def test_q_of_the_texts_of_a_target_is_tested_or_said_not_to_be(name, says, status, checked):
    done = checked(name)
    assert done.status == status and re.search(says, done.out), done
    if name != "own":
        assert "-      declares truthfully in random texts: add reported no q" in done.out and "ok     declares" not in done.out


@pytest.mark.parametrize("name, says, status", [
    ("starts", ["KeyError: 0 (for a text of one token, of which no advance was told)"], 1),
    ("best", ["WRONG  declares truthfully in random texts: 1000 tokens were not drawn from the q", "greedy text: equals none's"], 1),
    ("keeps", ["WRONG  depends on the text alone: a draft differs when another text was in its slot before: node 1"], 1),
    ("network", ["q is true by construction"], 0), ("says", ['it says that it does not (remembers = "passes")'], 0)])  # fmt: skip
def test_check_drafter_says_in_words_what_is_wrong(name, says, status, checked):
    done = checked(name)
    assert done.status == status and all(part in done.out for part in says) and ("WRONG" in done.out) == (status == 1), done


PROBABLE = """
import numpy as np
import speclab
print("loaded")

class Probable(speclab.Drafter):
    def row(self, slot, path):
        print("a row")
        return np.full(self.vocab, 1 / self.vocab)
"""


def test_probabilities_for_logits_are_named_and_prints_stay_out_of_the_report(tiny, tmp_path):
    (tmp_path / "idea.py").write_text(PROBABLE)
    done = call("check-drafter", "idea.py", "probable", "--target", tiny, cwd=tmp_path)
    assert done.status == 0 and "-      returns logits: the numbers of a row sum to 1, as probabilities do" in done.out, done
    assert all(line.startswith(("  ", "probable (")) for line in done.out.splitlines()) and "a row\n" in done.err


def test_other_rows_are_not_said_to_be_probabilities(kinds):
    assert not contract.sums_to_one(made(kinds, "Network"))


def test_fewer_texts_are_compared_if_creating_the_drafter_takes_long(kinds):
    times = iter([0.0, 4.0, 0.0, 0.001])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract.time, "monotonic", lambda: next(times))
        assert contract.affordable(made(kinds, "Own")) == 2
        assert contract.affordable(made(kinds, "Own")) == contract.TEXTS


@pytest.mark.parametrize("words, says, status", [
    (["idea.txt"], "idea.txt: expected a file in Python, whose name ends with .py", 1),
    (["idea.py", "nobody"], 'expected a drafter of', 2), (["idea.py", "best:x=1"], 'found "x"', 2), (["none.py"], "none.py", 1),
    (["idea.py", "best", "--target", "no-model"], "no-model", 1), ([], "missing argument", 2)])  # fmt: skip
def test_check_drafter_refuses(words, says, status, tiny, tmp_path):
    (tmp_path / "idea.py").write_text(DRAFTERS)
    if words and "--target" not in words:
        words = [*words, "--target", tiny]
    done = call("check-drafter", *words, cwd=tmp_path)
    assert done.status == status and says in done.err and done.err.count("\n") == 1, done


def test_check_drafter_starts_the_engine_in_processes_of_its_own(tiny, tmp_path):
    (tmp_path / "idea.py").write_text(DRAFTERS)
    done = call("check-drafter", "idea.py", "says", "--target", tiny, cwd=tmp_path)
    assert done.status == 0 and "greedy text: equals none's" in done.out, done
