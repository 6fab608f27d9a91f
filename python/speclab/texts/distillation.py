"""distillation - what `distill` plans, leaves out and stores. It needs the standard library alone.

FILE                 a JSON line for each conversation, written by one write as it ends
FILE.dropped         {"id", "reason", "user"}: conversations that are not written, with the reason
FILE.settings.json   the settings that decide their texts; another run must agree

A line that a killed run left incomplete is cut.
"""

import dataclasses
import fcntl
import io
import mmap
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from speclab import files
from speclab.command import Fault, Misuse, placed
from speclab.digest import content_hash
from speclab.strict_json import described, dumps, lines_of, loads

NUMBERS = 1 << 25  # largest number of conversations that `generate --prompts` takes
EXCLUDED_WORDS = 13
DROPS = {
    "excluded": "a user's turn shares 13 words in a row with an excluded file", "repeated": "repeats an earlier prompt",
    "short": "an invented turn of fewer than 3 words", "unended": "an invented turn that did not end",
    "special": "a special token within a text", "empty": "an empty answer, or a prompt of which the template makes no text",
    "long": "a prompt that does not fit into the context"}  # fmt: skip

# Runs of letters and digits. Punctuation of ASCII and of U+2000 to U+207F only separates words; every other character
# is a letter.
_WORD = re.compile("[0-9A-Za-z\x80-\x9f\xa1-\u1fff\u2080-\U0010ffff]+")
_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
NO_TEXT = {"id", "question_id", "task_id", "category", "role", "entry_point", "import"}


def words_of(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.translate(_LOWER)))


# ---- prompts


@dataclasses.dataclass
class Given:
    """A prompt of a file: in the form that `generate` takes, the user's turns, and the messages before."""

    id: str
    prompt: dict[str, Any]
    turns: list[str]
    history: list[tuple[str, str]]  # role, content

    def users(self) -> list[str]:
        return [text for role, text in self.history if role == "user"] + self.turns


def _text(text: Any, what: str) -> str:
    if not isinstance(text, str) or not text or "\0" in text:
        raise Fault(f"{what}: expected a text, found {'an empty one' if text == '' else described(text)}")
    return text


def _given(line: Any, number: int) -> Given:
    if not isinstance(line, dict):
        raise Fault(f"expected a JSON object, found {described(line)}")
    forms = [key for key in ("turns", "messages", "input_ids", "prompt", "question") if line.get(key) is not None]
    if len(set(forms) - {"question"}) > 1:
        raise Fault(f"expected one of {forms[0]} and {forms[1]}, found both")
    name = next((line[key] for key in ("question_id", "id", "task_id") if line.get(key) is not None), number)
    raw = all(isinstance(line.get(key), str) for key in ("prompt", "task_id", "entry_point"))
    if raw or forms[:1] == ["input_ids"]:
        what = "a completion (task_id and entry_point), which no chat template renders" if raw else "token ids"
        raise Fault(f"prompt {name} is {what}: expected a conversation (question, turns, prompt or messages)")
    value = line[forms[0]] if forms else None
    if not forms or (forms[0] == "turns" and (not isinstance(value, list) or not value)):
        raise Fault(f"expected one of turns, messages, input_ids, prompt or question, found {described(value) if forms else 'none of them'}")
    if forms[0] != "messages":
        turns = [_text(text, f"{forms[0]}[{i}]") for i, text in enumerate(value)] if isinstance(value, list) else [_text(value, forms[0])]
        return Given(str(name), {forms[0]: value}, turns, [])
    if not isinstance(value, list) or not value or any(not isinstance(m, dict) for m in value) or value[-1].get("role") != "user":
        raise Fault("messages: expected a list of messages, the last of the user, each an object with role and content")
    for i, m in enumerate(value):
        if m.get("role") not in ("system", "user", "assistant")[i > 0 :]:
            raise Fault(f"messages[{i}]: expected the role system (at the beginning), user or assistant, found {described(m.get('role'))}")
        _text(m.get("content"), f"messages[{i}].content")
    return Given(str(name), {"messages": value}, [value[-1]["content"]], [(m["role"], m["content"]) for m in value[:-1]])


