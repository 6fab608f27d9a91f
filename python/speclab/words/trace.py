"""trace - a text as it was decoded, step by step: a page, or one step on the terminal."""

import os
import sys

from speclab import files, results, trace
from speclab.command import Misuse, Options, integer, note


def options() -> Options:
    about = ("Shows a text of a database as it was decoded: each step's draft, p and q of its tokens, what was accepted and why, the times.\n"
             "Its experiment must have recorded drafts (`record: {rows: 20}`).")  # fmt: skip
    o = Options("trace", about, "  ./run trace demo.db --run 5 --prompt 3 --html step.html\n  ./run trace demo.db --run 5 --prompt 3 --step 7\n")
    o.add_argument("db", metavar="DB")
    o.option("--run", type=integer(1), metavar="N", help="run.id of the cell; default: the first with drafts")
    o.option("--prompt", type=integer(0), default=0, metavar="N", help="of the prompt file, from 0; default: 0")
    o.option("--turn", type=integer(0), default=0, metavar="N", help="of the conversation; default: 0")
    o.option("--repeat", type=integer(0), default=0, metavar="N", help="default: 0")
    o.option("--step", type=integer(0), metavar="N", help="only this step; default: all")
    o.option("--html", metavar="FILE", help="write a page: the text, and below it the steps; arrow keys walk")
    return o


def main(words: list[str]) -> int:
    given = options().read(words)
    with results.Results(given.db) as db:
        run = given.run
        if run is None:
            found = db.sql("SELECT min(q.run) FROM draft AS d JOIN sequence AS q ON q.id = d.sequence JOIN run AS r ON r.id = q.run"
                           " WHERE r.drafter_kind <> 'none'").iat[0, 0]  # fmt: skip
            run = 1 if found is None or found != found else int(found)
        shown = trace.of_database(db, run, given.prompt, given.turn, given.repeat)
    if given.html is not None:
        files.write(given.html, trace.page(shown))
        note("trace", f"{len(shown.steps)} steps are in {given.html}")
        return 0
    if given.step is not None and given.step >= len(shown.steps):
        raise Misuse(f"--step: expected a step from 0 to {len(shown.steps) - 1}, found {given.step}")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    chosen = shown.steps if given.step is None else [shown.steps[given.step]]
    print("\n\n".join("\n".join(trace.in_lines(shown, s, color)) for s in chosen))
    return 0
