"""Plugins in Python: what their drafters and rules do, and what is said of faulty ones."""

import json
import re
import sqlite3
import sys

import pytest
from conftest import call, engine, executed, interrupted, program

pytestmark = pytest.mark.library

REPEAT = """
import numpy as np
import speclab

class Repeat(speclab.Drafter):
    "the last tokens again"
    period: int = 1
    tokens: int = 3

    def propose(self, request, draft):
        last = request.tokens[-self.period :]
        for i in range(self.tokens):
            draft.add(last[i % len(last)])

class Table(speclab.Drafter):
    "what followed a token in this text, as logits"
    def __init__(self):
        self.after = {}

    def advance(self, a):
        table = self.after.setdefault(a.slot, np.zeros((self.vocab, self.vocab), np.float32))
        for x, y in zip(a.text[-len(a.tokens) - 1 : -1], a.tokens):
            table[x, y] += 1

    def row(self, slot, path):
        table = self.after.get(slot)
        return np.zeros(self.vocab) if table is None else table[path[-1]]

    def forget(self, slot):
        self.after.pop(slot, None)

class Drawn(speclab.Drafter):
    "tokens that the engine draws from a row, and one that is declared with its row"
    makes = ("sampled", "trees")
    tokens: int = 3

    def propose(self, request, draft):
        q = np.arange(self.vocab, dtype=np.float32) % 3
        q[self.used_vocab :] = 0
        q /= q.sum()
        node = draft.sample(q)
        draft.sample(q, parent=0)
        draft.add(int(draft.token(node)), parent=node, q=np.eye(self.vocab)[draft.token(node)])

class Mine(speclab.Rule):
    "rejection sampling along a tree"
    lossless = True

    def verify(self, draft, p, q, accept, pick):
        node = 0
        while True:
            w = p(node)
            for c in draft.children(node):
                x, qc = draft.tokens[c], q(c)
                if accept(c, w[x], qc[x]):
                    node = c
                    break
                left = np.maximum(w - qc, 0)
                w = left / left.sum() if left.sum() > 0 else w
            else:
                return node, pick(node, w)

class Trusting(speclab.Rule):
    "accepts everything"
    longest: int = 8

    def verify(self, draft, p, q, accept, pick):
        node, deep = 0, 0
        while (c := draft.children(node)) and deep < self.longest:
            node, deep = c[0], deep + 1
        return node, pick(node, p(node))
"""


@pytest.fixture
def idea(tmp_path):
    (tmp_path / "idea.py").write_text(REPEAT)
    return tmp_path


def text(tiny, *words, cwd):
    done = call("generate", tiny, "--tokens", 40, "--threads", 1, *words, "red, green, red, green", cwd=cwd)
    assert done.status == 0, done.err
    return done.out


@pytest.mark.parametrize("drafter", ["repeat", "repeat:period=2,tokens=5", "table", "table:widths=[2,2]", "table:nodes=6,pick=greedy", "drawn"])
def test_the_greedy_text_is_that_of_none(drafter, idea, tiny):
    assert text(tiny, "--plugin", "idea.py", "--drafter", drafter, cwd=idea) == text(tiny, cwd=idea)


@pytest.mark.parametrize("drafter", ["repeat:period=3", "table:widths=[3,1]", "drawn"])
def test_the_seeded_text_is_that_of_none_under_match(drafter, idea, tiny):
    how = ("--temperature", 1, "--rule", "match", "--seed", 4)
    assert text(tiny, "--plugin=idea.py", "--drafter", drafter, *how, cwd=idea) == text(tiny, *how, cwd=idea)


def test_a_rule_decides_as_the_engine_decides(idea, tiny):
    how = ("--temperature", 1, "--seed", 7, "--drafter", f"small:model={tiny},widths=[2,2],distinct=false")
    assert text(tiny, "--plugin", "idea.py", "--rule", "mine", *how, cwd=idea) == text(tiny, *how, cwd=idea)


