"""layers - finds the layers of a target that draft best for layer_skip. Layers are removed one at a time, each time the
one without which the others predict the target's own next token best. Then kept and removed layers are exchanged as
long as that is better.

SWIFT (Xia et al. 2024, arXiv 2410.06916, section 4.2) searches sets of a given size at random and by Bayesian
optimization, with the share of matching tokens as the score. Here the search is greedy, needs no random numbers, and
finds a set of every size on its way. The engine scores the sets: `speclab inspect --score
--layers`. The file needs the standard library alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from speclab import engine
from speclab.command import Fault
from speclab.shown import runs_of

Layers = tuple[int, ...]  # ascending


def listed(layers: Sequence[int]) -> str:
    """Writes layers in the form of options: "0-11,13"."""
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs_of(layers))


def best(sets: Sequence[Layers], scores: Callable[[Sequence[Layers]], Sequence[float]], than: float = -1) -> tuple[Layers, float] | None:
    """Returns the set with the largest score, and the score, if it is more than `than`; of equal ones the last."""
    found = None
    for kept, score in zip(sets, scores(sets) if sets else (), strict=True):
        if score > than or (found and score == than):
            found, than = (kept, score), score
    return found


def fewer(kept: Layers) -> list[Layers]:
    """Returns all sets without one of these layers."""
    return [tuple(k for k in kept if k != i) for i in kept]


def exchanged(kept: Layers, layers: int) -> list[Layers]:
    """Returns all sets with another layer instead of one of these."""
    return [tuple(sorted({*kept, k} - {i})) for i in kept for k in range(layers) if k not in kept]


def predicted(a: float, tokens: int, pass_ns: Sequence[float], draft_ns: float) -> float:
    """Returns tokens of a step over its time, relative to plain decoding, if every draft token is accepted with
    probability a once those before it are (Leviathan et al. 2023, arXiv 2211.17192, section 3.3). pass_ns: times of
    passes of 1, 2, .. rows."""
    return sum(a**i for i in range(tokens + 1)) * pass_ns[0] / (tokens * draft_ns + pass_ns[tokens])


def scores_of(scorer: engine.Process, word: str, sets: Sequence[Layers]) -> dict:
    """Returns the engine's scores of sets. Raises Fault, or Misuse, with its sentence."""
    scorer.send(f"{word} {' '.join(map(listed, sets))}")
    return scorer.next()


@dataclass
class Row:
    """A set with its scores: shares of matching tokens, and mean sum min(p, q) at temperature 1, chosen and held out.
    """

    kept: Layers
    chosen: list[float]
    held_out: list[float]
    cost: float  # cost of a draft token, relative to a pass of one row
    speedup: float  # predicted at temperature 0, with `tokens` draft tokens
    tokens: int


def evaluated(scorer: engine.Process, kept: Layers) -> Row:
    j = scores_of(scorer, "evaluate", [kept])
    passes, draft = j["pass_ns"], j["draft_ns"]
    speedup, tokens = max(((predicted(j["held_out"][0], n, passes, draft), -n) for n in range(1, len(passes))), default=(0, 0))
    return Row(kept, j["chosen"], j["held_out"], draft / passes[0], speedup, -tokens)


def search(given: Any, words: Sequence[str]) -> None:
    """Prints a row for each set on the way, then the best one as a drafter. words: options, MODEL and DATA.jsonl, for
    the engine. Raises Fault."""
    scorer, top = engine.Process("inspect", "--score", "--layers", *words), None

    def show(row: Row, change: str) -> None:
        nonlocal top
        (match, overlap), (held_match, held_overlap) = row.chosen, row.held_out
        print(f"{len(row.kept):6}  {match:6.3f} {held_match:8.3f}  {overlap:6.3f} {held_overlap:8.3f}  {row.cost:11.2f}  {row.tokens:6}  "
              f"{row.speedup:6.2f}x  {change}", flush=True)  # fmt: skip
        top = row if top is None or row.speedup > top.speedup else top

    def scores(sets: Sequence[Layers]) -> list[float]:
        return [overlap for _, overlap in scores_of(scorer, "choose", sets)["scores"]]

    try:
        about = scorer.next()
        kept, layers = tuple(range(about["layers"])), about["layers"]
        least = given.least or (layers + 1) // 2
        if least >= layers:
            raise Fault(f"--least {least}: expected fewer than the {layers} layers of {given.model}")
        print(f"{given.model}: {layers} layers, of which some draft ({about['device']})\n"
              f"chosen by {about['chosen']} positions, held out {about['held_out']} others, of other texts\n\n"
              "          T = 0            T = 1        a draft token      predicted, T = 0\n"
              "layers  chosen held out  chosen held out  cost / pass  tokens  speedup  change", flush=True)  # fmt: skip
        while len(kept) > least:
            found = best(fewer(kept), scores)
            without, kept = set(kept) - set(found[0]), found[0]
            show(evaluated(scorer, kept), f"without {without.pop()}")
        kept = top.kept
        (score,) = scores([kept])
        for _ in range(given.exchanges):
            found = best(exchanged(kept, layers), scores, score)
            if found is None:
                break
            kept, score = found
            show(evaluated(scorer, kept), f"exchanged: {listed(kept)}")
    finally:
        scorer.close()
        if top is not None:  # an interrupted search chooses from the rows so far
            print(f'\n{{kind: layer_skip, keep: "{listed(top.kept)}", tokens: {top.tokens}}}')
            if top.speedup < 1:
                print(f"It is not predicted to gain: {top.speedup:.2f}x.")
