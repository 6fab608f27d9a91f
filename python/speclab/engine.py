"""engine - calls the engine's program; its message on stderr becomes a Fault. It needs the standard library alone."""

import argparse
import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from speclab import files
from speclab.command import Fault, Misuse, Options
from speclab.printable import printable


def failure(status: int, said: str) -> Fault:
    """Returns the last sentence on stderr of a program that has failed."""
    sentence = re.sub(r"^speclab \w+: ", "", said.strip().rpartition("\n")[2])
    return (Misuse if status == 2 else Fault)(sentence or f"the engine ended with status {status}, without a message")


def call(*words: str, lines: Iterable[Any] | None = None) -> str:
    """Returns stdout of `speclab WORD ..`. lines: JSON values for stdin; None: stdin is this process's own. Raises
    Fault or Misuse with the engine's sentence."""
    given = None if lines is None else "".join(json.dumps(x) + "\n" for x in lines)
    done = subprocess.run([files.program(), *words], input=given, capture_output=True, encoding="utf-8", errors="surrogateescape")
    if done.returncode != 0:
        raise failure(done.returncode, done.stderr)
    return done.stdout


def objects(*words: str, lines: Iterable[Any] | None = None) -> list[Any]:
    """Returns the JSON values of `call`, one a line."""
    return [json.loads(line) for line in call(*words, lines=lines).split("\n") if line]


def print_text(word: str, words: Sequence[str], text: Callable[[Any], str]) -> int:
    """Prints the text of the JSON value of `speclab WORD --json ..`, also of one that failed, and its help without
    --json. Returns its exit status."""
    if "--help" in words[: words.index("--") if "--" in words else None]:
        print(call(word, "--json", "--help"), end="")
        return 0
    done = subprocess.run([files.program(), word, "--json", *words], capture_output=True, encoding="utf-8", errors="surrogateescape")
    if done.stdout:
        print(text(json.loads(done.stdout)), end="", flush=True)
    sys.stderr.write(done.stderr)
    return done.returncode


def report(path: str, experiment: str | None = None) -> dict[str, Any]:
    """Returns what `speclab report --json` prints of a database: {"disturbed": a sentence or "", "comparisons": [..]}.

    A comparison has its settings (runs that can be compared have the same target, sampling, prompts, limits and batch)
    as words, and `cells` in the order of the tables: none, then lossless ones, the fastest first, then lossy ones.
    """
    return json.loads(call("report", f"--db={path}", "--json", *([f"--experiment={experiment}"] if experiment is not None else [])))


def tables(options: Options, words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Reads a word's options with --plugin among them. Returns them, and the engine's tables of words, drafters, rules,
    stages and keys of experiments, with what the plugins add."""
    options.add_argument("--plugin", metavar="FILE", action="append", default=[], help="also what this plugin registers")
    got = options.read(words)
    return got, json.loads(call("--tables", *(word for file in got.plugin for word in ("--plugin", file))))


def say(text: str) -> None:
    """Prints a line on stderr, if that is open."""
    if sys.stderr:
        print(printable(text), file=sys.stderr, flush=True)


class Process:
    """The engine as a process that gets requests as lines and answers with JSON values, one a line, in any order. Its
    failure is a Fault with its sentence."""

    def __init__(self, *words: str):
        self.word, self.said, self.answers = words[0], "", queue.SimpleQueue[Any]()
        self.process = subprocess.Popen([files.program(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        encoding="utf-8", errors="surrogateescape")  # fmt: skip
        self.threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_messages)]
        for thread in self.threads:
            thread.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.endswith("\n"):  # a part of a line means that the process was killed
                self.answers.put(json.loads(line))
        self.answers.put(None)

    def _read_messages(self) -> None:
        for line in self.process.stderr:
            if line.startswith(f"speclab {self.word}: "):
                self.said = line
            else:
                say(line.rstrip("\n"))

    def send(self, line: str) -> None:
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def next(self) -> Any:
        """Returns the next answer."""
        if (answer := self.answers.get()) is None:
            raise self._failure()
        return answer

    def _failure(self) -> Fault:
        status = self.process.wait()
        self.threads[1].join()
        return failure(status, self.said)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
