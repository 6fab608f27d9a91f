#!/usr/bin/env python3
"""readme.py README.md demo < MARKDOWN, readme.py README.md drafters < CSV: writes tables of `speclab report` between the README's markers; see
`./run readme`."""
import csv
import re
import sys


def interval(row):
    return "%.2f [%.2f, %.2f]" % tuple(float(row[k]) for k in ("speedup", "speedup_low", "speedup_high"))


def drafters(rows):
    """A line for each kind of drafter, which occurs once in each experiment; two columns for each experiment and temperature."""
    first, cell = rows[0], {(r["experiment"], r["sampling"], r["drafter_kind"]): r for r in rows}
    assert len(cell) == len(rows), "expected each kind of drafter once in each experiment and at each temperature"
    columns = list(dict.fromkeys((r["experiment"], r["sampling"], r["target"]) for r in rows))
    for r in rows:
        assert r["sampling"] != "temperature=0" or r["equal_texts"] == r["compared_texts"], f"{r['drafter']}: texts differ from those of none"
    lines = [f"Every drafter on Spec-Bench's prompts ({first['prompt_file'].split()[0]}; `experiments/drafters`), "
             f"{first['machine']}, revision {first['revision'][:12]}: speedup over `none` (95 % interval), tokens per step. "
             "`./run readme drafters` writes this table.", "",
             "| drafter | " + " | ".join(f"{target}, {s.replace('temperature=', 'T = ')} |" for _, s, target in columns),
             "|---|" + "--:|--:|" * len(columns)]
    for kind in dict.fromkeys(r["drafter_kind"] for r in rows if r["drafter_kind"] != "none"):
        of = [cell.get((e, s, kind)) for e, s, _ in columns]
        lines.append(f"| `{kind}` | " + " | ".join(f"{interval(r)} | {float(r['tokens_per_step']):.2f}" if r else " | " for r in of) + " |")
    return [*lines, "", "All greedy texts are equal to those of `none`. The time of `oracle`'s drafts is not counted."]


path, table = sys.argv[1], sys.argv[2]
lines = sys.stdin.read().splitlines() if table == "demo" else drafters(list(csv.DictReader(sys.stdin)))
with open(path, encoding="utf-8") as f:
    text = f.read()
begin, end = f"<!-- {table}: written by ./run readme" + (" -->\n" if table == "demo" else f" {table} -->\n"), f"<!-- /{table} -->"
assert begin in text and end in text, f"{path}: expected the markers {begin!r} and {end!r}"
with open(path, "w", encoding="utf-8") as f:
    f.write(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + "\n".join(lines) + "\n" + end, text, flags=re.S))
