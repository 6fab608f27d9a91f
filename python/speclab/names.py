"""names - drafters' names in tables and pictures: "small(model=a, tokens=2)" and its parts, and what varies in a sweep. Standard library alone."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Characters that move or hide others: controls but the line's end, directions, separators of lines and paragraphs, lone surrogates, noncharacters.
_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SPACES = re.compile("[\x00-\x1f\x7f]")


def plain(text: Any, most: int = 0) -> str:
    """Text as people wrote it on one line: no controls, at most `most` characters with an ellipsis at the end (0: any number)."""
    text = _HIDDEN.sub("\ufffd", _SPACES.sub(" ", str(text)))
    return text if not most or len(text) <= most else text[: most - 1] + "…"


def split(text: str, opening: str = "[{", closing: str = "]}", quote: str = "") -> tuple[list[str], bool]:
    """The text between commas outside brackets and quotes; and whether each bracket and quote has its other half."""
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


def parts(drafter: str) -> tuple[str, list[str]]:
    """Kind and options ("tokens=3") of a name; a name of another form is a kind without options."""
    kind, bracket, rest = drafter.partition("(")
    if bracket and rest.endswith(")") and drafter.count(",") <= 10000:
        options, paired = split(rest[:-1], "([{", ")]}", '"')
        if paired:
            return kind, [option.strip(" ") for option in options]
    return drafter, []


def put_together(kind: str, options: Sequence[str]) -> str:
    return f"{kind}({', '.join(options)})" if options else kind


def key(option: str) -> str:
    return option.partition("=")[0]


def without(drafter: str, keys: Iterable[str]) -> str:
    """The name without the options of these keys."""
    kind, options = parts(drafter)
    keys = set(keys)
    return put_together(kind, [o for o in options if key(o) not in keys])


def label(drafter: str, others: Iterable[str]) -> str:
    """ "eagle3 tokens=3": without the options that all of `others` of its kind have; paths without folders, lists without spaces."""
    kind, options = parts(drafter)
    common = None
    for other, its in map(parts, others):
        if other == kind:
            common = set(its) if common is None else common & set(its)
    own = [o for o in options if o not in (common or ())]
    return " ".join([kind, *(re.sub("=.*/", "=", o) if "[" not in o else o.replace(", ", ",") for o in own)])


def _value(value: Any) -> str | None:
    if isinstance(value, str) or value == []:
        return value or None
    simple = isinstance(value, int | float) or (isinstance(value, list) and all(isinstance(v, int | float) for v in value))
    return json.dumps(value) if simple else None


def in_full(drafters: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of a sweep's drafters, each with a value for every key that another of its kind names, and whose values differ among the kind.

    settings: every option of each drafter, those at their default among them. A name leaves out what is at its default: "small(tokens=2)", "small".
    """
    named = [parts(d) for d in drafters]
    kinds: dict[str, dict[str, set]] = {}
    for kind, options in named:
        values = kinds.setdefault(kind, {})
        for o in options:
            values.setdefault(key(o), set())
    for (kind, _), own in zip(named, settings, strict=True):
        for k, values in kinds[kind].items():
            values.add(_value(own.get(k)))
    full = []
    for (kind, options), own in zip(named, settings, strict=True):
        order = {k: i for i, k in enumerate(own)}
        have = {key(o) for o in options}
        for k, values in kinds[kind].items():
            if k not in have and len(values) > 1 and (value := _value(own.get(k))) is not None:
                place = sum(order.get(key(o), -1) < order[k] for o in options)
                options.insert(place, f"{k}={value}")
        full.append(put_together(kind, options))
    return full
