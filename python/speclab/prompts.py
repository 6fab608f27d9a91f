"""prompts - turns an entry of a dataset into a line of a prompt file (engine/prompts.h), and selects entries. It needs
the standard library alone.
"""

import argparse
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from speclab.command import Fault, Misuse, placed
from speclab.datasets import DATASETS, Dataset, keys_text
from speclab.files import read_text
from speclab.strict_json import described, dumps, loads

MAX_PROMPTS, MAX_TURNS = 1 << 18, 64  # engine/prompts.h
MOST = 1 << 24  # maximum bytes in addition to the longest field: a template may name it any number of times
REASONS = (OTHER_CATEGORY, OTHER_SPLIT, SHORT, LONG, EMPTY, SYSTEM, ROLE, ORDER, TURNS, NO_ANSWER) = (
    "of another category", "of another split", "shorter than --min-characters", "longer than --max-characters", "without a prompt",
    "with a system message", "with a message of another role than the user and the model",
    "whose user and model do not alternate, the user first", f"with more than {MAX_TURNS} turns (--turns N keeps the first N)",
    "without an answer")  # fmt: skip

# A SPEED-Bench entry has this instead of a text that may not be passed on (NVIDIA's specdec_bench).
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
# LongBench v2's marks, from which it strips blanks.
_MARKS = {"DOC": "context", "Q": "question", "C_A": "choice_A", "C_B": "choice_B", "C_C": "choice_C", "C_D": "choice_D"}
_PLACE = re.compile(r"\$(?P<mark>DOC|Q|C_[ABCD])\$|\{(?P<keys>[a-zA-Z_|]+)(?P<list>\[\])?\}")
# MBPP's task ids.
_SPLITS = {"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
# roles, and whether they are the user's.
_ROLES = {"human": True, "user": True, "gpt": False, "chatgpt": False, "bing": False, "bard": False, "assistant": False}
_WORD64 = (1 << 64) - 1


class LeftOut(Exception):
    """Says that an entry is no prompt, with the reason. `mend`: what is wrong with it in a dataset that nobody
    collected."""

    def __init__(self, why: str, mend: str = ""):
        super().__init__(why)
        self.mend = mend


@dataclasses.dataclass
class Choice:
    """Which entries become prompts, and how."""

    dataset: Dataset
    template: str  # name of the template
    text: Callable[[dict[str, Any]], str]  # function that makes an entry's text
    completion: bool
    options: argparse.Namespace  # options of `import`: answers, turns, min_characters, max_characters, split, category


@dataclasses.dataclass
class Prompt:
    """A line, and the values that are compared: `number` is the entry's over all files, `place` its position in them.
    """

    number: int
    place: str
    id: str
    category: str
    turns: tuple[str, ...]
    line: str


def field(entry: dict[str, Any], keys: str | None) -> tuple[str, Any]:
    """Returns the first of the keys a|b whose value is not null, and the value; otherwise the first key and None."""
    names = (keys or "").split("|")
    return next(((k, entry[k]) for k in names if k and entry.get(k) is not None), (names[0], None))


def text_of(value: Any, what: str) -> str:
    """Returns a text without NULs, which prompts cannot have. Raises Fault."""
    if not isinstance(value, str) or "\0" in value:
        raise Fault(f"{what}: expected a text, found {'a NUL character in it' if isinstance(value, str) else described(value)}")
    return value


def turn_of(value: Any, what: str) -> str:
    """Returns a text that is not blank."""
    if not text_of(value, what).strip(" \t\r\n\f\v"):
        raise LeftOut(EMPTY, f"{what}: expected a text, found an empty one")
    return value


def list_of(value: Any, what: str, kind: str) -> list[Any]:
    if not isinstance(value, list):
        raise Fault(f"{what}: expected a list of {kind}, found {described(value)}")
    return value


def _check_keys(d: Dataset, entry: dict[str, Any]) -> None:
    """Checks that all of d's keys are present, null or not, and that no other dataset has more keys that are. Raises
    Fault."""

    def lacks(o: Dataset) -> str | None:
        return next((keys for keys in o.keys.split() if not any(k in entry for k in keys.split("|"))), None)

    missing, expected = lacks(d), f"expected an entry of {d.name}"
    others = [o for o in DATASETS.values() if d.name in DATASETS and not lacks(o)]
    most = max(others, key=lambda o: len(o.keys.split()), default=d)
    looks = f"this looks like {most.name} ({keys_text(most.keys)})"
    if missing:
        raise Fault(f"{missing}: {expected} ({keys_text(d.keys)}), found none{f'; {looks}' if most is not d else ''}")
    if len(most.keys.split()) > len(d.keys.split()):
        raise Fault(f"{expected}, found more: {looks}")


# ---- turns and answers


def _expanded(c: Choice, entry: dict[str, Any]) -> str:
    """Returns the turn of a template. The text of its first field is the prompt: if that is blank, there is none."""
    longest = size = 0

    def text(m: re.Match) -> str:
        nonlocal longest, size
        key, value = field(entry, _MARKS.get(m["mark"]) or m["keys"])
        if m["list"]:
            value = "\n".join(text_of(v, key) for v in list_of(value, key, "texts"))
        found = (text_of if size else turn_of)(value, key)
        n = len(found.encode())
        longest, size = max(longest, n), size + n
        if size - longest > MOST:
            raise Fault(f"expected a template that adds at most {MOST} bytes to the longest field, found {c.template}, which adds more")
        return found.strip() if m["mark"] else found

    turn = _PLACE.sub(text, c.text(entry))
    if not turn:
        raise Fault(f"expected a template of {c.template} that writes a prompt, found an empty one")
    return turn


def _listed(c: Choice, entry: dict[str, Any]) -> list[str]:
    key, value = field(entry, c.dataset.turns)
    turns = [turn_of(turn, f"{key}[{i}]") for i, turn in enumerate(list_of(value, key, "texts")[: c.options.turns])]
    for i, turn in enumerate(turns):
        if turn.startswith(_PLACEHOLDER):
            source = entry["source"] if isinstance(entry.get("source"), str) else "its source"
            raise Fault(f"{key}[{i}]: expected a prompt, found NVIDIA's placeholder for a text of {source}; `python3 prepare_data.py --dataset "
                        # fmt: skip.
                        "speed --config CONFIG` of Model-Optimizer/examples/specdec_bench writes a file with it")
    if not 0 < len(turns) <= MAX_TURNS:
        found = f"at most {MAX_TURNS}, found {len(turns)} (--turns N keeps the first N)" if turns else "a list of texts, found an empty one"
        raise Fault(f"{key}: expected {found}")
    return turns


def _messages(c: Choice, entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Turns a list of messages, or one instruction, into the user's turns; the model's messages are answers."""
    key, messages = field(entry, "conversations|conversation")
    if messages is None and entry.get("instruction") is not None:
        return [turn_of(entry["instruction"], "instruction")], [entry["response"]] if isinstance(entry.get("response"), str) else []
    turns: list[str] = []
    answers: list[str] = []
    for i, m in enumerate(list_of(messages, key, "messages")):
        if len(answers) == c.options.turns:
            break
        if not isinstance(m, dict):
            raise Fault(f"{key}[{i}]: expected an object with from and value, found {described(m)}")
        role, value = text_of(m.get("from"), f"{key}[{i}].from"), text_of(m.get("value"), f"{key}[{i}].value")
        if role == "system" and not value.strip(" \t\r\n\f\v"):
            continue
        if role not in _ROLES:
            raise LeftOut(SYSTEM if role == "system" else ROLE)
        if _ROLES[role] != (len(turns) == len(answers)):
            raise LeftOut(ORDER)
        if _ROLES[role]:
            turns.append(turn_of(value, key))
        else:
            answers.append(value)
    if not turns:
        raise LeftOut(EMPTY, f"{key}: expected a text, found an empty one")
    if len(turns) > MAX_TURNS:
        raise LeftOut(TURNS)
    return turns, answers


def _answers(d: Dataset, entry: dict[str, Any], answers: list[Any], turns: int) -> list[str]:
    value, what = entry.get(d.answer) if d.answer else None, d.answer or "answer"
    answers = answers + ([value] if isinstance(value, str) else value[:turns] if isinstance(value, list) else [])
    if not answers:
        raise LeftOut(NO_ANSWER, f"{what}: expected an answer (--answers), found none")
    return [text_of(a, what) for a in answers]


# ---- a line


def _id(d: Dataset, entry: dict[str, Any], number: int) -> str | int:
    key, value = field(entry, d.id)
    if value is None:
        return f"{d.name}/{number}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{d.name}/{value}" if d.numbered else value
    if not value or not isinstance(value, str):
        raise Fault(f"{key}: expected a text or an integer, found {'an empty text' if value == '' else described(value)}")
    return text_of(value, key)


def _category(d: Dataset, entry: dict[str, Any]) -> str:
    key, value = field(entry, d.category)
    category = (text_of(value, key) if value is not None else "") or d.name
    if d.categories and category not in d.categories:
        raise Fault(f'category: expected one of {d.name}\'s, such as {d.categories[0]}, found "{category}"; Spec-Bench has more of them')
    return category


def _made(c: Choice, entry: dict[str, Any], number: int, place: str) -> Prompt:
    d, o = c.dataset, c.options
    _check_keys(d, entry)
    category = _category(d, entry)
    if o.category and category not in o.category:
        raise LeftOut(OTHER_CATEGORY)
    if o.split and entry.get("task_id") not in _SPLITS[o.split]:
        raise LeftOut(OTHER_SPLIT)
    if c.completion:
        text_of(entry.get("entry_point"), "entry_point")
    turns, answers = _messages(c, entry) if d.messages else (_listed(c, entry) if d.turns else [_expanded(c, entry)], [])
    characters = sum(map(len, turns))
    if characters < (o.min_characters or 0):
        raise LeftOut(SHORT)
    if o.max_characters and characters > o.max_characters:
        raise LeftOut(LONG)
    if o.answers:
        answers = _answers(d, entry, answers, len(turns))
    id = _id(d, entry, number)
    line = {"task_id" if c.completion else "id": id, "category": category}
    line |= {"entry_point": entry["entry_point"], "prompt": turns[0]} if c.completion else {"turns": turns}
    return Prompt(number, place, str(id), category, tuple(turns), dumps(line | ({"answer": answers} if o.answers else {})))


def prompt_of(c: Choice, entry: Any, number: int, place: str) -> Prompt:
    """Raises LeftOut; Fault with the place, if the entry is not like the dataset's entries."""
    with placed(f"{place}: "):
        if not isinstance(entry, dict):
            raise Fault(f"expected an object, found {described(entry)}")
        try:
            return _made(c, entry, number, place)
        except LeftOut as left:
            if left.mend and not c.dataset.collected:
                raise Fault(left.mend) from None
            raise


def choice(d: Dataset, o: argparse.Namespace) -> Choice:
    """Returns the choice that the options of `import` make. --template names one of the dataset's, or a file of its own
    ones. Raises Misuse."""
    name = d.templates[0].name if o.template is None else o.template
    if o.template is None and d.template_file:
        raise Misuse(f"missing --template: expected {d.name}'s own file of templates ({d.template_file}), or --template {name}")
    known = d.template(name)
    if known:
        return Choice(d, name, known.of, known.completion, o)
    if not d.template_file or not os.path.exists(name):
        names = ", ".join(t.name for t in d.templates)
        raise Misuse(f"--template: expected one of {d.name}'s ({names}){' or a file of templates' * bool(d.template_file)}, found \"{name}\"")
    with placed(kind=Misuse):
        templates = loads(read_text(name), name) if name.endswith(".json") else read_text(name)
    if not isinstance(templates, dict if name.endswith(".json") else str):
        raise Misuse(f"{name}: expected an object with a template for each task, found {described(templates)}")
    base = os.path.basename(name)

    def of_category(entry: dict[str, Any]) -> str:
        key = d.category or ""
        category = entry.get(key) if isinstance(entry.get(key), str) else ""
        text = templates.get(category, templates.get(category.removesuffix("_e")))  # LongBench-E's tasks have the
                                                                                   # templates of LongBench's
        if not isinstance(text, str):
            raise Fault(f'{key}: expected one that {base} has a template for, found "{category}"')
        return text

    return Choice(d, base, of_category if isinstance(templates, dict) else lambda _: templates, False, o)


# ---- the selection


def without_repetitions(prompts: list[Prompt], collected: bool) -> tuple[list[Prompt], int]:
    """Removes and counts entries with the id or the text of an earlier one if the dataset is a collected one. Otherwise
    a repeated id is a Fault, and repeated texts are counted and kept."""
    repeated = 0
    for key in ("id", "turns"):
        first: dict[Any, Prompt] = {}
        kept = []
        for p in prompts:
            earlier = first.setdefault(getattr(p, key), p)
            if earlier is not p and key == "id" and not collected:
                raise Fault(f"{p.place}: expected an id that no other entry has, found that of {earlier.place}")
            repeated += earlier is not p
            if earlier is p or not collected:
                kept.append(p)
        prompts = kept
    return prompts, repeated


def _splitmix(seed: int, number: int) -> int:
    """Returns the result of call number + 1 of splitmix64 (Steele, Lea, Flood 2014) started at `seed`."""
    z = seed + (number + 1) * 0x9E3779B97F4A7C15 & _WORD64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD64
    return z ^ z >> 31


def limited(prompts: list[Prompt], per_category: int | None, limit: int | None, seed: int | None) -> list[Prompt]:
    """Takes `per_category` prompts of each category, and `limit` of these: the first ones, or with a seed those of the
    smallest ranks, so that a smaller sample is part of a larger one."""
    by_rank = sorted(prompts, key=lambda p: p.number if seed is None else _splitmix(seed, p.number))
    if per_category:
        taken: dict[str, Iterator[int]] = {}
        by_rank = [p for p in by_rank if next(taken.setdefault(p.category, itertools.count())) < per_category]
    return sorted(by_rank[:limit], key=lambda p: p.number)
