"""The text of `run --dry-run`, from what `speclab run --dry-run --json` prints. It needs the standard library alone."""

from typing import Any

Row = dict[str, Any]


def _time(ns: float) -> str:
    """Returns "90 s", "12 min", "2 h 5 min"."""
    s = (int(ns) + 500000000) // 1000000000
    minutes = (s + 30) // 60
    return f"{s} s" if s < 100 else f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _device(t: Row, d: Row) -> str:
    """Returns "5 MB, 20123 are available", or "5.0 MB of the 85899 on cuda:0"; devices have names if there are several.
    """
    own, first = d["of"] is not None, d is t["devices"][0]
    text = f"{d['bytes'] / 1e6:.{0 if first else 1}f} MB"
    text += f" of the {d['of'] / 1e6:.0f}" if own else f", {d['available'] / 1e6:.0f} are available" if d["available"] is not None else ""
    return text + (f" on {d['device']}" if own or len(t["devices"]) > 1 else "") + ": "


def _target(j: Row, t: Row) -> list[str]:
    others = t["devices"][0]["bytes"] - t["weight_bytes"] - t["scratch_bytes"] - t["cache_bytes"]
    return [
        f"target   {t['model']}: {t['weights']} weights, {t['activations']} activations, {t['cache']} cache, on {t['device']}"
        + "; marked as inflated" * t["inflated"],
        f"         {t['processor']}, {t['backend']}",
        f"prompts  {j['prompts_file']}, chat {t['chat']}, first turns of {t['prompt_tokens']:.0f} tokens on average, {t['longest']} at most;",
        f"         at most {j['new_tokens']} new tokens a turn, context {t['context']}",
        f"memory   {_device(t, t['devices'][0])}weights {t['weight_bytes'] / 1e6:.1f}, scratch {t['scratch_bytes'] / 1e6:.1f}; largest group: "
        f"{t['cache']} caches {t['cache_bytes'] / 1e6:.1f}, logits and drafters {others / 1e6:.1f}",
        *(f"         {_device(t, d)}drafters" for d in t["devices"][1:]),
    ]


def _end(j: Row) -> list[str]:
    turns, shard, lines = j["turns"], j["shard"], []
    if turns == 0:
        lines.append("time     none: all results are in the database")
    else:
        lines += [f"time     at most {_time(j['estimated_ns'])} to decode {turns} turns, without prompts"
                  + (";\n         estimated from the size of the weights at 10 GB/s, as the database has no such run" if j["assumes_bandwidth"]
                     else ", at the speed of\n         earlier runs in the database"),
                  f"disk     at most {j['bytes'] / 1e6:.1f} MB for these turns" + ", without what `record` adds" * j["records_more"]]  # fmt: skip
    if shard is not None:
        lines.append(f"shard    {shard['index']}/{shard['of']}{', by SLURM_ARRAY_TASK_ID' * shard['by_slurm']}: {shard['pairs']} of {j['all_pairs']} "
                     f"paired runs, {shard['conversations']} of {j['all_cells'] * j['prompts'] * j['repeat']} conversations; "
                     "what follows is of these")  # fmt: skip
    if j["left_out"] > 0:
        lines.append(f"cells    {j['left_out']} of the {j['listed_cells']} that the lists make are left out by zip or exclude")
    if j["none_added"]:
        lines.append("cells    the baseline `none` was added to the list of drafters")
    if j["repeat"] > 1:
        lines.append("done     conversations, over all repeats")
    return lines


def _cells(j: Row) -> list[str]:
    lines, several, group = ["", "  cell              conversations   drafter, rule"], len(j["targets"]) > 1, None
    for i, t in enumerate(j["targets"]):
        lines += ["", t["name"]] * several
        for c in (c for c in j["cells"] if c["target"] == i):
            if group != (group := (i, c["sampling"], c["batch"])):
                lines += ["", f"{c['sampling']}, batch {c['batch']}"]
            lines.append(f"  {c['cell']}  {c['done']:5} of {c['conversations']:<5}  {c['drafter']}, {c['rule']}")
            lines += [f"      {c['environment']}"] * (c["environment"] is not None)
    return lines


def text(j: Row) -> str:
    repeats = f"{j['repeat']} repeat{'s' * (j['repeat'] != 1)}"
    lines = [f"{j['experiment']}: {j['all_cells']} cells, {j['prompts']} prompts of {j['prompt_turns']} turns, {repeats}"]
    lines += [line for t in j["targets"] for line in _target(j, t)] + _end(j) + _cells(j)
    return "\n".join(lines) + "\n"
