"""page - `report --html FILE --svg FOLDER --pdf FOLDER`: one page with all cells and figures, which asks for nothing, and the pictures as files.

What a database says reaches the page through Jinja2's escapes alone, and is on one line without controls (names.plain).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from speclab import figures, files
from speclab.command import Fault, Misuse
from speclab.figures import Numbers, choice, draw
from speclab.figures.choice import Comparison
from speclab.figures.kinds import KINDS
from speclab.names import plain

_HERE = Path(__file__).parent
_OPEN_ROWS = 12  # a table of so many is shown at once; longer ones are opened by the reader
_ORIGIN = {
    "Machine": "machine || ' (' || device || ')'",
    "Revision of speclab": "revision",
    "Target": "target || ' (weights ' || target_hash || '), ' || model_type || ', activations ' || activations || ', cache ' || cache",
    "Prompts (file and hash)": "prompts",
    "Sampling": "sampling",
    "Decoded": None,
}
_DECODED = "SELECT min(started) || ' to ' || coalesce(max(finished), '(not finished)') FROM run WHERE ?1 IS NULL OR experiment = ?1"


Value = float | str | list | tuple | None  # of a table's cell; a tuple: what it is sorted by, and what is shown; a list: words that warn


def number(value: Value) -> tuple[str, str]:
    """What a number is sorted by, "" being after all others, and what is shown."""
    if isinstance(value, tuple):
        return "" if value[0] is None else repr(value[0]), value[1]
    if value is None:
        return "", "–"
    return repr(value), f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _interval(low: float | None, high: float | None) -> Value:
    return None if low is None or high is None else (low, f"{low:.3g} to {high:.3g}")


def _table(label: str, heads: Sequence[str], kinds: str, rows: Iterable[Sequence[Value]]) -> dict[str, Any]:
    """kinds: of each column, n (numbers) or t (texts)."""
    return {"label": label, "heads": list(zip(heads, kinds, strict=True)), "rows": rows}


def _origin(results: Any) -> list[tuple[str, list[str]]]:
    lines = []
    for label, what in _ORIGIN.items():
        query = f"SELECT {what} FROM run WHERE ?1 IS NULL OR experiment = ?1 GROUP BY 1 ORDER BY min(id)" if what else _DECODED
        lines.append((label, [plain(r[0] or "") for r in results.query(query, (results.experiment,))[1]]))
    return lines


def _settings(comparisons: list[Comparison]) -> dict[str, Any]:
    heads = ["settings", "experiment", "target", "sampling", "batch", "prompts", "number of prompts", "turns", "repeats", "limits", "seed"]
    return _table("settings", heads, "ntttntnnntt", (
        [i, f.experiment, f.target, f.sampling, f.batch, f.prompt_file, c.said["n_prompts"], c.turns, c.repeats, f.limits, str(f.seed % 2**64)]
        for i, c in enumerate(comparisons, 1) for f in [c.first]))  # fmt: skip


def _cells(comparisons: list[Comparison]) -> dict[str, Any]:
    heads = ["run", "drafter", "speedup", "95 % interval", "tokens per step", "tokens/s", "acceptance rate", "texts equal", "marks", "rule",
             "sampling", "batch", "settings"]  # fmt: skip
    rows = []
    for i, c in enumerate(comparisons, 1):
        for r in c.runs:
            same, slash, of = r.equal.partition("/")
            speedup = [None] * 3 if r.baseline else [r.speedup, r.speedup_low, r.speedup_high]
            said = ["LOSSY"] * (not r.lossless) + ["UNFINISHED"] * (not r.finished) + ["INFLATED TARGET"] * r.marked_inflated
            rows.append([r.run, r.full, speedup[0], _interval(*speedup[1:]), r.tokens_per_step, r.tokens_per_s, r.acceptance_rate,
                         (int(same) / int(of) if slash else None, r.equal), said, r.rule, r.sampling, r.batch, i])  # fmt: skip
    return _table("all cells", heads, "ntnnnnnntttnn", rows)


def _numbers_table(numbers: Numbers) -> dict[str, Any]:
    columns = list(zip(*(r.cell for r in numbers.rows), strict=True)) or [()] * len(numbers.columns)
    kinds = "".join("t" if any(isinstance(v, str) for v in column) else "n" for column in columns)
    heads, ends = [*numbers.columns, "95 % low", "95 % high"], 2 * numbers.intervals
    rows = ((*("–" if v is None and kind == "t" else v for v, kind in zip(r.cell, kinds, strict=True)), *(r.low, r.high)[:ends])
            for r in numbers.rows)  # fmt: skip
    return _table(numbers.figure.title, heads[: len(kinds) + ends], kinds + "n" * ends, rows)


def _drawn(results: Any, comparisons: list[Comparison], own: Sequence[figures.Figure]) -> list[Numbers]:
    known = {k.name for k in KINDS}
    for figure in own:
        if figure.name in known:
            raise Fault(f"figure {figure.name}: expected a name that no other figure has")
        if figure.choose not in choice.CHOICES or not (callable(figure.style) or figure.style in draw.DRAWN):
            raise Fault(f"figure {figure.name}: expected choose of {', '.join(choice.CHOICES)}, style of {', '.join(draw.DRAWN)} or a function")
        known.add(figure.name)
    return [figures.read(k, results, *choice.choose(k.choose, comparisons)) for k in [*KINDS, *own]]


def plots(results: Any, name: str) -> draw.Pictures:
    """The pictures of a figure of the page, one for each group and measure. Raises Misuse."""
    kinds = {k.name: k for k in KINDS}
    if name not in kinds:
        raise Misuse(f'plot: expected one of {", ".join(kinds)}, found "{name}"')
    numbers = figures.read(kinds[name], results, *choice.choose(kinds[name].choose, choice.read(results)))
    if not numbers.panels:
        raise Misuse(f"{name}: needs {numbers.figure.needs}")
    return draw.Pictures(map(draw.picture, numbers.panels))


def html(results: Any, comparisons: list[Comparison], drawn: list[Numbers]) -> str:
    """The page. drawn: figures, whose panels have their pictures."""
    jinja = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    jinja.filters["plain"] = plain
    jinja.filters["lines"] = lambda text: "\n".join(map(plain, text.split("\n")))
    name = plain(results.experiment if results.experiment is not None else Path(results.path).name)
    return jinja.get_template("page.html").render(
        name=name, database=plain(Path(results.path).name), origin=_origin(results), disturbed=results.report["disturbed"], comparisons=comparisons,
        settings=_settings(comparisons), cells=_cells(comparisons), open_rows=_OPEN_ROWS,
        figures=[(n, _numbers_table(n)) for n in drawn],
        css=Markup((_HERE / "figure.css").read_text() + (_HERE / "page.css").read_text()), js=Markup((_HERE / "page.js").read_text()),
        number=number)  # fmt: skip


def _write(path: str, content: str | bytes) -> None:
    files.write(path, content)
    print(path)


def write(results: Any, options: Any) -> None:
    """Writes what the options html, svg and pdf name, and prints the files' names. figure: FILE.py of figures beside those of kinds.py."""
    for path in (path for path in (options.svg, options.pdf) if path is not None):
        files.make_folder(path)
    comparisons = choice.read(results)
    drawn = _drawn(results, comparisons, [figures.load(path) for path in options.figure or ()])
    panels = [(f"{n.figure.name}-{i}", p) for n in drawn for i, p in enumerate(n.panels, 1)]
    for number, (_, p) in enumerate(panels, 1) if options.html is not None or options.svg is not None else ():
        p.svg = draw.svg(p, number)
    if options.html is not None:
        _write(options.html, html(results, comparisons, drawn))
    style = (_HERE / "figure.css").read_text()
    for name, p in panels if options.svg is not None else ():
        head, _, rest = p.svg.partition(">")
        _write(f"{options.svg}/{name}.svg", f'<?xml version="1.0" encoding="utf-8"?>\n{head}>\n<style>\n{style}</style>{rest}')
    for name, p in panels if options.pdf is not None else ():
        _write(f"{options.pdf}/{name}.pdf", draw.pdf(p))
