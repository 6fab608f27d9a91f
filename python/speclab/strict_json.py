"""strict_json - JSON as core/json.h reads and writes it. It needs the standard library alone."""

import json
import math
import re
from collections.abc import Iterator
from typing import IO, Any, NoReturn

from speclab.command import Fault

LINE = 64 << 20  # maximum bytes of a line, unless a caller sets another limit


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        again = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise ValueError(f'duplicate object key "{again[:100]}"')
    return members


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) < 20 else None
    return value if value is not None and -(2**63) <= value < 2**63 else _real(digits)


def _real(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("real number overflow")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"invalid token {name}")


def parse(text: bytes | str, lenient: bool = False) -> Any:
    """Returns the value. Duplicate keys, NaN and lone surrogates are errors; an integer of more than 64 bits is a
    float. lenient: NaN and Infinity, which Python writes, are null. Raises ValueError, which may have `lineno` and
    `colno`."""
    try:
        line = text if isinstance(text, str) else text.decode()
        constant = (lambda _: None) if lenient else _constant
        value = json.loads(line, object_pairs_hook=_members, parse_int=_integer, parse_float=_real, parse_constant=constant)
        if "\\ud" in line or "\\uD" in line:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as why:
        raise json.JSONDecodeError(f"unable to decode byte 0x{text[why.start]:02x}", text.decode(errors="replace"), why.start - 1) from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def reason(why: ValueError) -> str:
    return f"not valid JSON: {why.msg if isinstance(why, json.JSONDecodeError) else why}"


def loads(text: bytes | str, path: str, line: int = 1, lenient: bool = False, more: str = "") -> Any:
    """Parses a text that begins at this line of a file. Raises Fault, which adds `more`."""
    try:
        return parse(text, lenient)
    except ValueError as why:
        line += getattr(why, "lineno", 1) - 1
        raise Fault(f"{path}:{line}:{getattr(why, 'colno', 1)}: {reason(why)}{more}") from None


def lines_of(path: str, to: IO[bytes], most: int = LINE, lenient: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields the values of a file's lines, each with "file:LINE". Raises Fault."""
    for number, line in enumerate(iter(lambda: to.readline(most + 1), b""), 1):
        if len(line) > most:
            raise Fault(f"{path}:{number}: expected a line of at most {most >> 20} MiB, found more")
        text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").removesuffix(b"\n")
        if text.strip():
            cut = "" if line.endswith(b"\n") else "; the file ends in this line: is it complete?"
            yield f"{path}:{number}", loads(text, path, number, lenient, cut)


def is_number(x: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and least <= x <= most


def described(value: Any) -> str:
    """Returns what a value is, for messages."""
    names = {type(None): "nothing", bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")


def _number(x: float) -> str:
    if not math.isfinite(x):
        return "null"
    text = re.sub(r"e\+?(-?)0*", r"e\1", f"{x:.17g}")
    return text if "." in text or "e" in text else text + ".0"


def dumps(value: Any) -> str:
    """Returns JSON on one line with all 17 digits of a number; U+FFFD for a byte that is no UTF-8."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(k)}:{dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(str(v) if type(v) is int else dumps(v) for v in value) + "]"
    text = re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(value, ensure_ascii=False))
    if "\\u" not in text:  # a control character, whose digits are capital letters
        return text
    return re.sub(r"\\(u....|.)", lambda m: "\\u" + m[1][1:].upper() if m[1][0] == "u" else m[0], text)
