"""quality - the cost of a lossy rule in its texts, next to its gain: perplexity, total variation a token, the task's
score.
"""

import sys

from pandas import DataFrame

from speclab import files, quality, results, strict_json
from speclab.command import Misuse, Options, integer, note
from speclab.shown import figure, figure_with_interval


def options() -> Options:
    about = """\
Prints for each cell of a database its speedup beside three prices: the perplexity of its texts under the target at temperature 1; the
total variation a token between what its rule emits and p, from recorded rows (`record: {rows: full}`; 0 for lossless rules); and the
share of tasks that its texts solve, where the prompts have answers (GSM8K, MATH-500: `import .. --answers`) or --answers names the
dataset's own file (HumanEval, whose tests run in a process of their own, without network). 95 % intervals over prompts. The models of
the runs must be there."""
    o = Options("quality", about, "  ./run quality lossy.db\n  ./run quality code.db --answers HumanEval.jsonl --svg price.svg\n")
    o.add_argument("db", metavar="DB")
    o.option("--experiment", metavar="NAME", help="only this one; default: all")
    o.add_argument("--run", metavar="ID", type=integer(1), action="append", help="only this run; can be given several times")
    o.option("--answers", metavar="FILE", help="JSON lines of the dataset, by the ids of the prompts")
    o.flag("--json", help="a JSON object a line instead of the table")
    o.flag("--csv", help="CSV instead of the table")
    o.option("--svg", metavar="FILE", help="also a figure: speedup, and the task's score or the perplexity, of every cell")
    return o


def _table(rows: list[dict]) -> str:
    heads = ["run", "cell", "speedup", "tokens/step", "perplexity", "TV a token", "solved, %"]
    lines = [heads]
    for r in rows:
        tv = figure_with_interval(r, "tv") if not r["lossless"] else "0"
        solved = "-" if r["score"] != r["score"] else f"{figure_with_interval(r, 'score', 100)} of {r['score_prompts']}"
        lines.append([str(r["run"]), r["name"] + ("" if r["lossless"] else " *"), figure_with_interval(r, "speedup"), figure(r["tokens_per_step"]),
                      figure_with_interval(r, "perplexity"), tv, solved])  # fmt: skip
    wide = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    shown = ["  ".join(f"{x:<{w}}" for x, w in zip(line, wide, strict=True)).rstrip() for line in lines]
    if not all(r["lossless"] for r in rows):
        shown.append("* lossy: its texts do not have the target's distribution")
    shares = [r["tv_share"] for r in rows if not r["lossless"] and r["tv_share"] == r["tv_share"] and r["tv_share"] < 1]
    if shares:
        low, high = (figure(100 * share) for share in (min(shares), max(shares)))
        shown.append(f"TV a token is of {low} to {high} % of the steps: those whose draft begins with one token.")
    return "\n".join(shown)


def _svg(frame: DataFrame, path: str) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    what, words = ("score", "tasks solved") if frame.score.notna().any() else ("perplexity", "perplexity under the target")
    fig = Figure(figsize=(7, 4.5), layout="constrained")
    axes = fig.add_subplot(xlabel="speedup over none (95 %)", ylabel=f"{words} (95 %)")
    for _, r in frame.fillna({"speedup": 1.0}).iterrows():
        bars = [[[max(0.0, r[k] - r[f"{k}_low"])], [max(0.0, r[f"{k}_high"] - r[k])]] for k in ("speedup", what)]
        name = r["name"] + ("" if r.lossless else " (lossy)")
        axes.errorbar(r.speedup, r[what], xerr=bars[0], yerr=bars[1], fmt="o" if r.lossless else "s", capsize=2, label=name)
    axes.legend(fontsize="small")
    with rc_context({"svg.fonttype": "none"}), files.writing(path) as f:
        fig.savefig(f, format="svg", metadata={"Date": None})


def main(words: list[str]) -> int:
    given = options().read(words)
    if given.json and given.csv:
        raise Misuse("--json and --csv: expected one of them")
    with results.Results(given.db, given.experiment) as db:
        frame = quality.table(db, given.answers, given.run, lambda line: note("quality", line) if sys.stderr.isatty() else None)
    rows = frame.to_dict("records")
    if given.svg is not None:
        _svg(frame, given.svg)
    if given.json:
        print("\n".join(map(strict_json.dumps, rows)))
    elif given.csv:
        print(frame.to_csv(index=False, lineterminator="\r\n"), end="")
    else:
        print(_table(rows))
    return 0
