"""predict - predicted speedups next to measured ones, and bounds: the views prediction and bench_of_run. It needs the
standard library alone.
"""

import itertools

from speclab import database
from speclab.command import Fault, Misuse, Options, integer
from speclab.shown import figure, paragraph

_ABOUT = """\
Predicts the speedup of every run in a database and sets it beside the measured one: from Leviathan's formula, from the
acceptance by position, and from a replay of the recorded steps over the cost of passes. That cost is of the latest
`speclab bench --db` with the run's model, precision and machine, or, without one, of the steps of the runs compared. Prints
measured / predicted by its factors, and bounds: the best fixed length, a perfect length, drafter and rule. The numbers are
the views prediction and prediction_by_length (docs/results.md)."""
_TABLES = (
    ("                 speedup predicted         measured / predicted         draft\n"
     "run   measured     (a)     (b)     (c)       (c)    none     all    pass   share",
     {"speedup": 10, "leviathan": 8, "by_position": 8, "replay": 8, "ratio": 10, "none_time_factor": 8, "time_factor": 8, "verify_factor": 8,
      "draft_share": 8}),
    ("                 best fixed             perfect\nrun   measured     speedup  length        length   drafter      rule",
     {"speedup": 10, "best_length_speedup": 12, "best_length": 8, "perfect_length": 14, "perfect_drafter": 10, "perfect_rule": 10}),
)  # fmt: skip
_NOTES = """\
(a) Leviathan's formula with the mean acceptance: every pass costs the same. (b) acceptance by position over a pass of the mean
number of rows. (c) replay: every recorded step at its own cost. Factors measured / predicted: of (c), of the times of none and
of the run, (c) = none / all; and of the run's passes, rule and overhead of a pass included. draft share: of the predicted time,
the drafter's own measured time. Bounds, on the recorded steps: the best fixed length and its speedup, no row that is rejected,
every draft accepted, and tokens that no exact rule exceeds (with record: {expected: true})."""
_STEPS = ("mean times of the passes of these runs, which has seen what it predicts. `speclab bench MODEL --db FILE` measures one that has"
          " not")  # fmt: skip
_QUERY = """SELECT p.*, p.speedup / p.replay AS ratio, r.experiment, r.peers, r.target, r.sampling, r.batch, r.drafter, r.rule, r.lossless
    FROM prediction AS p JOIN run AS r ON r.id = p.run WHERE (?1 IS NULL OR p.source = ?1) AND (?2 IS NULL OR r.experiment = ?2)
    ORDER BY min(r.id) OVER (PARTITION BY r.experiment), r.experiment, min(r.id) OVER (PARTITION BY r.experiment, r.peers), r.peers,
    p.run, p.source"""


def _comparison(rows: list[dict], width: int) -> str:
    first = rows[0]
    lines = [paragraph(f"{first['experiment']}: {first['target']}, {first['sampling']}, batch {first['batch']}", width)]
    labels = [f"{r['run']:3}{'' if r['lossless'] else '*'}" for r in rows]
    lines += [paragraph(f"{r['drafter']}; {r['rule']}", width, 5, label) for r, label in zip(rows, labels, strict=True)]
    for head, columns in _TABLES:
        lines += ["", head]
        for r, label in zip(rows, labels, strict=True):
            shown = [f"{r[k]:.0f}" if k == "best_length" and r[k] is not None else figure(r[k]) for k in columns]
            lines.append(f"{label:<4}" + "".join(f"{x:>{w}}" for x, w in zip(shown, columns.values(), strict=True)))
    said = []
    for bench, group in itertools.groupby(rows, lambda r: r["bench"]):
        cost = f"bench {bench}" if bench else _STEPS
        said.append(f"Cost of passes from run {next(group)['run']} on: {cost}.")
    return "\n".join([*lines, "", paragraph(" ".join(said), width)])


def predictions(path: str, experiment: str | None = None, source: str | None = None, bench: int | None = None, width: int = 80) -> str:
    """Returns the text. bench: take the cost from this one. Raises Fault or Misuse."""
    db = database.connect(path)
    with database.faults(path):
        known = [name for (name,) in db.execute("SELECT experiment FROM run GROUP BY experiment ORDER BY min(id)")]
        if experiment is not None and experiment not in known:
            raise Misuse(f'{path}: no experiment "{experiment}" in it ({", ".join(known)})')
        if bench is not None:
            if db.execute("SELECT 1 FROM bench WHERE id = ?", (bench,)).fetchone() is None:
                raise Misuse(f"{path}: there is no bench {bench} in it")
            db.execute("PRAGMA query_only = OFF")  # the program's views read this view, which belongs to the connection
                                                  # alone
            db.execute(f"CREATE TEMP VIEW bench AS SELECT * FROM main.bench WHERE id = {bench:d}")
            db.execute("PRAGMA query_only = ON")
        rows = database.dicts(db, _QUERY, ("bench" if bench is not None else source, experiment))
    db.close()
    # A run's two sources are adjacent, `bench` first: it is taken unless another was chosen.
    rows = [next(group) for _, group in itertools.groupby(rows, lambda r: r["run"])]
    if not rows and bench is not None:
        has = f"has the weights, precision, device and machine of bench {bench}"
        raise Fault(f"{path}: nothing to predict: no run of a drafter that is paired with none {has}")
    if not rows:
        why = " and has a bench (`speclab bench MODEL --db FILE`)" if source == "bench" else ""
        raise Fault(f"{path}: nothing to predict: no run of a drafter is paired with none{why}")
    parts = [_comparison(list(group), width) for _, group in itertools.groupby(rows, lambda r: (r["experiment"], r["peers"]))]
    return "\n\n\n".join(parts) + "\n\n" + paragraph(_NOTES, width)


def main(words: list[str]) -> int:
    o = Options("predict", _ABOUT, "  speclab bench smollm2-135m-instruct --contexts 128,512 --prefill 0 --db demo.db\n"
                                   "  speclab predict --db demo.db --experiment demo\n")  # fmt: skip
    o.option("--db", default="results.db", metavar="FILE", help="database; default: results.db")
    o.option("--experiment", metavar="NAME", help="experiment to predict; default: all")
    o.option("--cost", choices=["bench", "steps"], help="source of the cost of passes; default: bench where there is one")
    o.option("--bench", type=integer(1, 1 << 62), metavar="ID",
             # fmt: skip.
             help="bench to take it from, of the table `bench`; default: the latest that has the run's model, precision and machine")
    given = o.read(words)
    if given.bench is not None and given.cost == "steps":
        raise Misuse("--bench and --cost steps exclude each other")
    print(predictions(given.db, given.experiment, given.cost, given.bench))
    return 0
