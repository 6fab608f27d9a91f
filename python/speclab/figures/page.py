"""page - `report --html FILE --svg FOLDER --pdf FOLDER`: one page with all cells and figures, which loads nothing, and
the pictures as files.

Text from a database reaches the page through Jinja2's escapes alone, and is on one line without controls (names.plain).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from speclab import figures, files
from speclab.command import Fault, Misuse
from speclab.figures import KINDS, Numbers, choice, draw
from speclab.figures.choice import Comparison
from speclab.names import plain

_HERE = Path(__file__).parent
_OPEN_ROWS = 12  # shorter tables are shown at once; the reader opens longer ones
_ORIGIN = {
    "Machine": "machine || ' (' || device || ')'",
    "Revision of speclab": "revision",
    "Target": "target || ' (weights ' || target_hash || '), ' || model_type || ', activations ' || activations || ', cache ' || cache",
    "Prompts (file and hash)": "prompts",
    "Sampling": "sampling",
    "Decoded": None,
}
_DECODED = "SELECT min(started) || ' to ' || coalesce(max(finished), '(not finished)') FROM run WHERE ?1 IS NULL OR experiment = ?1"


def _key(value: float | None) -> str:
    """Returns the key by which a value is sorted; "" comes after all others."""
    return "" if value is None else repr(value)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _origin(results: Any) -> list[tuple[str, list[str]]]:
    lines = []
    for label, what in _ORIGIN.items():
        query = f"SELECT {what} FROM run WHERE ?1 IS NULL OR experiment = ?1 GROUP BY 1 ORDER BY min(id)" if what else _DECODED
        lines.append((label, [plain(r[0] or "") for r in results.query(query, (results.experiment,))[1]]))
    return lines


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
    """Returns the pictures of a figure of the page, one for each group and measure. Raises Misuse."""
    kinds = {k.name: k for k in KINDS}
    if name not in kinds:
        raise Misuse(f'plot: expected one of {", ".join(kinds)}, found "{name}"')
    numbers = figures.read(kinds[name], results, *choice.choose(kinds[name].choose, choice.read(results)))
    if not numbers.panels:
        raise Misuse(f"{name}: needs {numbers.figure.needs}")
    return draw.Pictures(map(draw.picture, numbers.panels))


def html(results: Any, comparisons: list[Comparison], drawn: list[Numbers]) -> str:
    """Returns the page. drawn: figures, whose panels have their pictures."""
    jinja = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"plain": plain, "lines": lambda text: "\n".join(map(plain, text.split("\n"))), "key": _key, "shown": _shown}
    name = plain(results.experiment if results.experiment is not None else Path(results.path).name)
    return jinja.get_template("page.html").render(
        name=name, database=plain(Path(results.path).name), origin=_origin(results), disturbed=results.report["disturbed"], comparisons=comparisons,
        open_rows=_OPEN_ROWS, figures=drawn,
        # fmt: skip.
        css=Markup((_HERE / "figure.css").read_text() + (_HERE / "page.css").read_text()), js=Markup((_HERE / "page.js").read_text()))


def _write(path: str, content: str | bytes) -> None:
    files.write(path, content)
    print(path)


def write(results: Any, options: Any) -> None:
    """Writes what the options html, svg and pdf name, and prints the files' names. figure: FILE.py of a figure in
    addition to KINDS."""
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
