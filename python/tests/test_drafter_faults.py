"""What is said of faulty drafters in Python, and drafters that have nothing to say."""

import json

import pytest
from conftest import call, engine

pytestmark = pytest.mark.library

# A fault: what the class has, and what is said.
DRAFTER = "import numpy as np\nimport speclab\nclass Bad(speclab.Drafter):\n"
FAULTS = {
    "exception": ("    def propose(self, r, d):\n        return [][3]\n", "idea.py:5: IndexError: list index out of range (drafter bad, propose)"),
    "created": ("    def __init__(self):\n        1 / 0\n    def propose(self, r, d):\n        pass\n",
        "idea.py:5: ZeroDivisionError: division by zero"),
    "token": ("    def propose(self, r, d):\n        d.add(100000)\n", "idea.py:5: expected a token from 0 to"),
    "negative": ("    def propose(self, r, d):\n        d.add(-1)\n", "idea.py:5: expected a token from 0 to"),
    "parent": ("    makes = ('deterministic', 'trees')\n    def propose(self, r, d):\n        d.add(1, parent=7)\n",
        "idea.py:6: expected a parent from 0 (the root) to 0, found 7"),
    "no chain": ("    def propose(self, r, d):\n        d.add(1), d.add(2, parent=0)\n", 'idea.py:5: a draft that is no chain needs "trees"'),
    "undeclared": ("    def propose(self, r, d):\n        d.add(1, q=np.eye(self.vocab)[1])\n", 'idea.py:5: a token with a q needs "sampled"'),
    "no sum": ("    makes = 'sampled'\n    def propose(self, r, d):\n        d.add(1, q=np.ones(self.vocab))\n",
        "q: expected probabilities whose sum is 1, found a sum of"),
    "not in q": ("    makes = 'sampled'\n    def propose(self, r, d):\n        d.add(1, q=np.eye(self.vocab)[2])\n",
        "token 1 was drawn from q, as the drafter says, where its probability is 0"),
    "NaN in q": ("    makes = 'sampled'\n    def propose(self, r, d):\n        d.add(1, q=np.full(self.vocab, np.nan))\n",
        "q: expected probabilities, found nan for token 0"),
    "short q": ("    makes = 'sampled'\n    def propose(self, r, d):\n        d.sample(np.ones(3) / 3)\n",
        "idea.py:6: q: expected a shape (288,), found (3,)"),
    "short row": ("    def row(self, slot, path):\n        return np.zeros(7)\n", "idea.py:4: row: expected logits of a shape (288,), found (7,)"),
    "NaN row": ("    def row(self, slot, path):\n        return np.full(self.vocab, np.nan)\n",
        "idea.py:4: row: expected finite logits, or -inf for tokens that are impossible, found nan for token 0"),
    "no finite logit": ("    def row(self, slot, path):\n        return np.full(self.vocab, -np.inf)\n",
        "idea.py:4: row: expected finite logits, or -inf for tokens that are impossible, found -inf for all tokens"),
    "float": ("    def propose(self, r, d):\n        d.add(5.0)\n", "idea.py:5: token: expected an integer, found 5.0"),
    "large": ("    def propose(self, r, d):\n        d.add(2**40)\n", "idea.py:5: token: expected an integer of 32 bits, found 1099511627776"),
    "own tokens": ("    tokens: int = 4\n    def row(self, slot, path):\n        return np.zeros(self.vocab)\n",
        "option tokens: a drafter of rows has it already, as an option of trees; remove this one"),
    "words": ("    def row(self, slot, path):\n        return ['a'] * self.vocab\n", "idea.py:4: row: expected logits, found an array of <U1"),
    "rows": ("    def rows(self, paths):\n        return np.zeros((9, self.vocab))\n",
        "idea.py:4: rows: expected logits of a shape (1, 288), found (9, 288)"),
    "advance": ("    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        a.tokens[0] = 1\n",
        "idea.py:7: ValueError: assignment destination is read-only (drafter bad, advance)"),
    "layer": ("    layers = (99,)\n    def propose(self, r, d):\n        pass\n", "layers: expected -1"),
    "nothing": ("    tokens: int = 3\n", "expected propose, or row or rows, found none of them"),
    "both": ("    def propose(self, r, d):\n        pass\n    def row(self, slot, path):\n        pass\n",
        "expected propose, or row or rows, found propose and row"),
    "kinds": ("    makes = ('forest',)\n    def propose(self, r, d):\n        pass\n",
        "expected kinds of drafts of deterministic, sampled, distinct, chains, trees, found 'forest'"),
    "type": ("    x: list = 3\n    def propose(self, r, d):\n        pass\n", "x: expected an option of type int, float, bool, str or Literal"),
    "taken": ("    name = 'ngram'\n    def propose(self, r, d):\n        pass\n", "drafter ngram: expected a name that no drafter has"),
    "syntax": ("    def propose(self r)\n", "idea.py:4: "),
    "many tokens": ("    def __init__(self):\n        self.tokens = 600\n    def propose(self, r, d):\n        pass\n",
        "idea.py:3: tokens: expected 0 to 511, found 600 (drafter bad)"),
    "no such layer": ("    layers = (99,)\n    def propose(self, r, d):\n        pass\n", "idea.py:3: layers: expected -1"),
    "one layer": ("    layers = 3\n    def propose(self, r, d):\n        pass\n", "idea.py:3: class Bad: layers: expected integers"),
    "a layer's name": ("    layers = 'final'\n    def propose(self, r, d):\n        pass\n", "idea.py:3: class Bad: layers: expected integers"),
    "no layers": ("    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        np.sum(a.states[0])\n",
        "idea.py:7: a.states: declare `layers`, the hidden states that advance gets (drafter bad, advance)"),
    "no layers, array": ("    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        np.asarray(a.states)\n",
        "idea.py:7: a.states: declare `layers`"),
    "states as an array": ("    layers = (0,)\n    on_device = True\n    def propose(self, r, d):\n        pass\n"
        "    def advance(self, a):\n        np.asarray(a.states)\n", "idea.py:9: TypeError: expected torch.from_dlpack(a.states)"),
    "states kept": ("    layers = (0,)\n    on_device = True\n    def propose(self, r, d):\n        pass\n"
        "    def advance(self, a):\n        self.kept = np.from_dlpack(a.states)[0]\n",
        "idea.py:8: a tensor of a.states, or a graph of autograd with it, is kept after the call"),
    "array kept": ("    layers = (0,)\n    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        self.kept = a.states[-1, 0]\n",
        "idea.py:7: a.states, or a part of it, is kept after the call, and would show later values: keep a copy"),
    "text kept": ("    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        self.kept = a.text\n",
        "idea.py:6: a.text, or a part of it, is kept after the call"),
    "advance kept": ("    def propose(self, r, d):\n        pass\n    def advance(self, a):\n        self.kept = a\n",
        "idea.py:6: a.tokens, or a part of it, is kept after the call"),
    "prompt kept": ("    def propose(self, r, d):\n        self.kept = r.tokens[:3]\n", "idea.py:4: request.tokens, or a part of it, is kept"),
    "path kept": ("    def row(self, slot, path):\n        self.kept = path\n", "idea.py:4: path, or a part of it, is kept after the call"),
    "paths kept": ("    def rows(self, paths):\n        self.kept = paths\n        return [None] * len(paths)\n",
        "idea.py:4: path, or a part of it, is kept after the call"),
    "misspelt": ("    def propose(self, r, d):\n        pass\n    def advanse(self, a):\n        pass\n",
        "idea.py:6: class Bad: advanse is no name that speclab reads; did you mean advance?"),
    "misspelt value": ("    layer = (0,)\n    def propose(self, r, d):\n        pass\n",
        "idea.py:3: class Bad: layer is no name that speclab reads; did you mean layers?"),
    "defined again": ("    def propose(self, r, d):\n        pass\n    def propose(self, r, d):\n        d.add(1)\n",
        "idea.py:6: propose is defined in line 4 and again here, which replaces it"),
    "class again": ("    def propose(self, r, d):\n        pass\nclass Bad(speclab.Drafter):\n    def propose(self, r, d):\n        pass\n",
        "idea.py:6: Bad is defined in line 3 and again here, which replaces it"),
    "draft kept": ("    def propose(self, r, d):\n        self.kept = getattr(self, 'kept', d)\n        self.kept.add(1)\n",
        "idea.py:6: draft: it takes tokens during the call of propose alone"),
    "request kept": ("    def propose(self, r, d):\n        self.kept = getattr(self, 'kept', r)\n        self.kept.tokens\n",
        "idea.py:6: request: its text is there during the call of propose alone"),
    "no node": ("    def propose(self, r, d):\n        d.token(99)\n", "idea.py:5: expected a node of the draft, or -1, found 99"),
    "result": ("    def propose(self, r, d):\n        return [3, 4]\n",
        "idea.py:4: propose: expected tokens that draft.add adds, and no result, found [3, 4]"),
    "parameters": ("    def propose(self, r):\n        pass\n", "idea.py:4: TypeError: Bad.propose() takes 2 positional arguments but 3 were given"),
    "created with": ("    def __init__(self, n):\n        pass\n    def propose(self, r, d):\n        pass\n",
        "idea.py:4: TypeError: Bad.__init__() missing 1 required positional argument: 'n' (drafter bad, created)"),
    "vocab": ("    vocab: int = 3\n    def propose(self, r, d):\n        pass\n", "idea.py:3: class Bad: vocab: expected another name"),
    "kinds of shapes": ("    makes = ('trees',)\n    def propose(self, r, d):\n        pass\n",
        "idea.py:3: class Bad: makes: expected \"deterministic\" or \"sampled\" among its words, found ('trees',)"),
    "default": ("    x: int = 2.5\n    def propose(self, r, d):\n        pass\n", "idea.py:3: the default of an option, x: expected an integer"),
    "large logits": ("    def row(self, slot, path):\n        return np.full(self.vocab, 1e300)\n",
        "idea.py:4: row: expected finite logits, or -inf for tokens that are impossible, found 1e+300 for token 0 (drafter bad, row)"),
    "two rows": ("    makes = ('sampled', 'trees')\n    def propose(self, r, d):\n        for x in (1, 2):\n"
        "            q = np.full(self.used_vocab, x / 1000)\n            q[5] += 1 - q.sum()\n"
        "            d.add(5, parent=0, q=np.append(q, np.zeros(self.vocab - len(q))))\n",
        "idea.py:9: q: expected one row for all tokens behind node 0, found"),
    "only padding": ("    makes = 'sampled'\n    def propose(self, r, d):\n        d.sample(np.eye(self.vocab)[-1])\n",
        "idea.py:6: q: expected probabilities of tokens below"),
    "exit": ("    def propose(self, r, d):\n        raise SystemExit(3)\n", "idea.py:5: SystemExit: 3"),
}  # fmt: skip


