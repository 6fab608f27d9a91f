"""shown - numbers as tables print them. It needs the standard library alone."""

import textwrap
from collections.abc import Sequence
from itertools import groupby


def figure(x: float | None) -> str:
    """Returns a number of at most five characters: 0.37, 1.85, 48.0, 131."""
    if x is None or x != x:
        return "-"
    size = abs(x)
    if size >= 99999.5:
        return f"{x:.0e}"
    return f"{0 if size < 0.005 else x:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def figure_with_interval(cell, name: str, factor: float = 1) -> str:
    """Returns the number `name` of a cell (a dict or a row of a frame) and its 95 % interval: "1.85 [1.62, 2.09]"."""
    value, low, high = (None if x is None else factor * x for x in (cell[name], cell[f"{name}_low"], cell[f"{name}_high"]))
    if value is None or low is None or low != low:
        return figure(value)
    return f"{figure(value)} [{figure(low)}, {figure(high)}]"


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """Returns [1, 2, 3, 5] as [[1, 2, 3], [5]]: consecutive numbers together."""
    return [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]


def paragraph(words: str, width: int = 80, indent: int = 0, label: str = "") -> str:
    """Returns a label, and words from column `indent` on, in lines of at most `width` columns."""
    return textwrap.fill(words, width, initial_indent=label.ljust(indent), subsequent_indent=" " * indent, break_on_hyphens=False)