def test_each_of_many_rules_of_a_process_decides_its_own_texts(tmp_path, tiny):
    code = """
import sys, speclab
def always(token):
    class Always(speclab.Rule):
        name = f"always_{token}"
        def verify(self, draft, p, q, accept, pick):
            return 0, token
    return Always
with speclab.Target(sys.argv[1], threads=1) as target:
    rules = [always(token) for token in range(5, 25)]
    for token, rule in enumerate(rules, 5):
        (text,) = speclab.decode(target, [[1, 2]], rule=rule, tokens=3, ignore_end=True)
        assert text.ids == [token] * 3, (token, text.ids)
"""
    executed(code, tiny, cwd=tmp_path)


def test_exact_enumerates_rules_and_says_how_far_they_are_from_the_target(idea):
    done = call("exact", "--rules", "mine", "rejection", "trusting", "--instances", 1, "--plugin", "idea.py", cwd=idea)
    assert done.status == 0, done.err
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.startswith("  ")}
    assert rows["mine"][-1] == "exact" and float(rows["mine"][3]) < 1e-12
    assert rows["mine"][1:3] == rows["rejection"][1:3]  # the same outcomes
    assert rows["trusting"][-3:] == ["lossy,", "as", "declared"] and float(rows["trusting"][3]) > 0.1
    (idea / "mine.py").write_text(REPEAT.replace("class Trusting(speclab.Rule):", "class Trusting(speclab.Rule):\n    lossless = True"))
    done = call("exact", "--rules", "trusting", "--instances", 1, "--plugin", "mine.py", cwd=idea)
    assert done.status == 3 and re.search(r"\n  trusting .* wrong\n", done.out)


def test_options_are_named_and_checked(idea, tiny):
    (idea / "options.py").write_text("""
from typing import Annotated, Literal
import speclab
class Options(speclab.Drafter):
    scale: Annotated[float, "a scale", (0.5, 2)] = 1.5
    by: Literal["first", "last"] = "last"
    word: str = "a: b"
    on: bool = True
    needed: int
    def propose(self, request, draft):
        raise RuntimeError(repr((self.scale, self.by, self.word, self.on, self.needed)))
""")
    shown = call("list", "--plugin", "options.py", cwd=idea).out
    assert "scale        a scale\n                   number from 0.5 to 2; default: 1.5" in shown and "one of first, last; default: last" in shown

    def said(drafter):
        return call("generate", tiny, "--plugin", "options.py", "--drafter", drafter, "x", cwd=idea).err

    assert "(1.5, 'last', 'a: b', True, 4)" in said("options:needed=4")
    assert "(0.5, 'first', 'c', False, -1)" in said("options:scale=0.5,by=first,word=c,on=false,needed=-1")
    assert 'needs "needed"' in said("options") and "from 0.5 to 2" in said("options:needed=1,scale=3") and "unknown" not in said("options:needed=1")
    assert 'no option "other"' in said("options:needed=1,other=2")


def test_hidden_states_are_those_that_predict_the_tokens(idea, tiny):
    """With the LM head, read by another library, they give the tokens of the greedy text."""
    (idea / "states.py").write_text("""
import json
import numpy as np
import speclab
from gguf import GGUFReader, quants
class States(speclab.Drafter):
    layers = (speclab.FINAL, 0)
    path: str
    def __init__(self):
        t = {t.name: t for t in GGUFReader(self.path).tensors}
        head, table = (t[n] if n in t else t["token_embd.weight"] for n in ("output.weight", "token_embd.weight"))
        self.head, self.table = (quants.dequantize(x.data, x.tensor_type) for x in (head, table))
        self.seen = []
    def propose(self, request, draft):
        pass
    def advance(self, a):
        assert a.states.shape == (len(a.tokens), 2, self.width) and not a.states.flags.writeable
        before = a.text[-len(a.tokens) - 1 : -1]
        entered = self.table[before]
        same = [x / np.linalg.norm(x, axis=1)[:, None] for x in (a.states[:, 1], entered)]
        assert np.allclose(*same, atol=1e-3)
        if a.nodes is not None:
            self.seen.append(int(a.tokens[-1] == np.argmax(self.head[: self.used_vocab] @ a.states[-1, 0])))
    def close(self):
        print(json.dumps(self.seen), flush=True)
""")
    how = ("--tokens", 24, "--activations", "f32", "--drafter", f"states:path={tiny}")
    done = call("generate", tiny, "--plugin", "states.py", *how, "red green red", cwd=idea)
    assert done.status == 0, done.err
    seen = json.loads(re.search(r"^\[.*\]$", done.err, re.M)[0])
    assert len(seen) == 23 and sum(seen) >= 22


