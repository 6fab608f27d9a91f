"""terminal - the report's tables in 80 columns: all cells, the fastest of each comparison first, then each comparison.

Cells are numbered, so that a long name is printed once. Numbers are below their units, and the notes at the end define
them. It needs the standard library alone.
"""

from collections.abc import Callable, Iterator
from sqlite3 import Connection
from typing import Any

from speclab.database import dicts
from speclab.shown import figure_with_interval, paragraph, percent, rate, short, speed
from speclab.tables import MIN_INTERVAL_PROMPTS, prompts, shown

ALL_CELLS, TOP = 100, 10  # more than ALL_CELLS cells: the TOP fastest of each comparison are shown, without its tables
POSITIONS = 8  # depths for which a report shows the acceptance
_COUNTS = ("sequences", "unpaired_sequences", "drafts", "drafted_tokens", "accepted_tokens", "max_depth", "trees", "disturbed")

Cell = dict[str, Any]


def _number(cell: Cell) -> str:
    return f"{cell['run']:3}{' ' if cell['lossless'] else '*'}"


def _limits(cell: Cell, name: str, form: Callable[[float | None], str]) -> str:
    low, high = cell[f"{name}_low"], cell[f"{name}_high"]
    return "" if low is None else f"[{form(low)}, {form(high)}]"


# ---- all cells


def _summary(comparison: dict, top: int | None) -> Iterator[str]:
    cells, left_out = shown(comparison["cells"], top)
    common = comparison["common"] and f"; all: {comparison['common']}"
    yield ""
    yield paragraph(f"{comparison['title']}: {comparison['target']}, {comparison['sampling']}, batch {comparison['batch']}{common}")
    for c in cells:
        speedup = f"{1:6}{'':13}" if c["baseline"] else f"{short(c['speedup']):>6}{_limits(c, 'speedup', short):>13}"
        numbers = f"{_number(c):>5}{speed(c['tokens_per_s']):>8}{speedup}{short(c['tokens_per_step']):>6}{percent(c['acceptance_rate']):>4}"
        yield paragraph(c["name"], 80, 59, f"{numbers}{c['equal']:>10}{prompts(c):5}  ")
    if left_out:
        yield paragraph(left_out, 80, 6)


# ---- tables of a comparison, whose cells are in the order of their numbers


def _values(cells: list[Cell], key: str) -> str:
    """Returns a setting of all cells; if they differ, each value with the numbers of its cells."""
    runs: dict[str, list[str]] = {}
    for cell in cells:
        runs.setdefault(cell[key], []).append(str(cell["run"]))
    return "; ".join(value + f" in run {', '.join(of)}" * (len(runs) > 1) for value, of in runs.items())


def _facts(comparison: dict, cells: list[Cell]) -> Iterator[str]:
    facts = {key: comparison[key] for key in ("target", "sampling", "limits", "prompts", "decoding")}
    facts |= {key: _values(cells, key) for key in ("device", "machine", "revision")}
    for key, words in facts.items():
        if words or key != "limits":
            yield paragraph(words, 80, 11, key)


def _sentences(cells: list[Cell], title: str, words_of: Callable[[Cell], str]) -> Iterator[str]:
    """Yields a sentence for each cell of which there is one, and the title before the first."""
    for cell in cells:
        if words := words_of(cell):
            yield from title.splitlines()
            title = ""
            yield paragraph(words, 80, 5, _number(cell).rstrip())


def _name(c: Cell) -> str:
    return f"{c['drafter']}; {c['rule']}" + " - LOSSY" * (not c["lossless"]) + " - INFLATED TARGET" * c["marked_inflated"]


def _legend(c: Cell) -> str:
    return _name(c) + f" - UNFINISHED, {c['sequences']} text{'s' * (c['sequences'] != 1)} so far" * (not c["finished"])


