"""recipe.py - reads FILE.yaml of `./run train` and checks all of it, so that no mistake shows only after hours of the
parts before it.
"""
import pathlib

import yaml

from training.loop import number_of, read_options

HEAD = {"eagle3": ("draft_vocab", "induction", "intermediate_size", "rope_theta"), "eagle": ("regression", "rope_theta"),
        "medusa": ("draft_vocab", "heads", "layers", "output"), "small": ("keep", "train_embedding")}
KEYS = {"": ("model", "out", "data", "features", "head", "train", "export", "heads", "require"), "export": ("form", "type", "title"),
        "heads": ("prompts", "positions", "new_tokens", "context")}
CHOICES = {("export", "form"): ("published", "speculators"), ("export", "type"): ("bf16", "f32", "f16"), ("head", "output"): ("one", "own", "target")}
INTEGERS = {"head": ("draft_vocab", "intermediate_size", "heads", "layers"), "heads": ("positions", "new_tokens", "context")}


def refuse(key, expected, found):
    raise SystemExit(f"{key}: expected {expected}, found {found!r}")


def check_keys(o, part, known):
    if not isinstance(o, dict):
        refuse(part, "keys and values", o)
    for k in o:
        if k not in known:
            raise SystemExit(f"{part or 'top level'}: unknown key {k}; expected one of: {', '.join(known)}")


def check_values(o, part):
    for k in INTEGERS.get(part, ()):
        if k in o and (type(o[k]) is not int or o[k] < 1):
            refuse(f"{part}: {k}", "a positive integer", o[k])
    for (p, k), known in CHOICES.items():
        if p == part and k in o and o[k] not in known:
            refuse(f"{part}: {k}", f"one of {', '.join(known)}", o[k])


def check_head(o):
    if not isinstance(o, dict):
        refuse("head", "keys and values", o)
    kind = o.get("kind")
    if not isinstance(kind, str) or kind not in HEAD:
        refuse("head: kind", f"one of {', '.join(HEAD)}", kind)
    check_keys(o, f"head of kind {kind}", ("kind", "init", *HEAD[kind]))
    if "init" in o and (not isinstance(o["init"], str) or not pathlib.Path(o["init"]).is_file()):
        refuse("head: init", "checkpoint.pt of an earlier run", o["init"])
    if "init" in o and "draft_vocab" in o:
        refuse("head: draft_vocab", "nothing beside init, whose draft vocabulary the head has", o["draft_vocab"])
    check_values(o, "head")
    for k in ("rope_theta", "regression"):
        if k in o:
            o[k] = number_of(f"head: {k}", o[k], 0)
    if o.get("output") == "target" and "draft_vocab" in o:
        refuse("head: draft_vocab", "nothing: with output: target heads predict all of the target's tokens", o["draft_vocab"])
    for k in ("induction", "train_embedding"):
        if type(o.get(k, False)) is not bool:
            refuse(f"head: {k}", "true or false", o[k])
    keep = o.get("keep", 4)
    if type(keep) is not int and not (isinstance(keep, list) and all(type(i) is int for i in keep)):
        refuse("head: keep", "how many layers, or a list of their numbers", keep)


def check_sources(path, r):
    """Checks the sources of texts and features."""
    texts, features = r.get("data"), r.get("features")
    if not isinstance(features, (str, list, dict, type(None))) or features == "":
        refuse("features", "a folder, a list of folders, or options of speclab features", features)
    if isinstance(features, list) and (not features or not all(isinstance(f, str) for f in features)):
        refuse("features", "a list of folders", features)
    if not isinstance(texts, (str, dict, type(None))) or texts in ("", {}):
        refuse("data", "a file of texts, or options of speclab distill as in {invent: 1000}", texts)
    if isinstance(texts, str) and not pathlib.Path(texts).is_file():
        raise SystemExit(f"data: {texts}: there is no such file")
    if texts is None and not isinstance(features, (str, list)):
        raise SystemExit(f"{path}: there is no key data: expected a file of texts, or options of speclab distill")
    for part, own in ((texts, ("out",)), (features, ("out", "kind"))):
        for k in own if isinstance(part, dict) else ():
            if k in part:
                raise SystemExit(f"{'data' if part is texts else 'features'}: {k}: is chosen by the recipe; expected other options")
    if isinstance(features, dict) and type(features.get("stream", False)) is not bool:
        refuse("features: stream", "true or false", features["stream"])


def read_recipe(path):
    try:
        r = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise SystemExit(f"{path}: {' '.join(str(e).split())}") from None
    if not isinstance(r, dict):
        raise SystemExit(f"{path}: expected keys and values")
    check_keys(r, "", KEYS[""])
    for k in ("model", "out", "head"):
        if k not in r:
            raise SystemExit(f"{path}: there is no key {k}")
    for k in ("model", "out"):
        if not isinstance(r[k], str) or r[k] == "":
            refuse(k, "a name", r[k])
    check_sources(path, r)
    check_head(r["head"])
    for part in ("export", "heads"):
        if r.get(part) is not None:
            check_keys(r[part], part, KEYS[part])
            check_values(r[part], part)
    if r.get("heads") is not None:
        prompts = r["heads"].get("prompts")
        if not isinstance(prompts, str) or not pathlib.Path(prompts).is_file():
            refuse("heads: prompts", "a file of prompts", prompts)
    if r.get("require") is not None:
        r["require"] = number_of("require", r["require"], 0)
    if r.get("train") is not None and not isinstance(r["train"], dict):
        refuse("train", "keys and values", r["train"])
    o = read_options(r.get("train") or {})
    heads = r["head"].get("heads", 4)
    if r["head"]["kind"] == "medusa" and heads > o["depths"]:
        raise SystemExit(f"train: depths: expected at least {heads}, since head j is depth j, found {o['depths']}")
    return r
