"""cells - the runs of a database as a report compares them (`speclab report --json`), with their settings and full names."""

import json
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from speclab import database, names

_SETTINGS = """SELECT id, json_remove(whole, '$.cells.batch', '$.cells.rule', '$.cells.drafter'),
    iif(json_type(whole, '$.cells.drafter') = 'object', whole -> '$.cells.drafter', '{}')
FROM (SELECT id, iif(json_valid(settings), settings, '{}') AS whole FROM run)"""
_COUNTS = """SELECT r.experiment, r.peers, coalesce(max(q.turn) + 1, 0), coalesce(max(q.repeat) + 1, 0)
FROM run AS r LEFT JOIN sequence AS q ON q.run = r.id GROUP BY r.experiment, r.peers"""


@dataclass
class Comparison:
    """Runs that can be compared: target, sampling, prompts, limits and batch are the same. said: its words in the report."""

    said: dict[str, Any]
    turns: int = 0
    repeats: int = 0
    runs: list[SimpleNamespace] = field(default_factory=list)  # none first

    @property
    def first(self) -> SimpleNamespace:
        return min(self.runs, key=lambda r: r.run)


def rows(results: Any, query: str, parameters: tuple = ()) -> tuple[list[str], list[tuple]]:
    """Names of columns, and rows as SQLite has them; a text that is no UTF-8 has U+FFFD, an infinite number is None. Raises Fault."""
    with database.faults(results.path):
        results.connection.text_factory = lambda b: b.decode(errors="replace")
        try:
            cursor = results.connection.execute(query, parameters)
            found = [tuple(None if isinstance(v, float) and not math.isfinite(v) else v for v in row) for row in cursor]
        finally:
            results.connection.text_factory = str
        return [c[0] for c in cursor.description or ()], found


def read(results: Any) -> list[Comparison]:
    """Comparisons in the order of their first run. A run has the keys of the report's cells, and `full`: its drafter's name with what varies in the
    sweep; `others`: its settings without batch, rule and drafter."""
    settings = {r[0]: r[1:] for r in rows(results, _SETTINGS)[1]}
    counts = {(r[0], r[1]): r[2:] for r in rows(results, _COUNTS)[1]}
    found, sweeps = [], {}
    for said in results.comparisons:
        runs = [SimpleNamespace(**cell, limits=said["limits"], others=settings[cell["run"]][0]) for cell in said["cells"]]
        runs.sort(key=lambda r: (not r.baseline, r.run))
        found.append(Comparison(said, *counts.get((said["experiment"], runs[0].peers), (0, 0)), runs))
        sweeps.setdefault(said["experiment"], []).extend(runs)
    for runs in sweeps.values():
        full = names.in_full([r.drafter for r in runs], [json.loads(settings[r.run][1]) for r in runs])
        for run, name in zip(runs, full, strict=True):
            run.full = name
    return found
