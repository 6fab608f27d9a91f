"""tuning - selects the settings of a drafter that are probed, and predicts others from a probe's recorded steps.

length   a chain of the maximum length is run once. Its steps, cut to fewer tokens, show what shorter chains would do
          (view prediction_by_length).
tree     a wide fixed tree is run once. Its acceptance by depth and rank shows what any other fixed tree would do; the
          best one of every size and depth is a candidate (Sequoia's dynamic program). Trees of fixed widths are among
          them.
itself   a shape that depends on more than the acceptance by depth and rank is run at a few sizes, which are
          candidates themselves: best-first trees, whose shape depends on q, and fixed trees of a drafter that learns
          from what was verified before (recycling), of which a smaller one learns less.

Chains come first. Drafters whose best chain is far behind the best of all have no other probes. The views give a
candidate's cost, from its probe and the cost of passes in the probes' own steps: the views' source `steps`. The
drafter's time is in proportion to the depth. The file needs the standard library alone.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from speclab.command import Misuse
from speclab.settings import written

RANKS, DEPTH = 10, 16  # maximum ranks and depth of a fixed tree
TREE_SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 63]  # numbers of draft tokens of candidates
PROBED_SIZES = [6, 12, 24, 40]  # numbers of draft tokens of probes; a fixed tree has the last one only
CLOSE = 0.8  # a share of the best prediction
CLOSE_TREE = 0.9  # a share of the best chain among drafters with trees
ALIKE = 0.08  # relative difference in tokens per step
COSTS = """WITH RECURSIVE rows(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows WHERE n < 255),
               base AS MATERIALIZED (SELECT * FROM predicted_time WHERE run = ?1 AND source = 'steps')
           SELECT n, b.overhead_ns + (k.a + k.d * b.context + (k.b + k.e * b.context) * n * b.batch) / b.batch,
                  coalesce(b.draft_ns / nullif(b.depth, 0), 0), (b.none_pass_ns + b.overhead_ns * b.none_steps) / b.none_tokens
           FROM base AS b JOIN cost_piece AS k ON (k.run, k.source) = (b.run, b.source) JOIN rows ON n * b.batch > k.above_rows
                AND n * b.batch <= k.to_rows AND b.context > k.above_context AND b.context <= k.to_context"""

Path = tuple[int, ...]  # ranks from the root


def best_trees(share: list[list[float]], sizes: list[int]) -> list[tuple[float, list[Path]]]:
    """Returns, for each size, the tree of at most so many draft tokens with the largest expected depth, and that depth.

    share (depth, RANKS): the accepted share of the tokens that are tested at a depth, by rank. This is the dynamic
    program of Chen et al. 2024 (Sequoia, arXiv 2402.12374, section 3.1), with shares that depend on the depth as well.
    Among equal trees the one with fewer tokens is taken.
    """
    most = max(sizes)
    # Values for children from a rank on.
    rest = [[[0.0] * (most + 1) for _ in range(RANKS + 1)] for _ in range(len(share) + 1)]
    # Tokens of the subtree at that rank.
    take = [[[0] * (most + 1) for _ in range(RANKS + 1)] for _ in range(len(share) + 1)]
    for d in reversed(range(len(share))):
        below = rest[d + 1][0]
        for rank in reversed(range(RANKS)):
            later, here = rest[d][rank + 1], share[d][rank]
            for n in range(1, most + 1):
                best, taken = 0.0, 0
                for m in range(1, n + 1):
                    value = here * (1 + below[m - 1]) + later[n - m]
                    if value > best:
                        best, taken = value, m
                rest[d][rank][n], take[d][rank][n] = best, taken

    def paths(at: Path, n: int) -> list[Path]:
        to: list[Path] = []
        for rank in range(RANKS if len(at) < len(share) else 0):
            m = take[len(at)][rank][n]
            if m == 0:
                break
            to += [(*at, rank), *paths((*at, rank), m - 1)]
            n -= m
        return to

    return [(rest[0][0][n], sorted(paths((), n), key=lambda p: (len(p), p))) for n in sizes]


@dataclass
class Searched:
    """A drafter whose settings are searched."""

    settings: dict
    options: set[str]  # options that the drafter has
    longest: int  # maximum tokens of a chain
    learns: bool

    @property
    def trees(self) -> bool:
        return "tree" in self.options

    @property
    def nodes(self) -> bool:
        return "nodes" in self.options and "tokens" in self.options

    def shaped(self, greedy: bool = False, **shape: int | list) -> dict:
        """Returns its settings with this shape instead of its own."""
        to = {k: v for k, v in self.settings.items() if k not in ("tokens", "widths", "nodes", "tree")} | shape
        return to | {"pick": "greedy"} if greedy and "pick" in self.options else to


@dataclass
class Probe:
    """A run to make."""

    form: str  # "length", "tree", "itself"
    of: int  # index of its drafter
    family: int  # probes of one drafter and form: the best of each is confirmed first
    settings: dict


@dataclass
class Candidate:
    """A setting with its predicted tokens per step and speedup, the result of `report` for its paired run, and the
    geometric mean of both speedups, weighted by their numbers of prompts."""

    of: int
    family: int
    settings: dict
    tokens: float
    speedup: float
    measured: dict | None = None
    both: float = 0.0

    @property
    def shown(self) -> str:
        return written(self.settings)


@dataclass
class Search:
    """takes: returns what is wrong with settings of a drafter, under the rule; None: nothing. greedy: temperature 0,
    where trees consist of the tokens of largest q, since sampled ones have no siblings."""

    greedy: bool
    takes: Callable[[dict], str | None]
    drafters: list[Searched] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)

    def add(self, d: Searched) -> None:
        """Adds a drafter, and the probe of its chains. Raises Misuse."""
        if wrong := self.takes(d.settings):
            raise Misuse(wrong)
        if not d.options & {"tokens", "tree"}:
            raise Misuse(f"drafter {d.settings['kind']} has no option that tune searches: tokens, tree or nodes")
        if "tokens" in d.options and (d.trees or not d.nodes):
            chain = d.shaped(tokens=d.longest)
            if wrong := self.takes(chain):
                raise Misuse(wrong)
            self.probes.append(Probe("length", len(self.drafters), 3 * len(self.drafters), chain))
        self.drafters.append(d)

    def _far_behind(self, i: int) -> bool:
        """A tree gains more than a chain, but nearly as much for each drafter."""
        best = [max((c.speedup for c in self.candidates if c.of == k), default=0) for k in range(len(self.drafters))]
        trees = max((best[k] for k, d in enumerate(self.drafters) if d.trees or d.nodes), default=0)
        return best[i] > 0 and (best[i] < CLOSE * max(best) or best[i] < CLOSE_TREE * trees)

    def _wide_tree(self, d: Searched, size: int) -> dict:
        """Returns the best tree if acceptance falls by rank as it often does; measurements on it do not depend on its
        shape."""
        share = [[0.6 * 0.5**r for r in range(RANKS)] for _ in range(min(d.longest, DEPTH))]
        ((_, paths),) = best_trees(share, [size])
        return d.shaped(tree=[list(p) for p in paths], greedy=self.greedy)

    def widen(self, most: int) -> None:
        """Adds the other probes, with at most `most` draft tokens (or the fewest that are informative), of drafters
        whose chains are not far behind."""
        found: list[Probe] = []
        for i, d in enumerate(self.drafters):
            if self._far_behind(i):
                continue
            if d.trees and not d.learns:
                found.append(Probe("tree", i, 3 * i + 1, self._wide_tree(d, max(1, min(most, PROBED_SIZES[-1])))))
            for size in [PROBED_SIZES[0], *(s for s in PROBED_SIZES[1:] if s <= most)]:
                if d.trees and d.learns:
                    found.append(Probe("itself", i, 3 * i + 1, self._wide_tree(d, size)))
                if d.nodes and size < PROBED_SIZES[-1]:  # a best-first tree consists of deterministic tokens
                    found.append(Probe("itself", i, 3 * i + 2, d.shaped(tokens=d.longest, nodes=size, greedy=True)))
        self.probes += [p for p in found if not self.takes(p.settings)]

    def rows(self) -> int:
        """Returns the draft tokens of the largest draft that may be a candidate."""
        return max(TREE_SIZES[-1] if d.trees and not d.learns else PROBED_SIZES[-1] if d.trees or d.nodes else d.longest for d in self.drafters)

    def _put(self, p: Probe, settings: dict, tokens: float, speedup: float) -> None:
        """Adds a candidate. Of equal settings, which drafters given twice with other lengths have, the first is kept.
        """
        if all(written(settings) != c.shown for c in self.candidates):
            self.candidates.append(Candidate(p.of, p.family, settings, tokens, speedup))

    def read(self, p: Probe, db: sqlite3.Connection, run: int) -> None:
        """Adds the predictions from a probe's run, read from the views."""
        d = self.drafters[p.of]
        if p.form == "length":
            for length, tokens, speedup in db.execute("SELECT length, tokens_per_step, speedup FROM prediction_by_length WHERE run = ?"
                                                      # fmt: skip.
                                                      " AND length > 0 AND source = 'steps' ORDER BY length", [run]):
                self._put(p, d.shaped(tokens=length), tokens, speedup)
        elif p.form == "itself":
            for tokens, speedup in db.execute("SELECT t.tokens_per_step, n.replay FROM prediction AS n JOIN steps AS t ON t.run = n.run"
                                              " WHERE n.run = ? AND n.source = 'steps'", [run]):  # fmt: skip
                self._put(p, p.settings, tokens, speedup)
        else:
            self._read_trees(p, db, run)

    def _read_trees(self, p: Probe, db: sqlite3.Connection, run: int) -> None:
        share, left = [[] for _ in range(DEPTH)], [1.0] * DEPTH
        for depth, rank, rate in db.execute("SELECT depth, rank, rate FROM acceptance_by_rank WHERE run = ? AND depth <= ? ORDER BY depth, rank",
                                            [run, DEPTH]):  # fmt: skip
            if rank == len(share[depth - 1]) < RANKS:  # otherwise it is after a rank without tests
                # A rank is tested only if its elder siblings were rejected, so its rate is multiplied by how often that
                # is.
                share[depth - 1].append(left[depth - 1] * rate)
                left[depth - 1] *= 1 - rate
        while share and not share[-1]:
            share.pop()
        share = [row + [0.0] * (RANKS - len(row)) for row in share]
        costs = {n: (step, level, none) for n, step, level, none in db.execute(COSTS, [run])}
        kept = {k: v for k, v in p.settings.items() if k != "tree"}
        for depth in range(1, len(share) + 1):
            for size, (expected, paths) in zip(TREE_SIZES, best_trees(share[:depth], TREE_SIZES), strict=True):
                if len(paths) != size or size <= depth or len(paths[-1]) != depth or size + 1 not in costs:
                    continue  # chains are covered by lengths
                step, level, none = costs[size + 1]
                shape = kept | {"tree": [list(path) for path in paths]}
                self._put(p, shape, 1 + expected, (1 + expected) / (step + depth * level) * none)

    def order(self, confirmed: int) -> None:
        """Sorts candidates by prediction. Those to confirm come first: the best of each family that is not far behind
        the best of all, then the next best that are not like one of these. Candidates of nearly as many tokens differ
        in nothing that a measurement of a few prompts could show."""
        self.candidates.sort(key=lambda c: -c.speedup)
        chosen: list[Candidate] = []
        seen: set[int] = set()
        for c in self.candidates:
            if len(chosen) < confirmed and c.family not in seen and c.speedup >= CLOSE * self.candidates[0].speedup:
                chosen.append(c)
            seen.add(c.family)
        for unlike in (True, False):
            for c in self.candidates:
                alike = any(k.family == c.family and abs(k.tokens / c.tokens - 1) < ALIKE for k in chosen)
                if len(chosen) < confirmed and all(c is not k for k in chosen) and not (unlike and alike):
                    chosen.append(c)
        self.candidates.sort(key=lambda c: all(c is not k for k in chosen))