# ---- faulty rules


def test_what_is_no_plugin_is_refused(tmp_path):
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("import not_a_module\n")
    for words, status, said in (
        (["none.py"], 1, "none.py: expected a class of speclab.Drafter or speclab.Rule, found none"),
        (["broken.py"], 1, "broken.py:1: ModuleNotFoundError: No module named 'not_a_module'"),
        (["missing.py"], 1, "missing.py: "),
    ):
        done = call("list", "--plugin", *words, cwd=tmp_path)
        assert (done.status, done.err.count("\n")) == (status, 1) and said in done.err, done.err


# ---- notebooks


def test_a_notebook_decodes_as_the_program_does(idea, tiny):
    """In a process of its own, as a plugin's classes stay for the rest of it."""
    code = """
import json, sys, idea, speclab
prompts = ["red, green, red, green", "one two one"]
with speclab.Target(sys.argv[1], threads=1) as target:
    plain = speclab.decode(target, prompts, sampling="temperature=0", tokens=20)
    again = speclab.decode(target, prompts, drafter=idea.Repeat, rule=idea.Mine, sampling="temperature=0", tokens=20, slots=2)
    assert [t.ids for t in plain] == [t.ids for t in again] and all(t.drafted > t.accepted >= 0 and t.reason == "limit" for t in again)
    assert all((t.steps, t.drafted) == (20, 0) for t in plain) and target.text(plain[0].ids) == plain[0].text
    seen = set()
    class Sees(speclab.Drafter):
        def propose(self, request, draft):
            seen.add((int(request.tokens[0]), request.prompt, len(request.tokens) >= request.prompt))
    speclab.decode(target, [[3, 4, 5], [6] * 9], drafter=Sees, tokens=5, slots=2)
    assert seen == {(3, 3, True), (6, 9, True)}, seen
    class Misspelt(speclab.Drafter):
        def propse(self, request, draft):
            pass
    for wrong, said in (({"drafter": Misspelt}, "propse is no name that speclab reads"), ({"drafter": "nothing"}, "nothing"),
                        ({"drafter": 3}, "expected a name or a class of speclab.Drafter, found 3")):
        try:
            speclab.decode(target, prompts, **wrong)
        except speclab.Fault as fault:
            assert said in str(fault), fault
        else:
            raise AssertionError(wrong)
    print(json.dumps(plain[0].text))
"""
    done = executed(code, tiny, cwd=idea)
    shown = json.loads(engine("generate", tiny, "--threads", 1, "--chat", "none", "--json", "--tokens", 20, "red, green, red, green"))
    assert json.loads(done.out) == shown["text"]


