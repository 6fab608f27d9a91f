"""schema - a JSON schema of experiment files, from the engine's tables of options, so that editors complete keys and
check values. It needs the standard library alone.

It is draft 7, which yaml-language-server reads. What an experiment may write in the place of a value, a range or `any`
(experiments/sweep/variants.h), is accepted where it is. What depends on other files or on several keys at once is left
to `speclab run --dry-run`.
"""

import json
from typing import Any

from speclab import engine
from speclab.command import Options

Schema = dict[str, Any]
OBJECT, RANGE, PART = {"type": "object"}, {"$ref": "#/definitions/range"}, {"$ref": "#/definitions/part"}


def mapping(properties: Schema) -> Schema:
    """A mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def one_or_list(value: Schema, least: int = 0) -> list[Schema]:
    return [value, {"type": "array", **({"minItems": least} if least else {}), "items": value}]


# ---- values


def variants(value: Schema, number: bool = False) -> Schema:
    """The value, a range of it if it is a number, or any of several."""
    each = [value, RANGE] if number else [value]
    several = {"type": "object", "additionalProperties": False, "required": ["any"],
               "properties": {"any": {"type": "array", "minItems": 1, "items": {"anyOf": each}}}}  # fmt: skip
    return {"anyOf": [*each, several]}


def value_of(option: Schema) -> Schema:
    """One value of an option, without variants."""
    bounds = {} if option["min"] is None else {"minimum": option["min"], "maximum": option["max"]}
    return {
        "integer": {"type": "integer", **bounds},
        "number": {"type": "number", **bounds},
        "true or false": {"type": "boolean"},
        "one of": {"enum": option.get("choices")},
        "list of integers": {"type": "array", "items": variants({"type": "integer", **bounds}, True)},
        "mapping from token ids to numbers": {
            "type": "object", "additionalProperties": False,
            "patternProperties": {"^[0-9]+$": variants({"type": "number", **bounds}, True)}},
        "text or list": {"type": ["string", "number", "boolean", "array"]},
        "path": {"type": ["string", "number"]},
        "list": {"anyOf": one_or_list(PART, 1)},
    }[option["type"]]  # fmt: skip


def properties(options: list[Schema], with_variants: bool = True) -> Schema:
    """Each option by its name. with_variants: in cells, where a value may be a range or `any`."""
    made = {}
    for o in options:
        value = value_of(o)
        if with_variants and o["type"] != "list":
            value = variants(value, o["type"] in ("integer", "number"))
        made[o["name"]] = {**value, "description": o["help"] + (f"; default: {o['default']}" if o["default"] else "")}
    return made


def required(options: list[Schema]) -> Schema:
    names = [o["name"] for o in options if o["required"]]
    return {"required": names} if names else {}


# ---- drafters and rules


def kinds(entries: list[Schema], own: Schema) -> Schema:
    """A kind's name, or a mapping with `kind` and its options. own: keys that every kind has besides."""
    names, conditions = [e["name"] for e in entries], []
    for e in entries:
        then = mapping({**own, **properties(e["options"]), "kind": {"description": e["summary"]}, "zip": OBJECT})
        if needed := required(e["options"]):
            then["anyOf"] = [needed, {"required": ["zip"]}]  # an option may stand in a zip
        conditions.append({"if": {"properties": {"kind": {"const": e["name"]}}}, "then": then})
    options = {"type": "object", "required": ["kind"], "properties": {"kind": variants({"enum": names})}, "allOf": conditions}
    return {"anyOf": [{"enum": names}, options]}


def definitions(tables: Schema) -> Schema:
    number = {"type": "number"}
    length = {"type": ["string", "object"], "description": "adaptive, or options of the drafter adaptive: as many draft tokens as pay"}
    at_least = {"type": "integer", "minimum": 1, "description": "of ladder: draft tokens that the draft must have to be taken; default: 1"}
    alone = [d for d in tables["drafters"] if all(o["type"] != "list" for o in d["options"])]
    stages = [o for stage in tables["stages"] for o in stage["options"]]
    return {
        "range": {**mapping({"from": number, "to": number, "step": number, "factor": {"type": "integer"}}), "required": ["from", "to"]},
        "sampling": mapping({"zip": OBJECT, **properties(stages)}),
        "batch": {"type": "integer", "minimum": 1, "maximum": tables["max_batch"]},
        "rule": kinds(tables["rules"], {}),
        "drafter": kinds(tables["drafters"], {"length": length}),
        "part": kinds(alone, {"at_least": at_least}),
    }


# ---- the file

AXES = {
    "sampling": "sampling stages with their values; a list varies them",
    "batch": "how many texts are decoded at a time; a list varies it",
    "rule": "rules, by name or with options; a list varies them",
    "drafter": "drafters, by name or with options; a list varies them; none is added",
}


def cells() -> Schema:
    axes: Schema = {}
    for name, text in AXES.items():
        value = variants({"$ref": f"#/definitions/{name}"}, name == "batch")
        axes[name] = {"anyOf": [*value["anyOf"], one_or_list(value, 1)[1]], "description": text}
    axes["target"] = {"description": "targets, if they are not given beside `cells`"}
    partial = mapping(dict.fromkeys(axes, {}))
    both = {"zip": {"anyOf": one_or_list(mapping(axes))}, "exclude": {"anyOf": one_or_list(partial)}}
    return {**mapping({**axes, **both}), "description": "the cells: every combination of these lists"}


OTHER_KEYS = {  # those that no table describes, of a part by its key
    None: {
        "seed": {"type": "integer", "minimum": 0, "description": "seed of all random numbers; default: 0"},
        "plugins": {"type": "array", "items": {"type": "string"}, "description": "files of drafters and rules, as --plugin takes them"},
        "cells": cells(),
    },
    "prompts": {"chat": {"type": ["string", "object", "boolean"],
                         "description": "auto, none, chatml, vicuna, zephyr, a template's file, or {template: .., variables: {..}}"}},
    "limits": {"stop": {"type": ["string", "number", "boolean", "array"], "description": "texts that end an answer: one, or a list"}},
    "record": {"rows": {"anyOf": [{"const": "full"}, {"type": "integer", "minimum": 1}],
                        "description": "drafts with their rows of p and q: full, or how many entries of each row"}},
}  # fmt: skip


def schema(tables: Schema) -> Schema:
    """tables: what `speclab --tables` prints."""
    root, parts = tables["experiment"][0], tables["experiment"][1:]
    keys = {**properties(root["options"], False), **OTHER_KEYS[None]}
    needed = required(root["options"])["required"]
    for p in parts:
        is_target = p["key"] == "target"  # one or several, here or under `cells`
        part = {**mapping({**properties(p["options"], is_target), **OTHER_KEYS.get(p["key"], {})}), **required(p["options"])}
        keys[p["key"]] = {"anyOf": [part, {"type": "array"}]} if is_target else part
        needed += [p["key"]] if p["required"] else []
    about = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "An experiment of speclab"}
    return {**about, **mapping(keys), "patternProperties": {"^x-": {}}, "required": needed, "definitions": definitions(tables)}


def main(words: list[str]) -> int:
    o = Options("schema", "Prints a JSON schema of experiment files, with which editors complete keys, kinds and options and check their\n"
                "values: a line `# yaml-language-server: $schema=FILE` at the beginning of an experiment names it. What depends\n"
                "on other files is checked by `speclab run --dry-run`.", "  speclab schema > experiment.schema.json\n")  # fmt: skip
    print(json.dumps(schema(engine.tables(o, words)[1]), ensure_ascii=False))
    return 0
