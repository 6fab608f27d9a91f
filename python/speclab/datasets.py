"""datasets - the datasets that `import` knows (datasets.toml), and how a Python file declares one more. It needs the
standard library alone.
"""

import dataclasses
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from speclab import user_file
from speclab.command import Misuse, placed


@dataclasses.dataclass(frozen=True)
class Template:
    """How a prompt is made from an entry. {key} stands for the text of a field, {a|b} for the first of them that the
    entry has, {key[]} for a list's texts, each on a line. `text` None: the entry's text unchanged."""

    name: str
    text: str | None = None
    source: str = ""  # project that uses it
    without: str | None = None  # the text if the field `input` is missing or empty
    completion: bool = False  # code to continue, which no chat template renders

    def of(self, entry: dict[str, Any]) -> str:
        value = entry.get("input")
        missing = value is None or (isinstance(value, str) and not value.strip(" \t\r\n\f\v"))
        return (self.without if missing else None) or self.text or ""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The fields that entries have. Keys are separated by spaces; a|b is one of them."""

    name: str
    keys: str  # keys that every entry has; they tell a dataset's file from another's
    templates: tuple[Template, ...]  # the first is the default, unless template_file is given
    what: str = ""
    source: str = ""  # place of its publication
    licence: str = ""
    id: str | None = None  # None: an entry's number after the dataset's name
    category: str | None = None  # the dataset's name, if an entry has none
    answer: str | None = None  # the reference answer; for messages the other side's
    turns: str | None = None  # the key of a list of the user's turns
    messages: bool = False  # entries are lists of messages with `from` and `value`, or one instruction
    categories: tuple[str, ...] = ()  # all categories that exist; empty: any
    numbered: bool = False  # its ids are bare numbers: the dataset's name goes before them
    collected: bool = False  # gathered from the web or by a model: entries without a usable prompt are left out and
                            # counted
    template_file: str | None = None  # --template FILE: where the dataset's own templates are published
    rows: Callable[[str], Iterable[dict[str, Any]]] | None = None  # reads a file; None: JSON Lines, a JSON list, gzip,
                                                                  # parquet

    def template(self, name: str) -> Template | None:
        return next((t for t in self.templates if t.name == name), None)


def _known() -> dict[str, Dataset]:
    table = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text())
    return {name: Dataset(name, **(d | {"templates": tuple(Template(**t) for t in d["templates"])})) for name, d in table.items()}


DATASETS = _known()


def declared(path: str) -> Dataset:
    """Returns the DATASET of a Python file, which is run. Raises Misuse."""
    with placed(kind=Misuse):
        d = user_file.load(path).get("DATASET")
    if not isinstance(d, Dataset) or not d.templates or not re.fullmatch(r"\S+", d.name):
        raise Misuse(f"{path}: expected DATASET = Dataset(name, keys, templates, ..), found none (docs/datasets.md)")
    return d


def keys_text(keys: str) -> str:
    return keys.replace(" ", ", ").replace("|", " or ")


def listing() -> str:
    """Describes each dataset, for people."""
    lines: list[str] = []
    for d in DATASETS.values():
        prompts = [("prompt", f"--template FILE: {d.template_file}")] if d.template_file else []
        for i, t in enumerate(d.templates):
            default = i == 0 and not d.template_file
            text = f"{t.name} ({'default; ' * default}{t.source})" + (f": {json.dumps(t.text)}" if t.text else "")
            prompts.append(("prompt" * default, text + (f", without input {json.dumps(t.without)}" if t.without else "")))
        category = f"{keys_text(d.category)}, else {d.name}" if d.category else d.name
        lines += [""] * bool(lines) + [d.name]
        facts = [("what", d.what), ("from", d.source), ("licence", d.licence), ("fields", keys_text(d.keys)), ("category", category)]
        for label, words in facts + prompts:
            lines += textwrap.wrap(words, 120, initial_indent=f"    {label:<12}", subsequent_indent=16 * " ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"
