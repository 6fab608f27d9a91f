"""check-drafter - the contract of a drafter in Python: does it declare truthfully, does it depend on the text alone, is the output the target's?"""

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

from speclab import contract, door, engine, plugins, settings
from speclab.command import Fault, Misuse, Options

TOKENS, COPIES = 48, 8  # new tokens of a text; how often a prompt is decoded to test the drafter's own q
PROMPTS = ("Repeat after me: red, green, blue, red, green, blue, red,", "Write a short poem about the sea.", "List the numbers from one to twenty.")


def options() -> Options:
    about = ("Checks drafters of a plugin in Python, and says in words what is wrong: whether tokens are drawn from the q that is reported,\n"
             "whether drafts depend on the text alone, and whether greedy and sampled texts of a target are those without drafts.\n"
             "Exit status 1 if one of them is not so.")  # fmt: skip
    o = Options("check-drafter", about, "  ./run check-drafter idea.py\n  ./run check-drafter idea.py bigram:tokens=3 --target target.gguf\n")
    o.add_argument("file", metavar="FILE.py")
    o.add_argument("drafter", metavar="NAME[:KEY=VALUE,...]", nargs="?", help="default: every drafter of the file, with its defaults")
    o.option("--target", default="smollm2-135m-instruct", metavar="MODEL", help="default: smollm2-135m-instruct")
    return o


class Decoded(NamedTuple):
    ids: list[int]
    accepted: int
    drafted: int


def _process(*words: str) -> str:
    """Runs Python with these words, as the engine runs the plugin in its process. Returns stdout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(contract.__file__)))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-B", *words], capture_output=True, text=True, errors="surrogateescape",
                          env=dict(os.environ, PYTHONPATH=path))  # fmt: skip
    if done.returncode != 0:
        raise engine.failure(done.returncode, done.stderr)
    return done.stdout


@functools.cache
def _decode(target: str, file: str, drafter: str, prompt: str, *how: str) -> Decoded:
    """Decodes a prompt; drafter "": none."""
    plugin = ("--plugin", file, "--drafter", drafter) if drafter else ()
    made = json.loads(_process("-m", "speclab", "generate", target, "--tokens", str(TOKENS), "--ignore-end", "--json", *how, *plugin, prompt))
    return Decoded(made["new_ids"], sum(s["accepted"] for s in made["steps"]), sum(s["drafted"] for s in made["steps"]))


def _observed(*words: str) -> None:
    """Runs the engine's program with a drafter whose drafts are tested, in a process of its own. The last line of
    stdout is a contract.Truth."""
    draws, create = contract.Draws(), door.DrafterEntry.create

    def created(entry: door.DrafterEntry, *given: Any) -> int:
        number = create(entry, *given)
        drafter = entry.alive[number]
        propose = drafter.propose

        def observed(request: plugins.Request, draft: plugins.Draft) -> Any:
            seen = contract.Seen(draft, int(request.tokens[-1]))
            result = propose(request, seen)
            draws.take(request.tokens, seen.nodes)
            return result

        drafter.propose = observed
        return number

    door.DrafterEntry.create = created
    if status := door.main(list(words)):
        raise SystemExit(status)
    print(json.dumps(draws.truth()))


def _drawn(target: str, file: str, drafter: str) -> contract.Truth:
    """Tests the q of a drafter's tokens in greedy texts of the target, each of them several times."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        prompts.writelines(json.dumps({"id": str(i), "prompt": p}) + "\n" for i, p in enumerate(PROMPTS * COPIES))
        prompts.flush()
        code = "import sys; from speclab.words.check_drafter import _observed; _observed(*sys.argv[1:])"
        out = _process("-c", code, "generate", target, "--tokens", str(TOKENS), "--ignore-end", "--jsonl", "--batch", "1",
                       "--prompts", prompts.name, "--plugin", file, "--drafter", drafter)  # fmt: skip
    return contract.Truth(*json.loads(out.splitlines()[-1]))


class Report:
    def __init__(self) -> None:
        self.wrong, self.out = 0, sys.stdout

    def line(self, ok: bool | None, what: str, how: str) -> None:
        self.wrong += ok is False
        print(f"  {'ok   ' if ok else '-    ' if ok is None else 'WRONG'}  {what}: {how}", file=self.out, flush=True)

    def truth(self, what: str, t: contract.Truth) -> None:
        """Prints "ok" only if q was tested."""
        p = f"(p-value {t.smallest:.1g})"
        if t.smallest < contract.ALPHA:
            self.line(False, what, f"{t.drawn} tokens were not drawn from the q that add reported {p}: {t.what}")
        elif t.drawn >= contract.FEW:
            self.line(True, what, f"{t.drawn} tokens agree with the q that add reported {p}")
        elif t.drawn:
            self.line(None, what, f"{t.drawn} tokens with a q that add reported are too few for a test, which takes {contract.FEW}")
        else:
            self.line(None, what, "add reported no q, so none was tested; what draft.sample draws is drawn from its q")


