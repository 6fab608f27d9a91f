#!/usr/bin/env python3
"""test_completion.py SPECLAB: what bash and zsh complete, in real shells on a terminal of their own.

In each shell `speclab` is a function that prints its words, so a line that is completed and entered says what the shell made of it.
"""

import os
import pty
import re
import select
import shutil
import sys
import tempfile
import time

CASES = [  # typed before the tab; the words after it
    ("gen", "generate"),
    ("quan", "quantize"),  # a word of the Python package
    ("sche", "schema"),
    ("completion z", "completion zsh"),
    ("generate m --dra", "generate m --drafter"),
    ("generate m --temp", "generate m --temperature"),
    ("generate m --trace-", "generate m --trace-html"),  # an option of the Python package
    ("generate m --drafter ngr", "generate m --drafter ngram"),
    ("generate m --drafter ngram:lon", "generate m --drafter ngram:longest="),
    ("generate m --drafter ngram:longest=3,tok", "generate m --drafter ngram:longest=3,tokens="),
    ("generate m --drafter small:model=x,pick=gr", "generate m --drafter small:model=x,pick=greedy"),
    ("generate m --rule trav", "generate m --rule traversal"),
    ("generate m --cache q8", "generate m --cache q8_0"),
    ("generate m --cache=q8", "generate m --cache=q8_0"),
    ("generate m --chat vic", "generate m --chat vicuna"),
    ("generate m --seed 7 --ign", "generate m --seed 7 --ignore-end"),
    ("replay x --rule multi", "replay x --rule multipath"),
    ("list temper", "list temperature"),
    ("list trav", "list traversal"),
    ("run my-exp", "run my-experiment.yaml"),
    ("run --db my-data", "run --db my-database.db"),
    ("inspect m --tok", "inspect m --tokenize"),
    ("bench m --peer-c", "bench m --peer-command"),  # a word of the package with all options of the program
    ("bench m --slo", "bench m --slots"),
    ("run --again 2 --lim", "run --again 2 --limit"),
    ("list --plug", "list --plugin"),
    ("list --plugin my-pl", "list --plugin my-plugin.py"),
    ("run --plugin=my-pl", "run --plugin=my-plugin.py"),
]


class Shell:
    def __init__(self, words, setup, folder):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, os.environ | {"TERM": "dumb", "PS1": "$ ", "HOME": folder, "INPUTRC": "/dev/null"})
        self.answer(setup + "; speclab() { printf '<%s>' \"$@\"; }; echo re''ady", "ready", 60)

    def answer(self, line, end, seconds=20):
        """What the shell prints up to `end`."""
        os.write(self.terminal, line.encode() + b"\r")
        said, until = "", time.monotonic() + seconds
        while end not in said:
            if not select.select([self.terminal], [], [], max(0, until - time.monotonic()))[0]:
                sys.exit(f"{line!r}: expected {end!r}, found {said!r}")
            said += os.read(self.terminal, 65536).decode(errors="replace")
        return said

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.child, 0)


def check(name, words, setup, folder):
    shell, bad = Shell(words, setup, folder), 0
    for typed, expected in CASES:
        said = shell.answer(f"speclab {typed}\t; echo fini''shed", "finished")
        found = re.findall("<([^<>]*)>", said)
        if found != expected.split():
            print(f"{name}: speclab {typed}<tab>: expected {expected!r}, found {' '.join(found)!r} in {said!r}")
            bad += 1
    shell.close()
    return bad


def main():
    here, bad, shells = os.path.dirname(os.path.abspath(__file__)), 0, 0
    os.environ |= {"SPECLAB_PROGRAM": os.path.abspath(sys.argv[1]), "PYTHONPATH": f"{here}/../../python"}
    script = f"source <({sys.executable} -B -m speclab completion"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("my-experiment.yaml", "my-database.db", "my-plugin.py"):
            open(os.path.join(folder, name), "w").close()
        for name, words, setup in [
            ("bash", ["bash", "--norc", "--noprofile", "-i"], f"bind 'set bell-style none'; {script} bash)"),
            ("zsh", ["zsh", "-f", "-i"], f"PS1='$ '; autoload -Uz compinit; compinit -u -D; {script} zsh)"),
        ]:
            if shutil.which(name):
                shells += 1
                bad += check(name, words, setup, folder)
    if bad:
        sys.exit(1)
    print(f"{len(CASES)} lines in each of {shells} shells")


main()
