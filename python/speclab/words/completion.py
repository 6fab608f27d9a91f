"""completion - a script that completes words, options and their values in bash or zsh, from the engine's tables of
options. It needs the standard library alone.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import speclab
from speclab import engine
from speclab.command import Misuse, Options

SHELLS = ("bash", "zsh")


def lines(candidates: Iterable[str]) -> str:
    return " ".join([r"printf '%s\n'", *(f"'{c}'" for c in candidates)])


def table(name: str, arguments: str, key: str, rows: dict[str, str], other: str = "") -> str:
    """A function that chooses a command by its arguments."""
    cases = "".join(f"    {at}) {command} ;;\n" for at, command in rows.items())
    return f"{name}() {{ # {arguments}\n    case {key} in\n{cases}{other}    esac\n}}\n\n"


def value(flag: dict[str, Any]) -> str:
    """The command that prints the values of a flag."""
    name, argument = flag["name"], flag["argument"]
    if name in ("drafter", "rule"):
        return f'_speclab_plugin {name} "$3"'
    if name == "device":
        return lines(["cpu", "cuda", "cublas"])
    if "|" in argument:
        return lines(argument.split("|"))
    return "echo @" if argument.startswith(("FILE", "DIR", "MODEL", "FOLDER")) else "echo :"


def options_in_help(word: str) -> list[str]:
    """Returns the options in the help of a word of the package."""
    call = "import sys; from speclab.command import call; sys.exit(call(sys.argv[1], ['--help']))"
    done = subprocess.run([sys.executable, "-P", "-B", "-c", call, word], capture_output=True, text=True)
    return re.findall("^  (--[a-z][a-z-]+)", done.stdout, re.M)


def script(tables: dict[str, Any], shell: str) -> str:
    """tables: what `speclab --tables` prints."""
    common, *of_shell = re.split("^# ---- .*\n\n", (Path(speclab.__file__).parent / "templates" / "completion.sh").read_text(), flags=re.M)
    commands, tools = {w["name"]: w["flags"] for w in tables["words"]}, tables["tools"]
    words = ["--help", "--version", *commands, *(t["name"] for t in tools if t["name"] not in commands)]
    flags, values = {}, {"*:--plugin": "echo @"}
    for name, own in commands.items():
        of_package = [o for t in tools if t["name"] == name for o in [*(t["with"] or "").split(), *options_in_help(name)]]
        flags[name] = lines(dict.fromkeys(["--help", "--plugin", *(f"--{f['name']}" for f in own), *of_package]))
        values |= {f"{name}:--{f['name']}": value(f) for f in own if f["argument"] is not None}
    other = """    *) "$_speclab_program" "$1" --help 2>/dev/null | grep -oE -e '--[a-z][a-z-]+' | sort -u ;;\n"""
    kinds = {"drafter": tables["drafters"], "rule": tables["rules"], "stage": tables["stages"]}
    names, choices = {}, {}
    for what, entries in list(kinds.items())[:2]:
        for e in entries:
            names[f"{what}:{e['name']}"] = lines(f"{o['name']}=" for o in e["options"])
            for o in e["options"]:
                if found := o.get("choices") or (["true", "false"] if o["type"] == "true or false" else []):
                    choices[f"{what}:{e['name']}:{o['name']}"] = lines(found)
    return "".join([
        "#compdef speclab\n" if shell == "zsh" else "",
        f"# Completion of speclab for {shell}, as `speclab completion {shell}` prints it.\n\n",
        f"_speclab_words() {{\n    {lines(words)}\n}}\n\n",
        table("_speclab_flags", "WORD", "$1", flags, other),
        table("_speclab_values", "WORD --FLAG BEGINNING", "$1:$2", values),
        table("_speclab_kinds", "drafter, rule or stage", "$1", {k: lines(e["name"] for e in entries) for k, entries in kinds.items()}),
        table("_speclab_option_names", "drafter KIND, or rule KIND", "$1:$2", names),
        table("_speclab_option_values", "drafter KIND OPTION, or rule KIND OPTION", "$1:$2:$3", choices),
        common.partition("\n\n")[2], dict(zip(SHELLS, of_shell, strict=True))[shell].strip(),
    ])  # fmt: skip


def main(words: list[str]) -> int:
    o = Options("completion", "Prints a script that completes words, options, names of drafters, rules and stages, and their\noptions, in bash or "
                "zsh.",
                "  source <(speclab completion bash)                 # for this shell; a line of ~/.bashrc for all\n"
                "  source <(speclab completion zsh)                  # behind compinit, in ~/.zshrc\n")  # fmt: skip
    o.add_argument("shell", metavar="bash|zsh")
    got, tables = engine.tables(o, words)
    if got.shell not in SHELLS:
        raise Misuse(f'expected bash or zsh, found "{got.shell}"')
    print(script(tables, got.shell))
    return 0
