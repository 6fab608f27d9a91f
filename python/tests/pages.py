"""A small run for the tests of pages, and a page read by Python's parser."""

import html.parser
import json
import subprocess
import sys
from pathlib import Path

from conftest import BUILD, engine
from frozen import freeze

EXPERIMENT = """{name: pages, target: {model: tiny.gguf, device: cpu}, threads: 1, prompts: {file: prompts.jsonl, chat: none},
limits: {new_tokens: 12, context: 300}, seed: 1, cells: {
  sampling: [{temperature: 0}], batch: [1, 2], rule: [rejection, typical], drafter: [{kind: none},
    {kind: ngram, shortest: 1, longest: {any: [1, 3]}, tokens: {any: [2, 8]}}, {kind: small, model: other.gguf, tokens: 2, pick: greedy},
    {kind: small, model: other.gguf, tokens: 3, nodes: 6, pick: greedy}, {kind: small, model: other.gguf, widths: [3, 2], pick: sampled}]}}"""


def small_run(folder: Path) -> Path:
    """A database of cells on models with random weights, of 12 prompts in 3 categories, and a bench."""
    for name in ("tiny.gguf", "other.gguf"):
        subprocess.run([BUILD / "write_small_model", folder / name], check=True)
    prompts = [{"question_id": i, "category": ("letters", "numbers", "words")[i % 3], "prompt": "ab cd " * (2 + 3 * i)} for i in range(12)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    (folder / "pages.yaml").write_text(EXPERIMENT)
    engine("run", "pages.yaml", "--no-probe", "--db", "small.db", cwd=folder)
    freeze(folder / "small.db")
    sizes = ["--repeats", 2, "--rows", "1,2,4", "--contexts", "16,64", "--prefill", 0, "--threads", 1]
    engine("bench", "tiny.gguf", *sizes, "--no-probe", "--json", "--db", "small.db", cwd=folder)
    return folder / "small.db"


def many(source: Path, to: Path, cells: int, *options: str) -> Path:
    subprocess.run([sys.executable, Path(__file__).parent / "make_many_cells.py", source, to, str(cells), *options], check=True, capture_output=True)
    return to


class Page(html.parser.HTMLParser):
    """tags: each with its attributes. sections: id -> heads and rows of its table, (text, data-v) of each cell, SQL. cells: other tables'."""

    def __init__(self, path: Path):
        super().__init__()
        self.text, self.tags, self.open, self.sections, self.cells, self.words = path.read_text(), [], [], {}, [], ""
        self.section, self.row = None, []
        self.feed(self.text)
        assert self.open == []

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        if tag == "section":
            self.section = self.sections[dict(attributes)["id"]] = {"heads": [], "rows": [], "sql": "", "pictures": 0}
        elif tag == "tr":
            self.row = []
        elif tag in ("td", "th"):
            self.row.append(["", dict(attributes).get("data-v")])
        elif tag == "svg" and self.section:
            self.section["pictures"] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "tr" and self.section:
            self.section["heads" if "thead" in self.open else "rows"] += self.row if "thead" in self.open else [self.row]
        elif tag == "tr" and "thead" not in self.open:
            self.cells.append(self.row)
        elif tag == "section":
            self.section = None

    def handle_data(self, data):
        if self.open[-2:] == ["pre", "code"]:
            self.section["sql"] += data
        elif {"td", "th"} & set(self.open):
            self.row[-1][0] += data
        elif not {"script", "style"} & set(self.open):
            self.words += data