def test_scores_are_logarithms_of_the_probabilities_from_which_a_rule_draws(tmp_path, tiny):
    """The rule decodes a given text and notes p, the softmax of the target's logits, of its next token and of token 6. Scores differ as their
    logarithms do; p has no padding, so scores are normalised over all ids of the model instead."""
    code = """
import math, sys, numpy as np, speclab
given, noted = [7, 3, 9, 4, 4, 11, 2, 30, 5, 8, 6], []
class Forced(speclab.Rule):
    def verify(self, draft, p, q, accept, pick):
        token = given[1 + len(noted)]
        noted.append(np.log(p(0)[[token, 6]]))
        return 0, token
with speclab.Target(sys.argv[1], threads=1) as target:
    speclab.decode(target, [given[:1]], rule=Forced, sampling="temperature=1", tokens=len(given) - 1, ignore_end=True)
    once, short, again = target.score([given, given[:4], given])
    assert len(noted) == len(once) == len(given) - 1 and (once == again).all() and (once[:3] == short).all()
    six = [target.score([given[:i] + [6]])[0][-1] for i in range(1, len(given))]
    assert np.allclose(once - six, [x - y for x, y in noted], rtol=0, atol=1e-5), (once - six, noted)
    total = 0
    for x in range(1 << 20):
        try:
            total += math.exp(target.score([[7, x]])[0][0])
        except speclab.Fault:
            break
    assert x >= target.vocab and abs(total - 1) < 1e-9, (x, total)
    text = "red, green, red"
    (by_text,) = target.score(text)
    assert (by_text == target.score([target.encode(text)])[0]).all() and [len(s) for s in target.score([[], [5]])] == [0, 0]
    for wrong, said in (([[1, target.vocab + 1000000]], "token 1 is"), ([[1] * (target.context + 1)], "the context of")):
        try:
            target.score(wrong)
        except speclab.Fault as fault:
            assert said in str(fault), fault
        else:
            raise AssertionError(wrong)
"""
    executed(code, tiny, cwd=tmp_path)


# ---- experiments

EXPERIMENT = """name: plugins
target: {model: %s}
threads: 1
prompts: {file: prompts.jsonl, chat: none}
limits: {new_tokens: 12, context: 200, ignore_end: true}
cells:
  sampling: {temperature: 0}
  drafter: [{kind: ngram}, {kind: repeat}, {kind: fails}]
"""
FAILS = """
class Fails(speclab.Drafter):
    def propose(self, request, draft):
        if len(request.tokens) > 60:
            raise ValueError("a long text")
        draft.add(1)
"""


@pytest.fixture
def experiment(idea, tiny):
    (idea / "e.yaml").write_text(EXPERIMENT % tiny)
    (idea / "prompts.jsonl").write_text("".join(json.dumps({"id": str(i), "prompt": "red, green, " * n}) + "\n" for i, n in enumerate((1, 2, 9, 1))))
    return idea


def texts(db):
    with sqlite3.connect(db) as c:
        return dict(c.execute("SELECT drafter, count(*) FROM run JOIN sequence ON sequence.run = run.id GROUP BY drafter").fetchall())


def test_an_exception_ends_its_cell_and_keeps_all_finished_texts(experiment):
    (experiment / "idea.py").write_text(REPEAT + FAILS)
    done = call("run", "e.yaml", "--no-probe", "--plugin", "idea.py", "--db", "r.db", cwd=experiment)
    assert done.status == 1
    line = REPEAT.count("\n") + 5
    assert f"fails, temperature=0: idea.py:{line}: ValueError: a long text (drafter fails, propose); the cell ends here" in done.err
    assert "1 of its cells ended with an error of a plugin; finished texts are in r.db" in done.err
    assert texts(experiment / "r.db") == {"none": 4, "ngram": 4, "repeat": 4, "fails": 2}
    (experiment / "idea.py").write_text(REPEAT + FAILS.replace("> 60", "> 600"))
    done = call("run", "e.yaml", "--no-probe", "--plugin", "idea.py", "--db", "r.db", cwd=experiment)
    assert done.status == 0, done.err  # another source, and so other cells, with a baseline beside them
    assert texts(experiment / "r.db") == {"none": 8, "ngram": 4, "repeat": 8, "fails": 6}


def test_heads_goes_on_after_a_cell_whose_plugin_fails(experiment):
    (experiment / "idea.py").write_text(REPEAT + FAILS + "\n    def __init__(self):\n        open('missing')\n")
    cells = (experiment / "e.yaml").read_text().replace("{kind: ngram}, {kind: repeat}, {kind: fails}", "{kind: fails}, {kind: repeat}")
    (experiment / "e.yaml").write_text(cells)
    done = call("heads", "e.yaml", "--tokens", 40, "--plugin", "idea.py", cwd=experiment)
    said = "fails, rejection, temperature=0: failed\nrepeat, temperature=0\n  no rows of q: nothing to evaluate\n"
    assert done.status == 1 and done.out == said, done
    assert "speclab heads: fails, rejection, temperature=0: idea.py:" in done.err
    assert done.err.endswith("speclab heads: 1 of the cells ended with an error of a plugin\n"), done.err


