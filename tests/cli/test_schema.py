#!/usr/bin/env python3
"""test_schema.py SPECLAB SOURCE: the schema of `speclab schema` against what the program itself accepts and refuses. 77: python3-jsonschema and
python3-yaml are not installed.
"""

import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError as why:
    print(f"skipped: {why}")
    sys.exit(77)

speclab, source = os.path.abspath(sys.argv[1]), sys.argv[2]


def run(*words):
    return subprocess.run([speclab, *words], capture_output=True, text=True)


package = os.environ | {"SPECLAB_PROGRAM": speclab, "PYTHONPATH": f"{source}/python"}
schema = json.loads(subprocess.run([sys.executable, "-B", "-m", "speclab", "schema"], env=package, capture_output=True, check=True).stdout)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
faults = []


def plain(value):
    """Keys are texts, as in JSON."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def errors(document):
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(plain(document))]


def expect(good, what, document):
    if bool(errors(document)) == good:
        faults.append(f"{what}: expected {'no error' if good else 'an error'}, found {errors(document)}")


# ---- the files of the tree

files = [f for f in glob.glob(f"{source}/experiments/**/*.yaml", recursive=True) if "/train/" not in f]
assert len(files) > 15, files
for file in files:
    with open(file) as f:
        expect(True, file, yaml.safe_load(f))

# ---- wrong files: the schema and the program refuse them, and both take what they are made of

RIGHT = """
name: x
target: {model: shape:llama-1b}
prompts: {file: p.jsonl, chat: none}
limits: {new_tokens: 4, context: 64, stop: [a, b]}
record: {rows: full}
seed: 3
plugins: []
x-models: [anything]
cells:
  sampling: [{temperature: 0}, {temperature: {from: 0.5, to: 1, step: 0.5}, top_k: 3}]
  batch: [1, 4]
  rule: [rejection, {kind: lenient, lenience: 1.5}]
  drafter: [none, ngram, {kind: ngram, tokens: {any: [2, {from: 4, to: 7}]}}, {kind: ngram, tokens: 5, length: adaptive},
            {kind: ladder, of: [{kind: ngram, at_least: 2}, suffix]}, {kind: oracle, wrong: [0.1, 0.2]},
            {kind: ngram, shortest: 2, zip: {longest: [3, 4], tokens: [2, 3]}}]
  exclude: [{drafter: suffix, batch: 4}]
