"""quality - the cost of a lossy rule in its texts: perplexity under the target, total variation a token, the task's
score.

p is the target, q the drafter. Means over prompts have the 95 % intervals of `speclab report --intervals`. Nothing is
stored.
"""

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from speclab import engine, files, strict_json
from speclab.command import Fault, Misuse
from speclab.rows import Row, draft_of

_SECONDS, _BYTES = 10, 1 << 30  # processor time and memory of a program under test


def interval(name: str, how: str, sums: Iterable[float], of: Iterable[float] | None = None) -> dict[str, float]:
    """Returns the ratio of two sums over prompts (of: 1 each, so a mean) and its 95 % interval, by their names; NaN if
    there is none. how: rate, ratio."""
    a = [float(x) for x in sums]
    b = [1.0] * len(a) if of is None else [float(x) for x in of]
    found = engine.objects("report", "--intervals", "-", lines=[{"of": how, "a": a, "b": b}])[0] if a else {}
    return {name + end: math.nan if found.get(key) is None else found[key] for end, key in (("", "value"), ("_low", "low"), ("_high", "high"))}


# ---- texts and their prompts


def _messages(entry: dict, turn: int, answers: list[str]) -> list[dict] | None:
    """Returns the conversation up to a turn, as in engine/prompts.c. None: token ids."""
    if "input_ids" in entry:
        return None
    before = list(entry["messages"][:-1]) if "messages" in entry else []
    only = entry["messages"][-1]["content"] if "messages" in entry else entry.get("prompt", entry.get("question"))
    turns = entry.get("turns") or [only]
    said = [m for t in range(turn) for m in ({"role": "user", "content": turns[t]}, {"role": "assistant", "content": answers[t]})]
    return [*before, *said, {"role": "user", "content": turns[turn]}]


def _entries(path: str) -> list[dict]:
    entries = []
    with files.open_input(path) as f:
        for place, entry in strict_json.lines_of(path, f, lenient=True):
            if not isinstance(entry, dict):
                raise Fault(f"{place}: expected an object, found {strict_json.described(entry)}")
            entries.append(entry)
    return entries


@contextlib.contextmanager
def _readable(sentence: str):
    """Raises Fault with this sentence for data that differ from what the engine writes."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as why:
        raise Fault(f"{sentence} ({type(why).__name__}: {str(why)[:100]})") from None


def texts(results, run: int) -> pd.DataFrame:
    """Returns the run's texts with the tokens of their prompts: columns prompt, turn, text, tokens, ids (None: they
    cannot be made again)."""
    known = results.sql("SELECT model_path, prompts_path, json_extract(settings, '$.prompts.chat') AS chat FROM run WHERE id = ?", (run,)).iloc[0]
    found = results.sql("SELECT prompt, turn, repeat, prompt_tokens, text, tokens FROM sequence WHERE run = ? GROUP BY prompt, turn, repeat"
                        " HAVING pair = min(pair) ORDER BY prompt, repeat, turn", (run,))  # fmt: skip
    entries, requests, said = _entries(known.prompts_path), {}, {}
    for place, t in enumerate(found.itertuples()):
        said_of = f"expected prompt {t.prompt} with turn {t.turn}, which run {run} has answered, found none: has it changed?"
        with _readable(f"{known.prompts_path}: {said_of}"):
            entry, earlier = entries[t.prompt], said.setdefault((t.prompt, t.repeat), [])
            messages = _messages(entry, t.turn, earlier)
            earlier.append(t.text or "")
            if messages is not None:
                plain = known.chat == "none" or ("task_id" in entry and "prompt" in entry)
                requests[place] = {"text": "\n".join(m["content"] for m in messages)} if plain else {"messages": messages}
    chat = known.chat if known.chat in ("chatml", "vicuna", "zephyr") else "auto"
    made = engine.objects("inspect", "--tokenize", "--chat", chat, "--", known.model_path, lines=requests.values()) if requests else []
    ids = [entries[t.prompt].get("input_ids") for t in found.itertuples()]
    for place, line in zip(requests, made, strict=True):
        ids[place] = line["ids"]
    found["ids"] = [i if isinstance(i, list) and len(i) == n else None for i, n in zip(ids, found.prompt_tokens, strict=True)]
    with _readable(f"{results.path}: run {run}: expected lists of tokens, found a damaged one"):
        found["tokens"] = [[int(token) for token in json.loads(tokens)] for tokens in found.tokens]
    return found


def perplexity(results, run: int, found: pd.DataFrame) -> dict:
    """Returns exp of the mean negative log-probability of the texts' tokens under the target at temperature 1, with the
    run's precision."""
    known = results.sql("SELECT model_path, activations, cache, device FROM run WHERE id = ?", (run,)).iloc[0]
    chosen = found[found.ids.map(lambda i: i is not None) & (found.tokens.map(len) > 0)]
    words = ["inspect", "--score", f"--activations={known.activations}", f"--cache={known.cache}", "--", known.model_path]
    scored = engine.objects(*words, lines=[{"ids": i + t} for i, t in zip(chosen.ids, chosen.tokens, strict=True)]) if len(chosen) else []
    by_prompt: dict[int, list[float]] = {}
    for prompt, tokens, line in zip(chosen.prompt, chosen.tokens, scored, strict=True):
        by_prompt.setdefault(prompt, []).extend(line["logprobs"][-len(tokens) :])
    found = interval("perplexity", "ratio", (-sum(x) for x in by_prompt.values()), map(len, by_prompt.values()))
    return {name: float(np.exp(x)) for name, x in found.items()} | {"scored_texts": len(chosen)}