def _lacking(c: Cell) -> str:
    """Names prompts that entered no speedup because all their slices were disturbed."""
    less = [f"{of['category']} {of['speedup_prompts']} of {of['prompts']}" for of in c["by_category"] if of["speedup_prompts"] < of["prompts"]]
    return f"prompts that entered the speedup: {', '.join(less)}" if less and not c["baseline"] else ""


def _texts(c: Cell) -> str:
    equal, _, compared = c["equal"].partition("/")
    if c["baseline"]:
        return ""
    if equal in ("sampled", "-"):
        words = "not comparable (sampled)" if equal == "sampled" else "nothing to compare with"
    elif c["first_difference_prompt"] is None:
        words = f"all {equal} equal none's"
    else:
        words = (f"differs: {int(compared) - int(equal)} of {compared}, first at token {c['first_difference_token'] + 1}"
                 f" (prompt {c['first_difference_prompt']}, turn {c['first_difference_turn'] + 1})")  # fmt: skip
    without = f"; {c['unpaired_sequences']} of {c['sequences']} have no pair with none and are not in the speedup"
    return words + without * (c["unpaired_sequences"] > 0)


def _by_source(db: Connection, c: Cell) -> str:
    """Names the parts of a drafter that drafted, if it combines several."""
    found = dicts(db, "SELECT * FROM by_source WHERE run = ? ORDER BY accepted DESC, source", (c["run"],))
    return ", ".join(f"{s['source']} {100 * (s['share'] or 0):.0f} % ({s['accepted']}/{s['drafted']})" for s in found)


def _by_rule(db: Connection, c: Cell) -> str:
    """States the acceptance of the same drafts under other rules, if it was recorded."""
    found = dicts(db, "SELECT * FROM by_rule WHERE run = ? AND rule <> '(bound)' ORDER BY accepted DESC", (c["run"],))
    bound = dicts(db, "SELECT first FROM by_rule WHERE run = ? AND rule = '(bound)'", (c["run"],))
    words = ", ".join(f"{r['rule']}{'*' * (not r['lossless'])} {r['accepted']:.3f}" for r in found)
    own = [r["first"] for r in found if c["rule"].startswith(r["rule"])]
    known = own and bound and None not in (own[-1], bound[0]["first"])
    return words + (f"; at least one accepted: {own[-1]:.3f}, bound {bound[0]['first']:.3f}" if known else "")


def _speed(cells: list[Cell]) -> Iterator[str]:
    yield ""
    yield "Speed     tokens/s     speedup over none          tokens   % of time spent in"
    yield "run    decode   total    sums  95 % interval geom.  /step  prop. ver. adv. other"
    for c in cells:
        limits = _limits(c, "speedup", speed) or "one prompt" * (c["speedup"] is not None)
        speedup = f"{1:7}{'':21}" if c["baseline"] else f"{speed(c['speedup']):>7}{limits:>15}{speed(c['speedup_geometric']):>6}"
        shares = "".join(f"{percent(c[f'{part}_share']):>{n}}" for part, n in (("propose", 7), ("verify", 5), ("advance", 5), ("other", 6)))
        tokens = f"{speed(c['tokens_per_s']):>9}{speed(c['end_to_end_tokens_per_s']):>8}"
        yield f"{_number(c)}{tokens}{speedup}{speed(c['tokens_per_step']):>7}{shares}"


def _disturbed(cells: list[Cell]) -> Iterator[str]:
    """Lists the cells that were disturbed, with the share of their time."""
    those = [f"run {c['run']} {100 * c['disturbed']:.{int(c['disturbed'] < 0.095)}f} %{' (counted)' * c['all_disturbed']}"
             for c in cells if c["disturbed"] > 0 or c["all_disturbed"]]  # fmt: skip
    if those:
        yield paragraph(f"left out of the speeds: {', '.join(those)}", 80, 11, "disturbed")


