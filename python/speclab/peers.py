"""peers - other engines in child processes, which `bench --compare` times in the rounds of the engine's own. Standard library alone.

peer_llama.py documents the line protocol, and implements it for llama.cpp.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from speclab.command import Fault

PAUSE = 0.025  # seconds: after its work an engine's threads may spin for some milliseconds before they sleep (libgomp's for about 15)
LINE = 1 << 20  # bytes: limit of a line


def end_with_parent() -> None:
    """In a child: it is killed when the process that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Peer:
    """Another engine. Its failures are Faults with its label."""

    def __init__(self, words: Sequence[str], label: str, options: Sequence[str] = ()):
        """words: program and arguments. options: "KEY=VALUE", for its model. Raises Fault."""
        self.label, self.options, self.name = label, options, ""
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, preexec_fn=end_with_parent)
        except OSError as why:
            raise Fault(f"the engine to compare with: {words[0]}: {why.strerror}") from None

    def close(self) -> None:
        """Closing its input ends it."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # it has ended
                stream.close()
        self.process.wait()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # shows as a missing answer
            self.process.stdin.write(text.encode(errors="surrogateescape"))
            self.process.stdin.flush()

    def _answer(self) -> str:
        line = self.process.stdout.readline(LINE)
        if not line:
            status = self.process.wait()
            how = signal.strsignal(-status) if status < 0 else f"exit status {status}"
            raise Fault(f"{self.label} ended without an answer ({how})")
        text = line.decode(errors="surrogateescape").rstrip("\r\n")
        if text.startswith("error "):
            raise Fault(text.removeprefix("error "))
        return text

    def open(self, lines: Sequence[str]) -> None:
        """Loads the model. lines: those of the protocol before "open". Raises Fault."""
        options = ["option " + option.replace("=", " ", 1) for option in self.options]
        self._say("\n".join([*lines, *options, "open", ""]))
        try:
            if any(line.startswith("slots ") for line in lines) and self._answer() != "slots":
                raise Fault(f"{self.label} does not run passes of several slots (--slots)")
            ready = self._answer()
            if not ready.startswith("ready "):
                raise Fault(f'{self.label}: expected "ready NAME", found "{ready}"')
        except Fault as fault:
            raise Fault(f"the engine to compare with: {fault}") from None
        self.name = ready.removeprefix("ready ")

    def seconds(self, request: str) -> float:
        """What the peer says a pass or a prompt took. Raises Fault."""
        time.sleep(PAUSE)
        self._say(request + "\n")
        answer = self._answer()
        try:
            took = float(answer)
        except ValueError:
            took = 0
        if not 0 < took < 1e6:
            raise Fault(f'{self.label}: expected seconds, found "{answer}"')
        return took


class Time(NamedTuple):
    """A measurement of a peer, as a row of the table bench_time."""

    round: int
    what: str
    context: int
    slots: int
    n: int
    peer: int
    ns: int


class Turns:
    """The peers' part of a bench. The engine announces each measurement, and takes it when `answer` has returned.

    Engines take a measurement one after the other; which begins rotates.
    """

    def __init__(self, peers: Sequence[Peer]):
        self.peers, self.times = peers, list[Time]()
        self.opening, self.round, self.turn, self.later = list[str](), -1, 0, list[Time]()

    def used(self) -> float:
        """Processor seconds that peers and this process have used so far."""
        groups, ticks = {p.process.pid for p in self.peers}, 0
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat") as f:
                        fields = f.read().rpartition(")")[2].split()
                except OSError:
                    continue  # it has ended
                ticks += int(fields[11]) + int(fields[12]) if int(fields[2]) in groups else 0
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()

    def _take(self, all_of: Sequence[Time]) -> None:
        for t in all_of:
            request = "prompt" if t.what == "prompt" else f"pass {t.n} {t.context}" + (f" {t.slots}" if t.slots > 1 else "")
            self.times.append(t._replace(ns=round(1e9 * self.peers[t.peer - 1].seconds(request))))

    def answer(self, line: str) -> str | None:
        """Takes the turn that a line of the engine announces, and returns what to answer; None: nothing. Raises Fault."""
        word, *rest = line.split(" ")
        if word not in ("open", "round", "end", "pass", "prompt", "draft"):
            self.opening.append(line)
            return None
        if word == "open":
            for peer in self.peers:
                peer.open(self.opening)
            return "0"
        self._take(self.later)
        self.later = []
        if word in ("round", "end"):
            self.round, self.turn = self.round + (word == "round"), 0
            return str(self.used())
        numbers = [int(x) for x in rest]
        n, context, slots = numbers if word == "pass" else (numbers + [0])[:1] + [0, 1]
        first, count = (self.turn + self.round) % (1 + len(self.peers)), 1 + len(self.peers)
        self.turn += 1
        if word != "draft":  # no peer takes draft steps
            order = [(first + k) % count for k in range(count)]
            rows = [Time(self.round, word, context, slots, n, peer, 0) for peer in order]
            own = order.index(0)
            self._take(rows[:own])
            self.later = rows[own + 1 :]
        return "0"
