"""`report` with --html, --markdown, --export, ..: a page with figures, tables to paste, files of other projects. Its
other forms are C.

The next line lists the options that make `report` this word (`run`, commands/main.c).
# with --markdown --latex --by-category --export --golden --html --svg --pdf --figure
"""

from argparse import SUPPRESS, Namespace

from speclab import exports
from speclab.command import Misuse, Options, integer

_PAGE = ("html", "svg", "pdf")  # these go together; the other forms exclude each other
FORMS = ("markdown", "latex", "export", "golden", *_PAGE)
_ENGINE = ("csv", "jsonl", "json")


def _options() -> Options:
    o = Options("report", "A page with all cells and figures, tables to paste into a README or a paper, files in the forms of other projects,\n"
                          "acceptance lengths that are expected. Without these options `report` prints tables: ./run report --help.",
                "  ./run report --db demo.db --latex --by-category > table.tex\n  ./run report --db demo.db --export vllm results\n"
                "  ./run report --db demo.db --html demo.html --svg figures\n")  # fmt: skip
    o.option("--db", metavar="FILE", default="results.db", help="database; default: results.db")
    o.option("--experiment", metavar="NAME", help="experiment to report; default: all")
    o.flag("--markdown", help="tables of Markdown, for a README")
    o.flag("--latex", help="tables of LaTeX with booktabs, for a paper")
    o.flag("--by-category", help="with --markdown or --latex: a column for each category of prompts, as in papers")
    o.option("--top", metavar="N", type=integer(0, 1000000), help="only the N fastest cells of each comparison, beside none's; 0: all;"
             " default: all, in LaTeX what fits a page")  # fmt: skip
    o.option("--export", metavar="FORM", help=f"write files in this project's form into FOLDER, one or two a run: {', '.join(exports.FORMS)} (one of"
             " acceptance lengths, for --golden), or FORM.py, a form of your own")  # fmt: skip
    o.option("--golden", metavar="FILE", help="compare acceptance lengths with those in the file; exit status 1 if one is outside its tolerance")
    o.option("--html", metavar="FILE", help="write one page with all cells and figures, which needs no other file")
    o.option("--svg", metavar="FOLDER", help="write the figures as SVG files into this folder")
    o.option("--pdf", metavar="FOLDER", help="write the figures as PDF files into this folder")
    o.add_argument("--figure", metavar="FILE.py", action="append", help="with these three, also a figure of your own (docs/results.md)")
    for name in (*_ENGINE, "details"):
        o.flag(f"--{name}", help=SUPPRESS)
    o.option("--against", help=SUPPRESS)
    o.add_argument("folder", metavar="FOLDER", nargs="?")
    return o


def _check(got: Namespace, given: list[str]) -> None:
    """Raises Misuse for options that exclude each other."""
    wrong = {
        "--figure goes with --html, --svg and --pdf": got.figure and (got.html, got.svg, got.pdf) == (None, None, None),
        f"{', '.join(f'--{name}' for name in [*_ENGINE, *FORMS])} exclude each other":
            len({name in _PAGE or name for name in given}) + sum(getattr(got, name) for name in _ENGINE) > 1,
        "--export: expected a folder for the files, found none": got.export is not None and got.folder is None,
        f"{got.folder}: a folder is for --export only": got.export is None and got.folder is not None,
        "--against goes with --csv and --jsonl, and with no other form": got.against is not None and given,
        "--by-category goes with --markdown or --latex": got.by_category and not (got.markdown or got.latex),
        "--top is of tables: it goes with --markdown and --latex, not with other forms and --against":
            got.top is not None and not (got.markdown or got.latex),
        "--details is of the terminal's tables: it goes with no other form and not with --against": got.details,
    }  # fmt: skip
    for sentence, is_so in wrong.items():
        if is_so:
            raise Misuse(sentence)


def main(words: list[str]) -> int:
    got = _options().read(words)
    given = [name for name in FORMS if getattr(got, name) not in (None, False)]
    _check(got, given)
    from speclab.results import Results

    with Results(got.db, got.experiment) as results:
        if given[0] in ("markdown", "latex"):
            from speclab import tables

            print(getattr(tables, given[0])(results, got.top, got.by_category), end="")
        elif given[0] == "export":
            print("\n".join(exports.write(results, got.export, got.folder)))
        elif given[0] == "golden":
            from speclab.exports import golden

            return 0 if golden.check(results, got.golden) else 1
        else:
            from speclab.figures import page

            page.write(results, got)
    return 0
