"""merge - merges databases of shards or of several machines into one. It needs the standard library alone."""

import contextlib
import signal

from speclab import database, files
from speclab.command import Misuse, Options
from speclab.merging import Output, check_input, merge

_ABOUT = """\
Merges databases into OUT, which is created if there is none: of the shards of an experiment, of several machines, or later states
of what OUT has already. A cell is the same in all of them; a text is known by its cell, prompt, turn, repeat and pair, so merging
again adds nothing. A pair is left out if OUT has all its texts in other pairs. Each input is one transaction. Other weights,
prompts or schema versions are an error; machines may differ, as speedups are taken within pairs."""

_EXAMPLES = """\
  speclab run experiments/demo.yaml --shard 0/2 --db demo-0.db
  speclab run experiments/demo.yaml --shard 1/2 --db demo-1.db
  speclab merge demo.db demo-0.db demo-1.db"""

_MACHINES = """SELECT processor || ', ' || arithmetic, revision, count(*) FROM environment JOIN sequence ON environment.id = sequence.environment
    GROUP BY 1, 2 ORDER BY min(environment.id)"""


def _print_total(out: Output) -> None:
    """Prints what the database has now."""
    with database.faults(out.path):
        runs, finished, texts = out.db.execute("SELECT count(*), count(finished), (SELECT count(*) FROM sequence) FROM run").fetchone()
        print(f"{out.path}: runs {runs}, finished {finished}, texts {texts}")
        for machine, revision, n in out.db.execute(_MACHINES):
            print(f"  texts {n}: {machine}, revision {revision}")


def main(words: list[str]) -> int:
    o = Options("merge", _ABOUT, _EXAMPLES)
    o.add_argument("paths", metavar="OUT IN", nargs="*")
    path, *sources = o.read(words).paths or [""]
    if not sources:
        raise Misuse("missing argument: speclab merge OUT IN...")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt may come at any moment, since each input is one
                                                 # transaction
    for source in sources:
        if files.same(path, source):
            raise Misuse(f"{source}: expected other databases than OUT, found OUT itself")
        check_input(source)
    with contextlib.closing(Output(path)) as out:
        for source in sources:
            added = merge(out, source)
            left_out = f"; left out: texts {added.left_out}, which {path} has in other pairs" if added.left_out else ""
            print(f"{source}: added: runs {added.runs}, pairs {added.pairs}, texts {added.texts}{left_out}", flush=True)
        _print_total(out)
    return 0
