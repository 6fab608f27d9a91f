"""list - drafters, rules and sampling stages with their options in text, from what `speclab list --json` prints. This
file needs the standard library alone.
"""
# without --json

from collections.abc import Sequence
from typing import Any

from speclab import engine

Row = dict[str, Any]
TAKES = {"deterministic": "deterministic draft tokens", "sampled": "sampled draft tokens",
         "sampled_without_replacement": "siblings sampled without replacement"}  # fmt: skip
HEADINGS = {"drafters": ("Drafter", "Drafters: propose draft tokens (--drafter, `drafter:` in an experiment)"),
            "rules": ("Rule", "Rules: accept or reject draft tokens (--rule, `rule:`)"),
            "stages": ("Sampling stage", "Sampling stages, in the order of application (--temperature and so on, `sampling:`)")}  # fmt: skip


def _value(o: Row) -> str:
    """Returns an option's type, range and default. Bounds of a million and more only exclude nonsense."""
    low, high = o["min"], o["max"]
    text = " ".join([o["type"], ", ".join(o.get("choices", []))]).rstrip()
    if low is not None and low > -1e6:
        text += f" from {low:g} to {high:g}" if high < 1e6 else f", at least {low:g}"
    return text + ("; required" if o["required"] else f"; default: {'none' if o['default'] is None else o['default']}")


def _rule(r: Row) -> list[str]:
    kinds = ", ".join(TAKES[kind] for kind in r["takes"] if kind in TAKES)
    shapes = "chains and trees" if "trees" in r["takes"] else "one chain or several" if "chains" in r["takes"] else "single chains"
    lines = [f"      {'exact' if r['exact'] else 'lossy: does not preserve the target' + chr(39) + 's distribution'}; takes {kinds}: {shapes}"]
    return lines + [f"      optimal acceptance for: {r['optimal']}"] * (r["optimal"] is not None)


def _entry(what: str, e: Row) -> list[str]:
    lines = [f"  {e['name']}: {e['summary']}"]
    if what == "stages":  # its single value
        return [*lines, f"      {e['options'][0]['help']}", f"      {_value(e['options'][0])}"]
    lines += _rule(e) if what == "rules" else []
    return lines + [line for o in e["options"] for line in (f"      {o['name']:<11}  {o['help']}", f"{'':19}{_value(o)}")]


def text(j: Row, only: bool) -> str:
    """only: entries have been named, and each gets its kind as a heading."""
    lines: list[str] = []
    for what, (kind, heading) in HEADINGS.items():
        lines += [*[""] * bool(lines), heading, ""] * (not only)
        lines += [line for e in j[what] for line in [*[kind] * only, *_entry(what, e)]]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str]) -> int:
    # a registry without an entry: a name has been given
    return engine.print_text("list", words, lambda j: text(j, not all(j.values())))
