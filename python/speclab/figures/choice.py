"""choice - the runs of a database as a report compares them, and the selection of runs that a figure draws.

If there are many groups of settings, those with most series are drawn; if there are many series, the fastest of each
kind of drafter. A sentence tells what is left out, which the page's table has.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from speclab import names

GROUPS, SERIES, RUNS = 4, 6, 24  # maximum groups of a figure, series of a group in addition to none, runs of a series
_SETTINGS = """SELECT id, json_remove(whole, '$.cells.batch', '$.cells.rule', '$.cells.drafter'),
    iif(json_type(whole, '$.cells.drafter') = 'object', whole -> '$.cells.drafter', '{}'), drafter, drafter_kind, drafter_options
FROM (SELECT *, iif(json_valid(settings), settings, '{}') AS whole FROM run)"""
_COUNTS = """SELECT r.experiment, r.peers, coalesce(max(q.turn) + 1, 0), coalesce(max(q.repeat) + 1, 0)
FROM run AS r LEFT JOIN sequence AS q ON q.run = r.id GROUP BY r.experiment, r.peers"""

Run = Comparison = SimpleNamespace
Series = tuple[str, list[Run]]  # the drafter's name and the shape of its drafts; its runs


def read(results: Any) -> list[Comparison]:
    """Returns comparisons of runs, in the order of their first run: `said` in the report, `first`, `turns`, `repeats`,
    and `runs`, none first.

    A run has the keys of the report's cells, and `named`, its drafter's name (speclab.names), `full`, the name with
    what varies in the sweep, and `others`, its settings without batch, rule and drafter.
    """
    settings = {r[0]: r[1:] for r in results.query(_SETTINGS)[1]}
    counts = {r[:2]: r[2:] for r in results.query(_COUNTS)[1]}
    found, sweeps = [], {}
    for said in results.comparisons:
        runs = [Run(**cell, limits=said["limits"], others=settings[cell["run"]][0], named=names.of_run(*settings[cell["run"]][2:]))
                for cell in said["cells"]]
        runs.sort(key=lambda r: (not r.baseline, r.run))
        turns, repeats = counts.get((said["experiment"], runs[0].peers), (0, 0))
        found.append(Comparison(said=said, turns=turns, repeats=repeats, runs=runs, first=min(runs, key=lambda r: r.run)))
        sweeps.setdefault(said["experiment"], []).extend(runs)
    for runs in sweeps.values():
        for r, name in zip(runs, names.in_full([r.named for r in runs], [json.loads(settings[r.run][1]) for r in runs]), strict=True):
            r.full = name
    return found


# ---- the meanings of a figure's word `choose`


@dataclass(frozen=True)
class Choice:
    """Selects runs, and defines what a group and a series are."""

    takes: Callable[[Run], bool]
    own: tuple[str, ...] | None = None  # options of a drafter in which the runs of a series differ; None: a series is a
                                       # run
    group: str = "comparison"  # comparison; or batches: runs that differ in drafter, rule and batch alone; or drafter:
                              # one of a comparison
    enough: Callable[[list[Run]], bool] = bool  # whether a series has runs that can be drawn


_DRAFTS = lambda r: not r.baseline and (r.drafted_tokens or 0) > 0  # noqa: E731
_PAIRS = lambda r: not r.baseline and r.speedup is not None  # noqa: E731
_DECODES = lambda r: (r.new_tokens or 0) > 0  # noqa: E731
_IN_BATCHES = lambda runs: len({r.batch for r in runs}) > 1  # noqa: E731
CHOICES = {
    "none": None,  # the SQL reads no runs
    "sweep": None,  # a group: a drafter and a rule of a comparison, two of whose options vary; a series: one's value,
                    # x: the other's
    "every": Choice(_DECODES),
    "drafting": Choice(_DRAFTS),
    "paired": Choice(_PAIRS),
    "categories": Choice(lambda r: _PAIRS(r) and bool(r.by_category)),
    "lengths": Choice(  # chains that differ in `tokens` alone, without drafters that combine several
        lambda r: _DRAFTS(r) and not r.trees and "nodes" not in r.named.options and "{kind" not in str(r.named), ("tokens",),
        enough=lambda s: len(s) > 1),
    # A drafter's chains, fixed trees or best-first trees.
    "trees": Choice(_DRAFTS, ("tokens", "nodes", "widths", "tree", "pick"), "drafter"),
    "batches": Choice(_PAIRS, (), "batches", _IN_BATCHES),
    "throughput": Choice(_DECODES, (), "batches", _IN_BATCHES),
}  # fmt: skip


def _shape(r: Run) -> str:
    kind = " best-first" if "nodes" in r.named.options else " fixed tree" if r.trees else " chain"
    return kind + (", greedy" if r.named.options.get("pick") == "greedy" else "")


def _groups(choice: Choice, comparisons: list[Comparison]) -> list[list[Series]]:
    """Returns groups in the order of their first run, each with its series."""
    groups: dict[tuple, dict[tuple, Series]] = {}
    for r in (r for c in comparisons for r in c.runs if choice.takes(r)):
        drafter, shape = str(names.without(r.named, choice.own or ())), _shape(r) if choice.group == "drafter" else ""
        key = {"comparison": r.peers, "drafter": (r.peers, drafter), "batches": r.others}[choice.group]
        group = groups.setdefault((r.experiment, key), {})
        group.setdefault((r.run,) if choice.own is None else (drafter, shape, r.rule), (shape, []))[1].append(r)
    found = [[s for s in g.values() if choice.enough(s[1])] for g in groups.values()]
    if choice.group == "drafter":  # one of the series has a tree
        return [g if sum(len(runs) for _, runs in g) > 1 and any(not shape.startswith(" chain") for shape, _ in g) else [] for g in found]
    return found


def _taken(group: list[Series]) -> list[Series]:
    """Returns the baseline; then the fastest of each kind of drafter, and the fastest of the others."""
    kinds = [runs[0].named.kind for _, runs in group]
    rank = [max((r.speedup for r in runs if r.speedup is not None), default=-1) for _, runs in group]
    taken = [i for i, (_, runs) in enumerate(group) if runs[0].baseline]
    for _ in range(SERIES):
        if rest := [i for i in range(len(group)) if i not in taken]:
            seen = {kinds[i] for i in taken}
            taken.append(max(rest, key=lambda i: (kinds[i] not in seen, rank[i])))  # noqa: B023
    return [group[i] for i in sorted(taken)]


def _group_label(comparisons: list[Comparison], r: Run, batch: bool) -> str:
    """Returns what distinguishes the run's comparison from the others of the report, and its sampling and batch."""
    def fields(f: Run) -> tuple:
        return f.experiment, f.target, f.activations, f.cache, f.prompt_file, f.limits, f"seed {f.seed % 2**64}"

    varies = [len(set(values)) > 1 for values in zip(*(fields(c.first) for c in comparisons), strict=True)]
    differ = [f for f, other in zip(fields(r), varies, strict=True) if other]
    return names.plain(", ".join([r.sampling, *([f"batch {r.batch}"] if batch else []), *differ]), 120)


