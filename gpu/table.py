#!/usr/bin/env python3
"""table.py - tables of the measurements of `gpu/bench`: gpu/table.py bench.jsonl ...

Measurements of the decoding loop (gpu/loop.py) have their own table. Other times are shown as a share of the floor: the time to
read the bytes that must be read, at the bandwidth of a copy measured on this device, over the measured time. A pass that only
reads may exceed 100 %: reading is faster than copying. c is the time over that of one row. Engines are columns; a pass or
kernel measured by several engines is one row. Without a bandwidth only times are shown.
"""
import json
import sys

ORDER = ["speclab", "cublas", "transformers eager", "transformers compiled"]  # others follow
UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "us")]


def records_of(paths):
    for path in paths:
        with open(path, errors="replace") as f:
            for number, line in enumerate(f, 1):
                try:
                    r = json.loads(line)
                    yield r | {"what": r["what"], "engine": r["engine"]}
                except (ValueError, KeyError, TypeError):  # the last line of a phase that ran out of time
                    print(f"{path}:{number}: expected a measurement, found {line.strip()[:60]!r}: skipped", file=sys.stderr)


def shown(seconds):
    for unit, name in UNITS:
        if seconds >= unit:
            break
    return f"{seconds / unit:.3g} {name}"


def cell(r, one, copy):  # one: the measurement of one row
    if r is None:
        return ""
    text = shown(r["seconds"])
    if one and r.get("rows", 1) != 1:
        text += f", c {r['seconds'] / one['seconds']:.2f}"
    if not copy or not r.get("bytes"):
        return text
    return f"{100 * r['bytes'] / copy / r['seconds']:.0f} % ({text})"


def print_table(lines):
    for i, line in enumerate(lines):
        print("| " + " | ".join(line) + " |")
        if i == 0:
            print("|" + "---|" * len(line))


def part(r, phase):
    alone = r["passes"][phase]
    return "" if alone is None else signed(r[phase] - alone)


def signed(seconds):
    return "" if seconds is None else ("-" if seconds < 0 else "") + shown(abs(seconds))


def loop_line(r):
    passes = None if None in r["passes"].values() else sum(r["passes"].values())
    marks = ("*" if r["lossy"] else "") + ("" if r["finished"] else " (part)")
    pace = r["wall_tokens_per_s"]
    return [r["what"] + (" (inflated)" if r["inflated"] else ""), r["sampling"], str(r["slots"]), r["drafter"] + marks,
            f"{r['tokens_per_s']:.0f}" + ("" if pace is None else f" ({pace:.0f})"), f"{r['tokens_per_step']:.2f}",
            "" if r["speedup"] is None else f"{r['speedup']:.2f}", shown(r["step"]), signed(passes),
            signed(r["overhead"]), *(part(r, phase) for phase in ("propose", "verify", "advance")), signed(r["rest"])]


def print_loop(records):
    machines = "; ".join(dict.fromkeys(r["machine"] for r in records))
    print(f"The decoding loop, on {machines}. tokens/s: in brackets with the time between steps. passes: those of a step, "
          "measured alone; overhead: the time of a step beyond its passes, in total and by phase. *: LOSSY, for timing only.\n")
    print_table([["model", "sampling", "slots", "drafter", "tokens/s", "tokens per step", "speedup", "step", "passes",
                  "overhead", "propose", "verify", "advance", "between steps"]] + [loop_line(r) for r in records])
    print()


def main(paths):
    records = list(records_of(paths))
    loop = [r for r in records if r["engine"] == "loop"]
    if loop:
        print_loop(loop)
    bandwidths = [r for r in records if r["what"] == "bandwidth"]
    read = max((r["read"] for r in bandwidths), default=0)
    copy = max((r["copy"] for r in bandwidths), default=0)
    device = next((r["device"] for r in bandwidths if "device" in r), "the device")
    if read:
        print(f"{device}: reads {read / 1e12:.3g} TB/s, copies {copy / 1e12:.3g} TB/s (read and written). Shares are of "
              "the latter.\n")
    for r in records:
        if "seconds" in r and r["engine"] == "probe":
            print(f"{r['what']}: {shown(r['seconds'])}\n")
    rows, engines = {}, set()
    for r in records:
        if "seconds" in r and r["engine"] != "probe":
            rows.setdefault((r["what"], r.get("context", ""), r.get("rows", "")), {})[r["engine"]] = r
            engines.add(r["engine"])
    engines = [e for e in ORDER if e in engines] + sorted(engines - set(ORDER))
    if not rows:
        print("no other measurements" if loop else "no measurements")
        return 0 if loop else 1
    lines = [["what", "context", "n", "floor"] + engines]
    # Passes before kernels, in the order of the file (by model), then by context and rows.
    places = {what: i for i, what in enumerate(dict.fromkeys(k[0] for k in rows))}
    for key in sorted(rows, key=lambda k: (k[1] == "", places[k[0]], k[1] or 0, k[2] or 0)):
        by = rows[key]
        first = next(by[e] for e in engines if e in by)
        floor = shown(first["bytes"] / copy) if copy and first.get("bytes") else ""
        one = rows.get((*key[:2], 1), {})
        lines.append([*map(str, key), floor] + [cell(by.get(e), one.get(e), copy) for e in engines])
    print_table(lines)
    if any(e.startswith("cublas") for e in engines):
        print("\ncublas: in kernels the input of all products of a graph is converted once, before them; in passes each input by a "
              "kernel of its own, four a layer. speclab's are written by the operation that makes them.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("table.py: expected files of measurements", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
