"""How a drafter in Python ends badly: in forget, by Ctrl-C, and by an edit between two runs."""

import contextlib
import json
import re
import sqlite3

import pytest
from conftest import call, interrupted

pytestmark = pytest.mark.library

IDEA = """
import os
import speclab

class Forgets(speclab.Drafter):
    "fails when its third text ends"
    def __init__(self):
        self.ended = 0
    def propose(self, request, draft):
        draft.add(int(request.tokens[-1]))
    def forget(self, slot):
        self.ended += 1
        if self.ended == 3:
            raise KeyError("slot")

class Hangs(speclab.Drafter):
    "never returns"
    def propose(self, request, draft):
        open("hanging", "w").close()
        while True:
            pass
"""
FILE = """
name: ends
target: {model: TINY}
prompts: {file: prompts.jsonl, chat: none}
limits: {new_tokens: 6, ignore_end: true}
threads: 1
cells: {drafter: [{kind: forgets}, {kind: ngram}]}
"""


@pytest.fixture
def idea(tmp_path, tiny):
    (tmp_path / "idea.py").write_text(IDEA)
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "red, green, {i}"}}\n' for i in range(4)))
    (tmp_path / "forgets.yaml").write_text(FILE.replace("TINY", str(tiny)))
    return tmp_path


def rows(path, sql):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def test_an_error_in_forget_ends_the_text(idea, tiny):
    (idea / "first.py").write_text(IDEA.replace("== 3", "== 1"))
    done = call("generate", tiny, "--plugin", "first.py", "--drafter", "forgets", "--tokens", 5, "red", cwd=idea)
    assert done.status == 1 and "first.py:14: KeyError: 'slot' (drafter forgets, forget)" in done.err


def test_an_error_in_forget_ends_its_cell_and_keeps_the_texts(idea):
    done = call("run", "forgets.yaml", "--no-probe", "--db", "r.db", "--plugin", "idea.py", cwd=idea)
    assert done.status == 1 and "idea.py:14: KeyError: 'slot' (drafter forgets, forget); the cell ends here" in done.err
    count = "SELECT r.drafter_kind, count(DISTINCT q.prompt) FROM run AS r LEFT JOIN sequence AS q ON q.run = r.id GROUP BY r.id ORDER BY 1"
    assert rows(idea / "r.db", count) == [("forgets", 2), ("ngram", 4), ("none", 4)]  # the first text is a warm-up


def test_a_plugin_that_never_returns_is_named_after_ctrl_c(idea, tiny):
    done = interrupted("generate", tiny, "--drafter", "hangs", "red", "--plugin", "idea.py", cwd=idea, when="hanging")
    assert done.status == 130 and re.search(r"idea.py:(19|2[01]): interrupted \(drafter hangs, propose\)", done.err)


def test_an_edited_plugin_is_another_cell_and_the_report_says_which_is_older(idea):
    (idea / "idea.py").write_text(IDEA.replace("== 3", "== 99"))
    assert call("run", "forgets.yaml", "--no-probe", "--db", "r.db", "--plugin", "idea.py", cwd=idea).status == 0
    (idea / "idea.py").write_text(IDEA.replace("== 3", "== 98"))
    done = call("run", "forgets.yaml", "--no-probe", "--db", "r.db", "--plugin", "idea.py", cwd=idea)
    assert done.status == 0 and "does not resume run 2: the drafter's weights, configuration or plugin differ" in done.err
    names = [c["name"] for c in json.loads(call("report", "--db", "r.db", "--json", cwd=idea).out)["comparisons"][0]["cells"]]
    assert sorted(names) == ["forgets", "forgets (older: run 2)", "ngram", "none"]