def _note(groups: list[list[Series]], drawn: list[list[Series]], taken: list[Series]) -> str:
    most = max(map(len, drawn), default=0)
    said = [sentence for is_so, sentence in (
        (len(groups) > GROUPS, f"Of {len(groups)} groups of settings the {GROUPS} with most series are drawn."),
        (most > SERIES, f"Of up to {most} series of a group {SERIES} are drawn: the fastest of each kind of drafter, and the fastest of the rest."),
        (any(len(runs) > RUNS for _, runs in taken), f"Of a series up to {RUNS} runs are drawn.")) if is_so]  # fmt: skip
    said += ["The table of all cells has the others."] if said else []
    return " ".join(said + ["*: LOSSY, the rule changes the target's distribution."] * any(not runs[0].lossless for _, runs in taken))


def _sweeps(comparisons: list[Comparison]) -> list[tuple[str, Run, list[tuple]]]:
    """Returns drafters of a comparison whose cells are a grid: what they share, one of them, and (series, run, x) of
    each."""
    found: dict[tuple, tuple[str, Run, list[tuple]]] = {}
    for c in comparisons:
        kinds: dict[tuple, list[tuple[Run, dict[str, str]]]] = {}
        for r in filter(_PAIRS, c.runs):
            kinds.setdefault((r.full.kind, r.rule + " *" * (not r.lossless)), []).append((r, r.full.options))
        for (kind, rule), cells in kinds.items():
            values = {k: {own.get(k) for _, own in cells} for _, own in cells for k in own}
            swept = sorted((k for k in values if len(values[k]) > 1), key=lambda k: -len(values[k]))[:2]
            for r, own in cells if len(swept) == 2 else ():
                if all(k in own for k in swept):
                    rest = str(names.Name(kind, {k: v for k, v in own.items() if k not in swept and len(values[k]) > 1}))
                    grid = found.setdefault((id(c), rest, rule), (f"{rest}; {rule}", r, []))[2]
                    grid.append((f"{swept[1]}={own[swept[1]]}", r.run, f"{swept[0]}={own[swept[0]]}"))
    sides = {key: (len({cell[0] for cell in grid}), len({cell[2] for cell in grid})) for key, (_, _, grid) in found.items()}
    return [f for key, f in found.items() if min(sides[key]) > 1 and len(f[2]) > max(sides[key])]


