"""names - drafters' names in tables and pictures: "small(model=a, tokens=2)" and its parts, and what varies in a sweep.
It needs the standard library alone.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Characters that move or hide others: controls except the line's end, directions, separators of lines and paragraphs,
# lone surrogates, noncharacters.
_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SPACES = re.compile("[\x00-\x1f\x7f]")


def plain(text: Any, most: int = 0) -> str:
    """Returns text that people wrote on one line: no controls, at most `most` characters with an ellipsis at the end
    (0: any number)."""
    text = _HIDDEN.sub("\ufffd", _SPACES.sub(" ", str(text)))
    return text if not most or len(text) <= most else text[: most - 1] + "…"


def split(text: str, opening: str = "[{", closing: str = "]}", quote: str = "") -> tuple[list[str], bool]:
    """Returns the text between commas outside brackets and quotes, and whether each bracket and quote has its other
    half."""
    parts, depth, quoted, paired = [""], 0, False, True
    for c in text:
        quoted ^= c == quote
        depth += 0 if quoted else (c in opening) - (c in closing)
        paired = paired and depth >= 0
        if c == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return parts, paired and depth == 0 and not quoted


class Name(NamedTuple):
    """A drafter's name: its kind, and the options that are not at their defaults, in the form of reports."""

    kind: str
    options: dict[str, str]

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.kind}({shown})" if shown else self.kind


def of_run(drafter: str, kind: str, options: str) -> Name:
    """Returns the name in the columns of a run. A name that these options do not make is a kind without options, since
    a stranger's database may contain anything."""
    try:
        found = Name(kind, json.loads(options))
        return found if str(found) == drafter else Name(drafter, {})
    except (ValueError, AttributeError, RecursionError):
        return Name(drafter, {})


def without(name: Name, keys: Iterable[str]) -> Name:
    """Returns the name without the options of these keys."""
    keys = set(keys)
    return Name(name.kind, {k: v for k, v in name.options.items() if k not in keys})


def label(name: Name, others: Iterable[Name]) -> str:
    """Returns "eagle3 tokens=3": without the options that all of `others` of its kind have; paths without folders,
    lists without spaces."""
    alike = [other.options.items() for other in others if other.kind == name.kind]
    own = [f"{k}={v}" for k, v in name.options.items() if not alike or any((k, v) not in other for other in alike)]
    return " ".join([name.kind, *(re.sub("=.*/", "=", o) if "[" not in o else o.replace(", ", ",") for o in own)])


def _value(value: Any) -> str | None:
    if isinstance(value, str) or value == []:
        return value or None
    simple = isinstance(value, int | float) or (isinstance(value, list) and all(isinstance(v, int | float) for v in value))
    return json.dumps(value) if simple else None


def in_full(names: Sequence[Name], settings: Sequence[Mapping[str, Any]]) -> list[Name]:
    """Returns the names of a sweep's drafters, each with a value for every key that another of its kind names, and
    whose values differ within the kind.

    settings: every option of each drafter, including those at their default. A name leaves out defaults:
    "small(tokens=2)", "small".
    """
    kinds: dict[str, dict[str, set]] = {}
    for name in names:
        kinds.setdefault(name.kind, {}).update((k, set()) for k in name.options)
    for name, own in zip(names, settings, strict=True):
        for k, values in kinds[name.kind].items():
            values.add(_value(own.get(k)))
    full = []
    for name, own in zip(names, settings, strict=True):
        order = {k: i for i, k in enumerate(own)}
        options = list(name.options.items())
        for k, values in kinds[name.kind].items():
            if k not in name.options and len(values) > 1 and (value := _value(own.get(k))) is not None:
                options.insert(sum(order.get(o, -1) < order[k] for o, _ in options), (k, value))
        full.append(Name(name.kind, dict(options)))
    return full
