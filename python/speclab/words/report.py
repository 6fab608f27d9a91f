"""report - tables of the results in a database, in the terminal, Markdown and LaTeX; a page with figures, files of other
projects. The engine prints rows for a machine.

It needs the standard library alone, but for the options of the second line.
"""
# without --csv --jsonl --json --intervals
# packages with --export --golden --html --svg --pdf --figure

from argparse import Namespace
from contextlib import closing

from speclab import database, engine, exports, tables
from speclab.command import Misuse, Options, integer
from speclab.tables import terminal

_PAGE = ("html", "svg", "pdf")  # these go together; the other forms exclude each other
FORMS = ("markdown", "latex", "export", "golden", *_PAGE)


def _options() -> Options:
    o = Options("report", "Reports the results in a database: for each cell tokens/s, speedup over the baseline `none` in the same\n"
                          "paired runs, tokens per step, acceptance rate by position, time to first token, shares of time, and\n"
                          "whether the texts equal those of `none`. Intervals are 95 %, with prompts as the sample.",
                "  ./run report --db demo.db\n  ./run report --db demo.db --against 2\n"
                "  ./run report --db demo.db --experiment demo --csv > demo.csv\n"
                "  ./run report --db demo.db --latex --by-category > table.tex\n  ./run report --db demo.db --html demo.html --svg figures\n"
                "  ./run report --db demo.db --export vllm results\n")  # fmt: skip
    o.option("--db", metavar="FILE", default="results.db", help="database; default: results.db")
    o.option("--experiment", metavar="NAME", help="experiment to report; default: all")
    o.option("--against", metavar="RUN", help="compare every other run of the same prompts with this one, pairwise: its number in the column `run`,"
             " or a part of the name of its drafter")  # fmt: skip
    o.option("--top", metavar="N", type=integer(0, 1000000), help="only the N fastest cells of each comparison, beside none's; 0: all;"
             " default: all, but 10 of more than 100 cells, and in LaTeX what fits a page")  # fmt: skip
    o.flag("--details", help="the tables of each comparison also of more than 100 cells")
    o.flag("--markdown", help="tables of Markdown, for a README")
    o.flag("--latex", help="tables of LaTeX with booktabs, for a paper")
    o.flag("--by-category", help="with --markdown or --latex: a column for each category of prompts, as in papers")
    o.flag("--csv", help="CSV: one row a run, with all numbers; also with --against")
    o.flag("--jsonl", help="JSON Lines: one object a run; also with --against")
    o.flag("--json", help="one JSON object: comparisons with their cells, by category, too")
    o.option("--intervals", metavar="FILE", help="read sums, a JSON object a line, - from stdin, and print their intervals (docs/results.md)")
    o.option("--export", metavar="FORM", help=f"write files in this project's form into FOLDER, one or two a run: {', '.join(exports.FORMS)} (one of"
             " acceptance lengths, for --golden), or FORM.py, a form of your own")  # fmt: skip
    o.option("--golden", metavar="FILE", help="compare acceptance lengths with those in the file; exit status 1 if one is outside its tolerance")
    o.option("--html", metavar="FILE", help="write one page with all cells and figures, which needs no other file")
    o.option("--svg", metavar="FOLDER", help="write the figures as SVG files into this folder")
    o.option("--pdf", metavar="FOLDER", help="write the figures as PDF files into this folder")
    o.add_argument("--figure", metavar="FILE.py", action="append", help="with these three, also a figure of your own (docs/results.md)")
    o.add_argument("folder", metavar="FOLDER", nargs="?", help="of --export")
    return o


def _check(got: Namespace, given: list[str]) -> None:
    """Raises Misuse for options that exclude each other."""
    to_paste = got.markdown or got.latex
    wrong = {
        "--figure goes with --html, --svg and --pdf": got.figure and (got.html, got.svg, got.pdf) == (None, None, None),
        f"{', '.join(f'--{name}' for name in FORMS)} exclude each other": len({name in _PAGE or name for name in given}) > 1,
        "--export: expected a folder for the files, found none": got.export is not None and got.folder is None,
        f"{got.folder}: a folder is for --export only": got.export is None and got.folder is not None,
        "--against goes with --csv and --jsonl, and with no other form": got.against is not None and given,
        "--by-category goes with --markdown or --latex": got.by_category and not to_paste,
        "--top is of tables: it goes with --markdown and --latex, not with other forms and --against":
            got.top is not None and (got.against is not None or (given and not to_paste)),
        "--details is of the terminal's tables: it goes with no other form and not with --against":
            got.details and (given or got.against is not None),
    }  # fmt: skip
    for sentence, is_so in wrong.items():
        if is_so:
            raise Misuse(sentence)


def _tables(got: Namespace) -> str:
    value = engine.report(got.db, got.experiment)
    if got.markdown or got.latex:
        return (tables.markdown if got.markdown else tables.latex)(value, got.top, got.by_category)
    if got.against is not None:
        of = [f"--experiment={got.experiment}"] if got.experiment is not None else []
        return terminal.against(value, engine.objects("report", f"--db={got.db}", f"--against={got.against}", "--jsonl", *of))
    with closing(database.connect(got.db)) as db, database.faults(got.db):
        return terminal.report(value, db, got.top, got.details)


def main(words: list[str]) -> int:
    got = _options().read(words)
    given = [name for name in FORMS if getattr(got, name) not in (None, False)]
    _check(got, given)
    if not given or given[0] in ("markdown", "latex"):
        print(_tables(got), end="")
        return 0
    from speclab.results import Results

    with Results(got.db, got.experiment) as results:
        if given[0] == "export":
            print("\n".join(exports.write(results, got.export, got.folder)))
        elif given[0] == "golden":
            from speclab.exports import golden

            return 0 if golden.check(results, got.golden) else 1
        else:
            from speclab.figures import page

            page.write(results, got)
    return 0
