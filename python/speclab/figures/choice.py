"""choice - which runs a figure draws. Of many groups of settings those with most series, of many series the fastest of each kind of drafter; a
sentence says what is left out, which the page's table has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace as Run
from typing import Any

from speclab import names
from speclab.figures.cells import Comparison

GROUPS, SERIES, RUNS = 4, 6, 24  # at most: groups of a figure, series of a group beside none, runs of a series


@dataclass(frozen=True)
class Choice:
    """Which runs, what is a group, and what a series."""

    takes: Callable[[Run], bool]
    own: tuple[str, ...] | None = None  # options of a drafter in which the runs of a series differ; None: a series is a run
    group: str = "comparison"  # or batches: what differs in drafter, rule and batch alone; or drafter: one of a comparison
    enough: Callable[[list[Run]], bool] = bool  # whether a series has runs that can be drawn


def _drafts(r: Run) -> bool:
    return not r.baseline and (r.drafted_tokens or 0) > 0


def _pairs(r: Run) -> bool:
    return not r.baseline and r.speedup is not None


def _decodes(r: Run) -> bool:
    return (r.new_tokens or 0) > 0


def _in_batches(runs: list[Run]) -> bool:
    return len({r.batch for r in runs}) > 1


CHOICES = {
    "none": None,  # the SQL reads no runs
    "sweep": None,  # a group: a drafter and a rule of a comparison, two of whose options vary; a series: a value of one, x: of the other
    "every": Choice(_decodes),
    "drafting": Choice(_drafts),
    "paired": Choice(_pairs),
    "categories": Choice(lambda r: _pairs(r) and bool(r.by_category)),
    "lengths": Choice(  # chains that differ in `tokens` alone, not of drafters of drafters, whose parts have options of this name
        lambda r: _drafts(r) and not r.trees and not any(s in r.drafter for s in ("nodes=", "{kind")), ("tokens",), enough=lambda s: len(s) > 1),
    "trees": Choice(_drafts, ("tokens", "nodes", "widths", "tree", "pick"), "drafter"),  # a drafter's chains, fixed trees or best-first trees
    "batches": Choice(_pairs, (), "batches", _in_batches),
    "throughput": Choice(_decodes, (), "batches", _in_batches),
}  # fmt: skip


@dataclass
class _Series:
    shape: str  # what its drafts are like, behind the drafter's name
    runs: list[Run] = field(default_factory=list)
    taken: bool = False

    @property
    def rank(self) -> float:
        return max((r.speedup for r in self.runs if r.speedup is not None), default=-1)

    @property
    def kind(self) -> str:
        return names.parts(self.runs[0].drafter)[0]


def _shape(r: Run) -> str:
    kind = " best-first" if "nodes=" in r.drafter else " fixed tree" if r.trees else " chain"
    return kind + (", greedy" if "pick=greedy" in r.drafter else "")


def _groups(choice: Choice, comparisons: list[Comparison]) -> list[list[_Series]]:
    """Groups in the order of their first run, each of its series."""
    groups: dict[tuple, dict[tuple, _Series]] = {}
    for r in (r for c in comparisons for r in c.runs if choice.takes(r)):
        drafter, shape = names.without(r.drafter, choice.own or ()), _shape(r) if choice.group == "drafter" else ""
        key = {"comparison": r.peers, "drafter": (r.peers, drafter), "batches": r.others}[choice.group]
        group = groups.setdefault((r.experiment, key), {})
        group.setdefault((r.run,) if choice.own is None else (drafter, shape, r.rule), _Series(shape)).runs.append(r)
    found = [[s for s in g.values() if choice.enough(s.runs)] for g in groups.values()]
    if choice.group == "drafter":  # one of them has a tree
        return [g if sum(len(s.runs) for s in g) > 1 and any(not s.shape.startswith(" chain") for s in g) else [] for g in found]
    return found


def _take(group: list[_Series]) -> None:
    """The baseline; then the fastest of each kind of drafter, and the fastest of the rest."""
    for s in group:
        s.taken = s.runs[0].baseline
    for _ in range(SERIES):
        if rest := [s for s in group if not s.taken]:
            kinds = {s.kind for s in group if s.taken}
            max(rest, key=lambda s: (s.kind not in kinds, s.rank)).taken = True


def _group_label(comparisons: list[Comparison], r: Run, batch: bool) -> str:
    """What tells the run's comparison from the others of the report, and its sampling and batch."""
    def fields(f: Run) -> tuple:
        return f.experiment, f.target, f.activations, f.cache, f.prompt_file, f.limits, f"seed {f.seed % 2**64}"

    varies = [len(set(values)) > 1 for values in zip(*(fields(c.first) for c in comparisons), strict=True)]
    differ = [f for f, other in zip(fields(r), varies, strict=True) if other]
    return names.plain(", ".join([r.sampling, *([f"batch {r.batch}"] if batch else []), *differ]), 120)


