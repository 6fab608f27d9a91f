#!/usr/bin/env python3
"""boundaries.py - checks that files are boundaries: no circles of calls, and what a header declares is where the header says.

    tests/boundaries.py [BUILD]     BUILD: a build folder; default: build/release

1. No files use each other's symbols, directly or through others: of such a circle, no file can be read before the others.
2. What X.h declares is defined in X.c or X.cu, or in a file whose name is in X.h: who reads a declaration finds the definition.

The symbols are those that nm finds in the objects of a build. A source that is compiled for several instruction sets has several
objects. Prints a sentence for each violation. Exit status: 0 none, 1 violations, 2 wrong usage, 77 nothing was checked, because an
object is missing or older than its source.
"""
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Circles that are left: a pattern for the names of all their files. An unused row is a violation.
ALLOWED = []
FOLDERS = "core sampling kernels models drafters verifier results engine experiments commands".split()
SOURCE = re.compile(r"(?:^|/)((?:%s)/.*\.(?:c|cu))\.o$" % "|".join(FOLDERS))


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


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] == ["--help"]:
        print(__doc__, file=sys.stderr)
        return 2
    build = sys.argv[1] if len(sys.argv) == 2 else os.path.join(HERE, "build/release")
    files = files_of_project()
    sources = {f for f in files if f.endswith((".c", ".cu"))}
    objects = objects_of(build, sources)
    if reason := unbuilt(sources, objects):
        print(f"boundaries: circles of calls were not checked: in {build} {reason}")
        return 77
    symbols = symbols_of(objects)
    calls = calls_of(symbols)
    violations = list(misplaced(files, symbols))
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
