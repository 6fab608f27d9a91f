"""import - prompts of published datasets (Spec-Bench, GSM8K, ..) for experiments. It needs the standard library alone.
"""

import collections
import contextlib
import difflib
import sys
from typing import Any

from speclab import prompts
from speclab.command import Fault, Misuse, Options, integer
from speclab.datasets import DATASETS, Dataset, declared, listing
from speclab.entries import entries
from speclab.files import same, writing
from speclab.printable import PrintableStream
from speclab.strict_json import dumps

_ABOUT = """\
Writes the prompts of a published dataset as a file of prompts for experiments (`prompts: {file: ..}`), generate, score
and tune: JSON lines with id, category and turns. DATASET is a name of --list, or a Python file that declares one. FILE is as it
is published: JSON lines or one JSON list, also gzipped, or parquet; several FILEs are one dataset. The first line also says how
the file was made ("import")."""

_EXAMPLES = """\
  speclab import --list
  speclab import gsm8k test.jsonl --limit 80 --seed 1 --out gsm8k.jsonl
  speclab import humaneval HumanEval.jsonl.gz --template completion --out humaneval.jsonl
  speclab import spec-bench question.jsonl --category rag --category qa --per-category 10 --out rag.jsonl
  speclab import longbench hotpotqa.jsonl gov_report.jsonl --template dataset2prompt.json --out long.jsonl
  speclab import sharegpt ShareGPT_V3_unfiltered_cleaned_split.json --turns 1 --limit 200 --seed 0 --out sharegpt.jsonl"""


def _options() -> Options:
    o = Options("import", _ABOUT, _EXAMPLES)
    o.flag("--list", help="the datasets: what each is, from where, its licence, fields and templates")
    o.option("--out", metavar="FILE", help="where the prompts are written; default: stdout")
    o.option("--template", metavar="NAME", help="how a prompt is made of an entry: one of --list, or a FILE of LongBench's own; default: the first")
    o.add_argument("--category", metavar="NAME", action="append", help="only prompts of this category; can be given several times")
    o.option("--split", choices=["prompt", "test", "validation", "train"], help="only these of MBPP's tasks, by their ids")
    o.option("--turns", metavar="N", type=integer(1, prompts.MAX_TURNS), help="the first N turns of each conversation; default: all")
    o.option("--min-characters", metavar="N", type=integer(1, 2**63 - 1), help="only prompts of at least so many characters, all turns together")
    o.option("--max-characters", metavar="N", type=integer(1, 2**63 - 1), help="only prompts of at most so many")
    o.option("--per-category", metavar="N", type=integer(1, 2**31 - 1), help="prompts of each category; default: all")
    o.option("--limit", metavar="N", type=integer(1, 2**31 - 1), help="prompts in all; default: all")
    o.option("--seed", metavar="N", type=integer(0, 2**63 - 1), help="take a random sample; default: the first ones")
    o.flag("--answers", help="keep the reference answers, for `speclab inspect --score --answers`")
    o.add_argument("operands", metavar="DATASET FILE", nargs="*")
    return o


def _dataset(name: str) -> Dataset:
    if name.endswith(".py"):
        return declared(name)
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, 1)
        hint = f"; did you mean {near[0]}?" if near else f": expected one of {', '.join(DATASETS)}, or a Python file that declares one"
        raise Misuse(f'unknown dataset "{name}"{hint}')
    return DATASETS[name]


def _check(o: Any, d: Dataset, paths: list[str]) -> None:
    for i, path in enumerate(paths):
        if o.out and same(path, o.out):
            raise Misuse(f"--out: expected another file than {path}, which is read")
        if any(same(path, other) for other in paths[:i]):
            raise Misuse(f"{path}: expected each file once")
    if o.split and d.name != "mbpp":
        raise Misuse(f"--split: expected a dataset whose entries belong to splits (mbpp), found {d.name}, which has a file for each")
    if o.turns and not d.turns and not d.messages:
        raise Misuse(f"--turns: expected a dataset of conversations, found {d.name}, whose prompts have one turn")
    if o.answers and not d.answer and not d.messages:
        raise Misuse(f"--answers: expected a dataset with reference answers, found {d.name}")
    if o.max_characters and (o.min_characters or 0) > o.max_characters:
        raise Misuse(f"--min-characters: expected at most --max-characters, {o.max_characters}, found {o.min_characters}")


def _record(o: Any, d: Dataset, template: str, sources: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """Returns how the file was made. It has no path and no version: equal entries make equal files everywhere."""
    chosen = {k: getattr(o, k) for k in ("category", "split", "turns", "min_characters", "max_characters", "per_category", "limit", "seed")}
    how = {"dataset": d.name, "template": template, "files": sources, "prompts": count}
    return how | {k: v for k, v in chosen.items() if v is not None}


def main(words: list[str]) -> int:
    o = _options().read(words)
    if o.list and o.operands:
        raise Misuse(f'unexpected argument "{o.operands[0]}": --list describes all datasets')
    if o.list:
        sys.stdout.write(listing())
        return 0
    if not o.operands:
        raise Misuse("missing argument: speclab import [OPTION...] DATASET FILE...; --list describes the datasets")
    d, paths = _dataset(o.operands[0]), o.operands[1:]
    if not paths:
        raise Misuse(f"missing file of {d.name}: {d.source}")
    _check(o, d, paths)
    choice = prompts.choice(d, o)
    taken: list[prompts.Prompt] = []
    sources: list[dict[str, Any]] = []
    left_out: dict[str, list[str]] = collections.defaultdict(list)
    read = 0
    for path in paths:
        content, found = entries(d, path)
        before = read
        for place, entry in found:
            try:
                taken.append(prompts.prompt_of(choice, entry, read, place))
            except prompts.LeftOut as left:
                left_out[str(left)].append(place)
            read += 1
        if read == before:
            raise Fault(f"{path}: expected entries of {d.name}, found none")
        sources.append({"hash": content, "entries": read - before})
    for category in o.category or []:
        if all(p.category != category for p in taken):
            raise Fault(f'--category: expected one of {paths[0]}\'s, found "{category}", which no prompt has')
    taken, repeated = prompts.without_repetitions(taken, d.collected)
    if not taken:
        raise Fault(f"{paths[0]}: expected prompts, found none among {read} entries")
    taken = prompts.limited(taken, o.per_category, o.limit, o.seed)
    if len(taken) > prompts.MAX_PROMPTS:
        raise Fault(f"expected at most {prompts.MAX_PROMPTS} prompts, found {len(taken)}; --limit N takes fewer")
    how = dumps({"import": _record(o, d, choice.template, sources, len(taken))})
    taken[0].line = f"{how[:-1]},{taken[0].line[1:]}"
    with writing(o.out) if o.out is not None else contextlib.nullcontext() as f:
        for p in taken:
            f.write(f"{p.line}\n".encode()) if f else print(p.line)
    said = [f"{o.out or 'stdout'}: {len(taken)} prompts of {d.name}, template {choice.template}; {read} entries read"]
    said += [f"left out: {len(left_out[why])} {why}, the first at {left_out[why][0]}" for why in prompts.REASONS if why in left_out]
    if repeated:
        said.append(f"left out: {repeated} with the id or the text of an earlier one" if d.collected else
                    f"{repeated} with the text of an earlier one, kept as published")  # fmt: skip
    said += [f"    {category:<24} {n}" for category, n in sorted(collections.Counter(p.category for p in taken).items())]
    print("\n".join(said), file=sys.stdout if o.out else PrintableStream(sys.stderr))
    return 0