"""
WRONG = [  # a part of the file above, and what stands in its place
    ("seed: 3", "sead: 3"),
    ("seed: 3", "seed: -1"),
    ("plugins: []", "plugins: idea.py"),
    ("plugins: []", "plugins: [[idea.py]]"),
    ("seed: 3", "threads: many"),
    ("seed: 3", "repeat: 0"),
    ("seed: 3", "share_prompts: 7"),
    ("name: x\n", ""),
    ("target: {model: shape:llama-1b}", "target: {}"),
    ("target: {model: shape:llama-1b}", "target: {model: shape:llama-1b, cache: f33}"),
    ("target: {model: shape:llama-1b}", "target: {model: shape:llama-1b, dtype: f32}"),
    ("chat: none}", "chat: none, limt: 3}"),
    ("new_tokens: 4", "new_tokens: 0"),
    ("new_tokens: 4", "max_new_tokens: 4"),
    ("rows: full", "rows: some"),
    ("rows: full", "trails: true"),
    ("top_k: 3", "top_k: -1"),
    ("top_k: 3", "topk: 3"),
    ("batch: [1, 4]", "batch: [0]"),
    ("rule: [rejection,", "rule: [rejektion,"),
    ("lenience: 1.5", "lenience: much"),
    ("[none, ngram,", "[none, ngrm,"),
    ("[none, ngram,", "[none, {tokens: 3},"),
    ("tokens: {any: [2, {from: 4, to: 7}]}", "lenght: 4"),
    ("tokens: {any: [2, {from: 4, to: 7}]}", "tokens: {from: 4, too: 8}"),
    ("tokens: {any: [2, {from: 4, to: 7}]}", "longest: 65"),
    ("at_least: 2}", "at_most: 2}"),
    ("suffix]}", "{kind: small}]}"),
    ("exclude: [{drafter: suffix, batch: 4}]", "exclude: [{drafters: suffix}]"),
    ("exclude: [{drafter: suffix, batch: 4}]", "exlude: []"),
]
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/p.jsonl", "w") as f:
        f.write('{"prompt": "a"}\n')

    def refused(text):
        with open(f"{folder}/x.yaml", "w") as f:
            f.write(text)
        done = run("run", "--dry-run", f"{folder}/x.yaml", "--db", f"{folder}/x.db")
        return done.returncode == 2 and f"{folder}/x.yaml:" in done.stderr, done.stderr

    right = RIGHT.replace("exclude: [{drafter: suffix, batch: 4}]", "exclude: [{drafter: {kind: oracle}, batch: 4}]")
    expect(True, "the file from which the wrong ones are made", yaml.safe_load(right))
    no, said = refused(right)
    if no:
        faults.append(f"the program refuses the file from which the wrong ones are made: {said}")
    for there, instead in WRONG:
        assert there in RIGHT, there
        text = RIGHT.replace(there, instead, 1)
        expect(False, instead or f"without {there}", yaml.safe_load(text))
        no, said = refused(text)
        if not no:
            faults.append(f"{instead}: the program does not refuse it: {said}")

    # Every key that the program knows is in the schema, and no other: it names its keys when it meets an unknown one.
    for part, place in [("an experiment", schema), *((p, schema["properties"][p]) for p in ("target", "prompts", "limits", "record", "cells"))]:
        text = "name: x\ntarget: {model: shape:llama-1b}\nprompts: {file: p.jsonl}\n"
        text += "zzzzzz: 1\n" if part == "an experiment" else ""
        text = re.sub(rf"^{part}: .*\n", "", text, flags=re.M) + (f"{part}: {{zzzzzz: 1}}\n" if part != "an experiment" else "")
        _, said = refused(text)
        found = re.search(r"\(it has: ([^)]*)\)", said)
        known = set(found[1].split(", ")) - {"x-*"} if found else set()
        here = set(place.get("anyOf", [place])[0]["properties"]) - {"zip"}  # of one target: there may be a list of them
        if known - {"zip"} != here:
            faults.append(f"{part}: the program has {sorted(known)}, the schema {sorted(here)}")

# ---- every option of every drafter, rule and stage: its bounds, and one beyond

listed = json.loads(run("list", "--json").stdout)
base, tried = yaml.safe_load(RIGHT), 0


def with_entry(axis, entry):
    document = copy.deepcopy(base)
    document["cells"] = {axis: entry}
    return document


for axis, entries in (("drafter", listed["drafters"]), ("rule", listed["rules"]), ("sampling", listed["stages"])):
    for entry in entries:
        given = {} if axis == "sampling" else {"kind": entry["name"]}
        for o in entry["options"]:
            if o["required"]:
                given[o["name"]] = [1] if o["type"] == "list of integers" else 1 if o["type"] == "integer" else ["ngram"] if o["type"] == "list" else "x"
        expect(True, f"{axis} {entry['name']}", with_entry(axis, given))
        for o in entry["options"]:
            def one(value):
                return with_entry(axis, given | {o["name"]: value})  # noqa: B023
            tried += 1
            if o["type"] in ("integer", "number") and o["min"] is not None:
                for value, good in ((o["min"], True), (o["max"], True), (o["min"] - 1, False), (o["max"] + 1, False)):
                    expect(good, f"{axis} {entry['name']}: {o['name']}: {value}", one(int(value) if o["type"] == "integer" else value))
            if o["type"] in ("integer", "number"):
                expect(False, f"{axis} {entry['name']}: {o['name']}: a text", one("many"))
            if o["type"] == "one of":
                for value in o["choices"]:
                    expect(True, f"{axis} {entry['name']}: {o['name']}: {value}", one(value))
                expect(False, f"{axis} {entry['name']}: {o['name']}: no choice", one("zzz"))
            if o["type"] == "true or false":
                expect(True, f"{axis} {entry['name']}: {o['name']}", one(True))
                expect(False, f"{axis} {entry['name']}: {o['name']}: a number", one(3))
        expect(False, f"{axis} {entry['name']}: an unknown option", with_entry(axis, given | {"zzz": 1}))

print("\n".join(faults) or f"{len(files)} files, {len(WRONG)} wrong ones, {tried} options")
sys.exit(bool(faults))
