"""report_pages.py - what the tests of `speclab report --html` share: a small run, pages read by Python's parser, and the SQL that they show."""
import html.parser
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

EXPERIMENT = """
name: pages
target: {model: tiny, device: cpu}
threads: 1
prompts: {file: prompts.jsonl, chat: none}
limits: {new_tokens: 12, context: 300}
seed: 1
cells:
  sampling: [{temperature: 0}, {temperature: 1.0}]
  batch: [1, 2]
  rule: [rejection, typical]
  drafter:
    - {kind: none}
    - {kind: ngram, shortest: 1, longest: 2, tokens: 2}
    - {kind: ngram, shortest: 1, longest: 2, tokens: 5}
    - {kind: small, model: tiny-pruned, tokens: 2, pick: greedy}
    - {kind: small, model: tiny-pruned, tokens: 3, nodes: 6, pick: greedy}
    - {kind: small, model: tiny-pruned, widths: [3, 2], pick: sampled}
"""


def command(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


def must(*words, **more):
    done = command(*words, **more)
    assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-2000:])
    return done.stdout


def small_run(build, folder):
    """A database of 48 cells on models with random weights, of 12 prompts in 3 categories, and a bench."""
    speclab, env = f"{build}/speclab", dict(os.environ, XDG_CACHE_HOME=folder)
    models = f"{folder}/speclab/models"
    os.makedirs(models, exist_ok=True)
    must(f"{build}/write_small_model", f"{models}/tiny.gguf")
    must(speclab, "prune", f"{models}/tiny.gguf", "--keep", "0,2", "--out", f"{models}/tiny-pruned.gguf", env=env)
    with open(f"{folder}/prompts.jsonl", "w") as f:
        for i in range(12):
            f.write(json.dumps({"question_id": i, "category": ("letters", "numbers", "words")[i % 3], "prompt": "ab cd " * (2 + 3 * i)}) + "\n")
    with open(f"{folder}/pages.yaml", "w") as f:
        f.write(EXPERIMENT)
    must(speclab, "run", f"{folder}/pages.yaml", "--no-probe", "--db", f"{folder}/small.db", env=env)
    must(speclab, "bench", f"{models}/tiny.gguf", "--repeats", "2", "--rows", "1,2,4", "--contexts", "16,64", "--prefill", "0", "--no-probe", "--threads",
         "1", "--db", f"{folder}/small.db", env=env)
    return f"{folder}/small.db"


VOID = {"meta", "link", "br"}


class Page(html.parser.HTMLParser):
    """tags: every tag with its attributes. sections: name -> rows of its table, as (text, data-v) of each cell, and its SQL. open: tags that are
    not closed."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open, self.sections, self.cells, self.words = text, [], [], {}, [], []
        self.section, self.row, self.cell, self.sql, self.head, self.heads = None, None, None, None, None, {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.section = self.sections.setdefault(attributes["id"], {"rows": [], "sql": "", "panels": 0})
        elif tag == "tr":
            self.row = []
        elif tag == "td":
            self.cell = ["", attributes.get("data-v")]
        elif tag == "code" and "pre" in self.open:
            self.sql = True
        elif tag == "svg" and self.section is not None:
            self.section["panels"] += 1

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()
        if tag == "td":
            self.row.append(tuple(self.cell))
            self.cell = None
        elif tag == "tr" and self.row:
            (self.cells if self.section is None else self.section["rows"]).append(self.row)
        elif tag == "code":
            self.sql = None
        elif tag == "section":
            self.section = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[0] += data
        elif self.sql and self.section is not None:
            self.section["sql"] += data
        elif "script" not in self.open and "style" not in self.open:
            self.words.append(data)


def read_page(path):
    with open(path, encoding="utf-8") as f:
        page = Page(f.read())
    assert page.open == [], page.open
    return page


def query(db, sql):
    """Rows of a statement by the program sqlite3, as a reader would run it."""
    out = must("sqlite3", "-readonly", "-json", db, input=sql)
    return [list(row.values()) for row in json.loads(out)] if out.strip() else []
