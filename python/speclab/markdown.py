"""markdown - texts in a cell or a paragraph of GitHub's Markdown (GFM). Standard library alone."""

import re


def escaped(text: str, signs: str = r"\\`*_<|#~$\[") -> str:
    """A backslash before what may mean something, a space for a control character, U+FFFD for a byte that is no UTF-8."""
    return re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\x01-\x1f]", " ", re.sub(f"[{signs}]", r"\\\g<0>", text)))


def code(text: str) -> str:
    """The text as code. A backslash before a bar cannot be escaped there, nor a backquote: such a name is plain text."""
    return escaped(text) if "`" in text or "\\|" in text or not text else f"`{escaped(text, '|')}`"
