"""trace - a text as it was decoded: each step's draft, p and q of its tokens, which were accepted and why, and the
times.

p is the target's distribution, q the drafter's. Times are in nanoseconds.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field

import pandas as pd

from speclab import engine
from speclab.command import Fault, Misuse
from speclab.printable import printable
from speclab.rows import SAMPLED, draft_of


@dataclass
class Node:
    """A node of a draft; the root is the last token before the step."""

    token: int
    parent: int
    proposal: int = 0
    p: float | None = None  # the target's probability, if it is known
    q: float | None = None  # the drafter's; None: deterministic
    accepted: bool = False
    tested: bool = False
    why: str = ""


@dataclass
class Step:
    number: int
    position: int  # position of the root, in prompt and text
    nodes: list[Node]  # nodes, the root first
    out: list[int]  # tokens of the text from this step, without the text's end
    times: dict[str, int]  # propose, verify, advance: ns of the whole batch

    @property
    def accepted(self) -> int:
        return sum(n.accepted for n in self.nodes[1:])

    def children(self, node: int) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if n.parent == node and i > 0]


@dataclass
class Trace:
    title: str
    settings: dict[str, str]
    steps: list[Step]
    text: list[int]  # new tokens
    pieces: dict[int, str] = field(default_factory=dict)  # each token as text

    def piece(self, token: int) -> str:
        return self.pieces.get(token, f"<{token}>")


# ---- explanations of decisions


def explained(step: Step, rule: str) -> Step:
    """Sets `accepted`, `tested` and `why` of the nodes, by the step's tokens, and returns the step."""
    at, path = 0, [0]
    for token in step.out[:-1]:
        child = next((c for c in step.children(at) if step.nodes[c].token == token), None)
        if child is None:
            break
        at = child
        path.append(at)
    for i, n in enumerate(step.nodes[1:], 1):
        n.accepted = i in path
        before = [c for c in step.children(n.parent) if c < i]
        n.tested = n.tested or n.accepted or (n.parent in path and not any(c in path for c in before))
        n.why = _why(n, rule, any(c in path for c in before))
    return step


def _why(n: Node, rule: str, sibling: bool) -> str:
    if not n.tested:
        return "not tested: a sibling before it was accepted" if sibling else "not tested: its parent was not accepted"
    word = "accepted" if n.accepted else "rejected"
    if n.p is None:
        return word
    if rule != "rejection":
        return f"{word} by {rule}, p = {n.p:.3g}"
    if n.q is None:
        return f"{word}: a test of probability p = {n.p:.3g}" if 0 < n.p < 1 else f"{word}: p = {n.p:.0f}"
    if n.p >= n.q:
        return f"{word}: p >= q" if n.accepted else f"{word}: p and q of this test were those left by its siblings"
    return f"{word}: a test of probability p / q = {n.p / n.q if n.q > 0 else 0:.3g}"


# ---- from a database


def _one(db, sql: str, values: tuple, fault: str) -> dict:
    rows = db.sql(sql, values).to_dict("records")
    if not rows:
        raise Misuse(fault)
    return rows[0]


def of_database(results, run: int, prompt: int, turn: int = 0, repeat: int = 0) -> Trace:
    """Returns the trace of a stored text. results: speclab.Results. Raises Fault or Misuse."""
    path = results.path
    cell = "SELECT *, coalesce(iif(json_valid(settings), settings ->> '$.cells.rule.kind', NULL), rule) AS rule_kind FROM run WHERE id = ?"
    known = _one(results, cell, (run,), f"{path}: there is no run {run} in it")
    where = "run = ? AND prompt = ? AND turn = ? AND repeat = ?"
    text = _one(results, f"SELECT * FROM sequence WHERE {where} ORDER BY pair LIMIT 1", (run, prompt, turn, repeat),
                f"{path}: run {run} has no text of prompt {prompt}, turn {turn}, repeat {repeat}")  # fmt: skip
    recorded = results.sql("SELECT s.step, s.propose_ns, s.verify_ns, s.advance_ns, d.position, d.tokens, d.parents, d.proposals, d.out, d.rows"
                           " FROM step AS s LEFT JOIN draft AS d USING (sequence, step) WHERE s.sequence = ? ORDER BY s.step",
                           (text["id"],))  # fmt: skip
    trials = {(t.step, t.node): t for t in results.sql("SELECT * FROM trial WHERE sequence = ?", (text["id"],)).itertuples()}
    steps = []
    for s in recorded.itertuples():
        if not isinstance(s.tokens, str):
            raise Fault(f"{path}: run {run} has no recorded drafts: run its experiment with `record: {{rows: 20}}`, or decode one prompt with"
                        " ./run generate MODEL PROMPT --trace-html FILE")  # fmt: skip
        steps.append(_stored_step(s, trials, known["rule_kind"], f"{path}: sequence {text['id']}, step {s.step}"))
    settings = {k: str(known[k]) for k in ("target", "drafter", "rule", "sampling")} | {"batch": str(known["batch"])}
    title = f"run {run}, prompt {prompt} ({text['prompt_id']})" + (f", turn {turn}" if turn else "") + (f", repeat {repeat}" if repeat else "")
    try:
        trace = Trace(title, settings, steps, [int(token) for token in json.loads(text["tokens"])])
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Fault(f"{path}: sequence {text['id']}: expected a list of tokens, found a damaged one") from None
    trace.pieces = pieces(known["model_path"] or known["target"], trace)
    return trace