def test_exact_tests_the_cells_after_one_whose_plugin_fails(experiment):
    made = FAILS + "class Unmade(Fails):\n    def __init__(self):\n        open('missing')\n"
    (experiment / "idea.py").write_text(REPEAT + made)
    cells = (experiment / "e.yaml").read_text().replace("temperature: 0", "temperature: 1")
    (experiment / "e.yaml").write_text(cells.replace("{kind: ngram}, {kind: repeat}, {kind: fails}", "{kind: fails}, {kind: unmade}, {kind: repeat}"))
    line = REPEAT.count("\n") + 5
    for more, tested in (((), "tokens of"), (("--bits",), "all bits are equal")):
        done = call("exact", "e.yaml", "--tokens", 40, *more, "--plugin", "idea.py", "--db", "x.db", cwd=experiment)
        assert done.status == 1 and tested in done.out.split("repeat, rejection")[1], done
        assert f"fails, rejection, temperature=1: idea.py:{line}: ValueError: a long text (drafter fails, propose); the cell ends here" in done.err
        assert re.search(r"unmade, rejection, temperature=1: idea.py:\d+: FileNotFoundError: ", done.err), done.err
        assert "2 of the cells ended with an error of a plugin; what was finished is in x.db" in done.err
        assert {"fails, rejection, temperature=1: failed", "unmade, rejection, temperature=1: failed"} <= set(done.out.splitlines()), done.out
    with sqlite3.connect(experiment / "x.db") as c:
        assert c.execute("SELECT drafter, finished IS NULL FROM exact ORDER BY id").fetchall() == [("fails", 1), ("repeat", 0)]
        assert c.execute("SELECT group_concat(drafter) FROM exact_bits").fetchone() == ("repeat",)


def test_a_cell_whose_drafter_cannot_be_made_is_left_out(experiment):
    made = "    def __init__(self):\n        open('missing')\n    def propose"
    (experiment / "idea.py").write_text(REPEAT + FAILS.replace("    def propose", made))
    done = call("run", "e.yaml", "--no-probe", "--plugin", "idea.py", "--db", "r.db", cwd=experiment)
    said = r"^fails: idea.py:\d+: FileNotFoundError: .* \(drafter fails, created\); the cell is left out$"
    assert done.status == 1 and re.search(said, done.err, re.M), done.err
    assert texts(experiment / "r.db") == {"none": 4, "ngram": 4, "repeat": 4}


def test_only_cells_of_plugins_have_their_source_in_the_hash(experiment):
    (experiment / "idea.py").write_text(REPEAT + FAILS.replace("> 60", "> 600"))
    for name in ("a.db", "b.db"):
        assert call("run", "e.yaml", "--no-probe", "--plugin", "idea.py", "--db", name, cwd=experiment).status == 0
        (experiment / "idea.py").write_text((experiment / "idea.py").read_text() + "# another comment\n")
    (experiment / "e.yaml").write_text(re.sub(", {kind: repeat}, {kind: fails}", "", (experiment / "e.yaml").read_text()))
    assert program("run", "e.yaml", "--no-probe", "--db", "c.db", cwd=experiment).status == 0
    a, b, c = (dict(sqlite3.connect(experiment / f"{n}.db").execute("SELECT drafter, cell FROM run").fetchall()) for n in "abc")
    assert a["none"] == b["none"] == c["none"] and a["ngram"] == b["ngram"] == c["ngram"]
    assert a["repeat"] != b["repeat"] and a["fails"] != b["fails"]