def _by_prompt(cells: list[Cell]) -> Iterator[str]:
    yield ""
    yield "By prompt     acceptance, %         tokens/step             TTFT, ms   prompts"
    yield "run           95 % interval       95 % interval       95 % interval   for 2 %"
    for c in cells:
        needed = c[f"{'tokens_per_s' if c['baseline'] else 'speedup'}_prompts_for_2_percent"]
        columns = (("acceptance_rate", 100, 23), ("tokens_per_step", 1, 20), ("ttft_ns", 1e-6, 21))
        numbers = "".join(f"{figure_with_interval(c, name, factor):>{n}}" for name, factor, n in columns)
        yield f"{_number(c)}{numbers}{speed(needed) if needed is None or needed >= 1e7 else f'{needed:.0f}':>10}"
        if c["expected_rate"] is not None:
            yield f"{'':4}{figure_with_interval(c, 'expected_rate', 100):>23}  by E[accepted | draft]"


def _positions(c: Cell, head: str, name: str) -> Iterator[str]:
    """Yields the rates of a line, and lines with their intervals."""
    depth = min(POSITIONS, c["max_depth"])

    def line(head: str, suffix: str) -> str:
        numbers = [*c[name + suffix], *[None] * POSITIONS][:depth]
        return f"{head:>37}" + "".join(f"{rate(x):>{5 + (k == 0)}}" for k, x in enumerate(numbers))

    yield line(head, "")
    if any(low is not None for low in c[f"{name}_low"][:depth]):
        yield from (line("95 % from", "_low"), line("to", "_high"))


def _acceptance(cells: list[Cell]) -> Iterator[str]:
    yield ""
    yield "Acceptance        tokens            accepted by position in the draft"
    yield "run   drafts   drafted  accepted    %     1    2    3    4    5    6    7    8"
    for c in cells:
        if c["baseline"]:
            continue
        head = f"{_number(c)}{c['drafts']:8}{c['drafted_tokens']:10}{c['accepted_tokens']:10}{percent(c['acceptance_rate']):>5}"
        yield from _positions(c, head, "acceptance_by_position")
        if c["drafts"]:
            yield from _positions(c, "given all before it:", "conditional_acceptance_by_position")
            if c["trees"] and c["acceptance_by_rank"]:
                yield f"{'trees: at depth 1, by rank:':>37} " + "".join(f"{rate(x):>5}" for x in c["acceptance_by_rank"])


def _categories(cells: list[Cell]) -> Iterator[str]:
    """Yields speedups by category, with as many runs next to each other as fit."""
    cells = [c for c in cells if not c["baseline"]]
    categories = cells[0]["by_category"]
    intervals = any(of["prompts"] >= MIN_INTERVAL_PROMPTS for of in categories)
    at_once = 3 if intervals else 7
    for first in range(0, len(cells) * (len(categories) > 1), at_once):
        some = cells[first : first + at_once]
        yield ""
        yield "Speedup over none, by category" + ", with 95 % intervals by prompt" * intervals
        head = "run              prompts" if intervals else "                 prompts run"
        yield (head + "".join(f"{c['run']:{5 if intervals else 6}}{'*' * (not c['lossless']):{13 if intervals else 1}}" for c in some)).rstrip()
        for k, of in enumerate(categories):
            row = f"{of['category'][:18]:18}{of['prompts']:6}{'' if intervals else '   '}"
            for c in some:
                speedup = c["by_category"][k]
                limits = _limits(speedup, "speedup", short) if of["prompts"] >= MIN_INTERVAL_PROMPTS else ""
                row += f"{short(speedup['speedup']):>5} {limits:12}" if intervals else f"{speed(speedup['speedup']):>7}"
            yield row.rstrip()


