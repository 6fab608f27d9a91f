"""distill - a target writes training text for its drafters, by `generate --prompts -`. It needs the standard library
alone.
"""

import dataclasses
import json
import signal
import sys
import time
from typing import IO, Any

from speclab import engine, files
from speclab.command import Fault, Misuse, Options, integer, number, placed
from speclab.digest import content_hash
from speclab.texts.distillation import DROPS, NUMBERS, Exclusions, Output, Plan, Planned, words_of

MIN_WORDS, BLANK = 3, " \t\r\n"

_ABOUT = """\
The target writes training text for its own drafters: answers to the prompts of --prompts files (question, turns,
prompt or messages, as in experiments), and with --invent N conversations whose user's turn it writes itself, at
temperature 1, from the chat template's beginning. Each conversation is a line of FILE: id, conversations, input_ids
(what the model saw and wrote), loss_mask (1: written as an answer), temperature, seed. FILE.dropped says which
conversations were not written, and why. The same command continues what was interrupted."""

_EXAMPLES = r"""
  speclab distill smollm2-135m-instruct --invent 1000 --out data.jsonl
  speclab distill smollm2-135m-instruct --prompts questions.jsonl --invent 8000 --tokens 3000000 \
      --exclude experiments/data/prompts.jsonl --out data.jsonl""".lstrip("\n")

# Options for `generate`
_PASSED_ON = ("threads", "device", "activations", "cache", "packed", "chat", "chat_template_kwargs", "context", "seed")


def _options() -> Options:
    o = Options("distill", _ABOUT, _EXAMPLES)
    o.option("--out", metavar="FILE", required=True, help="the lines are appended to this file; needed")
    o.add_argument("--prompts", metavar="FILE", action="append", default=[], help="prompts to answer, JSON lines; can be given several times")
    o.option("--invent", metavar="N", type=integer(0, 2**31 - 1), default=0, help="conversations to invent; default: 0")
    o.option("--samples", metavar="N", type=integer(1, 1 << 20), default=1, help="answers to each prompt; default: 1")
    o.option("--temperatures", metavar="LIST", type=lambda text: [number(0, 1e9)(t) for t in text.split(",")], default=[0.0, 0.7, 1.0],
             help="of the answers, in rotation; default: 0,0.7,1")  # fmt: skip
    o.add_argument("--exclude", metavar="FILE", action="append", default=[],
                   # fmt: skip.
                   help="JSON lines: prompts that share 13 words in a row with one of its texts are dropped; can be given several times")
    o.option("--tokens", metavar="N", type=integer(1), help="start no conversation once FILE has N answer tokens; default: no limit")
    o.option("--new-tokens", metavar="N", type=integer(1, 1 << 24), default=512, help="maximum number of tokens of a text; default: 512")
    o.option("--context", metavar="N", type=integer(2, 1 << 24), help="maximum length of a conversation; default: the model's, at most 2048")
    o.option("--slots", metavar="N", type=integer(1, 256), default=64, help="texts decoded at a time; default: 64")
    o.option("--seed", metavar="N", type=integer(0, 2**63 - 1), default=0, help="seed of all random numbers; default: 0")
    o.option("--threads", metavar="N", type=integer(1, 1024), help="number of threads; default: one for each processor")
    for name in ("device", "activations", "cache", "packed", "chat", "chat-template-kwargs"):
        o.option(f"--{name}", metavar="X", help="as of `speclab generate --help`")
    o.add_argument("model", metavar="MODEL")
    return o


def _writer(o: Any) -> engine.Process:
    """Returns the engine, which answers prompts as they end, in any order."""
    words = ["generate", "--prompts", "-", "--jsonl", f"--batch={o.slots}", f"--tokens={o.new_tokens}"]
    words += [f"--{k.replace('_', '-')}={v}" for k in _PASSED_ON if (v := getattr(o, k)) is not None]
    return engine.Process(*words, "--", o.model)


@dataclasses.dataclass
class Conversation:
    """A conversation under way; `line`: complete, until lower numbers are known."""

    planned: Planned
    user: str = ""  # the invented turn
    inventing: bool = False
    line: dict[str, Any] | None = None


def _text(answer: dict[str, Any]) -> str:
    """Cuts a message at a NUL."""
    return answer["text"].split("\0")[0]


