"""markdown - texts in a cell or a paragraph of GitHub's Markdown (GFM). It needs the standard library alone."""

import re


def escaped(text: str, signs: str = r"\\`*_<|#~$\[") -> str:
    """Returns the text with a backslash before characters that may have a meaning, a space for a control character,
    U+FFFD for a byte that is no UTF-8."""
    return re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\x01-\x1f]", " ", re.sub(f"[{signs}]", r"\\\g<0>", text)))


def code(text: str) -> str:
    """Returns the text as code. Within code neither a backslash before a bar nor a backquote can be escaped; such a
    name is plain text."""
    return escaped(text) if "`" in text or "\\|" in text or not text else f"`{escaped(text, '|')}`"