def _note(groups: list[list[_Series]], drawn: list[list[_Series]]) -> str:
    most, taken = max(map(len, drawn), default=0), [s for g in drawn for s in g if s.taken]
    said = [sentence for is_so, sentence in (
        (len(groups) > GROUPS, f"Of {len(groups)} groups of settings the {GROUPS} with most series are drawn."),
        (most > SERIES, f"Of up to {most} series of a group {SERIES} are drawn: the fastest of each kind of drafter, and the fastest of the rest."),
        (any(len(s.runs) > RUNS for s in taken), f"Of a series up to {RUNS} runs are drawn.")) if is_so]  # fmt: skip
    said += ["The table of all cells has the others."] if said else []
    return " ".join(said + ["*: LOSSY, the rule changes the target's distribution."] * any(not s.runs[0].lossless for s in taken))


def _sweeps(comparisons: list[Comparison]) -> list[tuple[str, Run, list[tuple]]]:
    """Drafters of a comparison whose cells are a grid: what they share, one of them, and (series, run, x) of each."""
    found: dict[tuple, tuple[str, Run, list[tuple]]] = {}
    for c in comparisons:
        kinds: dict[tuple, list[tuple[Run, dict[str, str]]]] = {}
        for r in filter(_pairs, c.runs):
            kind, options = names.parts(r.full)
            kinds.setdefault((kind, r.rule + " *" * (not r.lossless)), []).append((r, dict(o.partition("=")[::2] for o in options)))
        for (kind, rule), cells in kinds.items():
            values = {k: {own.get(k) for _, own in cells} for _, own in cells for k in own}
            swept = sorted((k for k in values if len(values[k]) > 1), key=lambda k: -len(values[k]))[:2]
            for r, own in cells if len(swept) == 2 else ():
                rest = names.put_together(kind, [f"{k}={v}" for k, v in own.items() if k not in swept and len(values[k]) > 1])
                if all(k in own for k in swept):
                    grid = found.setdefault((id(c), rest, rule), (f"{rest}; {rule}", r, []))[2]
                    grid.append((f"{swept[1]}={own[swept[1]]}", r.run, f"{swept[0]}={own[swept[0]]}"))
    sides = {key: (len({cell[0] for cell in grid}), len({cell[2] for cell in grid})) for key, (_, _, grid) in found.items()}
    return [f for key, f in found.items() if min(sides[key]) > 1 and len(f[2]) > max(sides[key])]


def _largest(groups: list, size: Callable[[Any], int]) -> list:
    """In their order."""
    best = sorted(range(len(groups)), key=lambda i: -size(groups[i]))[:GROUPS]
    return [groups[i] for i in sorted(best)]


def choose(name: str, comparisons: list[Comparison]) -> tuple[list[tuple], str]:
    """The runs that a figure draws, (group, series, run) each (of a sweep x, too), in the order of pictures and keys; and what is not drawn."""
    choice = CHOICES[name]
    if choice is None:
        found = _sweeps(comparisons) if name == "sweep" else []
        chosen = [(names.plain(f"{what}; {_group_label(comparisons, r, True)}", 200), *cell)
                  for what, r, grid in _largest(found, lambda f: len(f[2])) for cell in grid]  # fmt: skip
        return chosen, f"Of {len(found)} sweeps the {GROUPS} with most cells are drawn." if len(found) > GROUPS else ""
    plan = _groups(choice, comparisons)
    drawn = _largest([g for g in plan if g], len)
    for g in drawn:
        _take(g)
    drafters = [names.without(s.runs[0].full, choice.own or ()) for g in drawn for s in g if s.taken]
    chosen: list[tuple] = []
    for g in drawn:
        taken = [s for s in g if s.taken]
        group = _group_label(comparisons, taken[0].runs[0], choice.group != "batches")
        group += f" ({plan.index(g) + 1})" if any(c[0] == group for c in chosen) else ""
        rules = len({s.runs[0].rule for s in taken}) > 1
        for s in taken:
            r = s.runs[0]
            name = names.label(names.without(r.full, choice.own or ()), drafters) + s.shape
            name += (f"; {r.rule}" if rules else "") + " *" * (not r.lossless)
            label = names.plain(f"{r.run} {name}" if choice.own is None else name, 100)
            label += f" (run {r.run})" if any(c[:2] == (group, label) for c in chosen) else ""  # cut ones may be alike
            chosen += [(group, label, run.run) for run in s.runs[:RUNS]]
    return chosen, _note([g for g in plan if g], drawn)
