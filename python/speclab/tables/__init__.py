"""tables - the report's tables to paste: Markdown for a README, LaTeX with booktabs for a paper; which cells all tables
show.

A table has a row for each cell, in the order of the report, and columns of texts. The best lossless number of each
column of speedups and lengths is bold. The figures are those of the terminal's tables (terminal.py). It
needs the standard library alone.
"""

import re
from dataclasses import dataclass, field

from speclab.markdown import code, escaped
from speclab.shown import figure_with_interval, short, speed

MIN_INTERVAL_PROMPTS = 3  # fewer prompts make the interval of a category too wide to be useful
BLOCK, PAGE = 8, 30  # LaTeX: columns other than names that fit a page, more being in tabulars below each other; rows of
                    # all tabulars
_DEFINITION = (
    "Speedup: decode tokens/s over those of none, as a ratio of sums over texts of the same paired runs. Tokens/step: new tokens / steps of the"
    " target, its own token included. In brackets: 95 % intervals, with prompts and slices of time as the sample. Bold: the best of the lossless. "
)
_OF_CELLS = "Accepted: of the draft tokens. Equal texts: equal to those of none / compared; sampled: other samples, which are not compared."
_BY_CATEGORY = "By category, with its number of prompts in parentheses; intervals from 3 prompts on."


@dataclass
class Sheet:
    """A comparison as a table of texts.

    columns: (heading over neighbours that share it or "", head); rows: (name, is lossy, texts, which are bold).
    """

    title: str
    facts: str
    definition: str
    columns: list[tuple[str, str]]
    rows: list[tuple[str, bool, list[str], list[bool]]] = field(default_factory=list)


def _left_out(cells: list[dict]) -> str:
    if not cells:
        return ""
    lossy = sum(not cell["lossless"] for cell in cells)
    speedups = [cell["speedup"] for cell in cells if cell["speedup"] is not None]
    words = f"{len(cells)} more cell{'s' * (len(cells) > 1)}" + (f", {lossy} of them lossy" if lossy else "")
    return words + (f", with speedups from {short(max(speedups))} down to {short(min(speedups))}" if speedups else "")


def shown(cells: list[dict], top: int | None) -> tuple[list[dict], str]:
    """Returns those of none and the `top` cells after them, None or 0: all; and a sentence about the others, "" if
    there are none."""
    n = len(cells) if not top else sum(cell["baseline"] for cell in cells) + top
    return cells[:n], _left_out(cells[n:])


def prompts(cell: dict) -> int:
    """Returns the number of prompts that entered its speedup, of none: tokens/s."""
    return cell["speed_prompts" if cell["baseline"] else "paired_prompts"] or 0


def _facts(comparison: dict, left_out: str) -> str:
    named = {"Target": "target", "Sampling": "sampling", "Prompts": "prompts", "Limits": "limits", "Decoding": "decoding", "All cells": "common",
             "Device": "device", "Machine": "machine", "Revision of speclab": "revision"}  # fmt: skip
    words = [f"{label}: {comparison[key]}." for label, key in named.items() if comparison[key]]
    if not all(cell["lossless"] for cell in comparison["cells"]):
        words.append("*: lossy; the rule changes the output distribution, so its speedup is not for the same task.")
    if any(cell["marked_inflated"] for cell in comparison["cells"]):
        words.append("The target was made slower on purpose: these speedups hold for no real model.")
    return " ".join(words + [f"Left out: {left_out}."] * bool(left_out))


def _number(cell: dict, category: int | None, name: str) -> dict:
    """Returns the statistic of a cell in a category, None: over all prompts; without an interval if there are too few
    prompts."""
    if category is None:
        return cell
    of = cell["by_category"][category]
    return of if of["prompts"] >= MIN_INTERVAL_PROMPTS else of | {f"{name}_low": None}


def _text(cell: dict, category: int | None, name: str) -> str:
    return "1" if name == "speedup" and cell["baseline"] else figure_with_interval(_number(cell, category, name), name)


def _best(cells: list[dict], category: int | None, name: str) -> set[int]:
    """Returns the runs of the cells with the best number among the lossless, shown or not."""
    numbers = {cell["run"]: _number(cell, category, name)[name] for cell in cells if cell["lossless"] and not cell["baseline"]}
    best = max((x for x in numbers.values() if x is not None), default=None)
    return {run for run, x in numbers.items() if x is not None and x == best}


def sheet(comparison: dict, top: int | None, by_category: bool) -> Sheet:
    """Returns the table of a comparison of `speclab report --json`. top: how many cells in addition to those of none;
    None or 0: all."""
    cells = comparison["cells"]
    rows, left_out = shown(cells, top)
    made = Sheet(f"{comparison['title']}: {comparison['model']}, {comparison['sampling']}, batch {comparison['batch']}", _facts(comparison, left_out),
                 _DEFINITION + (_BY_CATEGORY if by_category else _OF_CELLS), [])  # fmt: skip
    if by_category:
        categories = [*enumerate(cells[0]["by_category"]), (None, {"category": "all", "prompts": comparison["n_prompts"]})]
        shape = [(k, name) for k, _ in categories for name in ("speedup", "tokens_per_step")]
        made.columns = [(f"{c['category']} ({c['prompts']})", head) for _, c in categories for head in ("speedup", "tokens/step")]
        best = [_best(cells, *column) for column in shape]
        texts = [[_text(cell, *column) for column in shape] for cell in rows]
    else:
        made.columns = [("", head) for head in ("tokens/s", "speedup", "tokens/step", "accepted, %", "equal texts", "prompts")]
        best = [set(), _best(cells, None, "speedup"), _best(cells, None, "tokens_per_step"), set(), set(), set()]
        texts = [[speed(cell["tokens_per_s"]), _text(cell, None, "speedup"), _text(cell, None, "tokens_per_step"),
                  "" if cell["baseline"] else figure_with_interval(cell, "acceptance_rate", 100), cell["equal"],
                  # fmt: skip.
                  str(prompts(cell))] for cell in rows]
    made.rows = [(cell["name"], not cell["lossless"], row, [cell["run"] in runs for runs in best]) for cell, row in zip(rows, texts, strict=True)]
    return made