@dataclasses.dataclass
class Planned:
    """A conversation. `number`, which does not depend on the other kind, selects random numbers; `index` is the
    position within its kind."""

    id: str
    number: int
    index: int
    temperature: float
    given: Given | None  # None: an invented conversation


class Plan:
    """Plans which conversations are written, and in which order; a pure function of its inputs.

    Answers to given prompts (each `samples` times) and conversations that the target invents alternate in proportion,
    so that every prefix is the same mixture. All prompts come once before any comes again. Temperatures rotate within
    each kind, and over the samples of a prompt.
    """

    def __init__(self, paths: list[str], samples: int, temperatures: list[float], invented: int):
        """Raises Misuse if a file has no prompts, or something that is no conversation."""
        self.hashes: list[str] = []
        self.prompts: list[tuple[str, Given]] = []  # prompts with the beginning of their ids
        self.samples, self.temperatures, self.invented = samples, temperatures, invented
        for path in paths:
            with placed(kind=Misuse):
                self._read(path, dict(zip(self.hashes, paths, strict=False)))
        if self.given >= NUMBERS // 2 or invented >= NUMBERS // 2:
            raise Misuse(f"expected at most {NUMBERS // 2} answers, and as many inventions; found {self.given} and {invented}")

    def _read(self, path: str, earlier: dict[str, str]) -> None:
        data = files.read(path, files.TEXTS, stream=True)
        content, found = content_hash(data), dict[str, str]()
        for place, line in lines_of("stdin" if path == "-" else path, io.BytesIO(data)):
            with placed(f"{place}: "):
                given = _given(line, len(found))
                if given.id in found:
                    raise Fault(f'expected a unique id, found "{given.id}", which {found[given.id]} has')
            self.prompts.append((f"{content[:8]}-{len(found)}", given))
            found[given.id] = place
        if not found:
            raise Fault(f"{path}: expected prompts, found none")
        if content in earlier:
            raise Fault(f"--prompts {path}: has the content of {earlier[content]}")
        self.hashes.append(content)

    @property
    def given(self) -> int:
        return len(self.prompts) * self.samples

    def __len__(self) -> int:
        return self.given + self.invented

    def __iter__(self) -> Iterator[Planned]:
        kinds = len(self.temperatures)
        for position in range(len(self)):
            # Number of given conversations before and after this position.
            before, after = (p * self.given // len(self) for p in (position, position + 1))
            if after > before:
                sample, prompt = divmod(before, len(self.prompts))
                name, given = self.prompts[prompt]
                yield Planned(f"{name}-{sample}", 2 * before, before, self.temperatures[(prompt + sample) % kinds], given)
            else:
                index = position - before
                yield Planned(f"invented-{index}", 2 * index + 1, index, self.temperatures[index % kinds], None)


# ---- texts that no prompt may share


class Exclusions:
    """The texts of evaluation files, with which no prompt may share 13 consecutive words: the overlap by which GPT-3's
    authors looked for their test sets in its training data (Brown et al. 2020, arXiv 2005.14165, appendix C). A text of
    fewer words matches as a whole only."""

    def __init__(self) -> None:
        self.runs: set[int] = set()  # hashes of 13 words each

    def _runs(self, value: Any) -> Iterator[int]:
        """Returns the runs of words in all texts of a JSON value, whatever their keys, except ids and categories."""
        if isinstance(value, (dict, list)):
            for v in value if isinstance(value, list) else (v for key, v in value.items() if key not in NO_TEXT):
                yield from self._runs(v)
        elif isinstance(value, str) and (words := words_of(value)):
            yield from (hash(words[i : i + EXCLUDED_WORDS]) for i in range(max(1, len(words) - EXCLUDED_WORDS + 1)))

    def read(self, path: str) -> int:
        """Adds all texts of a file of JSON Lines; returns the number of lines without any. Raises Fault."""
        without, texts = 0, False
        with files.open_input(path) as f:
            for place, line in lines_of(path, f):
                if not isinstance(line, dict):
                    raise Fault(f'{place}: expected a JSON object, as in {{"text": "..."}}')
                found = set(self._runs(line))
                self.runs |= found
                without, texts = without + (not found), texts or bool(found)
        if not texts:
            raise Fault(f"{path}: expected texts to exclude, found none")
        return without

    def match(self, text: str) -> bool:
        return bool(self.runs) and any(run in self.runs for run in self._runs(text))


# ---- the files


class Output:
    """FILE and the files next to it. A line that is no conversation, settings that differ, and a file that another
    process writes are Faults."""

    def __init__(self, path: str, settings: dict[str, Any]):
        self.path, self.done, self.fd = path, set[str](), dict[str, int]()
        self.conversations = self.answer_tokens = 0
        self.dropped = dict.fromkeys(DROPS, 0)
        self.known: list[tuple[str, str]] = []  # id and first user's text of what the file has
        for name in (path, f"{path}.dropped"):
            self.fd[name] = _open_lines(name)
            if name == path:
                self._check(settings)
            with open(name, "rb") as f:
                for place, line in lines_of(name, f):
                    self._note(place, line, name == path)

    def _check(self, settings: dict[str, Any]) -> None:
        name = f"{self.path}.settings.json"
        if not os.path.exists(name):
            if os.path.getsize(self.path):
                raise Fault(f"{self.path} is not empty and has no {name}: expected a file that distill has begun, or a new one")
            files.write(name, dumps(settings) + "\n")
            return
        then = loads(files.read(name), name)
        for key, value in settings.items():
            old, new = (dumps(v)[:200] for v in (then.get(key) if isinstance(then, dict) else None, value))
            if old != new:
                raise Fault(f"{self.path} was begun with {key} {old}, found {new}: the same options continue it, another --out begins anew")

    def _note(self, place: str, line: Any, written: bool) -> None:
        line = line if isinstance(line, dict) else {}
        id, mask, messages, why = (line.get(key) for key in ("id", "loss_mask", "conversations", "reason"))
        if written and not (isinstance(id, str) and isinstance(mask, list) and isinstance(messages, list)):
            raise Fault(f"{place}: expected a conversation with id, conversations and loss_mask")
        if not written and not (isinstance(id, str) and why in DROPS):
            raise Fault(f"{place}: expected an id and a reason that distill knows")
        if id in self.done:
            raise Fault(f'{place}: expected each id once, found "{id}" again')
        self.done.add(id)
        if written:
            self.conversations += 1
            self.answer_tokens += mask.count(1)
        else:
            self.dropped[why] += 1
        users = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"] if written else [line.get("user")]
        self.known.append((id, users[0] if users and isinstance(users[0], str) else ""))

    def put(self, line: dict[str, Any]) -> None:
        """Writes a conversation, or with a reason one that is left out. It is one write, so that a killed process
        leaves whole lines, or a torn last one."""
        name, data = f"{self.path}.dropped" if "reason" in line else self.path, dumps(line).encode() + b"\n"
        with placed(f"{name}: cannot write: "):
            n = os.write(self.fd[name], data)
        if n < len(data):
            raise Fault(f"{name}: cannot write: a line of {len(data)} bytes, of which {n} fit")
        self._note(name, line, name == self.path)


def _open_lines(path: str) -> int:
    """Returns a descriptor of a file that no other process writes, without a torn last line. Raises Fault."""
    with placed(f"{path}: cannot write it: "):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Fault(f"{path}: expected a regular file, which a later run can continue")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Fault(f"{path}: another process writes it") from None
    if os.fstat(fd).st_size:
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as lines:
            whole = lines.rfind(b"\n") + 1
        os.ftruncate(fd, whole)
    return fd