def _expected(cells: list[Cell]) -> Iterator[str]:
    title = ["", "Accepted draft tokens and E[accepted | draft] under the rule"]
    for c in cells:
        expected, accepted, z = c["expected_tokens"], c["accepted_uncut"] or 0, c["z"]
        if expected is None:
            continue
        yield from title
        title = []
        label = _number(c).rstrip()
        yield paragraph(f"{accepted:.0f} accepted, {expected:.1f} expected" + (f", z = {z:.1f}" if z is not None else ""), 80, 5, label)
        # z is not normal with few events: one rejection of probability 1/500 is 22 standard deviations
        if z is not None and abs(z) > 5 and ((accepted - expected) / z) ** 2 >= 25:
            yield paragraph("WARNING: more than 5 standard deviations: the rule does not follow its formula, or draft tokens were not sampled from"
                            " the q that was reported; see `speclab exact`", 80, 5, label)  # fmt: skip


def _comparison(comparison: dict, db: Connection) -> Iterator[str]:
    cells = sorted(comparison["cells"], key=lambda c: (not c["baseline"], c["run"]))
    yield from ("", "", paragraph(comparison["title"]), "=" * 78)
    yield from _facts(comparison, cells)
    yield from _sentences(cells, "\nrun  drafter; rule", _legend)
    yield from (*_speed(cells), *_disturbed(cells), *_by_prompt(cells))
    if cells[-1]["baseline"]:
        return  # nothing is speculative
    yield from (*_acceptance(cells), *_categories(cells), *_sentences(cells, "", _lacking))
    yield from _sentences(cells, "\nTexts compared with those of none", _texts)
    yield from _expected(cells)
    yield from _sentences(cells, "\nWho proposed the accepted draft tokens: share (accepted/drafted); a+b: both did", lambda c: _by_source(db, c))
    yield from _sentences(cells, "\nAccepted tokens per draft under each rule, for the same drafts (* lossy)", lambda c: _by_rule(db, c))


# ---- definitions of the numbers, once at the end

_NOTES: list[tuple[str, str, str]] = [  # (kind of cells that need it, label, words)
    ("any", "summary", "of each comparison none, then lossless cells, the fastest first, then lossy ones. Options and rules that all cells share"
     " are after \"all\". acc.: accepted draft tokens, %; equal: texts equal to none's; sampled: other samples of the same distribution; n: prompts"
     " that entered the speedup, of none: tokens/s."),
    ("any", "tokens/s", "decode: new tokens / time in steps; total: prefill included."),
    ("batched", "", "With a batch above 1, of the whole batch. For one text see sequence_tokens_per_s in the view speed."),
    ("any", "disturbed", "share of a cell's time in slices in which other processes used more than 8 % of a processor; speeds and speedups leave"
     " them out, a speedup those of none as well; counted: in every round there was one, so all count. Texts, acceptance and times to first token"
     " have all."),
    ("any", "/step", "mean accepted length: new tokens / steps, over all steps, the target's own token included."),
    ("any", "% of time", "in steps: prop. = propose, ver. = verify, adv. = advance, other = none of these."),
    ("any", "95 %", "intervals with prompts as the sample, of speeds also with slices of time (docs/results.md). TTFT: mean time to first token."
     " for 2 %: prompts of this kind that would make the interval of the speedup (of none: of tokens/s) +- 2 %."),
    ("speculative", "speedup", "decode tokens/s over none's, for texts that are paired with none's. sums: ratio of ratios of sums; geom.: geometric"
     " mean over prompts."),
    ("speculative", "drafts", "steps with at least one draft token. accepted: without the target's own token; %: of drafted."),
    ("speculative", "position i", "drafts with at least i tokens accepted / drafts; given all before it: / drafts with i - 1 accepted and a node at"
     " depth i."),
    ("deep", "", "Drafts deeper than 8: see the view acceptance."),
    ("expected", "z", "(accepted - expected) / standard deviation: N(0, 1) if the rule follows its formula."),
    ("lossy", "* LOSSY", "the rule changes the output distribution: its speedup is not for the same task."),
    ("inflated", "INFLATED", "the target was made slower on purpose: these speedups hold for no real model."),
]  # fmt: skip