# ---- Markdown


def _markdown_sheet(s: Sheet) -> str:
    groups = [group for group, _ in s.columns]
    heads = [(f"{escaped(group)}: " if group and (k == 0 or groups[k - 1] != group) else "") + head for k, (group, head) in enumerate(s.columns)]
    lines = [f"**{escaped(s.title)}**", "", f"| drafter | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for name, lossy, texts, bold in s.rows:
        shown = [f"**{text}**" if is_bold else text for text, is_bold in zip(texts, bold, strict=True)]
        lines.append(f"| {code(name)}{' ' + chr(92) + '*' if lossy else ''} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", escaped(s.facts), ""])


def markdown(report: dict, top: int | None = None, by_category: bool = False) -> str:
    """Returns a table for each comparison of `speclab report --json`, with its settings below, and the definition of
    the numbers at the end."""
    sheets = [sheet(comparison, top, by_category) for comparison in report["comparisons"]]
    disturbed = report["disturbed"]
    text = f"{escaped(disturbed)}\n\n" if disturbed else ""
    return text + "\n".join(map(_markdown_sheet, sheets)) + (f"\n{escaped(sheets[-1].definition)}\n" if sheets else "")


# ---- LaTeX: pdflatex lacks characters for most of Unicode, so all but ASCII and Latin-1 letters is written as U+XXXX

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
          "|": r"\textbar{}", "`": r"\`{}", '"': r"{\char34}", **{sign: "\\" + sign for sign in "{}$&#_%"}}  # fmt: skip


def _latex_character(m: re.Match) -> str:
    c, text, at = m[0], m.string, m.start()
    if c > "\x7f" and (c > "\xff" or c < "\xc0" or c in "\xd0\xde\xf0\xfe\xd7\xf7"):
        return f"U+{ord(c):04X}"
    within = 0 < at < len(text) - 1 and text[at - 1] != " " and text[at + 1] != " "
    return _LATEX.get(c, " " if c < " " or c == "\x7f" else c) + (r"\allowbreak{}" if within and c in "=,(/_:" else "")


def latex_escaped(text: str) -> str:
    """Returns a text in LaTeX; lines may break after the signs within a word."""
    return re.sub(r"(?s).", _latex_character, text)


def _latex_heads(columns: list[tuple[str, str]]) -> str:
    over, rules, k = "", "", 0
    while columns[0][0] and k < len(columns):
        n = next((i for i in range(k, len(columns)) if columns[i][0] != columns[k][0]), len(columns)) - k
        over += f" & \\multicolumn{{{n}}}{{c}}{{{latex_escaped(columns[k][0])}}}"
        rules += f"\\cmidrule(lr){{{k + 2}-{k + 1 + n}}}"
        k += n
    heads = "".join(f" & {latex_escaped(head)}" for _, head in columns)
    return (f"{over} \\\\\n{rules}\n" if over else "") + f"Drafter{heads} \\\\\n\\midrule\n"


def _latex_block(s: Sheet, of: slice) -> str:
    columns = s.columns[of]
    text = "\\begin{tabular}{p{0.25\\linewidth}" + "r" * len(columns) + "}\n\\toprule\n" + _latex_heads(columns)
    for name, lossy, texts, bold in s.rows:
        shown = [f" & \\textbf{{{x}}}" if is_bold else f" & {x}" for x, is_bold in zip(texts[of], bold[of], strict=True)]
        text += f"\\raggedright\\texttt{{{latex_escaped(name)}}}{'$^{*}$' if lossy else ''}{''.join(shown)} \\\\\n"
    return text + "\\bottomrule\n\\end{tabular}\n"


def _latex_sheet(s: Sheet, title: str, form: str) -> str:
    label = re.sub("[^A-Za-z0-9]+", "-", f"{title}-") + form
    blocks = [_latex_block(s, slice(k, k + BLOCK)) for k in range(0, len(s.columns), BLOCK)]
    return ("\\begin{table*}[tp]\n\\centering\\footnotesize\n\\setlength{\\tabcolsep}{3pt}\n\\caption{"
            f"{latex_escaped(s.title)}. {latex_escaped(s.definition)} {latex_escaped(s.facts)}}}\n\\label{{tab:{label}}}\n"
            + "\n\\medskip\n".join(blocks) + "\\end{table*}\n")  # fmt: skip


def latex(report: dict, top: int | None = None, by_category: bool = False) -> str:
    """Returns a table* for each comparison. top None: the rows that fit a page; 0: all."""
    disturbed = report["disturbed"]
    text = "% by speclab report --latex; needs \\usepackage{booktabs}\n" + (f"% {disturbed}\n" if disturbed else "")
    for comparison in report["comparisons"]:
        blocks = (2 * (len(comparison["cells"][0]["by_category"]) + 1) + BLOCK - 1) // BLOCK if by_category else 1
        most = max(1, PAGE // blocks) if top is None else top
        text += _latex_sheet(sheet(comparison, most, by_category), comparison["title"], "categories" if by_category else "cells")
    return text
