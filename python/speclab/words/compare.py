"""`compare` - results of vLLM, SGLang, llama.cpp, Spec-Bench, papers and speclab in one table. It needs the standard
library alone.
"""

import csv
import io
import re

from speclab import compare_forms, compared, strict_json
from speclab.command import Fault, Misuse, Options
from speclab.compared import POSITIONS, Row
from speclab.markdown import escaped
from speclab.shown import paragraph

_ABOUT = """Reads results of vllm bench serve, latency and throughput, of SGLang's bench_serving, llama-bench (-o json, jsonl, csv),
llama-server (responses with `timings`), Spec-Bench (answer files), NVIDIA's speculation profiles, published numbers that a person wrote
down (CSV or JSON lines: method, target, dataset, temperature, tau, speedup, source) and databases of speclab, and prints them as rows of
one table, each with its own definition of its numbers. A speedup is over a row that you name. It is left out where definition, model,
prompts, machine, sampling or batch differ, and marked ? where a file does not state one of them; the notes below the table say which."""
WIDTH, FIGURES = 80, 54  # columns of the table, and of a line without the method
_HEADS = {"batch": (5, "batch"), "tokens_per_s": (10, "tokens/s"), "acceptance_length": (7, "length"), "acceptance_rate": (7, "rate"),
          "mean_ttft_ms": (9, "TTFT ms"), "mean_tpot_ms": (8, "TPOT ms")}  # fmt: skip


def _figure(x: float | int | None) -> str:
    if x is None or isinstance(x, int):
        return "-" if x is None else str(x)
    return f"{x:.{3 if abs(x) < 10 else 2 if abs(x) < 100 else 1 if abs(x) < 1e5 else 0}f}"


def _figures(row: Row, i: int, baseline: int | None, speedups: bool) -> list[str]:
    numbers = [_figure(row.batch)] + [_figure(None if (x := getattr(row, key)) is None else float(x)) for key in list(_HEADS)[1:]]
    return numbers + (["base" if i == baseline else row.speedup_text] if speedups else [])


def _group(row: Row) -> str:
    facts = {"model": row.model, "machine": row.machine, "sampling": row.sampling, "prompts": None if row.prompts_in_row else row.prompts}
    lines = [paragraph(f"{name}: {value}", WIDTH, 2) for name, value in facts.items() if value is not None]
    return "\n".join([paragraph(f"{row.file} ({row.tool})", WIDTH), *lines, ""])


def _table(rows: list[Row], baseline: int | None, speedups: bool) -> str:
    heads = [*_HEADS.values(), *([(8, "speedup")] if speedups else [])]
    names = WIDTH - 5 - FIGURES + (0 if speedups else 8)
    text, before = f"     {'method':{names}}" + "".join(f"{head:>{width}}" for width, head in heads) + "\n", None
    for i, row in enumerate(rows):
        key = (row.file, row.model, row.machine, row.sampling, row.prompts_in_row or row.prompts)
        if key != before:
            text += "\n" + _group(row)
        before = key
        figures = "".join(f"{figure:>{width}}" for (width, _), figure in zip(heads, _figures(row, i, baseline, speedups), strict=True))
        short, number = len(row.name) <= names, f"{i + 1:3}  "
        text += f"{number}{row.name:{names}}{figures}\n" if short else f"{paragraph(row.name, WIDTH, 5, number)}\n{' ' * (5 + names)}{figures}\n"
    positions = [f"{i:3}  " + "".join(f" {x:6.3f}" for x in row.positions) + "\n" for i, row in enumerate(rows, 1) if row.positions]
    text += "\naccepted by position, at least 1, 2, .. tokens\n" * bool(positions) + "".join(positions) + "\n"
    return text + "".join(f"{paragraph(said, WIDTH)}\n" for said in compared.notes(rows, baseline is not None))


def _markdown(rows: list[Row], baseline: int | None, speedups: bool) -> str:
    heads = ["#", "file", "tool", "model", "method", *(head for _, head in _HEADS.values()), *(["speedup"] if speedups else [])]
    lines = [f"| {' | '.join(heads)} |", "|--:|---|---|---|---|" + "--:|" * (len(heads) - 5)]
    for i, row in enumerate(rows):
        cells = [row.file, row.tool, row.model or "-", row.name, *_figures(row, i, baseline, speedups)]
        lines.append(f"| {i + 1} | {' | '.join(map(escaped, cells))} |")
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in compared.notes(rows, baseline is not None)), ""])


def _jsonl(rows: list[Row]) -> str:
    lines = [row.shown(i) | {"acceptance_by_position": [float(x) for x in row.positions]} for i, row in enumerate(rows, 1)]
    return "".join(f"{strict_json.dumps(line)}\n" for line in lines)


def _csv_field(x) -> str:
    """Puts an apostrophe before a name that a spreadsheet would take for a formula (core/files/csv.c)."""
    if not isinstance(x, str):
        return "" if x is None else str(int(x)) if isinstance(x, (bool, int)) else f"{x:.10g}"
    formula = len(x) > 1 and x[0] in "=+-@\t\r" and not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", x)
    return "'" * formula + x


def _csv(rows: list[Row]) -> str:
    out = io.StringIO()
    lines = [row.shown(i) for i, row in enumerate(rows, 1)]
    names = list(max(lines, key=len))  # includes a source, if a row has one
    write = csv.writer(out, lineterminator="\r\n").writerow
    write([*names, *(f"acceptance_{k}" for k in range(1, POSITIONS + 1))])
    for line, row in zip(lines, rows, strict=True):
        write([_csv_field(x) for x in [*(line.get(name) for name in names), *row.positions, *[None] * (POSITIONS - len(row.positions))]])
    return out.getvalue()


def main(words: list[str]) -> int:
    o = Options("compare", _ABOUT, "  ./run compare serve-eagle3.json serve-plain.json --baseline 2\n  ./run compare demo.db papers.csv --markdown\n")
    o.option("--baseline", metavar="ROW", help="speedups over this row: its number, a file with one row, or a part of one method; default: none")
    o.flag("--csv", help="CSV: all fields of the rows")
    o.flag("--jsonl", help="JSON Lines: one object a row")
    o.flag("--markdown", help="a table for a README")
    o.add_argument("file", metavar="FILE", nargs="+")
    got = o.read(words)
    if got.csv + got.jsonl + got.markdown > 1:
        raise Misuse("--csv, --jsonl and --markdown exclude each other")
    try:
        rows = [row for path in got.file for row in compare_forms.read(path)]
    except Fault as fault:
        raise Misuse(str(fault)) from None
    baseline = None if got.baseline is None else compared.find(rows, got.baseline)
    if baseline is not None:
        compared.compare_with(rows, rows[baseline])
    speedups = baseline is not None or any(row.source is not None for row in rows)
    if got.csv or got.jsonl:
        print(_csv(rows) if got.csv else _jsonl(rows), end="")
    else:
        print((_markdown if got.markdown else _table)(rows, baseline, speedups), end="")
    return 0
