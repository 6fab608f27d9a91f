"""settings - settings of drafters and rules in the form of the command line ("small:model=PATH,widths=[4,2]"), written
as YAML in one line.

They are dicts, lists and strings, as in core/settings.c: the engine reads numbers. The file needs the standard library
alone.
"""

import re

from speclab.command import Misuse
from speclab.names import split

Value = str | list | dict


def _value(text: str, what: str, whole: str) -> Value:
    if len(text) > 1 and text[0] + text[-1] == "[]":
        return [_value(part.strip(), what, whole) for part in split(text[1:-1])[0]] if text[1:-1].strip() else []
    if len(text) > 1 and text[0] + text[-1] == "{}":
        return _pairs(text[1:-1], ":", "KEY: VALUE", what, whole) if text[1:-1].strip() else {}
    return text


def _pairs(text: str, sign: str, form: str, what: str, whole: str) -> dict:
    to: dict = {}
    for part in split(text.removesuffix(","))[0] if text else []:
        key, found, value = part.partition(sign)
        key = key.strip() if sign == ":" else key
        if not found or not key:
            raise Misuse(f'{what}: expected {form}, found "{part.strip()}" in "{whole}"')
        if key in to:
            raise Misuse(f'{what}: "{key}" is given twice in "{whole}"')
        to[key] = _value(value.strip() if sign == ":" else value, what, whole)
    return to


def pairs(text: str, what: str) -> dict:
    """Reads "key=value,key=[a,b]". what: the option, for messages. Raises Misuse."""
    return _pairs(text, "=", "key=value", what, text)


def inline(text: str, what: str) -> dict:
    """Reads "KIND" or "KIND:key=value,..", with the kind under `kind`. Raises Misuse."""
    kind, _, rest = text.partition(":")
    if not kind:
        raise Misuse(f'{what}: expected a kind, found "{text}"')
    to = {"kind": kind} | _pairs(rest, "=", "key=value", what, text)
    if to["kind"] != kind:
        raise Misuse(f'{what}: "kind" is given twice in "{text}"')
    return to


def _escaped(m: re.Match) -> str:
    code = ord(m[0])
    return f"\\{m[0]}" if m[0] in '"\\' else f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}"


def written(s: Value | int) -> str:
    """Returns one line of YAML that reads back as the same settings."""
    if isinstance(s, dict):
        return "{" + ", ".join(f"{written(key)}: {written(value)}" for key, value in s.items()) + "}"
    if isinstance(s, list):
        return "[" + ", ".join(map(written, s)) + "]"
    text = str(s)
    plain = text and text == text.strip() and (text[0] not in "-?:!&*|>%@`'\"#" or re.match("-[0-9]", text))
    if plain and not re.search(r'[,\[\]{}:#"\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]', text):
        return text
    return '"' + re.sub(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]', _escaped, text) + '"'
