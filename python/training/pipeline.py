"""pipeline.py - `./run train FILE.yaml`: distill, features, train, export, `speclab heads`. Each part runs once, and a
killed one continues.

A part that is complete leaves a file with its recipe in out/done/. A part whose recipe changed since is refused, not
silently redone.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

import torch
import yaml

from speclab.command import Fault
from speclab.words import features
from training import data, eagle3, export, induction, loop, medusa, small
from training.recipe import read_recipe

KINDS = {"eagle3": eagle3.Eagle3, "eagle": eagle3.Eagle1, "medusa": medusa.Medusa, "small": small.Small}
class Parts:
    def __init__(self, out, speclab):
        self.out, self.speclab = pathlib.Path(out), speclab
        (self.out / "done").mkdir(parents=True, exist_ok=True)

    def read(self, path):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise SystemExit(f"{path}: damaged: expected JSON; remove it to do this part again") from None

    def is_done(self, name, recipe):
        path = self.out / "done" / f"{name}.json"
        if not path.exists():
            return False
        if self.read(path) != recipe:
            raise SystemExit(f"{path}: {name} was done with another recipe; remove this file and what it made, or choose another `out`")
        print(f"train: {name} is done", file=sys.stderr)
        return True

    def done(self, name, recipe):
        path = self.out / "done" / f"{name}.json"
        path.with_suffix(".part").write_text(json.dumps(recipe), encoding="utf-8")
        os.replace(path.with_suffix(".part"), path)

    def run(self, name, command):
        print(f"train: {name}: {shlex.join(command)}", file=sys.stderr)
        sys.stdout.flush()
        package = str(pathlib.Path(__file__).resolve().parents[1])  # package of the tools, which need this program
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]))
        status = subprocess.run(command, check=False, env=environment).returncode
        if status != 0:
            raise SystemExit(f"train: {name} failed with exit status {status}; the same command goes on from here")


def options(given):
    """Returns {slots: 64, exclude: [a, b]} as --slots 64 --exclude a --exclude b."""
    out = []
    for k, v in given.items():
        for one in v if isinstance(v, list) else [v]:
            out += [f"--{k}"] if one is True else [f"--{k}", str(one)]
    return out


def write_texts(parts, recipe):
    """Reads `data`: a file of conversations, or options of `speclab distill`, which continues by itself after a kill.
    """
    given = recipe.get("data")
    if given is None or isinstance(given, str):
        return given
    path = str(parts.out / "data.jsonl")
    of = {"model": recipe["model"], **given}
    if not parts.is_done("distill", of):
        parts.run("distill", [sys.executable, "-B", "-m", "speclab", "distill", recipe["model"], *options(given), "--out", path])
        parts.done("distill", of)
    return path


def open_features(parts, recipe, texts):
    """Reads `features`: a folder, or options of `speclab features`; stream: true computes them in this process in each
    epoch and keeps them off the disk."""
    given = recipe.get("features") or {}
    if isinstance(given, (str, list)):
        return data.Folder(given)
    given = dict(given)
    stream, path = given.pop("stream", False), parts.out / "features"
    kind = KINDS[recipe["head"]["kind"]].features
    words = [recipe["model"], texts, "--kind", kind, *options(given)]
    if stream:
        return data.Stream(features.opened(features.read(words)))
    of = {"model": recipe["model"], "texts": texts, "kind": kind, **given}
    if not parts.is_done("features", of):
        parts.run("features", [sys.executable, "-B", "-m", "speclab", "features", *words, "--out", str(path)])
        parts.done("features", of)
    return data.Folder(path)


def answers(source, texts, share):
    """Returns (input_ids, loss_mask) of the conversations that are not held out. A stream is not computed for this: its
    texts are read."""
    if not isinstance(source, data.Stream):
        yield from data.answers_of(source, share)
        return
    with open(texts, encoding="utf-8") as f:
        for c in (json.loads(line) for line in f if line.strip()):
            if not data.is_held_out(c["input_ids"], c["loss_mask"], share):
                yield c["input_ids"], c["loss_mask"]


def make_head(source, texts, o, share):
    """Returns the untrained head and the share of answer tokens that its vocabulary covers. share: held-out share of
    conversations."""
    target, config = source.target()
    wanted = KINDS[o["kind"]].features
    if source.metadata["kind"] != wanted:
        raise SystemExit(f"features of kind {source.metadata['kind']}: a head of kind {o['kind']} needs {wanted}")
    config = {**config, "rope_theta": float(o.get("rope_theta") or config["rope_theta"])}
    earlier = read_weights(o["init"]) if o.get("init") else None
    size = len(earlier["ids"]) if earlier else o.get("draft_vocab") or config["vocab_size"]
    ids, covered = None, 1.0
    if size > config["vocab_size"]:
        raise SystemExit(f"head: {'init' if earlier else 'draft_vocab'}: expected at most {config['vocab_size']}, the target's tokens, found {size}")
    if size < config["vocab_size"]:
        count = data.count_answers(answers(source, texts, share), config["vocab_size"])
        ids = earlier["ids"] if earlier else data.draft_vocabulary(count, size)
        covered = data.coverage(count, ids)
    streams = len(source.metadata["layers"].split(",")) if wanted == "eagle3" else 1
    head = KINDS[o["kind"]](target, config, ids, {**o, "state_width": streams * config["hidden_size"]})
    if earlier:
        begin_with(head, earlier, o["init"])
    elif o["kind"] == "eagle3" and o.get("induction", True):
        streams, tokens = data.sample_states(source, share, 20000)
        induction.begin(head, streams, tokens)
    return head, covered


def read_weights(path):
    """Returns the weights in an earlier run's checkpoint, with the ids of its draft vocabulary."""
    try:
        head = torch.load(path, weights_only=True)["head"]
        if head["ids"].dtype != torch.long or head["ids"].dim() != 1:
            raise ValueError("ids: expected int64 in one dimension")
        return head
    except Exception as e:
        raise SystemExit(f"head: init: {path}: not a checkpoint of a head: {' '.join(str(e).split())[:200]}") from None


