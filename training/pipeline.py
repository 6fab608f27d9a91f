"""pipeline.py - `./run train FILE.yaml`: distill, features, train, export, `speclab heads`; each part once, a killed one goes on.

A part that is complete leaves a file with its recipe in out/done/. A part whose recipe changed since is refused, not silently redone.
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

from training import data, eagle3, export, loop, medusa, small

KINDS = {"eagle3": eagle3.Eagle3, "eagle": eagle3.Eagle1, "medusa": medusa.Medusa, "small": small.Small}
KEYS = {"": ("model", "out", "data", "features", "head", "train", "export", "heads", "require"),
        "head": ("kind", "draft_vocab", "intermediate_size", "rope_theta", "heads", "layers", "output", "regression", "keep", "train_embedding"),
        "export": ("form", "type", "title")}
HEADS = """name: heads
target: {{model: {model}, device: cpu}}
prompts: {{file: {prompts}, chat: auto}}
limits: {{new_tokens: {new_tokens}, context: {context}}}
cells:
  sampling: [{{temperature: 0}}]
  drafter: [{{kind: {kind}, {key}: {head}{more}}}]
"""


def check_keys(o, part):
    for k in o:
        if k not in KEYS[part]:
            raise SystemExit(f"{part or 'top level'}: unknown key {k}; expected one of: {', '.join(KEYS[part])}")


def read_recipe(path):
    try:
        recipe = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as e:
        raise SystemExit(f"{path}: {e}") from None
    if not isinstance(recipe, dict):
        raise SystemExit(f"{path}: expected keys and values")
    check_keys(recipe, "")
    for part in ("head", "export"):
        check_keys(recipe.get(part) or {}, part)
    for k in ("model", "out", "head"):
        if k not in recipe:
            raise SystemExit(f"{path}: there is no key {k}")
    if recipe["head"].get("kind") not in KINDS:
        raise SystemExit(f"{path}: head: kind: expected one of {', '.join(KINDS)}, found {recipe['head'].get('kind')!r}")
    return recipe


class Parts:
    def __init__(self, out, speclab):
        self.out, self.speclab = pathlib.Path(out), speclab
        (self.out / "done").mkdir(parents=True, exist_ok=True)

    def is_done(self, name, recipe):
        path = self.out / "done" / f"{name}.json"
        if not path.exists():
            return False
        if json.loads(path.read_text(encoding="utf-8")) != recipe:
            raise SystemExit(f"{path}: {name} was done with another recipe; remove this file and what it made, or choose another `out`")
        print(f"train: {name} is done", file=sys.stderr)
        return True

    def done(self, name, recipe):
        path = self.out / "done" / f"{name}.json"
        path.with_suffix(".part").write_text(json.dumps(recipe), encoding="utf-8")
        os.replace(path.with_suffix(".part"), path)

    def run(self, name, command):
        print(f"train: {name}: {shlex.join(command)}", file=sys.stderr)
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            raise SystemExit(f"train: {name} failed with exit status {status}; the same command goes on from here")


def options(given):
    """{slots: 64, exclude: [a, b]} as --slots 64 --exclude a --exclude b."""
    out = []
    for k, v in given.items():
        for one in v if isinstance(v, list) else [v]:
            out += [f"--{k}"] if one is True else [f"--{k}", str(one)]
    return out


def write_texts(parts, recipe):
    """`data`: a file of conversations, or options of `speclab distill`, which goes on by itself after a kill."""
    given = recipe.get("data")
    if given is None or isinstance(given, str):
        return given
    path = str(parts.out / "data.jsonl")
    if not parts.is_done("distill", given):
        parts.run("distill", [parts.speclab, "distill", recipe["model"], *options(given), "--out", path])
        parts.done("distill", given)
    return path


def open_features(parts, recipe, texts):
    """`features`: a folder, or options of `speclab features`; stream: true keeps them off the disk."""
    given = recipe.get("features") or {}
    if isinstance(given, (str, list)):
        return data.Folder(given)
    given = dict(given)
    stream, path = given.pop("stream", False), parts.out / "features"
    if texts is None:
        raise SystemExit("features: there is no key data: expected a file of conversations, or options of speclab distill")
    command = [parts.speclab, "features", recipe["model"], texts, "--kind", KINDS[recipe["head"]["kind"]].features, *options(given)]
    if stream:
        return data.Stream([*command, "--stream"])
    if not parts.is_done("features", given):
        parts.run("features", [*command, "--out", str(path)])
        parts.done("features", given)
    return data.Folder(path)


def texts_or_shards(source, texts):
    if texts is None or not pathlib.Path(texts).exists():
        yield from data.answers_of(source)
        return
    with open(texts, encoding="utf-8") as f:
        for line in f:
            c = json.loads(line)
            yield c["input_ids"], c["loss_mask"]


def make_head(source, texts, o):
    """The untrained head and the share of answer tokens that its vocabulary covers."""
    target, config = source.target()
    wanted = KINDS[o["kind"]].features
    if source.metadata["kind"] != wanted:
        raise SystemExit(f"features of kind {source.metadata['kind']}: a head of kind {o['kind']} needs {wanted}")
    config = {**config, "rope_theta": float(o.get("rope_theta") or config["rope_theta"])}
    ids, covered = None, 1.0
    if o.get("draft_vocab"):
        ids, covered = data.draft_vocabulary(data.count_answers(texts_or_shards(source, texts), config["vocab_size"]), o["draft_vocab"])
    streams = len(source.metadata["layers"].split(",")) if wanted == "eagle3" else 1
    return KINDS[o["kind"]](target, config, ids, {**o, "state_width": streams * config["hidden_size"]}), covered


def prune(parts, head, source, recipe):
    """The layers that a draft model keeps: chosen once, then read from kept.json."""
    path = parts.out / "kept.json"
    chosen = {"head": recipe["head"], "data": source.metadata.get("data")}
    if parts.is_done("prune", chosen):
        kept = json.loads(path.read_text(encoding="utf-8"))
        head.layers = torch.nn.ModuleList(head.layers[i] for i in kept)
        head.kept = kept
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
    """`speclab heads` beside the held-out acceptance: a difference means that training and drafting do not agree."""
    o = {"positions": 2000, "new_tokens": 128, "context": 1024, **recipe["heads"]}
    path = parts.out / "heads.yaml"
    model = pathlib.Path(recipe["model"])
    path.write_text(HEADS.format(model=model.resolve() if model.exists() else model, kind=recipe["head"]["kind"], head=folder.resolve(),
                                 key="model" if recipe["head"]["kind"] == "small" else "weights",
                                 prompts=pathlib.Path(o["prompts"]).resolve(), new_tokens=o["new_tokens"], context=o["context"],
                                 more=", tokens: 5" if recipe["head"]["kind"] != "medusa" else ""), encoding="utf-8")
    print("train: held-out acceptance in training, by depth: " + " ".join(f"{r:.4f}" for r in result["greedy"]), flush=True)
    parts.run("heads", [parts.speclab, "heads", str(path), "--tokens", str(o["positions"])])


def main():
    p = argparse.ArgumentParser(prog="./run train", description="Trains a draft head as FILE.yaml says (docs/training.md).")
    p.add_argument("recipe", metavar="FILE.yaml")
    p.add_argument("--speclab", default="speclab", help=argparse.SUPPRESS)
    a = p.parse_args()
    recipe = read_recipe(a.recipe)
    parts = Parts(recipe["out"], a.speclab)
    texts = write_texts(parts, recipe)
    source = open_features(parts, recipe, texts)
    torch.manual_seed((recipe.get("train") or {}).get("seed", 0))
    head, covered = make_head(source, texts, recipe["head"])
    if head.kind == "small":
        prune(parts, head, source, recipe)
    count = sum(p.numel() for p in head.parameters())
    print(f"train: {head.kind}, {count / 1e6:.2f} M parameters, {len(head.ids)} tokens, which are {100 * covered:.2f} % of the answers",
          file=sys.stderr)
    result = loop.train(head, source, recipe.get("train") or {}, parts.out, {"head": recipe["head"], "data": source.metadata.get("data")})
    e = recipe.get("export") or {}
    folder = parts.out / "head"
    size = export.write(head, folder, e.get("type", "bf16"), e.get("form", "published"), source.metadata,
                        facts_of(recipe, source, head, covered, a.recipe), result)
    print(f"train: wrote {folder}: {size / 1e6:.1f} MB", file=sys.stderr)
    if recipe.get("heads"):
        compare(parts, recipe, folder, result)
    if recipe.get("require") and result["greedy"][0] < recipe["require"]:
        raise SystemExit(f"train: held-out acceptance of the first draft token is {result['greedy'][0]:.3f}, required: {recipe['require']}")


if __name__ == "__main__":
    main()