def _stored_step(s, trials: dict, rule: str, what: str) -> Step:
    draft = draft_of(s, what)
    nodes = [Node(*values) for values in zip(draft.tokens, draft.parents, draft.proposals, strict=True)]
    p, q = draft.rows()
    for i, n in enumerate(nodes[1:], 1):
        n.p = p[n.parent].of(n.token)
        n.q = q[n.parent].of(n.token) if n.proposal in SAMPLED else None
        if (trial := trials.get((s.step, i))) is not None:  # p and q of this test: what remains after its siblings
            n.tested = True
            n.p, n.q = (mine if pd.isna(theirs) else theirs for mine, theirs in ((n.p, trial.p), (n.q, trial.q)))
    return explained(Step(s.step, s.position, nodes, draft.out, {"propose": s.propose_ns, "verify": s.verify_ns, "advance": s.advance_ns}), rule)


# ---- from one prompt


def of_generate(words: list[str]) -> tuple[Trace, str]:
    """Decodes a prompt. words: those of `speclab generate`. Returns the trace and the text. Raises Fault or Misuse."""
    got = json.loads(engine.call("generate", "--json", "--trace", *words))
    steps = []
    kinds = {None: 0, "deterministic": 0, "sampled": 1, "sampled_without_replacement": 2}
    for number, s in enumerate(got["steps"]):
        d = s["draft"]
        nodes = [Node(t, parent, kinds.get(k, 0), p, q, tested=p is not None)
                 # fmt: skip.
                 for t, parent, k, p, q in zip(d["tokens"], d["parents"], d["proposal"], d["p"], d["q"], strict=True)]
        times = {k: s[f"{k}_ns"] for k in ("propose", "verify", "advance")}
        steps.append(explained(Step(number, s["position"], nodes, s["out"], times), got["settings"]["rule"]["kind"]))
    settings = got["settings"]
    shown = {k: json.dumps(settings[k]).replace('"', "") if isinstance(settings.get(k), dict) else str(settings.get(k))
             for k in ("model", "drafter", "rule", "sampling", "seed")}  # fmt: skip
    trace = Trace(f"{os.path.basename(settings['model'])}, one prompt", shown, steps, got["new_ids"])
    trace.pieces = pieces(settings["model"], trace)
    return trace, got["text"]


# ---- tokens as text


def pieces(model: str, trace: Trace) -> dict[int, str]:
    """Returns tokens of the trace as text, by the model's tokenizer. Empty: the model is not on this machine, or has
    none."""
    ids = sorted({t for s in trace.steps for t in [*s.out, *(n.token for n in s.nodes)]} | set(trace.text))
    if not ids:
        return {}
    # A token is decoded after another one, since a text's first token may lose its space.
    lines = [[ids[0]], *([ids[0], i] for i in ids)]
    with contextlib.suppress(Fault):
        first, *texts = (line["text"] for line in engine.objects("inspect", "--detokenize", "--", model, lines=[{"ids": line} for line in lines]))
        return {i: text.removeprefix(first) for i, text in zip(ids, texts, strict=True)}
    return {}


# ---- output


def milliseconds(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms"


def order(step: Step) -> list[tuple[int, int]]:
    """Returns nodes without the root in the order of reading a tree: (node, depth), children after their parent."""
    out, stack = [], [(c, 1) for c in reversed(step.children(0))]
    while stack:
        node, depth = stack.pop()
        out.append((node, depth))
        stack += [(c, depth + 1) for c in reversed(step.children(node))]
    return out


def in_lines(trace: Trace, step: Step, color: bool, most: int = 10) -> list[str]:
    """Returns a step in at most `most` lines for a terminal."""

    def quoted(token: int) -> str:
        return json.dumps(trace.piece(token), ensure_ascii=False)

    times = ", ".join(f"{k} {milliseconds(v)}" for k, v in step.times.items())
    lines = [f"step {step.number} of {len(trace.steps)}, behind {quoted(step.nodes[0].token)} at {step.position}: {len(step.nodes) - 1} drafted,"
             f" {step.accepted} accepted; {times}"]  # fmt: skip
    nodes = order(step)
    tested_first = sorted(nodes, key=lambda pair: not step.nodes[pair[0]].tested)
    kept = set(tested_first[: most - 2 - (len(nodes) > most - 2)])  # a line tells how many are left out
    shown = [pair for pair in nodes if pair in kept]
    wide = max((2 * depth + len(quoted(step.nodes[i].token)) for i, depth in shown), default=0)
    for i, depth in shown:
        n = step.nodes[i]
        name = "  " * depth + quoted(n.token)
        numbers = " ".join(f"{k} {v:.3f}" if v is not None else f"{k} -    " for k, v in (("p", n.p), ("q", n.q)))
        line = f"{name:<{wide}}  {numbers}  {n.why}"
        lines.append(f"\033[{'32' if n.accepted else '31'}m{line}\033[0m" if color and n.tested else line)
    if len(shown) < len(nodes):
        lines.append(f"  .. and {len(nodes) - len(shown)} more draft tokens")
    drafted = " ".join(map(quoted, step.out[:-1]))
    lines.append(f"  text: {drafted}{' + ' if drafted else ''}{quoted(step.out[-1])}, the target's own")
    return lines


def page(trace: Trace) -> str:
    """Returns one HTML page that loads nothing from outside."""
    import jinja2

    env = jinja2.Environment(loader=jinja2.PackageLoader("speclab"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    env.filters["ms"] = milliseconds
    env.filters["token"] = lambda t: printable(trace.piece(t)).replace("\n", "\u23ce\n")
    colored, at = [], 0
    for s in trace.steps:  # the step's tokens in the text, whose end may be cut
        for k, token in enumerate(s.out[: len(trace.text) - at]):
            colored.append((s.number, token, k < len(s.out) - 1 and k < s.accepted))
        at += len(s.out)
    return env.get_template("trace.html").render(trace=trace, colored=colored, order=order)
