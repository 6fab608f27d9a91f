"""draw - a panel as a picture of matplotlib: SVG whose colours are the page's variables, so that it is light or dark
like the page, or PDF.

Lengths are points of a picture of width 480. Every series has its own colour (Okabe and Ito's, so that colour-blind
readers can tell them apart), marker and dash. Names are wrapped and cut by their number of characters.
"""

import contextlib
import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from speclab.figures import Panel, Row
from speclab.names import plain
from speclab.user_file import explained

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c28500", "#6f6f6f", "#56b4e9"]
POINTS = ["o", "s", "^", "D", "v", "P", "X"]
DASHES = ["-", (0, (5, 2)), (0, (6, 2, 1.5, 2)), (0, (1.5, 1.5)), (0, (8, 2, 1.5, 2, 1.5, 2)), (0, (3, 1)), (0, (9, 3))]
INK, GRID = "#1c1c1c", "#d8d8d8"
VARIABLES = {c: f"var(--c{i})" for i, c in enumerate(COLOURS)} | {INK: "var(--ink)", GRID: "var(--grid)"}

WIDTH, PLOT = 480, 250  # width of a picture; height of the axes of lines
FONT, LINE, CHARACTER = 13, 18, 8  # size of the font, height of a line, width of most characters at most
MOST_PLACES = 30  # maximum names on an axis of dots
STYLE = {
    "svg.fonttype": "none", "pdf.fonttype": 42, "font.family": ["DejaVu Sans"], "font.size": FONT, "text.parse_math": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.facecolor": "none",
    "figure.facecolor": "none", "savefig.facecolor": "none", "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "xtick.major.size": 3, "ytick.major.size": 3, "grid.color": GRID, "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.5,
    "lines.markersize": 5, "errorbar.capsize": 2,
}  # fmt: skip


def wrapped(text: str, space: float, lines: int = 2) -> str:
    """Returns up to `lines` lines of about `space` points, broken at spaces; the last one is cut."""
    return textwrap.fill(plain(text, 400), max(2, int(space / CHARACTER)), max_lines=lines, placeholder="…", break_on_hyphens=False)


def _height(texts: Sequence[str]) -> int:
    return LINE * sum(text.count("\n") + 1 for text in texts)


# ---- axes


def _number(x) -> float:
    try:
        return float(x)
    except (TypeError, ValueError):
        return 0.0


def _limit(high: float, times: float) -> float:
    return high * times if 1e-300 < high * times < 1e300 else 1.0


def _highest(panel: Panel) -> float:
    """Returns the largest end of a range that is shown. An interval of two or three prompts may be wider than the
    figure; then it is cut."""
    value = max(r.value for r in panel.rows)
    end = max(r.value if r.high is None else r.high for r in panel.rows)
    return 1.03 if panel.figure.rates else _limit(min(max(end, value), 2 * value), 1.06)


def _errors(rows: Sequence[Row]) -> np.ndarray:
    """Returns lengths (2, n) below and above; 0 if there is no interval."""
    ends = [(r.value - r.low, r.high - r.value) if r.low is not None and r.high is not None else (0, 0) for r in rows]
    return np.maximum(np.array(ends, dtype=float).T.reshape(2, -1), 0)


def _moved(panel: Panel, x: float, series: int) -> float:
    """Moves series with equal x next to each other, so that no interval hides another."""
    places = series - (len(panel.series) - 1) / 2
    if panel.figure.choose not in ("drafting", "lengths", "batches"):
        return x
    return x * 1.03**places if panel.figure.doubling else x + 0.08 * places


