"""command - what all words of `./run` share: options, errors in one sentence, output that a terminal can show.

It needs the standard library alone, since words that run on a bare machine import it.
"""

import argparse
import contextlib
import difflib
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from speclab.printable import PrintableStream, printable


class Fault(Exception):
    """A sentence for the person at the terminal: file, line or key, what was expected, what was found. Exit status 1.
    """

    status = 1


class Misuse(Fault):
    """A call or an input that cannot have a meaning. Exit status 2."""

    status = 2


@contextlib.contextmanager
def placed(before: str = "", kind: type[Fault] = Fault) -> Iterator[None]:
    """Puts these words before a Fault of the block, or before a message of the system, and makes it of this kind."""
    try:
        yield
    except (Fault, OSError) as why:
        raise kind(f"{before}{why if isinstance(why, Fault) else why.strerror}") from None


class _Once(argparse.Action):
    """An option that can be given once."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = namespace.__dict__.setdefault("_given", set())
        if self.dest in given:
            raise Misuse(f"{option_string} is given twice; expected it once")
        given.add(self.dest)
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


class Options(argparse.ArgumentParser):
    """The options and operands of a word. `option` and `flag` add options that can be given once."""

    def __init__(self, word: str, about: str, examples: str = ""):
        super().__init__(
            prog=f"speclab {word}", description=about, epilog=examples and "Examples:\n" + examples, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip

    def option(self, name: str, **how: Any) -> None:
        self.add_argument(name, action=_Once, **how)

    def flag(self, name: str, **how: Any) -> None:
        self.add_argument(name, action=_Once, nargs=0, default=False, **how)

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (-[-\w]+)(/\S+)?: ", r"\1: ", message)
        message = re.sub(r"^(-\S+): expected (one|at least one) argument$", r"\1 requires a value", message)
        message = re.sub(r"^(-\S+): invalid choice: (.*) \(choose from (.*)\)$", self._choice, message)
        raise Misuse(message.replace("the following arguments are required: ", "missing argument: "))

    @staticmethod
    def _choice(m: re.Match) -> str:
        known = "|".join(re.findall(r"[\w.-]+", m[3]))
        return f'{m[1]}: expected one of {known}, found "{m[2].strip(chr(39))}"'

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Reads the words after the command's. Raises Misuse."""
        if "--help" in words[: words.index("--") if "--" in words else None]:  # also where an option's value is missing
            self.print_help()
            raise SystemExit(0)
        if "--" in words:  # argparse takes it for one if operands are between options; no word of a call begins with a
                          # NUL
            i = list(words).index("--")
            last = self._option_string_actions.get(words[i - 1]) if i else None
            if last is not None and last.nargs != 0:
                raise Misuse(f"{words[i - 1]} requires a value")
            words = [*words[:i], *(f"\0{word}" for word in words[i + 1 :])]
        got, rest = self.parse_known_intermixed_args(words)  # operands may be between options
        for key, value in vars(got).items():
            setattr(got, key, [_operand(v) for v in value] if isinstance(value, list) else _operand(value))
        rest = list(map(_operand, rest))
        if not rest:
            return got
        if not rest[0].startswith("-"):
            usage = " ".join(self.format_usage().split()).removeprefix("usage: ")
            raise Misuse(f'unexpected argument "{rest[0]}": {usage}')
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        name = rest[0].split("=")[0]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help lists all options"
        raise Misuse(f"unknown option {name}; {hint}")


def _operand(value: Any) -> Any:
    return value.removeprefix("\0") if isinstance(value, str) else value


def _ranged(expected: str, convert: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        with contextlib.suppress(ValueError, TypeError):
            if least <= (value := convert(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f'expected {expected}, found "{text}"')

    return read


def integer(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """Returns a type for options: an integer in a range, both ends included."""
    limits = f" from {least} to {most}" if most is not None else f" of at least {least}" if least is not None else ""
    digits = re.compile("[+-]?[0-9]+")
    most = (1 << 63) - 1 if most is None else most  # the range of SQLite's integers
    return _ranged(f"an integer{limits}", lambda text: int(digits.fullmatch(text)[0]), float("-inf") if least is None else least, most)


def number(least: float, most: float) -> Callable[[str], float]:
    """Returns a type for options: a number in a range, both ends included."""
    return _ranged(f"a number from {least:g} to {most:g}", float, least, most)


def note(word: str, sentence: str) -> None:
    """Prints a line on stderr, in the form of the engine's commands."""
    print(f"speclab {word}: {printable(sentence)}", file=sys.stderr, flush=True)


def _output_is_lost(word: str, why: OSError) -> int:
    if not isinstance(why, BrokenPipeError):
        note(word, f"cannot write to stdout: {why.strerror}")
    with contextlib.suppress(OSError):  # buffered output has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def _called(word: str, words: Sequence[str]) -> int:
    try:
        return importlib.import_module(f"speclab.words.{word.replace('-', '_')}").main(list(words)) or 0
    except Fault as fault:
        sys.stdout.flush()
        note(word, str(fault))
        return fault.status
    except ModuleNotFoundError as missing:
        note(word, f"needs the Python package {missing.name}: ./run {word} .. sets it up, as does pip install ./python")
    except ImportError as why:  # an installed library of a package cannot be mapped, for lack of memory for example
        note(word, f"cannot load the Python package {why.name or 'that it needs'}: {(str(why.__cause__ or why).strip().splitlines() or ['?'])[0]}")
    except (RecursionError, MemoryError) as why:
        note(word, "not enough memory" if isinstance(why, MemoryError) else "the input is nested too deeply")
    except OSError as why:
        if why.filename is None:
            raise
        note(word, f"{why.filename}: {why.strerror}")
    return 1


def _occupy_streams() -> None:
    """Opens closed standard streams. A file that is opened gets the smallest free number: if stdout were closed, the
    file would also get what a child prints."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if fd else os.O_WRONLY)


def call(word: str, words: Sequence[str]) -> int:
    """Runs a word of speclab.words and returns its exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
    """
    _occupy_streams()
    os.environ.pop("SPECLAB_TOOL", None)  # the engine that this word calls may hand over a plugin in Python
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # exceeding a file size limit is then a failed write
    sys.stdout = PrintableStream(sys.__stdout__)
    try:
        status = _called(word, words)
        sys.stdout.flush()
    except SystemExit as end:  # --help was given
        status = end.code if isinstance(end.code, int) else 1
        with contextlib.suppress(OSError):
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except OSError as why:
        return _output_is_lost(word, why)
    return status