def test_an_experiment_names_its_plugins(experiment):
    """The file is that of --plugin, relative to the experiment's folder, with the same cells."""
    (experiment / "lab").mkdir()
    (experiment / "lab" / "idea.py").write_text(REPEAT + FAILS.replace("> 60", "> 600"))
    (experiment / "lab" / "table.py").write_text("import speclab\n" + FAILS.replace("Fails", "Other"))
    plain = (experiment / "e.yaml").read_text().replace("prompts.jsonl", "../prompts.jsonl")
    (experiment / "lab" / "e.yaml").write_text(plain)
    assert call("run", "lab/e.yaml", "--no-probe", "--plugin", "lab/idea.py", "--db", "a.db", cwd=experiment).status == 0
    (experiment / "lab" / "e.yaml").write_text("plugins: [idea.py, table.py]\n" + plain)
    for n, name in enumerate(("b.db", "c.db")):  # c.db: named twice, which has no effect
        named = ["--plugin", "lab/idea.py"][: 2 * n]
        done = call("run", "lab/e.yaml", "--no-probe", *named, "--db", name, cwd=experiment, env={"SPECLAB_PYTHON": sys.executable})
        assert done.status == 0, done.err
    a, b, c = (dict(sqlite3.connect(experiment / f"{n}.db").execute("SELECT drafter, cell FROM run").fetchall()) for n in "abc")
    assert a == b == c and {"none", "ngram", "repeat", "fails"} == set(a)
    assert texts(experiment / "a.db") == texts(experiment / "b.db") == texts(experiment / "c.db")
    # A database does not say what code runs: a run again takes --plugin.
    run = sqlite3.connect(experiment / "b.db").execute("SELECT id FROM run WHERE drafter = 'repeat'").fetchone()[0]
    again = ["run", "--again", run, "--db", "b.db", "--no-probe"]
    done = call(*again, cwd=experiment)
    assert done.status == 1 and re.search('run.settings:.*drafter.*"repeat"', done.err), done
    done = call(*again, "--plugin", "lab/idea.py", cwd=experiment)
    assert "inputs     are the same" in done.out, done


def test_the_schema_and_completion_have_what_plugins_register(idea):
    env = {"SPECLAB_PYTHON": sys.executable}
    schema = json.loads(call("schema", "--plugin", "idea.py", cwd=idea, env=env).out)
    conditions = schema["definitions"]["drafter"]["anyOf"][1]["allOf"]
    repeat = next(c["then"] for c in conditions if c["if"]["properties"]["kind"]["const"] == "repeat")
    assert set(repeat["properties"]) == {"kind", "zip", "length", "period", "tokens"}
    script = call("completion", "bash", "--plugin", "idea.py", cwd=idea, env=env).out
    assert "drafter:repeat) printf '%s\\n' 'period=' 'tokens=' ;;" in script


def test_wrong_plugins_of_an_experiment_are_named_with_their_place(experiment):
    plain = (experiment / "e.yaml").read_text()
    for given, said in [("[missing.py]", r"e.yaml:1:11: plugins: .*missing.py: No such file or directory"),
                        ("idea.py", r'e.yaml:1:10: plugins: expected a list of files, as in \[idea.py\], found idea.py'),
                        ("[idea.c]", r"e.yaml:1:11: plugins: .*expected a file that ends with .so or .py, found \"idea.c\""),
                        ("[{a: 1}]", r"e.yaml:1:11: plugins: expected a")]:  # fmt: skip
        (experiment / "e.yaml").write_text(f"plugins: {given}\n{plain}")
        done = program("run", "e.yaml", "--db", "r.db", cwd=experiment)
        assert done.status == 2 and re.search(said, done.err), done.err
        assert not (experiment / "r.db").exists()


def test_ctrl_c_ends_a_plugin_that_never_returns_and_loses_nothing(experiment):
    loop = FAILS.replace('raise ValueError("a long text")', 'open("stuck", "w").close()\n            while True: pass')
    (experiment / "idea.py").write_text(REPEAT + loop)
    done = interrupted("run", "e.yaml", "--no-probe", "--plugin", "idea.py", "--db", "r.db", cwd=experiment, when="stuck")
    assert done.status in (1, 130) and "interrupted (drafter fails, propose); finished texts are in r.db" in done.err and "Traceback" not in done.err
    assert texts(experiment / "r.db")["fails"] == 2