def _notes(cells: list[Cell]) -> Iterator[str]:
    has = {"any": True, "batched": any(c["batch"] > 1 for c in cells), "speculative": any(not c["baseline"] for c in cells),
           "deep": any(c["max_depth"] > POSITIONS for c in cells), "expected": any(c["z"] is not None for c in cells),
           "lossy": any(not c["lossless"] for c in cells), "inflated": any(c["marked_inflated"] for c in cells)}  # fmt: skip
    yield ""
    yield from (paragraph(words, 80, 11, label) for kind, label, words in _NOTES if has[kind])


def report(value: dict, db: Connection, top: int | None, details: bool) -> str:
    """Returns the tables of what `speclab report --json` prints. db: the same database, of which views are read that it
    lacks. top: how many of the fastest cells of each comparison are shown, in addition to none's; 0: all; None: as many
    as a page of a terminal has room for. details: the tables of each comparison, of any number of cells."""
    cells = [cell for comparison in value["comparisons"] for cell in comparison["cells"]]
    for cell in cells:  # a run without texts has no counts
        cell |= {key: cell[key] or 0 for key in _COUNTS}
    many = len(cells) > ALL_CELLS
    lines = [paragraph(value["disturbed"]), ""] if value["disturbed"] else []
    lines += ["Summary         speedup over none  tokens   %     texts",
              " run tokens/s  sums  95 % interval  /step acc.    equal   n  drafter; rule"]  # fmt: skip
    for comparison in value["comparisons"]:
        lines += _summary(comparison, TOP if top is None and many else top)
    for comparison in value["comparisons"] if details or not many else []:
        lines += _comparison(comparison, db)
    if many and not details:
        lines += ["", paragraph(
            f"These are {len(cells)} cells, so the tables of each comparison are left out (time to first token, shares of time, acceptance by"
            " position, categories, texts): --details prints them, --experiment NAME those of one experiment; --top N shows the N fastest cells of"
            " each comparison, --top 0 all, --csv every number.")]  # fmt: skip
    return "\n".join([*lines, *_notes(cells), ""])


# ---- any two runs

_WIDE = 97
_SETTINGS = {"model": "target ", "sampling": "", "batch": "batch ", "experiment": "experiment "}  # named if different


def against(value: dict, rows: list[dict]) -> str:
    """Returns the table of runs compared with one. rows: what `speclab report --against RUN --jsonl` prints."""
    cells = {cell["run"]: c | cell | {"sampling": c["sampling"]} for c in value["comparisons"] for cell in c["cells"]}
    other = cells[rows[0]["against"]]
    lines = [paragraph(f"Compared with run {other['run']}: {other['drafter']}; {other['rule']} ({other['experiment']}, {other['sampling']},"
                       f" batch {other['batch']})", _WIDE),
             "=" * _WIDE,
             "               tokens/s    acceptance, points           tokens/step                  TTFT",
             " run              ratio            difference            difference                 ratio prompts"]  # fmt: skip
    columns = (("speed_ratio", 1, 21), ("acceptance_difference", 100, 22), ("tokens_per_step_difference", 1, 21), ("ttft_ratio", 1, 21))
    for row in rows:
        cell = cells[row["run"]]
        numbers = "".join(f"{figure_with_interval(row, name, factor):>{n}}" for name, factor, n in columns)
        words = [_name(cell), *(f"{word}{cell[key]}" for key, word in _SETTINGS.items() if cell[key] != other[key])]
        words += [] if row["in_pairs"] else ["by prompt: in no pair with it"]
        lines += [f"{_number(cell):>5}{numbers}{row['prompts']:7}", paragraph("; ".join(words), _WIDE, 8)]
    lines += ["", paragraph("Each run over the one above, or less it, with 95 % intervals by prompt (docs/results.md). tokens/s: decode. Pairs: over"
                            " the texts that both decoded in the same paired runs, so that the machine's state cancels; by prompt: over all texts of"
                            " the prompts that both have.", _WIDE)]  # fmt: skip
    return "\n".join([*lines, ""])
