"""kinds - the list of figures: what each shows, and what it needs. Their questions are the SQL files beside."""

from pathlib import Path

from speclab.figures import Figure


def _figure(name: str, title: str, about: str, **how) -> Figure:
    return Figure(name, title, about, (Path(__file__).parent / f"{name}.sql").read_text(), **how)


_BATCHES = "cells of two batches (YAML key `batch: [1, 4]`)"
_DRAFTS = "a run of a drafter other than none that has proposed draft tokens"

KINDS = [
    _figure(
        "speedup_by_category", "Speedup by task",
        "Speedup over none in the same paired runs, by category of the prompts, up to 29 of them, with 95 % intervals. One that reaches the edge is"
        " cut.",
        needs='runs of none and of another drafter on prompts with a "category" (YAML key `prompts`)',
        x="speedup over none", choose="categories", style="dots"),
    _figure(
        "acceptance_by_depth", "Acceptance by depth",
        "How many drafts are accepted at least this deep: of all drafts, and of those accepted up to the depth before. 95 % intervals.",
        needs=_DRAFTS, x="depth in the draft (tokens)", choose="drafting", rates=True),
    _figure(
        "speedup_by_length", "Tokens per step and speedup by length",
        "Drafters of chains that differ in the number of draft tokens alone. 95 % intervals.",
        needs="two cells whose drafters differ in the option `tokens` alone", x="option `tokens`: draft tokens at most", choose="lengths"),
    _figure(
        "sweep", "Speedup in a sweep",
        "Speedup over none, by two options of a drafter: those with most values, where more vary. 95 % intervals below.",
        needs="cells of a drafter that differ in two options (YAML: `{any: [2, 4]}` as the value of two keys), with none",
        choose="sweep", style="heat"),
    _figure(
        "speedup_by_batch", "Speedup by batch",
        "Speedup over none with the same batch, by number of texts decoded at a time. 95 % intervals.",
        needs=_BATCHES + ", with none", x="batch (texts)", choose="batches", doubling=True),
    _figure(
        "time_split", "Where the time goes",
        "Decode time of a token by phase: propose (the drafter), verify (the target's pass and the decision), advance (the drafter's update) and the"
        " rest. The length of a bar is 1 / throughput.",
        needs="a run with decoded texts", x="decode time per token (ms)", choose="every", style="bars"),
    _figure(
        "throughput_by_latency", "Throughput by latency",
        "Tokens/s of all texts together against the time per output token of one of them. A line joins the batches of a drafter, whose numbers stand"
        " at the points. 95 % intervals of tokens/s; percentiles have none.",
        needs=_BATCHES, x="time per output token (ms)", y="throughput (tokens/s)", choose="throughput"),
    _figure(
        "trees", "Trees and chains",
        "Chains, fixed trees and best-first trees of one drafter, against the size of its drafts. 95 % intervals.",
        needs="two cells of one drafter, one of them of trees (its options `widths`, `tree` or `nodes`)",
        x="draft tokens of a draft, mean", choose="trees"),
    _figure(
        "acceptance_by_context", "Acceptance by context",
        "Accepted / drafted tokens by the number of cached tokens before the step, in ranges that begin at x and end at 2 x. 95 % intervals.",
        needs=_DRAFTS, x="cached tokens before the step", choose="drafting", rates=True, doubling=True),
    _figure(
        "cost_of_pass", "Cost of a pass, c(n)",
        "Time of a target's pass of n rows / time of a pass of one row: medians of `speclab bench` with quartiles over rounds, and the fitted cost.",
        needs="`speclab bench MODEL --db FILE` into this database", x="n, rows of the pass", choose="none", style="cost"),
    _figure(
        "prediction", "Predicted beside measured speedup",
        "The measured speedup with its 95 % interval, and predictions from the cost of passes (docs/results.md, Prediction).",
        needs="runs of none and of another drafter in the same paired runs", x="speedup over none", choose="paired", style="dots"),
]  # fmt: skip