def _largest(groups: list, size: Callable[[Any], int]) -> list:
    """Returns the largest groups, in their order."""
    return [groups[i] for i in sorted(sorted(range(len(groups)), key=lambda i: -size(groups[i]))[:GROUPS])]


def choose(name: str, comparisons: list[Comparison]) -> tuple[list[tuple], str]:
    """Returns the runs that a figure draws, each (group, series, run) (with x for a sweep), in the order of pictures
    and keys; and what is not drawn."""
    choice, chosen = CHOICES[name], []
    if choice is None:
        found = _sweeps(comparisons) if name == "sweep" else []
        for what, r, grid in _largest(found, lambda f: len(f[2])):
            group = names.plain(f"{what}; {_group_label(comparisons, r, True)}", 200)
            chosen += [(group, *cell) for cell in grid]
        return chosen, f"Of {len(found)} sweeps the {GROUPS} with most cells are drawn." if len(found) > GROUPS else ""
    plan = [(i, g) for i, g in enumerate(_groups(choice, comparisons), 1) if g]
    drawn = [(i, g, _taken(g)) for i, g in _largest(plan, lambda numbered: len(numbered[1]))]
    all_taken = [s for _, _, taken in drawn for s in taken]
    drafters = [names.without(runs[0].full, choice.own or ()) for _, runs in all_taken]
    for number, _, taken in drawn:
        group = _group_label(comparisons, taken[0][1][0], choice.group != "batches")
        group += f" ({number})" if any(c[0] == group for c in chosen) else ""
        rules = len({runs[0].rule for _, runs in taken}) > 1
        for shape, runs in taken:
            r = runs[0]
            name = names.label(names.without(r.full, choice.own or ()), drafters) + shape
            name += (f"; {r.rule}" if rules else "") + " *" * (not r.lossless)
            label = names.plain(f"{r.run} {name}" if choice.own is None else name, 100)
            # Shortened labels may be equal.
            label += f" (run {r.run})" if any(c[:2] == (group, label) for c in chosen) else ""
            chosen += [(group, label, run.run) for run in runs[:RUNS]]
    return chosen, _note([g for _, g in plan], [g for _, g, _ in drawn], all_taken)
