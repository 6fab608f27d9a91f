#!/usr/bin/env python3
"""readme.py PAGE demo|drafters < CSV: writes a table of `speclab report --csv` between the page's markers; see `./run readme`."""
import csv
import re
import sys


def interval(row):
    return "%.2f [%.2f, %.2f]" % tuple(float(row[k]) for k in ("speedup", "speedup_low", "speedup_high"))


def drafters(rows):
    """A line for each kind of drafter, which occurs once in each experiment; a column for each experiment and temperature."""
    first, cell = rows[0], {(r["experiment"], r["sampling"], r["drafter_kind"]): r for r in rows}
    assert len(cell) == len(rows), "expected each kind of drafter once in each experiment and at each temperature"
    columns = list(dict.fromkeys((r["experiment"], r["sampling"], r["target"]) for r in rows))
    for r in rows:
        assert r["sampling"] != "temperature=0" or r["equal_texts"] == r["compared_texts"], f"{r['drafter']}: texts differ from those of none"
    lines = [f"Every drafter on Spec-Bench's prompts ({first['prompt_file'].split()[0]}; `experiments/drafters`), "
             f"{first['machine']}, revision {first['revision'][:12]}: speedup over `none` (95 % interval); tokens per step. "
             "`./run readme drafters` writes this table.", "",
             "| drafter | " + " | ".join(f"{target}, {s.replace('temperature=', 'T = ')}" for _, s, target in columns) + " |",
             "|---|" + "--:|" * len(columns)]
    for kind in dict.fromkeys(r["drafter_kind"] for r in rows if r["drafter_kind"] != "none"):
        of = [cell.get((e, s, kind)) for e, s, _ in columns]
        lines.append(f"| `{kind}` | " + " | ".join(f"{interval(r)}; {float(r['tokens_per_step']):.2f}" if r else "" for r in of) + " |")
    return [*lines, "", "All greedy texts are equal to those of `none`. The time of `oracle`'s drafts is not counted."]


def demo(rows):
    """Four lines: plain decoding, a lookup, a head, and both, at temperature 0."""
    rows = {r["drafter_kind"]: r for r in rows if r["sampling"] == "temperature=0"}
    first = rows["none"]
    lines = ["| drafter | tokens/s | speedup | tokens/step | accepted | texts equal to plain decoding's |", "|---|--:|--:|--:|--:|--:|"]
    for kind in ("none", "ngram", "eagle3", "ladder"):
        r = rows[kind]
        assert r["equal_texts"] == r["compared_texts"], f"{r['drafter']}: texts differ from those of none"
        of_none = [interval(r), f"{100 * float(r['acceptance_rate']):.0f} %", f"{r['equal_texts']} of {r['compared_texts']}"] if kind != "none" else ["1", "", ""]
        lines.append(f"| `{kind}` | {float(r['tokens_per_s']):.0f} | {of_none[0]} | {float(r['tokens_per_step']):.2f} | {of_none[1]} | {of_none[2]} |")
    return [*lines, "", f"`./run demo`, its greedy half: SmolLM2-135M-Instruct, {first['prompts']} prompts, {first['machine']}; speedups with 95 % intervals "
            "(`./run readme` writes this; all drafters: [docs/drafters.md](docs/drafters.md#what-each-gains))."]


path, table = sys.argv[1], sys.argv[2]
lines = {"demo": demo, "drafters": drafters}[table](list(csv.DictReader(sys.stdin)))
with open(path, encoding="utf-8") as f:
    text = f.read()
begin, end = f"<!-- {table}: written by ./run readme" + (" -->\n" if table == "demo" else f" {table} -->\n"), f"<!-- /{table} -->"
assert begin in text and end in text, f"{path}: expected the markers {begin!r} and {end!r}"
with open(path, "w", encoding="utf-8") as f:
    f.write(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + "\n".join(lines) + "\n" + end, text, flags=re.S))
