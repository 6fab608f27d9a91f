"""figures - pictures of results. A figure is a question in SQL, the runs that it is asked about, its numbers with
intervals, and a drawing.

A figure is a row of figures.toml and one SQL file. Its line WITH chosen(..) names every run. That line is replaced by a
list of the runs that are drawn (choice.py), and the text that is run is the text that is shown. Columns 0 to 4 of its
rows are group, measure, series, x and the value. A group and a measure are one picture (a panel). The value is a
function of sums over prompts of columns a, b, c, d of its table `sums`. From these the engine computes the interval of
the row with the same group, measure, series, x and run (`speclab report --intervals`).
"""

import logging
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from speclab import engine, user_file
from speclab.command import Fault

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # matplotlib must not report where its cache is
_HERE = Path(__file__).parent
_CHOSEN = 'WITH chosen("group", series, run'
_VALUE, _KEYS = 4, 5  # the value's column; columns that name a row of sums


@dataclass(frozen=True)
class Figure:
    """The question of a figure and how it is drawn."""

    name: str  # names its files and its place on the page: letters, digits and _
    title: str
    about: str  # a sentence beneath the title
    sql: str
    needs: str = "rows of its SQL"  # what a database without this figure lacks
    x: str = ""  # label of the axis
    y: str | None = None  # None: the measure
    choose: str = "every"  # key of choice.CHOICES: which runs, and how they form groups and series
    style: str | Callable = "lines"  # lines, dots, bars, cost, heat; or a function of matplotlib's axes and a Panel,
                                    # which draws
    rates: bool = False  # a / b is from 0 to 1
    doubling: bool = False  # x is drawn on a logarithmic scale


KINDS = [Figure(name, sql=(_HERE / f"{name}.sql").read_text(), **row) for name, row in tomllib.loads((_HERE / "figures.toml").read_text()).items()]


class Row(NamedTuple):
    """A row of a figure's SQL. low, high: its 95 % interval; None: it has none."""

    cell: tuple
    series: str
    x: Any
    value: float
    low: float | None = None
    high: float | None = None


@dataclass
class Panel:
    """Rows of one group and measure: a picture. series: in the order of colours."""

    figure: Figure
    group: str
    measure: str
    columns: list[str]
    series: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    svg: str = ""  # the picture as an element of a page

    def of(self, series: str) -> list[Row]:
        return [r for r in self.rows if r.series == series]


@dataclass
class Numbers:
    """A figure of a database. sql: the text that was run; intervals: whether they come from the table `sums`; note:
    what is not drawn."""

    figure: Figure
    sql: str
    note: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    intervals: bool = False

    @property
    def kinds(self) -> str:
        """Returns a letter for each column: t if it has texts, otherwise n."""
        return "".join("t" if any(isinstance(r.cell[i], str) for r in self.rows) else "n" for i in range(len(self.columns)))


