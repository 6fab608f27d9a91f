#!/usr/bin/env python3
"""boundaries.py - checks that files are boundaries: no circles of calls, what a header declares is where the header says, and a decoding
step crosses the files that docs/architecture.md lists.

    tests/boundaries.py [BUILD]     BUILD: a build folder; default: build/release

1. No files use each other's symbols, directly or through others: of such a circle, no file can be read before the others.
2. What X.h declares is defined in X.c, X.cpp or X.cu, or in a file whose name is in X.h: who reads a declaration finds the definition.
3. The files that a step crosses are those of the paragraph "A step crosses .." of docs/architecture.md: calls are followed through the
   machine code from speclab_decoder_step on, and from the functions that it calls through tables (STEP).

The symbols are those that nm finds in the objects of a build. A source that is compiled for several instruction sets has several
objects. Prints a sentence for each violation. Exit status: 0 none, 1 violations, 2 wrong usage, 77 nothing was checked, because an
object is missing or older than its source.
"""
import collections
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Circles that are left: a pattern for the names of all their files. An unused row is a violation.
ALLOWED = []
# Where a step begins, and what it calls through tables: a draft by ngram under rejection at a temperature, on the host.
STEP = {"engine/decode.c": "speclab_decoder_step", "drafters/ngram.c": "ngram_propose", "verifier/rules/rejection.c": "rejection_verify",
        "sampling/stages.c": "divide_by_temperature", "sampling/rng.c": "philox_accept philox_pick philox_pick_row"}  # fmt: skip
# What is not followed: leaves, then functions that only some steps call: where a text ends, with a mixture of experts, and where a request
# with a sampling of its own is decided on a device.
LEAVES = re.compile(r"core/|kernels/|sampling/(?:choose|\w+_loops)\.c")
OTHER_STEPS = set("verifier_forget request_text request_free experts_forward sampling_row_stages".split())
FOLDERS = "core sampling kernels models drafters verifier results engine experiments commands".split()
SOURCE = re.compile(r"(?:^|/)((?:%s)/.*\.(?:c|cpp|cu))\.o$" % "|".join(FOLDERS))


