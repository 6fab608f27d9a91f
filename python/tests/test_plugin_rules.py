"""Rules of plugins in Python: how `exact --rules` enumerates them, and what is said of faulty ones."""

import re
import sqlite3

import pytest
from conftest import call, interrupted

pytestmark = pytest.mark.library

RULE = "import numpy as np\nimport speclab\nclass Bad(speclab.Rule):\n    def verify(self, draft, p, q, accept, pick):\n        "


def test_rules_are_enumerated_by_name(tmp_path):
    half = "class Half(Bad):\n    def verify(self, draft, p, q, accept, pick):\n        return 0, pick(0, p(0) + 1)\n"
    (tmp_path / "idea.py").write_text(RULE + "return 0, pick(0, p(0))\n    lossless = True\n" + half)
    done = call("exact", "--rules", "bad", "half", "--instances", 1, "--plugin", "idea.py", cwd=tmp_path)
    rows = [line.split() for line in done.out.splitlines()[1:3]]
    assert done.status == 3 and [r[0] for r in rows] == ["bad", "half"] and [r[-1] for r in rows] == ["exact", "wrong"], done.out
    assert rows[0][1] == rows[1][1] and "synthetic" not in done.out  # a wrong rule is enumerated to the end
    done = call("exact", "--rules", "hlaf", "--plugin", "idea.py", cwd=tmp_path)
    assert done.status == 2 and 'unknown rule "hlaf" (known: ' in done.err and done.err.endswith("; did you mean half?\n")


THRESHOLD = '''
class Threshold(speclab.Rule):
    c: float
    def verify(self, draft, p, q, accept, pick):
        node = 0
        while likely := [k for k in draft.children(node) if p(node)[draft.tokens[k]] >= self.c]:
            node = likely[0]
        return node, pick(node, p(node))
'''


def test_rules_are_enumerated_with_options(tmp_path):
    """Above 1 the rule accepts nothing that is not certain, so its output is the target's."""
    (tmp_path / "idea.py").write_text("import speclab\n" + THRESHOLD)
    how = ("--instances", 1, "--plugin", "idea.py", "--db", "r.db")
    done = call("exact", "--rules", "threshold:c=0.3", "threshold:c=2", "typical:epsilon=0.2", *how, cwd=tmp_path)
    rows = [line.split() for line in done.out.splitlines()[1:4]]
    assert done.status == 0 and [r[0] for r in rows] == ["threshold(c=0.3)", "threshold(c=2)", "typical(epsilon=0.2)"], done.out
    assert 0 < float(rows[0][4]) < float(rows[0][3]) < 1 and " ".join(rows[0][6:]) == "lossy, as declared"
    assert " ".join(rows[1][6:]) == "exact, though it declares lossless: false" and float(rows[1][3]) < 1e-12
    stored = sqlite3.connect(tmp_path / "r.db").execute("SELECT rule, distance <= 1e-12, verdict FROM exact_rule ORDER BY id").fetchall()
    assert stored[1] == ("threshold(c=2)", 1, "exact, though it declares lossless: false") and stored[0][1] == 0
    for words, said in (
        (["threshold"], 'rule threshold needs "c", which has no default\n'),
        ([], 'rule threshold needs "c", which has no default; name the rules, with options as in RULE:OPTION=VALUE\n'),
        (["threshold:d=1"], 'rule threshold has no option "d" (it has: c)'),
        (["threshold:c=x"], "x"),
    ):
        done = call("exact", "--rules", *words, *how, cwd=tmp_path)
        assert done.status == 2 and said in done.err and done.out == "", done.err


OWN_RANDOM = '''
import random, speclab
class Path(speclab.Rule):
    def verify(self, draft, p, q, accept, pick):
        node = 1 if len(draft) > 1 and draft.parents[1] == 0 and random.random() < 0.5 else 0
        return node, pick(node, p(node))
class Weights(speclab.Rule):
    def verify(self, draft, p, q, accept, pick):
        return 0, pick(0, p(0) * random.uniform(0.9, 1.1))
class Token(speclab.Rule):
    def verify(self, draft, p, q, accept, pick):
        return 0, random.randrange(len(p(0)))
class Seldom(speclab.Rule):
    def verify(self, draft, p, q, accept, pick):
        return (0, 0) if random.random() < 0.01 else (0, pick(0, p(0)))
class Counts(speclab.Rule):
    calls = 0
    def verify(self, draft, p, q, accept, pick):
        self.calls += 1
        return 0, pick(0, p(0) + (self.calls % 7 == 0))
class Agrees(speclab.Rule):
    "draws a token after each node, of which it uses the last"
    lossless = True
    def verify(self, draft, p, q, accept, pick):
        node = 0
        while True:
            token = pick(node, p(node))
            child = next((k for k in draft.children(node) if draft.tokens[k] == token), None)
            if child is None:
                return node, token
            node = child
'''


