"""shown - numbers as tables print them. It needs the standard library alone."""

import re
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


def speed(x: float | None) -> str:
    """Returns three digits or more, in at most seven characters: 0.37, 131, 1279863."""
    if x is None:
        return "-"
    return f"{x:.2g}" if x >= 9999999.5 else f"{x:.{2 if x < 9.995 else 1 if x < 999.95 else 0}f}"


def short(x: float | None) -> str:
    """Returns a number of at most four characters."""
    if x is None:
        return "-"
    return ">1e4" if x >= 9999.5 else f"{x:.{2 if x < 9.995 else 1 if x < 99.95 else 0}f}"


def percent(share: float | None) -> str:
    """Returns a share in whole percents; "?" for one that inconsistent clocks make."""
    if share is None:
        return "-"
    return "<1" if 0 < share < 0.005 else "?" if abs(share) > 9.99 else f"{0 if abs(share) < 0.005 else 100 * share:.0f}"


def rate(x: float | None) -> str:
    """Returns a rate of at most four characters: .62, 1.0; a positive one below half of the last digit is +0."""
    if x is None:
        return "-"
    if x >= 0.995:
        return ">.99" if x < 1 else "1.0"
    return "+0" if 0 < x < 0.005 else f"{x:.2f}"[1:]


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
    """Returns a label, and words from column `indent` on, in lines of at most `width` columns. A word longer than a
    line is cut; blanks are kept except at the end of a line."""
    room, lines = max(8, width - indent), [""]
    for blanks, word in re.findall(r"(\s*)(\S+)", words):
        if lines[-1] and len(lines[-1]) + len(blanks) + len(word) > room:
            lines.append("")
        first, *rest = (word[at : at + room] for at in range(0, len(word), room))
        lines[-1] += " " * len(blanks) * bool(lines[-1]) + first
        lines += rest
    return label.ljust(indent) + ("\n" + " " * indent).join(lines)
