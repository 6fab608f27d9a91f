"""engine - calls of the engine's program; what it says on stderr becomes a Fault. Standard library alone."""

import json
import re
import subprocess
from collections.abc import Iterable
from typing import Any

from speclab import files
from speclab.command import Fault, Misuse


def failure(status: int, said: str) -> Fault:
    """The last sentence on stderr of a program that has failed."""
    sentence = re.sub(r"^speclab \w+: ", "", said.strip().rpartition("\n")[2])
    return (Misuse if status == 2 else Fault)(sentence or f"the engine ended with status {status}, without a message")


def call(*words: str, lines: Iterable[Any] | None = None) -> str:
    """stdout of `speclab WORD ..`. lines: what stdin has, JSON values; None: this process' own. Raises Fault or Misuse with the engine's sentence."""
    given = None if lines is None else "".join(json.dumps(x) + "\n" for x in lines)
    done = subprocess.run([files.program(), *words], input=given, capture_output=True, encoding="utf-8", errors="surrogateescape")
    if done.returncode != 0:
        raise failure(done.returncode, done.stderr)
    return done.stdout


def objects(*words: str, lines: Iterable[Any] | None = None) -> list[Any]:
    """The JSON values of `call`, one a line."""
    return [json.loads(line) for line in call(*words, lines=lines).split("\n") if line]