# ---- total variation


def accept_probability(rule: dict, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Returns the probability with which each token is accepted, if it is drafted and tested alone. rule: `kind` and
    its options, as in run.settings (verifier/rules/*.c)."""
    kind = rule["kind"]
    if kind == "typical":
        entropy = -float(np.sum(p[p > 0] * np.log(p[p > 0])))
        return (p > min(rule["epsilon"], rule["delta"] * math.exp(-entropy))).astype(float)
    if kind == "blockwise" and rule["accept"] == "top_k":
        larger = len(p) - np.searchsorted(np.sort(p), p, side="right")
        return ((p > 0) & (larger < rule["k"])).astype(float)
    if kind == "synthetic":
        return np.full(len(p), float(rule["rate"]))
    return np.minimum(1, (rule["lenience"] if kind == "lenient" else 1.0) * p / np.where(q > 0, q, np.inf))


def side_by_side(p: Row, q: Row | None, token: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns p and q of every token up to the last that either has; q None: `token` is drafted, for certain."""
    q = q or Row(np.array([token]), np.ones(1), 0.0)
    rows = np.zeros((2, 1 + max(row.token[-1] for row in (p, q))))
    for to, row in zip(rows, (p, q), strict=True):
        to[row.token] = row.p
    return rows[0], rows[1]


def first_token_distance(rule: dict, p: Row, q: Row | None, token: int) -> float:
    """Returns the total variation between the distribution of the next token and p, given the text so far, if one token
    is drafted.

    q: the row from which it is sampled, and the distribution is over the draft as well; None: it is deterministic. Rows
    that lack entries give NaN.
    """
    if p.rest > 0 or (q is not None and q.rest > 0):
        return math.nan
    p, q = side_by_side(p, q, token)
    accepted = accept_probability(rule, p, q)
    p, q = p / p.sum(), q / q.sum()
    left = np.maximum(p - q, 0)
    if rule["kind"] == "blockwise":
        left = np.arange(len(p)) == np.argmax(p)
    elif rule["kind"] == "typical" or left.sum() == 0:
        left = p
    law = q * accepted + np.sum(q * (1 - accepted)) * left / left.sum()
    return 0.5 * float(np.abs(law - p).sum())


def total_variation(results, run: int, rule: dict) -> dict:
    """Returns the mean over recorded steps whose draft begins with one token; `tv_share`: their share of all steps with
    a draft. Needs `record: {rows: full}`."""
    one = ("SELECT q.prompt, d.sequence, d.step, d.tokens, d.parents, d.proposals, d.out, d.rows FROM draft AS d JOIN sequence AS q"
           " ON q.id = d.sequence WHERE q.id = ? ORDER BY d.step")  # fmt: skip
    sequences = results.sql("SELECT id FROM sequence WHERE run = ? ORDER BY prompt, turn, repeat, pair", (run,)).id.tolist()
    by_prompt: dict[int, list[float]] = {}
    steps = 0
    # Only the rows of one text are in memory, since they are large.
    for s in (s for sequence in sequences for s in results.sql(one, (sequence,)).itertuples()):
        tree = draft_of(s, f"{results.path}: sequence {s.sequence}, step {s.step}")
        steps += len(tree.tokens) > 1
        if tree.parents.count(0) != 1 or rule.get("accept") == "distance" or rule.get("minimum_block", 1) > 1:
            continue
        p, q = tree.rows()
        distance = first_token_distance(rule, p[0], q.get(0), tree.tokens[tree.parents.index(0)])
        if distance == distance:
            by_prompt.setdefault(s.prompt, []).append(distance)
    counted = sum(map(len, by_prompt.values()))
    return interval("tv", "rate", map(np.mean, by_prompt.values())) | {"tv_share": counted / steps if steps else math.nan}


# ---- tasks with answers


def _last_number(text: str) -> str | None:
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text.split("####")[-1])
    if not found:
        return None
    value = found[-1].replace(",", "")
    return value.rstrip("0").rstrip(".") if "." in value else value


def gsm8k(answer: str, text: str) -> bool:
    """Returns whether the last number of the text is that of the answer, which comes after ####."""
    return _last_number(answer) is not None and _last_number(answer) == _last_number(text)


def _boxed(text: str) -> str | None:
    """Returns the content of the last \boxed{..}."""
    start = text.rfind("\\boxed{")
    depth = 0
    for i in range(start + 6, len(text)) if start >= 0 else ():
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[start + 7 : i]
    return None


def _plain_math(text: str) -> str:
    unit = r"\\(?:text|mathrm|mbox)\{\s*[\\\w.]*\}$"
    text = re.sub(r"\\(?:left|right|!|,|;|:|displaystyle)|" + unit + r"|\s|\\?\$|\^\{?\\circ\}?|\\?%|\.$", "", text.strip())
    text = text.replace("dfrac", "frac").replace("tfrac", "frac").replace("\\{", "{").replace("\\}", "}")
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return text.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", text) else text


def math_500(answer: str, text: str) -> bool:
    r"""Returns whether the text's last \boxed{..} is the answer, up to spelling: spaces, \left, \dfrac, units."""
    boxed = _boxed(text)
    return boxed is not None and _plain_math(boxed) == _plain_math(_boxed(answer) or answer)


_LIMITS = f"""import resource, sys
for what, most in dict(CPU={_SECONDS}, AS={_BYTES}, FSIZE=1 << 20, NPROC=0, CORE=0).items():
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
    except (ValueError, OSError):
        pass
sys.stdin = None
exec(compile(open("program.py").read(), "program.py", "exec"), {{"__name__": "__main__"}})
"""


def passes(program: str) -> bool:
    """Returns whether a Python program ends without an error, in a separate process: an empty folder, no network if
    that is possible, limits."""
    with tempfile.TemporaryDirectory(prefix="speclab-") as folder:
        Path(folder, "program.py").write_text(program, errors="replace")
        Path(folder, "limits.py").write_text(_LIMITS)
        # Used if the kernel lets users do so.
        apart = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--"]
        if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
            apart = []
        with subprocess.Popen([*apart, sys.executable, "-I", "-S", "limits.py"], cwd=folder, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL,
                              # fmt: skip.
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as running:
            try:
                return running.wait(timeout=3 * _SECONDS) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:  # ends the program with what it has started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)


def humaneval(entry: dict, text: str) -> bool:
    """Returns whether HumanEval's tests of the entry pass, for a completion, or for the last block of code in an
    answer."""
    blocks = re.findall(r"```(?:python|py)?\n(.*?)(?:```|\Z)", text, re.S)
    body = blocks[-1] if blocks else re.split(r"\n(?=\S)", text)[0]
    whole = body if f"def {entry['entry_point']}" in body else entry["prompt"] + body
    imports = "\n".join(line for line in entry["prompt"].splitlines() if re.match(r"(from|import) ", line))
    return passes(f"{imports}\n{whole}\n\n{entry['test']}\n\ncheck({entry['entry_point']})\n")


def task_of(entry: dict) -> tuple[str, Callable[[str], bool]] | None:
    """Returns the task's name and the function that tells whether a text solves the entry. None: it has no answer that
    a program can check."""
    answer = entry.get("answer", entry.get("reference"))
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if all(isinstance(entry.get(key), str) for key in ("test", "entry_point", "prompt")):
        return "humaneval", lambda text: humaneval(entry, text)
    if isinstance(answer, str) and "####" in answer:
        return "gsm8k", lambda text: gsm8k(answer, text)
    if isinstance(answer, str) and ("solution" in entry or "level" in entry or str(entry.get("category", "")).startswith("math")):
        return "math-500", lambda text: math_500(answer, text)
    return None


def task_score(results, run: int, found: pd.DataFrame, answers: str | None) -> dict:
    """Returns the share of texts that solve their task. answers: a file with the dataset's entries; None: the prompts'
    own file."""
    path = answers or results.sql("SELECT prompts_path FROM run WHERE id = ?", (run,)).iat[0, 0]
    entries = _entries(path)
    by_id = {str(e.get("task_id", e.get("question_id", e.get("id", e.get("unique_id", i))))): e for i, e in enumerate(entries)}
    ids = dict(results.sql("SELECT DISTINCT prompt, prompt_id FROM sequence WHERE run = ?", (run,)).itertuples(index=False))
    solved: dict[int, list[bool]] = {}
    names = set()
    for t in found[found.turn == 0].itertuples():
        entry = by_id.get(ids[t.prompt]) if answers else (entries[t.prompt] if t.prompt < len(entries) else None)
        task = task_of(entry) if entry is not None else None
        if task is not None:
            names.add(task[0])
            solved.setdefault(t.prompt, []).append(task[1](t.text or ""))
    if answers and not solved:
        raise Misuse(f"{answers}: expected entries with the ids of the run's prompts and with answers, found none")
    return {"task": "+".join(sorted(names))} | interval("score", "rate", map(np.mean, solved.values())) | {"score_prompts": len(solved)}


# ---- the table of all measures


def table(results, answers: str | None = None, runs: list[int] | None = None, note: Callable[[str], None] = lambda _: None) -> pd.DataFrame:
    """Returns a row for each cell: what it gains (speedup, tokens a step) and what its texts lose. Raises Fault or
    Misuse."""
    out = []
    for cell in results.cells.to_dict("records"):
        run = int(cell["run"])
        if runs and run not in runs:
            continue
        with _readable(f"{results.path}: run {run}: expected settings with the rule of its cell, found others"):
            rule = json.loads(results.sql("SELECT settings -> '$.cells.rule' FROM run WHERE id = ?", (run,)).iat[0, 0])
            rule["kind"] = str(rule["kind"])
        note(f"run {run}: {cell['name']}")
        found = texts(results, run)
        row = {k: cell[k] for k in ("run", "name", "lossless", "speedup", "speedup_low", "speedup_high", "tokens_per_step")}
        row |= perplexity(results, run, found) | task_score(results, run, found, answers)
        row |= {"tv": 0.0, "tv_low": 0.0, "tv_high": 0.0, "tv_share": 1.0} if cell["lossless"] else total_variation(results, run, rule)
        out.append(row)
    if not out:
        raise Misuse(f"{results.path}: expected runs {', '.join(map(str, runs or []))}, found none of them")
    return pd.DataFrame(out)