def _reports_q(kind: type[plugins.Drafter]) -> bool:
    """Whether its tokens may have a q that it reports itself."""
    return plugins.how_it_drafts(kind) == "propose" and bool(plugins.kinds(kind.makes, kind) & plugins.KINDS["sampled"])


def _contract(r: Report, kind: type[plugins.Drafter], given: dict[str, str], setting: contract.Setting, file: str) -> None:
    driven = None

    def make() -> contract.Driven:
        nonlocal driven
        driven = contract.Driven(kind, given, setting)
        return driven

    def failed(why: Exception) -> None:
        after = f" (for {driven.text})" if driven is not None and driven.text else ""
        r.line(False, "runs", door.sentence(why, file) + after)

    try:
        make().propose(0, next(contract.texts(setting, 1))[-1:])
    except Exception as why:
        failed(why)
    try:
        if (by := plugins.how_it_drafts(kind)) != "propose":
            r.line(True, "declares truthfully", f"the engine draws from what {by} returns, so q is true by construction")
            if contract.sums_to_one(make):
                r.line(None, "returns logits", "the numbers of a row sum to 1, as probabilities do: if they are, return their logarithms, np.log(p)")
        elif not _reports_q(kind):
            r.line(True, "declares truthfully", 'the engine refuses a token with a q, as "sampled" is not in `makes`')
        else:
            r.truth("declares truthfully in random texts", contract.truthful(make))
        if kind.remembers != "text":
            how = f'it says that it does not (remembers = "{kind.remembers}"), so texts can differ from run to run'
            r.line(None, "depends on the text alone", how)
        else:
            count = contract.affordable(make)
            d = contract.depends_on_more(make, count)
            how = f"{count} texts in {len(contract.HISTORIES)} histories"
            how += ", no more as it takes long to create the drafter" if count < contract.TEXTS else ""
            how = how if d is None else f"a draft differs when {d.history}: {d.difference}"
            r.line(d is None, "depends on the text alone", how)
    except Exception as why:
        failed(why)


def _target(r: Report, kind: type[plugins.Drafter], target: str, file: str, drafter: str) -> None:
    accepted = drafted = 0
    if _reports_q(kind):
        t = _drawn(target, file, drafter)
        r.truth("declares truthfully in greedy texts", t)
        if t.drawn:
            how = "it draws tokens itself, so a run made again has other drafts; draft.sample(q) draws by the engine's numbers"
            r.line(None, "reproducible", how)
    for what, how in (("greedy text", ()), ("seeded text under rule match", ("--temperature", "1", "--rule", "match", "--seed", "3"))):
        differ = []
        for prompt in PROMPTS:
            plain, made = _decode(target, "", "", prompt, *how), _decode(target, file, drafter, prompt, *how)
            accepted, drafted = accepted + made.accepted, drafted + made.drafted
            if made.ids != plain.ids:
                differ.append(prompt)
        said = f"equals none's ({len(PROMPTS)} prompts)" if not differ else f'differs from none\'s for "{differ[0]}"'
        r.line(not differ, what, said)
    r.line(None, "accepted", f"{accepted} of {drafted} draft tokens" if drafted else "no draft token was proposed")


def main(words: list[str]) -> int:
    given, r = options().read(words), Report()
    with contextlib.redirect_stdout(sys.stderr):  # what a plugin prints is no part of the report
        return _checked(given, r)


def _checked(given: argparse.Namespace, r: Report) -> int:
    values = settings.inline(given.drafter, given.file) if given.drafter else {}
    name = values.pop("kind", None)
    kinds: dict[str, Any] = {plugins.name(k): k for k in door.load(given.file) if issubclass(k, plugins.Drafter)}
    if not kinds:
        raise Fault(f"{given.file}: expected a class of speclab.Drafter, found none")
    if name is not None and name not in kinds:
        raise Misuse(f'{given.file}: expected a drafter of {", ".join(kinds)}, found "{name}"')
    model = engine.objects("inspect", given.target, "--json")[0]
    for which, kind in kinds.items():
        if name not in (None, which):
            continue
        known = [o.name for o in plugins.options(kind)]
        if plugins.how_it_drafts(kind) == "propose" and (unknown := [v for v in values if v not in known]):
            raise Misuse(f"{which}: expected options of {', '.join(known) or 'none'}, found \"{unknown[0]}\"")
        print(f"{which} ({given.file}:{plugins.line(kind)}), target {given.target}", file=r.out)
        setting = contract.Setting(model["vocab"], min(model["tokens"] or model["vocab"], model["vocab"]), model["width"])
        _contract(r, kind, values, setting, given.file)
        try:
            _target(r, kind, given.target, given.file, given.drafter if name else which)
        except Fault as why:
            r.line(False, "runs", str(why))
    return 1 if r.wrong else 0
