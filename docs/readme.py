#!/usr/bin/env python3
"""readme.py README.md < CSV: writes the table of the demo between the README's markers, from `speclab report --csv`; see `./run readme`."""
import csv
import re
import sys

rows = list(csv.DictReader(sys.stdin))
first = rows[0]
lines = [f"`./run demo` on {first['machine']}, revision {first['revision'][:12]} (`./run readme` writes this table):", "",
         "| sampling | drafter | tokens/s | speedup over `none` (95 % interval) | tokens per step | texts equal to those of `none` |",
         "|---|---|--:|--:|--:|---|"]
for r in rows:
    speedup = "1" if r["drafter_kind"] == "none" else "%.2f [%.2f, %.2f]" % tuple(float(r[k]) for k in ("speedup", "speedup_low", "speedup_high"))
    greedy = r["sampling"] == "temperature=0"
    equal = "" if r["drafter_kind"] == "none" else f"{r['equal_texts']} of {r['compared_texts']}" if greedy else "equal in distribution"
    lines.append("| %s | `%s` | %.1f | %s | %.2f | %s |" %
                 (r["sampling"], r["drafter"].replace("../heads/", ""), float(r["tokens_per_s"]), speedup, float(r["tokens_per_step"]), equal))
lines += ["", "Rows of one temperature were run side by side; tokens/s of different temperatures were measured at different times."]
path = sys.argv[1]
with open(path, encoding="utf-8") as f:
    text = f.read()
begin, end = "<!-- demo: written by ./run readme -->\n", "<!-- /demo -->"
assert begin in text and end in text, f"{path}: expected the markers {begin!r} and {end!r}"
with open(path, "w", encoding="utf-8") as f:
    f.write(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + "\n".join(lines) + "\n" + end, text, flags=re.S))
