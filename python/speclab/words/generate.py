"""generate with --trace-html - decodes one prompt and writes the page of its steps. Without it, `generate` is the
engine's.
"""
# with --trace-html

import os

from speclab import files, trace
from speclab.command import Misuse, note


def main(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    places = [i for i, word in enumerate(words[:end]) if word.split("=")[0] == "--trace-html"]
    if len(places) != 1:
        raise Misuse("--trace-html is given twice; expected it once")
    i = places[0]
    name, joined, path = words[i].partition("=")
    rest = words[:i] + words[i + 1 :]
    if not joined:
        if i + 1 >= end:
            raise Misuse(f"{name} requires a value")
        path = rest.pop(i)
    options = rest[: rest.index("--")] if "--" in rest else rest
    if "--help" in options:
        os.execv(files.program(), ["speclab", "generate", "--help"])
    for option in ("--json", "--trace"):
        if option in options:
            raise Misuse(f"{option} does not go with {name}")
    shown, text = trace.of_generate(rest)
    files.write(path, trace.page(shown))
    print(text)
    note("generate", f"{len(shown.steps)} steps are in {path}")
    return 0
