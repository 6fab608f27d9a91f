"""python -m speclab WORD ... - runs a word of speclab.words; the engine's program runs every other word. This file
needs the standard library alone.
"""

# ruff: noqa: E402
import signal

_INTERRUPTIBLE = __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt while modules are imported must not print a traceback

import os
import pkgutil
import re
import sys
from pathlib import Path

from speclab import files, words
from speclab.command import Fault, call, note


def names() -> list[str]:
    """Returns the words of this package."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(words.__path__))


def options(word: str) -> list[tuple[list[str], list[str]]]:
    """Returns a module's lines "# with --a --b", "# without --c" and "# with --a without --c": the options of each."""
    lines = re.findall("^# (with(?:out)? -.*)$", Path(words.__path__[0], f"{word.replace('-', '_')}.py").read_text(), re.M)
    both = [line.removeprefix("with ").partition("without ") for line in lines]
    return [(some.split(), none.split()) for some, _, none in both]


def is_here(given: list[str]) -> bool:
    """Returns whether the words call this package: a module is its word's whole, or the word with one of the options
    `with` and none of the options `without` of one of these lines.
    """
    if not given or given[0] not in names():
        return False
    end = given.index("--") if "--" in given else len(given)
    here = {word.split("=")[0] for word in given[1:end]}
    lines = options(given[0])
    return not lines or any((not some or not here.isdisjoint(some)) and here.isdisjoint(none) for some, none in lines)


def has_plugin(given: list[str]) -> bool:
    """Whether the words name a plugin in Python, which the engine then has in this process."""
    given = given[: given.index("--")] if "--" in given else given
    return any(
        (a == "--plugin" and b.endswith(".py")) or (a.startswith("--plugin=") and a.endswith(".py"))
        for a, b in zip(given, [*given[1:], ""], strict=True)
    )


def main() -> int:
    given = sys.argv[1:]
    if files.checkout() is None:  # else `run` chooses it: the engine hands back what it meets in an experiment's file
        os.environ.setdefault("SPECLAB_PYTHON", sys.executable)
    if is_here(given):
        if _INTERRUPTIBLE:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = call(given[0], given[1:])
        if _INTERRUPTIBLE:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return status
    if has_plugin(given):
        try:
            from speclab import door

            return door.main(given)
        except Fault as fault:
            note(given[0] if given else "", str(fault))
            return 1
        except ModuleNotFoundError as missing:
            note(given[0] if given else "", f"plugins in Python need the Python package {missing.name}: ./run {given[0]} .. sets it up")
            return 1
    try:
        program = files.program()
    except Fault as fault:
        note(given[0] if given else "", str(fault))
        return 1
    os.execv(program, ["speclab", *given])


if __name__ == "__main__":
    sys.exit(main())