def test_tokens_of_a_drafter_are_bounded_where_they_are_read(tmp_path, tiny):
    (tmp_path / "idea.py").write_text(DRAFTER + "    tokens: int = 4\n    def propose(self, r, d):\n        pass\n")
    done = call("generate", tiny, "--plugin", "idea.py", "--drafter", "bad:tokens=-3", "--threads", 1, "red", cwd=tmp_path)
    assert done.status in (1, 2) and "tokens: expected an integer from 0 to 511, found -3" in done.err, done


@pytest.mark.parametrize("row", ["torch.zeros(self.vocab, dtype=torch.bfloat16)", "torch.zeros(self.vocab, requires_grad=True)"])
def test_a_tensor_that_numpy_cannot_read_is_named(row, tmp_path, tiny):
    pytest.importorskip("torch.nn")  # a folder named torch is a package, too
    (tmp_path / "idea.py").write_text(f"import torch\n{DRAFTER}    def row(self, slot, path):\n        return {row}\n")
    done = call("generate", tiny, "--plugin", "idea.py", "--drafter", "bad", "--threads", 1, "red", cwd=tmp_path)
    assert done.status == 1 and "idea.py:5: row: expected logits that numpy reads, found Tensor: " in done.err, done


def test_names_of_the_drafters_own_and_garbage_are_no_faults(tmp_path, tiny):
    body = "    token: int = 1\n    closed = False\n    def propose(self, r, d):\n        cycle = [r.tokens]\n        cycle.append(cycle)\n"
    body += "    def advance(self, a):\n        self.last = np.array(a.text)\n    def advances(self):\n        pass\n"
    (tmp_path / "idea.py").write_text(DRAFTER + body)
    done = call("generate", tiny, "--plugin", "idea.py", "--drafter", "bad:token=2", "--threads", 1, "red", cwd=tmp_path)
    assert done.status == 0, done


