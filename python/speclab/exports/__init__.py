"""exports - files of the runs in the forms of other projects (docs/results.md).

A form is a module with `files(results)`, which yields (file name, content) for each file; `./run report --export
FILE.py FOLDER` takes a form of your own. This file has what the modules share: the runs with the names of their files,
the rows of a view by run, and JSON in the program's form.
"""

import contextlib
import importlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

from speclab import files, user_file
from speclab.command import Fault, Misuse
from speclab.strict_json import dumps as dumps  # re-exported for the forms

if TYPE_CHECKING:
    from speclab.results import Results

FORMS = {"spec-bench": "spec_bench", "vllm": "vllm", "sglang": "sglang", "nvidia": "nvidia", "golden": "golden"}


class Run(dict):
    """A run: its cell in `speclab report --json`."""

    @property
    def name(self) -> str:
        """Returns the base of its files' names: letters, digits, '.', '_' and '-'."""
        experiment = self["experiment"].encode()[:60].decode(errors="ignore")
        name = re.sub(r"[^A-Za-z0-9._]+", "-", f"{experiment}-run{self['run']}-{self['drafter']}-{self['rule']}")
        return name.lstrip(".-")[:120].rstrip("-")

    @property
    def facts(self) -> dict:
        """Returns the settings that a number of the run depends on, for readers of another project's form; `compare`
        reads them."""
        first = ("experiment", "run", "drafter", "rule", "lossless", "marked_inflated", "finished", "sampling")
        return {key: self[key] for key in first} | {"prompts": self["prompt_file"]} | {key: self[key] for key in ("device", "machine", "revision")}


def by_run(results: "Results", query: str) -> dict[int, list[dict]]:
    """Returns the rows of a query by its column `run`, which is removed from them."""
    names, rows = results.query(query)
    found: dict[int, list[dict]] = {}
    for row in rows:
        cell = dict(zip(names, row, strict=True))
        found.setdefault(cell.pop("run"), []).append(cell)
    return found


def runs(results: "Results", **queries: str) -> Iterator[tuple[Run, SimpleNamespace]]:
    """Returns all runs, for each comparison those of none first, then by number; each with its rows of these queries,
    by their names."""
    found = {name: by_run(results, query) for name, query in queries.items()}
    for comparison in results.comparisons:
        for cell in sorted(comparison["cells"], key=lambda cell: (not cell["baseline"], cell["run"])):
            yield Run(cell), SimpleNamespace(**{name: rows.get(cell["run"], []) for name, rows in found.items()})


def metric(name: str, kind: str, about: str, samples: list[tuple[str, float]], run: Run) -> str:
    """Returns a metric in Prometheus' text format. samples: labels, which end with a comma or are empty, and a value.
    """
    total = "_total" if kind == "counter" else ""
    lines = [f'{name}{total}{{{labels}model_name="{run.name}"}} {value:.17g}\n' for labels, value in samples]
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n" + "".join(lines)


def _form(form: str):
    if form in FORMS:
        return importlib.import_module(f"speclab.exports.{FORMS[form]}")
    if not form.endswith(".py"):
        raise Misuse(f'--export: expected one of {"|".join(FORMS)}, or a file FORM.py, found "{form}"')
    module = SimpleNamespace(**user_file.load(form))
    if not callable(getattr(module, "files", None)):
        raise Fault(f"{form}: expected a function files(results) that yields file names and contents")
    return module


def write(results: "Results", form: str, folder: str) -> list[str]:
    """Writes the files of a form into a folder, which is made, but not its parents, and returns their names. Raises
    Fault, Misuse."""
    module = _form(form)
    files.make_folder(folder)
    names = []
    with user_file.explained(form) if form not in FORMS else contextlib.nullcontext():
        for name, content in module.files(results):
            files.write(f"{folder}/{name}", content)
            names.append(f"{folder}/{name}")
    if not names:
        raise Fault(f"{folder}: nothing to write: no run has the drafts or texts that this form is made of")
    return names