def _number_axis(axes: Axes, panel: Panel) -> None:
    x = sorted({_number(r.x) for r in panel.rows})
    if panel.figure.doubling and x[0] > 0:
        axes.set_xscale("log", base=2)
        axes.set_xlim(x[0] * 0.8, x[-1] * 1.25)
        axes.xaxis.set_major_locator(LogLocator(2, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:.6g}")
    elif panel.figure.choose in ("drafting", "lengths"):
        axes.set_xlim(x[0] - 0.5, x[-1] + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(16, integer=True))
    else:
        axes.set_xlim(0, _limit(x[-1], 1.08))


def _marks(panel: Panel) -> dict[str, dict[str, Any]]:
    """Returns colour, marker and dash of each series. In a cost figure, lines for `fitted, ..` come first, then markers
    in the same colours for `measured, ..`."""
    fitted = sum(s.startswith("fitted") for s in panel.series) if panel.figure.style == "cost" else 0
    marks = {}
    for i, name in enumerate(panel.series):
        k = (i - fitted if i >= fitted else i) % len(COLOURS)
        joined = panel.figure.style == "lines" or i < fitted
        marks[name] = {"color": COLOURS[k], "marker": "" if i < fitted else POINTS[k], "ls": DASHES[k] if joined else "none"}
    return marks


def _lines(axes: Axes, panel: Panel) -> None:
    _number_axis(axes, panel)
    axes.set_ylim(0, _highest(panel))
    if panel.measure.startswith("speedup"):
        axes.axhline(1, color=INK, lw=0.9, ls=":")
    batch = panel.columns.index("batch") if panel.figure.choose == "throughput" and "batch" in panel.columns else None
    for i, (name, marks) in enumerate(_marks(panel).items()):
        rows = panel.of(name)
        x = [_moved(panel, _number(r.x), i) for r in rows]
        axes.errorbar(x, [r.value for r in rows], _errors(rows), elinewidth=1.2, **marks)
        for at, row in zip(x, rows, strict=True) if batch is not None else ():
            axes.annotate(str(row.cell[batch]), (at, row.value), (4, -12), textcoords="offset points", fontsize=10, color=marks["color"])


def _places(panel: Panel) -> list[str]:
    return list(dict.fromkeys(str(r.x) for r in panel.rows))[:MOST_PLACES]


def _dots(axes: Axes, panel: Panel) -> None:
    places = {p: i for i, p in enumerate(_places(panel))}
    axes.set_xlim(0, _highest(panel))
    axes.axvline(1, color=INK, lw=0.9, ls=":")
    for y in range(1, len(places)):
        axes.axhline(y - 0.5, color=GRID, lw=0.8)
    for i, (name, marks) in enumerate(_marks(panel).items(), 1):
        rows = [r for r in panel.of(name) if str(r.x) in places]
        y = [places[str(r.x)] + i / (len(panel.series) + 1) - 0.5 for r in rows]
        axes.errorbar([r.value for r in rows], y, xerr=_errors(rows), elinewidth=1.5, **marks)


def _bars(axes: Axes, panel: Panel) -> None:
    """Draws series as bars, one below another, and x as their parts."""
    ends = dict.fromkeys(panel.series, 0.0)
    for i, part in enumerate(_places(panel)):
        rows = [r for r in panel.rows if str(r.x) == part]
        axes.barh([panel.series.index(r.series) for r in rows], [r.value for r in rows], 0.72, [ends[r.series] for r in rows], color=COLOURS[i % 7])
        for r in rows:
            ends[r.series] += r.value
    axes.set_xlim(0, _limit(max(ends.values()), 1.04))


def _in_order(names: Sequence[str]) -> list[str]:
    """Sorts tokens=2 before tokens=12."""
    return sorted(dict.fromkeys(names), key=lambda s: [float(p) if i % 2 else p for i, p in enumerate(re.split(r"(\d+(?:\.\d+)?)", s))])


def _map(axes: Axes, panel: Panel) -> None:
    """Draws a field for each x and series, darker if the value is larger, with its number, and its interval below."""
    x, y = (_in_order([str(v) for v in names]) for names in ([r.x for r in panel.rows], panel.series))
    low, high, wide = min(r.value for r in panel.rows), max(r.value for r in panel.rows), axes.bbox.width / len(x)
    for r in panel.rows:
        at, of = x.index(str(r.x)), y.index(r.series)
        axes.add_patch(Rectangle((at - 0.48, of - 0.48), 0.96, 0.96, fc=COLOURS[0], alpha=0.06 + 0.5 * (r.value - low) / ((high - low) or 1), lw=0))
        span = f"{r.low:.3g}–{r.high:.3g}" if r.low is not None and r.high is not None and wide > 60 else ""
        axes.text(at, of, f"{r.value:.3g}" if wide > 40 else "", ha="center", va="bottom" if span else "center")
        axes.text(at, of + 0.08, span, ha="center", va="top", fontsize=9)
    key = {v.partition("=")[0] for v in x}
    values = [v.partition("=")[2] for v in x] if len(key) == 1 and all("=" in v for v in x) else x
    axes.set_xlim(-0.5, len(x) - 0.5)
    axes.set_xticks(range(len(x)), [wrapped(v, wide - 6) for v in values])
    axes.set_xlabel(key.pop() if values is not x else panel.figure.x)
    axes.tick_params(axis="x", length=0)
    axes.spines[:].set_visible(False)


DRAWN = {"lines": _lines, "dots": _dots, "bars": _bars, "cost": _lines, "heat": _map}


# ---- the picture


def _key(panel: Panel) -> dict[str, dict[str, Any]]:
    """Returns names and markers of the key below the axes."""
    if panel.figure.style == "bars":
        return {p: {"color": COLOURS[i % 7], "lw": 9} for i, p in enumerate(_places(panel))}
    return _marks(panel) if panel.figure.style in ("lines", "cost", "dots") else {}


@contextlib.contextmanager
def _style(**more: str) -> Iterator[None]:
    # It warns about characters that the font lacks.
    with matplotlib.rc_context(STYLE | more), warnings.catch_warnings(action="ignore"):
        yield


class Picture(Figure):
    """A figure of matplotlib, which a notebook shows as SVG."""

    def _repr_html_(self) -> str:
        out = io.StringIO()
        with _style():
            FigureCanvasSVG(self).print_svg(out)
        return out.getvalue()[out.getvalue().index("<svg") :]


class Pictures(list):
    """Pictures that a notebook shows next to each other."""

    def _repr_html_(self) -> str:
        return "".join(picture._repr_html_() for picture in self)


def picture(panel: Panel) -> Picture:
    """Returns a picture of a panel, for a notebook: it can be restyled, shown and saved like any figure of matplotlib.
    """
    with _style():
        drawn = canvas(panel)
    drawn.set_facecolor("white")
    return drawn


def canvas(panel: Panel) -> Picture:
    """Returns a picture of a panel: title, axes, and the key below. Call and save it within `_style`."""
    figure, style = panel.figure, panel.figure.style
    vertical = style in ("lines", "cost") or callable(style)
    title = f"{figure.title}, {panel.measure}" if (vertical and figure.y) or style == "heat" else figure.title
    heads = [wrapped(title, (WIDTH - 24) / 1.1), wrapped(panel.group, WIDTH - 24, 3)]  # the title is bold
    key = {wrapped(name, WIDTH - 90): mark for name, mark in _key(panel).items()}
    names = panel.series if style == "bars" else _in_order(panel.series) if style == "heat" else _places(panel) if style == "dots" else []
    beside = [wrapped(name, 200, 3) for name in names]
    space = CHARACTER * max((len(line) for name in beside for line in name.split("\n")), default=0)
    # Height of a name's row, or of all rows.
    least = {"dots": 9 * len(panel.series) + 16, "bars": 2 * LINE, "heat": 44}.get(style, PLOT)
    plot = max(1, len(names)) * max(least, *map(_height, zip(beside)), 0)
    above, below, left = 14 + _height(heads), 50 + _height(key), 62 if vertical else space + 16
    height = above + plot + below
    drawn = Picture(figsize=(WIDTH / 72, height / 72), dpi=72)
    axes = drawn.add_axes((left / WIDTH, below / height, (WIDTH - 20 - left) / WIDTH, plot / height))
    drawn.text(0.5, 1 - 8 / height, heads[0], ha="center", va="top", fontweight="bold")
    drawn.text(0.5, 1 - (8 + _height(heads[:1])) / height, heads[1], ha="center", va="top")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter("{x:.6g}")
    if vertical:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    if callable(style):
        with explained(getattr(style, "__code__", _key.__code__).co_filename):
            style(axes, panel)
    else:
        if names:
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), beside, linespacing=1.25)
            axes.tick_params(axis="y", length=0)
        DRAWN[style](axes, panel)
    axes.grid(visible=style != "heat", axis="y" if vertical else "x")
    if style != "heat":
        axes.set_xlabel(figure.x)
    if vertical:
        axes.set_ylabel(figure.y or panel.measure)
    drawn.legend([Line2D([], [], **mark) for mark in key.values()], list(key), loc="lower left", frameon=False, handlelength=2.5,
                 labelspacing=0.1)
    return drawn


def _of_page(svg: str) -> str:
    """Returns the SVG element alone, with the page's colours, and without names that another picture has as well."""
    svg = re.sub(r'style="[^"]*"', lambda m: re.sub("#[0-9a-f]{6}", lambda c: VARIABLES.get(c[0], c[0]), m[0]), svg[svg.index("<svg") :])
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return re.sub(r"font: (\w* ?[\d.]+px) [^;\"]*", r"font: \1 sans-serif", svg)


def svg(panel: Panel, number: int) -> str:
    """Returns the picture as an element of a page. number: the picture's, which keeps its names distinct from others'.
    """
    out = io.StringIO()
    with _style(**{"svg.hashsalt": f"speclab {number}"}):
        FigureCanvasSVG(canvas(panel)).print_svg(out, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _of_page(out.getvalue())


def pdf(panel: Panel) -> bytes:
    out = io.BytesIO()
    with _style():
        FigureCanvasPdf(canvas(panel)).print_pdf(out, metadata={"CreationDate": None})
    return out.getvalue()
