"""printable - text from outside on a terminal, escaped as in core/printable.h.

Control characters (C0, DEL, C1) and controls of direction become "\u001B", which is JSON's form, so JSON keeps its
value; a byte that is no UTF-8 becomes "\xE4". The file needs the standard library alone.
"""

import io
import re

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)|[\ud800-\udfff]")


def _escaped(m: re.Match) -> str:
    code = ord(m[0])
    return f"\\x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04X}"


def printable(text: str) -> str:
    """Returns the text with controls escaped; line ends and tabs are kept."""
    return _CONTROLS.sub(_escaped, text)


class PrintableStream(io.TextIOBase):
    """A text stream that writes what `printable` makes to another one. `None`: stdout is closed; writes fail."""

    def __init__(self, to: io.TextIOBase | None):
        self.to = to
        if isinstance(to, io.TextIOWrapper):
            to.reconfigure(encoding="utf-8", errors="surrogateescape")

    def write(self, text: str) -> int:
        if self.to is None:
            raise OSError(9, "Bad file descriptor")
        self.to.write(printable(text))
        return len(text)

    def flush(self) -> None:
        if self.to is not None:
            self.to.flush()

    def isatty(self) -> bool:
        return self.to is not None and self.to.isatty()

    def fileno(self) -> int:
        if self.to is None:
            raise io.UnsupportedOperation("closed")
        return self.to.fileno()
