"""Answer files for Spec-Bench's evaluation/speed.py and equal.py: a line for each prompt, a choice for each repeat."""

import re
from itertools import groupby

from speclab.exports import by_run, dumps, runs

_TEXTS = """SELECT a.run, a.prompt, a.repeat, a.prompt_id, a.category, coalesce(a.text, q.tokens) AS text, a.steps, a.new_tokens, a.wall_ns,
    a.sequence, CAST(strftime('%s', r.started) AS INTEGER) AS started FROM answer AS a JOIN run AS r ON r.id = a.run
    JOIN sequence AS q ON q.id = a.sequence
    ORDER BY a.run, a.prompt, a.repeat, a.turn"""
_STEPS = "SELECT sequence AS run, tokens FROM step ORDER BY sequence, step"


def _choice(repeat: int, turns: list[dict], lengths: dict) -> dict:
    """Returns a choice. Its lists have an entry for each turn, accept_lengths one for each step."""
    return {"index": repeat, "turns": [t["text"] for t in turns], "decoding_steps": [t["steps"] for t in turns],
            "new_tokens": [t["new_tokens"] for t in turns], "wall_time": [t["wall_ns"] / 1e9 for t in turns],
            "accept_lengths": [step["tokens"] for t in turns for step in lengths.get(t["sequence"], [])]}  # fmt: skip


def files(results):
    lengths = by_run(results, _STEPS)
    for run, of in runs(results, texts=_TEXTS):
        lines = []
        for _, rows in groupby(of.texts, key=lambda row: row["prompt"]):
            rows = list(rows)
            name = rows[0]["prompt_id"]
            integer = re.fullmatch("-?[0-9]+", name) and -(1 << 63) <= int(name) < 1 << 63
            choices = [_choice(repeat, list(turns), lengths) for repeat, turns in groupby(rows, key=lambda row: row["repeat"])]
            lines.append(dumps({"question_id": int(name) if integer else name, "category": rows[0]["category"], "answer_id": f"{run.name}-{name}",
                                # fmt: skip.
                                "model_id": run.name, "choices": choices, "tstamp": rows[0]["started"]}) + "\n")
        if lines:
            yield f"{run.name}.jsonl", "".join(lines)