class Distillation:
    """Writes the conversations of the plan that are missing in the output."""

    def __init__(self, o: Any, plan: Plan, exclusions: Exclusions, writer: engine.Process, known: dict[str, Any], output: Output):
        self.o, self.plan, self.exclusions, self.writer, self.known, self.output = o, plan, exclusions, writer, known, output
        self.under_way: dict[int, Conversation] = {}
        self.invented: dict[tuple[str, ...], int] = {}  # lowest index with these user's words; -1: a given prompt
        self.greedy: dict[Any, int] = {}  # lowest index with all these messages of a prompt that is answered at
                                         # temperature 0
        self.written = self.cut = self.answer_tokens = self.decoded = self.shortened = 0
        self.began = self.shown = time.monotonic()
        for _, given in plan.prompts:
            self._note(given.turns[0], -1)
        for id, user in output.known:
            if id.startswith("invented-") and user:
                self._note(user, int(id.removeprefix("invented-")))

    def _note(self, user: str, index: int) -> bool:
        """Returns whether no lower number has this user's turn."""
        words = words_of(user)
        self.invented[words] = min(index, self.invented.get(words, index))
        return self.invented[words] == index

    def _drop_of(self, p: Planned) -> str | None:
        """Returns why a prompt is not answered."""
        if p.given is None:
            return None
        key = (tuple(p.given.history), tuple(p.given.turns))
        if p.temperature == 0 and self.greedy.setdefault(key, p.index) < p.index:
            return "repeated"
        return "excluded" if any(map(self.exclusions.match, p.given.users())) else None

    def _request(self, c: Conversation, prompt: dict[str, Any], temperature: float) -> None:
        self.under_way[c.planned.number] = c
        self.writer.send(json.dumps({"id": c.planned.id, "number": c.planned.number, "temperature": temperature, **prompt}))

    def _start(self, p: Planned) -> None:
        if p.given is None:
            self._request(Conversation(p, inventing=True), {"messages": [{"role": "user"}]}, 1.0)
        else:
            self._request(Conversation(p), p.given.prompt, p.temperature)

    def _drop(self, c: Conversation, why: str) -> None:
        del self.under_way[c.planned.number]
        self.output.put({"id": c.planned.id, "reason": why, "user": c.user})

    def _invented(self, c: Conversation, answer: dict[str, Any]) -> str | None:
        """Takes the user's turn; returns why the conversation is dropped."""
        c.user, c.inventing = _text(answer).strip(BLANK), False
        if answer["stop"] != "end":
            return "unended"
        if len(words_of(c.user)) < MIN_WORDS:
            return "short"
        if answer["special"]:
            return "special"
        if not self._note(c.user, c.planned.index):
            return "repeated"
        return "excluded" if self.exclusions.match(c.user) else None

    def _take(self, line: dict[str, Any]) -> None:
        c, answers = self.under_way[line["number"]], line["answers"]
        self.decoded += sum(a["tokens"] for a in answers)
        if c.inventing and answers:
            if why := self._invented(c, answers[0]):
                return self._drop(c, why)
            return self._request(c, {"messages": [{"role": "user", "content": c.user}]}, c.planned.temperature)
        for a in answers:
            if not _text(a).strip(BLANK) or a["special"]:
                return self._drop(c, "special" if _text(a).strip(BLANK) else "empty")
        if "unanswered" in line:
            return self._drop(c, line["unanswered"])
        c.line = line

    def _write(self, c: Conversation) -> None:
        if c.planned.given is None and not self._note(c.user, c.planned.index):
            return self._drop(c, "repeated")
        del self.under_way[c.planned.number]
        mask, answers = c.line["loss_mask"], c.line["answers"]
        self.output.put({"id": c.planned.id, "conversations": c.line["messages"], "input_ids": c.line["input_ids"], "loss_mask": mask,
                         "temperature": c.planned.temperature, "seed": self.o.seed})  # fmt: skip
        self.written, self.cut, self.answer_tokens = self.written + 1, self.cut + (answers[-1]["stop"] != "end"), self.answer_tokens + mask.count(1)
        self.shortened += c.planned.given is not None and len(answers) < len(c.planned.given.turns)

    def run(self) -> None:
        plan = iter(self.plan)
        most = self.o.slots + self.o.slots // 8 + 1  # a slot is filled while others continue
        while True:
            waiting = [c for c in self.under_way.values() if c.line]
            pending = sum(c.line["loss_mask"].count(1) for c in waiting) if self.o.tokens else 0
            while len(self.under_way) - len(waiting) < most and not (self.o.tokens and self.output.answer_tokens + pending >= self.o.tokens):
                if (p := next(plan, None)) is None:
                    break
                why = self._drop_of(p)
                if p.id not in self.output.done:
                    self.output.put({"id": p.id, "reason": why, "user": ""}) if why else self._start(p)
            if len(self.under_way) == len(waiting):
                return
            self._take(self.writer.next())
            unknown = min((c.planned.index for c in self.under_way.values() if c.inventing), default=NUMBERS)
            for c in [c for c in self.under_way.values() if c.line and (c.planned.given or c.planned.index < unknown)]:
                self._write(c)
            if sys.stderr:
                self._show(sys.stderr)

    def _show(self, to: IO[str]) -> None:
        now = time.monotonic()
        if now - self.shown < (1 if to.isatty() else 30):
            return
        self.shown, seconds = now, now - self.began
        ended = self.written / seconds
        left = f"{(len(self.plan) - len(self.output.done)) / ended:.0f} s" if ended else "unknown time"
        line = (f"{self.output.conversations} conversations, {self.output.answer_tokens} answer tokens, "
                # fmt: skip.
                f"{self.answer_tokens / seconds:.1f} tokens/s ({self.decoded / seconds:.1f} with invented turns), {left} left")
        print(f"\r{line}\033[K" if to.isatty() else line, end="" if to.isatty() else "\n", file=to, flush=True)

    def summarize(self) -> None:
        if sys.stderr and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(f"{self.o.out}: {self.output.conversations} conversations, {self.output.answer_tokens} answer tokens")
        for why, n in self.output.dropped.items():
            if n:
                print(f"{n} dropped: {DROPS[why]}")
        s = time.monotonic() - self.began
        print(f"this run: {self.written} conversations, {self.cut} cut at the limit; {self.answer_tokens} answer tokens in {s:.1f} s, "
              f"{self.answer_tokens / s:.1f} tokens/s ({self.decoded / s:.1f} with invented turns) in {self.o.slots} slots, activations "
              f"{self.known['activations']}, cache {self.known['cache']}")  # fmt: skip
        if self.shortened:
            print(f"{self.shortened} of them without all turns of their prompts: an answer was cut, or the chat template writes it otherwise once "
                  "a turn follows")  # fmt: skip