def _quoted(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _filled(sql: str, chosen: Sequence[tuple]) -> str:
    """Replaces the line that names every run by a list of the chosen ones."""
    head, line, rest = sql.partition(_CHOSEN)
    if not line:
        return sql
    columns, _, rest = rest.partition("\n")
    columns, with_more = columns.partition(") AS")[0], "," if columns.endswith(",") else ""
    values = ",\n".join(f"    ({', '.join(map(_quoted, row))})" for row in chosen)
    return f"{head}{line}{columns}) AS (VALUES\n{values}\n){with_more}\n{rest}"


def _sums_of(sql: str) -> str | None:
    """Returns the statement that lists the table `sums`, rows of one key together. None: the figure has none."""
    if "\nsums AS (" not in sql:
        return None
    head, predicted, _ = sql.partition("\n),\npredicted AS (")  # this part is not needed, and takes long
    head = head if predicted else sql[: sql.rindex("\n)\nSELECT ")]
    return f'{head}\n)\nSELECT "group", measure, series, x, run, a, b, c, d, e, f, prompt, unit FROM sums ORDER BY 1, 2, 3, 4, 5, prompt'


def _question(rows: list[tuple], rates: bool) -> dict[str, Any] | None:
    """Returns the question to `speclab report --intervals` about a row's sums (docs/results.md, Intervals)."""
    column = dict(zip(("a", "b", "c", "d", "steps", "other_steps", "prompt", "unit"), list(zip(*rows, strict=True))[_KEYS:], strict=True))
    two, units = column["c"][0] is not None, column["unit"][0] is not None
    names = [*("abcd" if two else "ab"), *(name for name in ("steps", "other_steps") if units and column[name][0] is not None)]
    wanted = {name: column[name] for name in names + ["prompt", "unit"] * units}
    if any(v is None or (isinstance(v, float) and not math.isfinite(v)) for values in wanted.values() for v in values):
        return None
    return {"of": "ratio_of_ratios" if two else "rate" if rates else "ratio"} | wanted


def _intervals(numbers: Numbers, results: Any, sql: str) -> dict[tuple, tuple]:
    """Returns intervals by group, measure, series, x and run, from the sums that this statement lists."""
    clusters: dict[tuple, list[tuple]] = {}
    for row in results.query(sql)[1]:
        clusters.setdefault(row[:_KEYS], []).append(row)
    wanted = {key: q for key, rows in clusters.items() if (q := _question(rows, numbers.figure.rates)) is not None}
    answers = engine.objects("report", "--intervals", "-", lines=wanted.values())
    return {key: (found["low"], found["high"]) for key, found in zip(wanted, answers, strict=True)}


def _is_drawn(row: Row) -> bool:
    return None not in row.cell[:_VALUE] and isinstance(row.value, int | float)


def _panels(numbers: Numbers, chosen: Sequence[tuple]) -> list[Panel]:
    """Returns panels: groups in the order of the choice, in each the measures in the order of the rows; series in the
    order of the choice."""
    groups, series = ({key: i for i, key in reversed(list(enumerate(keys)))} for keys in ([c[0] for c in chosen], [c[:2] for c in chosen]))
    panels: dict[tuple, Panel] = {}
    for row in filter(_is_drawn, numbers.rows):
        group, measure = str(row.cell[0]), str(row.cell[1])
        panel = panels.setdefault((group, measure), Panel(numbers.figure, group, measure, numbers.columns))
        panel.rows.append(row)
    for panel in panels.values():
        panel.series = sorted(dict.fromkeys(r.series for r in panel.rows), key=lambda s: series.get((panel.group, s), len(series)))
    return sorted(panels.values(), key=lambda p: groups.get(p.group, len(groups)))


def read(figure: Figure, results: Any, chosen: Sequence[tuple], note: str = "") -> Numbers:
    """Runs a figure's SQL for the chosen runs, each (group, series, run, ..). None chosen: the database lacks what the
    figure needs. Raises Fault."""
    numbers = Numbers(figure, _filled(figure.sql, chosen), note)
    if not chosen and _CHOSEN in figure.sql:
        return numbers
    numbers.columns, rows = results.query(numbers.sql)
    if rows and len(numbers.columns) <= _VALUE:
        raise Fault(f"figure {figure.name}: expected columns group, measure, series, x and a value, found {', '.join(numbers.columns)}")
    at = {name: i for i, name in enumerate(numbers.columns)}
    sums = _sums_of(numbers.sql)
    numbers.intervals = sums is not None
    found = _intervals(numbers, results, sums) if sums is not None and "run" in at else {}
    for row in rows:
        cell = tuple(None if isinstance(v, float) and not math.isfinite(v) else v for v in row)
        ends = tuple(cell[at[name]] if {"low", "high"} <= at.keys() else None for name in ("low", "high"))
        ends = found.get((*cell[:_VALUE], cell[at["run"]]), ends) if found else ends
        numbers.rows.append(Row(cell, str(cell[2]), cell[3], cell[_VALUE], *ends))
    numbers.panels = _panels(numbers, chosen)
    return numbers


def load(path: str) -> Figure:
    """Returns the figure of a user's file FILE.py, its variable FIGURE (docs/results.md, A figure of your own). Raises
    Fault."""
    figure = user_file.load(path).get("FIGURE")
    if not isinstance(figure, Figure):
        raise Fault(f"{path}: expected a variable FIGURE, a speclab.figures.Figure, found {type(figure).__name__}")
    if not figure.name.isidentifier():
        raise Fault(f'{path}: FIGURE.name: expected letters, digits and _, found "{figure.name}"')
    return figure