def test_what_a_plugin_prints_is_no_part_of_the_output(tmp_path, tiny):
    (tmp_path / "idea.py").write_text("print('loaded')\n" + DRAFTER + "    def propose(self, r, d):\n        print('drafts')\n")
    done = call("generate", tiny, "--json", "--plugin", "idea.py", "--drafter", "bad", "--threads", 1, "red", cwd=tmp_path)
    assert done.status == 0 and json.loads(done.out)["new_ids"] and done.err.startswith("loaded\ndrafts\n"), done


DECLINES = """
import numpy as np
import speclab

class Row(speclab.Drafter):
    "has nothing behind odd tokens"
    def row(self, slot, path):
        return None if path[-1] % 2 else np.zeros(self.vocab)

class Rows(speclab.Drafter):
    "as Row, for all paths in one call"
    def rows(self, paths):
        return [None if path[-1] % 2 else np.zeros(self.vocab) for _, path in paths]

class Nothing(speclab.Drafter):
    def row(self, slot, path):
        pass
"""


@pytest.mark.parametrize("how", ["tokens=5", "widths=[3,2,2]", "widths=[3,2],distinct=false", "nodes=12,pick=greedy,top=4",
                                 "tree=[[0],[1],[0,0],[1,0]],pick=greedy"])  # fmt: skip