def _settings(o: Any, plan: Plan, known: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that decide the text of a conversation with a given id, and which ids there are; limits can
    be raised later."""
    chat = known["chat"] if known["chat"].startswith("jinja ") else o.chat or "auto"
    return {"format": "speclab-distill-1", "model": known["config_hash"], "activations": known["activations"], "cache": known["cache"],
            "chat": chat, "prompts": plan.hashes, "samples": o.samples,
            "exclude": [content_hash(files.read(path, files.TEXTS)) for path in o.exclude],
            # fmt: skip.
            "temperatures": plan.temperatures, "new_tokens": o.new_tokens, "context": known["context"], "seed": o.seed}


def _exclusions(paths: list[str]) -> Exclusions:
    e = Exclusions()
    for path in paths:
        with placed(kind=Misuse):
            without = e.read(path)
        if without:
            engine.say(f"{path}: {without} line{'s' * (without > 1)} without text exclude{'s' * (without == 1)} nothing")
    return e


def main(words: list[str]) -> int:
    o = _options().read(words)
    if not o.prompts and not o.invent:
        raise Misuse("nothing to write: expected --prompts FILE, --invent N, or both")
    plan = Plan(o.prompts, o.samples, o.temperatures, o.invent)
    exclusions = _exclusions(o.exclude)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    writer = _writer(o)
    try:
        known = writer.next()["settings"]
        if o.invent and known["chat"] == "none":
            raise Fault("--invent needs a chat template with a user's turn that a model can write, found --chat none")
        d = Distillation(o, plan, exclusions, writer, known, Output(o.out, _settings(o, plan, known)))
        try:
            d.run()
        except KeyboardInterrupt:
            raise Fault("interrupted") from None
        finally:
            d.summarize()
    finally:
        writer.close()
    return 0
