"""compared - results of several programs as rows of one table, and which of them can be compared with each other. It
needs the standard library alone.

A row has what its file states, and no more: None is "not stated". Numbers of two programs with one name may have
different definitions. So a row names its definitions, and rows are compared only if that of tokens/s, the machine and
the prompts are equal.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from speclab.command import Misuse
from speclab.shown import runs_of

POSITIONS = 8


@dataclass
class Row:
    """A row. The fields up to `source` are those of --jsonl and --csv, under these names."""

    file: str
    line: int | None  # the line where its object begins; None: the row is about the whole file
    tool: str  # "vllm bench serve"
    model: str | None = None
    method: str | None = None
    prompts: str | None = None
    machine: str | None = None
    sampling: str | None = None
    requests: int | None = None
    batch: int | None = None  # number of sequences decoded together
    lossy: bool = False  # speclab's marks
    inflated: bool = False
    tokens_per_s: float | None = None
    tokens_per_s_is: str | None = None
    acceptance_length: float | None = None  # includes the target's own token
    acceptance_length_is: str | None = None
    acceptance_rate: float | None = None  # accepted / drafted
    mean_ttft_ms: float | None = None
    mean_tpot_ms: float | None = None
    mean_latency_ms: float | None = None  # time of a whole request
    speedup: float | None = None  # over the baseline of the comparison; of a published number: over its source's
    speedup_in_pairs: bool = False
    differs: str | None = None  # the reason for a missing speedup: "model, batch"
    not_stated: str | None = None  # fields that may differ, since they are not stated
    acceptance_by_position_is: str | None = None  # "of drafts" or "of steps"
    source: str | None = None  # publisher of the number, if a person wrote it down
    positions: list[float] = field(default_factory=list)  # share of drafts or steps with at least so many accepted
                                                         # tokens, up to POSITIONS
    prompts_counted: bool = False  # `prompts` has only numbers of requests and tokens
    prompts_in_row: bool = False  # `prompts` belongs to the row, not to the file: llama-bench's tests
    peers: str | None = None  # speclab: runs that share it were decoded in pairs
    run: int | None = None
    none: int | None = None  # speclab: the run of `none` in its pairs, if it is one
    paired_speedup: float | None = None  # speclab: over that `none`, within pairs

    def shown(self, number: int) -> dict:
        """Returns its fields for --jsonl and --csv; a source only if it has one."""
        names = [f.name for f in fields(self)]
        of = {"row": number} | {name: getattr(self, name) for name in names[: names.index("positions")]}
        return of if self.source is not None else {key: value for key, value in of.items() if key != "source"}

    @property
    def name(self) -> str:
        """Returns its method, with * if the rule is lossy or the target was made slower on purpose."""
        return (self.method if self.method is not None else "(not stated)") + "*" * (self.lossy or self.inflated)

    @property
    def speedup_text(self) -> str:
        if self.speedup is None:
            return "-"
        return f"{self.speedup:.3f}{'!' if self.source is not None else '?' * (not self.speedup_in_pairs and self.not_stated is not None)}"


def find(rows: list[Row], name: str) -> int:
    """Finds the row that a person names: by its number from 1, its file, or a part of the method of one row only.
    Raises Misuse."""
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(rows):
        return int(name) - 1
    found = [i for i, row in enumerate(rows) if row.file == name or name in (row.method or "")]
    if len(found) == 1:
        return found[0]
    raise Misuse(f"--baseline {name}: expected the number of a row (1 to {len(rows)}), a file with one row, or a part of one method: "
                 f"{'several rows have this' if found else 'no row has this'}")  # fmt: skip


def _compare(row: Row, base: Row) -> None:
    differs, not_stated = [], []
    for what, key in (("definition of tokens/s", "tokens_per_s_is"), *((key, key) for key in ("model", "prompts", "machine", "sampling", "batch"))):
        mine, other = getattr(row, key), getattr(base, key)
        if mine is None or other is None:
            not_stated.append(what)
        elif mine != other:
            differs.append(what)
    if row.prompts is not None and base.prompts is not None and row.prompts_counted:
        not_stated.append("which prompts")
    if row.peers is not None and base.peers is not None:  # `speclab report --against` compares these within pairs, if
                                                         # possible
        not_stated.append("the machine's state (not in pairs)")
    row.differs, row.not_stated = ", ".join(differs) or None, ", ".join(not_stated) or None
    if not differs and base.tokens_per_s:
        row.speedup = row.tokens_per_s / base.tokens_per_s


def compare_with(rows: list[Row], base: Row) -> None:
    """Sets speedup, speedup_in_pairs, differs and not_stated of every other row."""
    for row in rows:
        if row is base or row.source is not None:
            continue
        row.speedup_in_pairs = row.none is not None and row.none == base.run and row.file == base.file and row.paired_speedup is not None
        if row.speedup_in_pairs:
            row.speedup = row.paired_speedup
        elif row.tokens_per_s_is is not None and base.tokens_per_s_is is not None:
            _compare(row, base)


def _numbers(rows: list[int]) -> str:
    """Writes [1, 2, 3, 5] as "1 to 3, 5"; two consecutive numbers as "4, 5"."""
    return ", ".join(", ".join(map(str, run)) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs_of(rows))


def _by_row(rows: list[Row], what: str, words: Callable[[Row], str | None]) -> list[str]:
    """Returns ["WHAT: 1 to 3: words; 4: other words."]; nothing, if no row has words."""
    of: dict[str, list[int]] = {}
    for i, row in enumerate(rows, 1):
        if (said := words(row)) is not None:
            of.setdefault(said, []).append(i)
    return [f"{what}: " + "; ".join(f"{_numbers(numbers)}: {said}" for said, numbers in of.items()) + "."] if of else []


def notes(rows: list[Row], baseline: bool) -> list[str]:
    """Returns sentences about what the numbers mean and why rows cannot be compared."""
    said = [f"Row {i} states the mean latency of a batch of requests only: {row.mean_latency_ms:.1f} ms."
            # fmt: skip.
            for i, row in enumerate(rows, 1) if row.tokens_per_s_is is None and row.mean_latency_ms is not None]
    said += _by_row(rows, "tokens/s, by row", lambda row: row.tokens_per_s_is)
    said += _by_row(rows, "length, by row", lambda row: row.acceptance_length_is)
    said += _by_row(rows, "accepted by position, by row", lambda row: row.acceptance_by_position_is)
    said += _by_row(rows, "!: published speedups, over the baseline of their source, by row", lambda row: row.source)
    if any(row.lossy or row.inflated for row in rows):
        said.append("*: the rule changes the output distribution (LOSSY), or the target was made slower on purpose.")
    if not baseline:
        return said
    if any(row.speedup_in_pairs for row in rows):
        said.append("Speedups over `none` of the same database are within paired runs, as `speclab report` has them.")
    said += _by_row(rows, "No speedup over the baseline where these differ, by row", lambda row: row.differs)
    return said + _by_row(rows, "?: not known to be the same as the baseline's, as a file does not state it, by row",
                          lambda row: row.not_stated if row.differs is None else None)  # fmt: skip