def files_of_project():
    git = ["git", "ls-files", "-co", "--exclude-standard", "--", *FOLDERS]
    listed = subprocess.run(git, cwd=HERE, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted(f for f in listed if f and os.path.exists(os.path.join(HERE, f)))


def objects_of(build, sources):
    """{source: its objects}. Those that nvcc makes are named after the file alone."""
    by_nvcc = {"cuda/%s.o" % os.path.basename(s)[:-3]: s for s in sources if s.endswith(".cu")}
    found = collections.defaultdict(list)
    for folder, _, names in os.walk(build):
        for name in names:
            path = os.path.join(folder, name)
            match = SOURCE.search(path)
            source = match[1] if match else by_nvcc.get(os.path.relpath(path, build))
            if source in sources:
                found[source].append(path)
    return found


def unbuilt(sources, objects):
    """Why these objects say nothing about these sources; None if they do."""
    for s in sources:
        if s.endswith(".cu") and s not in objects:
            continue  # a build without an emulated GPU
        if s not in objects:
            return s + " has no object"
        if max(map(os.path.getmtime, objects[s])) < os.path.getmtime(os.path.join(HERE, s)):
            return s + " is newer than its object"


def symbols_of(objects):
    """{source: (the global symbols that it defines, those that it uses)}."""
    source_of = {path: s for s in objects for path in objects[s]}
    found = {s: (set(), set()) for s in objects}
    listed = subprocess.run(["nm", "-gPA", *source_of], check=True, capture_output=True, text=True).stdout
    for path, name, kind in re.findall(r"^(.*): (\S+) (\w)", listed, re.M):
        defined, used = found[source_of[path]]
        if kind in "Uwv":
            used.add(name)
        elif kind not in "WV":  # inline functions of C++, which every object has that uses them
            defined.add(name)
    return found


def calls_of(symbols):
    """{source: {source that it uses: the symbols}}."""
    definer = {name: s for s in symbols for name in symbols[s][0]}
    calls = {s: collections.defaultdict(set) for s in symbols}
    for s in symbols:
        for name in symbols[s][1]:
            if definer.get(name, s) != s:
                calls[s][definer[name]].add(name)
    return calls


def shortest_circle(calls, start):
    """The fewest sources, from start on, of which each uses the next and the last uses start; None: there are none."""
    before, queue = {start: None}, collections.deque([start])
    while queue:
        at = queue.popleft()
        if start in calls[at]:
            circle = [at]
            while before[circle[0]] is not None:
                circle.insert(0, before[circle[0]])
            return circle
        for to in sorted(calls[at]):
            if to not in before:
                before[to] = at
                queue.append(to)


def circles(calls):
    """One circle for each pair of neighbours on a circle that is not on an earlier one."""
    found, seen = [], set()
    for s in sorted(calls):
        circle = shortest_circle(calls, s)
        if circle and frozenset(circle) not in seen:
            seen.add(frozenset(circle))
            found.append(circle)
    return found


def declared(text):
    """Identifiers at the level of the file, outside of all parentheses: types and, among them, what is declared."""
    text = re.sub(r"//.*|/\*.*?\*/|^#(?:.*\\\n)*.*|extern \"C\" \{", "", text, flags=re.M)
    while (less := re.sub(r"\{[^{}]*\}|\([^()]*\)", " ", text)) != text:
        text = less
    return set(re.findall(r"\w+", re.sub(r"\b(?:struct|enum|union) \w+", "", text)))


def misplaced(files, symbols):
    """Sentences about names that a header declares and a file defines that is neither the header's nor named in it."""
    definer = {plain(name): s for s in symbols for name in symbols[s][0]}
    for header in files:
        if not header.endswith(".h"):
            continue
        with open(os.path.join(HERE, header)) as f:
            text = f.read()
        places = collections.defaultdict(list)
        for name in sorted(declared(text) & definer.keys()):
            places[definer[name]].append(name)
        for s, names in sorted(places.items()):
            if os.path.splitext(s)[0] != header[:-2] and os.path.basename(s) not in text and s not in text:
                yield f"{header} declares {', '.join(names)}; defined in {s}, which {header} does not name"


def plain(name):
    """A function's own name, of the name that C++ gives its symbol: _ZN4cuda6launchEv is launch."""
    match = re.match(r"_ZN?K?", name)
    own = name
    if match:
        rest = name[match.end():]
        while number := re.match(r"\d+", rest):
            end = number.end() + int(number[0])
            own, rest = rest[number.end():end], rest[end:]
    return own


def references(source, objects):
    """{function: the names, of functions of this file or others, that its machine code refers to}."""
    found, starts, places = collections.defaultdict(set), collections.defaultdict(list), []
    listed = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", objects[source][0]], check=True, capture_output=True, text=True).stdout
    section = function = None
    for line in listed.split("\n"):
        if match := re.match(r"Disassembly of section (\S+):", line):
            section = match[1]
        elif match := re.match(r"([0-9a-f]+) <([^>]+)>:", line):
            function = match[2]
            starts[section].append((int(match[1], 16), function))
        elif match := re.search(r"\bR_\S+\s+(\S+?)(?:([-+]0x[0-9a-f]+))?$", line):
            if match[1] in (section, ".text"):
                places.append((function, match[1], int(match[2] or "0", 16) + 4))  # relative to the end of the operand
            else:
                found[function].add(match[1])
        elif match := re.search(r"<([^>+]+)(?:\+0x[0-9a-f]+)?>$", line):
            found[function].add(match[1])
    for function, section, at in places:
        found[function].update(name for begin, name in starts[section] if begin == at)
    return found


def step_files(symbols, objects):
    """The files that a step crosses."""
    definer = {name: s for s in symbols for name in symbols[s][0]}
    known, seen = {}, set()
    left = [(s, name) for s in STEP for name in STEP[s].split()]
    while left:
        source, name = left.pop()
        if (source, name) in seen or name.split(".")[0] in OTHER_STEPS or LEAVES.match(source):
            continue
        seen.add((source, name))
        if source not in known:
            known[source] = references(source, objects)
        left += [(definer.get(to, source), to) for to in known[source][name]]
    return {source for source, _ in seen}


def misnamed_step(symbols, objects):
    """Sentences about the files that a step crosses and docs/architecture.md does not list, or the other way round."""
    with open(os.path.join(HERE, "docs/architecture.md")) as f:
        paragraph = re.search(r"^A step crosses .*?Leaves", f.read(), re.M | re.S)
    listed = set(re.findall(r"`([\w/]+\.c)`", paragraph[0])) if paragraph else set()
    crossed = step_files(symbols, objects)
    for s in sorted(crossed - listed):
        yield f"docs/architecture.md: a step crosses {s}, which \"A step crosses ..\" does not list"
    for s in sorted(listed - crossed):
        yield f"docs/architecture.md: \"A step crosses ..\" lists {s}, which no step crosses"


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] == ["--help"]:
        print(__doc__, file=sys.stderr)
        return 2
    build = sys.argv[1] if len(sys.argv) == 2 else os.path.join(HERE, "build/release")
    files = files_of_project()
    sources = {f for f in files if f.endswith((".c", ".cpp", ".cu"))}
    objects = objects_of(build, sources)
    if reason := unbuilt(sources, objects):
        print(f"boundaries: circles of calls were not checked: in {build} {reason}")
        return 77
    symbols = symbols_of(objects)
    calls = calls_of(symbols)
    violations = list(misplaced(files, symbols))
    if platform.machine() == "x86_64":
        violations += misnamed_step(symbols, objects)
    found = circles(calls)
    for pattern in ALLOWED:
        allowed = [c for c in found if all(re.fullmatch(pattern, s) for s in c)]
        found = [c for c in found if c not in allowed]
        if not allowed and any(re.fullmatch(pattern, s) for s in objects):
            violations.append(f"tests/boundaries.py: ALLOWED: no circle matches {pattern}; remove the row")
    for circle in found:
        steps = [f"{a} uses {', '.join(sorted(calls[a][b])[:3])} of {b}" for a, b in zip(circle, circle[1:] + circle[:1])]
        violations.append("a circle of calls: " + "; ".join(steps))
    print("\n".join(violations), end="\n" if violations else "")
    return 1 if violations else 0


sys.exit(main())