def test_a_rule_with_random_numbers_of_its_own_is_named(tmp_path):
    (tmp_path / "idea.py").write_text(OWN_RANDOM)
    bad = ["path", "weights", "token", "seldom", "counts"]
    done = call("exact", "--rules", *bad, "agrees", "--instances", 2, "--plugin", "idea.py", "--db", "r.db", cwd=tmp_path)
    assert done.status == 1, done.out
    for name in bad:
        assert f"rule {name}: it draws random numbers of its own, or remembers earlier drafts" in done.err, done.err
        assert re.search(rf"^  {name} +- +- +- +- +-  failed$", done.out, re.M), done.out
    assert re.search("^  agrees .*  exact$", done.out, re.M), done.out
    assert sqlite3.connect(tmp_path / "r.db").execute("SELECT group_concat(rule) FROM exact_rule").fetchone() == ("agrees",)


RULE_FAULTS = {
    "exception": ("return {}['x']", "idea.py:5: KeyError: 'x' (rule bad)"),
    "answer": ("return 1", "idea.py:4: verify: expected the last accepted node and a token, found 1"),
    "node": ("return 99, 1", "idea.py:4: verify: expected a node from 0 to "),
    "negative": ("return -1, 1", "idea.py:4: verify: expected a node from 0 to "),
    "token": ("return 0, 100000", "idea.py:4: verify: expected a node from 0 to "),
    "wide": ("return 0, 2**32", "idea.py:4: verify: expected a node from 0 to "),
    "fraction": ("return 0, 1.5", "idea.py:4: verify: expected the last accepted node and a token, found (0, 1.5)"),
    "twice": ("return 0, pick(0, p(0)) + pick(0, p(0))", "idea.py:5: pick: expected one call for a node, found two for node 0"),
    "again": (
        "[accept(c, 1, 2) for c in (1, 1) if len(draft) > 1]; return 0, pick(0, p(0))",
        "idea.py:5: accept: expected one call for a node, found two for node 1",
    ),
    "weights": ("return 0, pick(0, np.zeros(288))", "idea.py:5: pick: expected weights with a positive sum"),
    "shape": ("return 0, pick(0, np.zeros(3))", "idea.py:5: pick: expected a node from 0 to"),
    "root": ("return 0, int(accept(0, 1, 2))", "idea.py:5: accept: expected a node from 1 to"),
}


@pytest.mark.parametrize("fault", RULE_FAULTS)
def test_a_faulty_rule_is_named_in_one_sentence(fault, tmp_path, tiny):
    source, said = RULE_FAULTS[fault]
    (tmp_path / "idea.py").write_text(RULE + source + "\n")
    done = call("generate", tiny, "--plugin", "idea.py", "--rule", "bad", "--drafter", "ngram", "--threads", 1, "red green red green", cwd=tmp_path)
    assert done.status == 1 and said in done.err and len(done.err.strip().splitlines()) == 1, done.err
    done = call("exact", "--rules", "bad", "rejection", "--instances", 1, "--plugin", "idea.py", cwd=tmp_path)
    rows = done.out.splitlines()[1:3]
    assert done.status == 1 and (fault == "weights" or said.split(" (rule")[0] in done.err), done.err
    assert rows[0].split() == ["bad", *"-----", "failed"] and rows[1].endswith(" exact"), done.out


def test_ctrl_c_ends_the_enumeration_of_a_rule_that_never_returns(tmp_path):
    loop = "if len(draft) > 3:\n            open('stuck', 'w').close()\n            while True: pass\n        return 0, pick(0, p(0))\n"
    (tmp_path / "idea.py").write_text(RULE + loop)
    done = interrupted("exact", "--rules", "bad", "rejection", "--plugin", "idea.py", cwd=tmp_path, when="stuck")
    assert done.status == 130 and re.fullmatch(r"speclab exact: rule bad: idea.py:(\d+:)? ?.*interrupted.*\n", done.err), done.err