@pytest.mark.parametrize("name", ["row", "rows", "nothing"])
def test_a_drafter_that_has_nothing_ends_the_branch(name, how, tmp_path, tiny):
    (tmp_path / "idea.py").write_text(DECLINES)
    plain = ("--tokens", 40, "--threads", 1, "--ignore-end", "--json", "--temperature", 1, "--rule", "match", "red green")
    done = call("generate", tiny, "--trace", "--plugin", "idea.py", "--drafter", f"{name}:{how}", *plain, cwd=tmp_path)
    assert done.status == 0, done.err
    made = json.loads(done.out)
    assert made["new_ids"] == json.loads(engine("generate", tiny, *map(str, plain)))["new_ids"]
    drafts = [s["draft"] for s in made["steps"]]
    parents = [d["tokens"][p] for d in drafts for p in d["parents"][1:]]
    assert all(token % 2 == 0 for token in parents) and (name == "nothing") == (not parents)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_drafter_is_named_in_one_sentence(fault, tmp_path, tiny):
    source, said = FAULTS[fault]
    (tmp_path / "idea.py").write_text(DRAFTER + source)
    done = call("generate", tiny, "--plugin", "idea.py", "--drafter", "bad", "--threads", 1, "red green", cwd=tmp_path)
    assert done.status == 1 and said in done.err and len(done.err.strip().splitlines()) == 1, done.err


ROWS = {
    "float64": "np.eye(self.vocab)[5]",
    "list": "np.eye(self.vocab)[5].tolist()",
    "strided": "np.eye(self.vocab, dtype=np.float32)[:, 5]",
    "integers": "np.eye(self.vocab, dtype=int)[5]",
    "float32": "np.eye(self.vocab, dtype=np.float32)[5]",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_q_is_any_array_of_numbers(row, tmp_path, tiny):
    body = f"    makes = 'sampled'\n    def propose(self, r, d):\n        q = {ROWS[row]}\n        node = d.sample(q)\n"
    body += "        assert node == -1 or d.token(node) == 5\n        d.add(5, q=q)\n"
    (tmp_path / "idea.py").write_text(DRAFTER + body)
    done = call("generate", tiny, "--plugin", "idea.py", "--drafter", "bad", "--threads", 1, "--tokens", 8, "red green", cwd=tmp_path)
    assert done.status == 0, done.err