def begin_with(head, earlier, path):
    try:
        head.load_state_dict(earlier)
    except Exception as e:
        raise SystemExit(f"head: init: {path}: not of this head: {' '.join(str(e).split())[:200]}") from None


def prune(parts, head, source, recipe):
    """Returns the layers that a draft model keeps: chosen once, then read from kept.json."""
    path = parts.out / "kept.json"
    chosen = {"head": recipe["head"], "data": source.metadata.get("data")}
    if parts.is_done("prune", chosen):
        kept = parts.read(path) if path.exists() else None
        if not isinstance(kept, list) or not all(i in head.kept for i in kept) or not len(kept) == len(set(kept)) == head.wanted:
            raise SystemExit(f"{path}: expected {head.wanted} layers of the target, found {kept}; "
                             f"remove {parts.out / 'done' / 'prune.json'} to choose them again")
        head.keep_only(sorted(kept))
        return
    o = loop.read_options(recipe.get("train") or {})
    _, batch = next(data.training_batches(source, o, (0, 0, 0)))
    head.prune(batch)
    path.write_text(json.dumps(head.kept), encoding="utf-8")
    parts.done("prune", chosen)


def facts_of(recipe, source, head, covered, file):
    m = source.metadata
    return {"title": (recipe.get("export") or {}).get("title", f"{head.kind} head"), "target": recipe["model"],
            "recipe": pathlib.Path(file).read_text(encoding="utf-8"),
            "table": {"target's hash": m.get("model_hash", ""), "data's hash": m.get("data", ""), "draft vocabulary": len(head.ids),
                      "share of answer tokens in it": f"{covered:.4f}", "seed": (recipe.get("train") or {}).get("seed", 0),
                      "command": f"./run train {file}"}}


def compare(parts, recipe, folder, result):
    """Compares `speclab heads` with the held-out acceptance: a difference means that training and drafting do not
    agree."""
    o = {"positions": 2000, "new_tokens": 128, "context": 1024, **recipe["heads"]}
    path = parts.out / "heads.yaml"
    model = pathlib.Path(recipe["model"])
    kind, name = recipe["head"]["kind"], str(model.resolve()) if model.exists() else recipe["model"]
    drafter = {"kind": kind, "model" if kind == "small" else "weights": str(folder.resolve()), **({} if kind == "medusa" else {"tokens": 5})}
    path.write_text(yaml.safe_dump({
        "name": "heads", "target": {"model": name, "device": "cpu"},
        "prompts": {"file": str(pathlib.Path(o["prompts"]).resolve()), "chat": "auto"},
        "limits": {"new_tokens": o["new_tokens"], "context": o["context"]},
        "cells": {"sampling": [{"temperature": 0}], "drafter": [drafter]}}, sort_keys=False), encoding="utf-8")
    print("train: held-out acceptance in training, by depth: " + " ".join(f"{r:.4f}" for r in result["greedy"]), flush=True)
    parts.run("heads", [parts.speclab, "heads", str(path), "--tokens", str(o["positions"])])


def main():
    p = argparse.ArgumentParser(prog="./run train", description="Trains a draft head as FILE.yaml says (docs/training.md).")
    p.add_argument("recipe", metavar="FILE.yaml")
    p.add_argument("--speclab", default="speclab", help=argparse.SUPPRESS)
    a = p.parse_args()
    try:
        run(a.recipe, a.speclab)
    except KeyboardInterrupt:
        print("train: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)
    except (Fault, OSError) as e:
        raise SystemExit(f"train: {e}") from None


def run(file, speclab):
    os.environ["SPECLAB_PROGRAM"] = str(speclab)  # tools in this process and in others read it
    recipe = read_recipe(file)
    o = loop.read_options(recipe.get("train") or {})
    parts = Parts(recipe["out"], speclab)
    texts = write_texts(parts, recipe)
    source = open_features(parts, recipe, texts)
    torch.manual_seed(o["seed"])
    head, covered = make_head(source, texts, recipe["head"], o["held_out"])
    if head.kind == "small":
        prune(parts, head, source, recipe)
    count = sum(p.numel() for p in head.parameters())
    print(f"train: {head.kind}, {count / 1e6:.2f} M parameters, {len(head.ids)} tokens, which are {100 * covered:.2f} % of the answers",
          file=sys.stderr)
    of = {k: source.metadata.get(k) for k in ("data", "model_hash", "layers", "type", "activations", "cache")}
    result = loop.train(head, source, recipe.get("train") or {}, parts.out, {"head": recipe["head"], **of})
    e = recipe.get("export") or {}
    folder = parts.out / "head"
    size = export.write(head, folder, e.get("type", "bf16"), e.get("form", "published"), source.metadata,
                        facts_of(recipe, source, head, covered, file), result)
    print(f"train: wrote {folder}: {size / 1e6:.1f} MB", file=sys.stderr)
    if recipe.get("heads"):
        compare(parts, recipe, folder, result)
    if recipe.get("require") and result["greedy"][0] < recipe["require"]:
        raise SystemExit(f"train: held-out acceptance of the first draft token is {result['greedy'][0]:.3f}, required: {recipe['require']}")


if __name__ == "__main__":
    main()
