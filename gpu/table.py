#!/usr/bin/env python3
"""table.py - one table of what `gpu/bench` measured: gpu/table.py bench.jsonl ...

A time is shown as the share of the floor in it: the bytes that must be read, at the bandwidth that reading was measured at on
this device, over the time. 100 % is a pass that only reads. Engines are columns; a pass or kernel that several measured
stands in one row. No bandwidth, no shares: then times alone are shown.
"""
import json
import sys

ORDER = ["speclab", "cublas", "transformers eager", "transformers compiled"]  # others behind them
UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "us")]


def records_of(paths):
    for path in paths:
        with open(path, errors="replace") as f:
            for number, line in enumerate(f, 1):
                try:
                    r = json.loads(line)
                    yield r | {"what": r["what"], "engine": r["engine"]}
                except (ValueError, KeyError, TypeError):  # the last line of what ran out of time
                    print(f"{path}:{number}: expected a measurement, found {line.strip()[:60]!r}: left out", file=sys.stderr)


def shown(seconds):
    for unit, name in UNITS:
        if seconds >= unit:
            break
    return f"{seconds / unit:.3g} {name}"


def cell(r, read):
    if r is None:
        return ""
    if not read or not r.get("bytes"):
        return shown(r["seconds"])
    return f"{100 * r['bytes'] / read / r['seconds']:.0f} % ({shown(r['seconds'])})"


def main(paths):
    records = list(records_of(paths))
    bandwidths = [r for r in records if r["what"] == "bandwidth"]
    read = max((r["read"] for r in bandwidths), default=0)
    copy = max((r["copy"] for r in bandwidths), default=0)
    device = next((r["device"] for r in bandwidths if "device" in r), "the device")
    if read:
        print(f"{device}: reads {read / 1e12:.3g} TB/s, copies {copy / 1e12:.3g} TB/s (read and written). Shares are of "
              "the former.\n")
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
        print("nothing was measured")
        return 1
    lines = [["what", "context", "n", "floor"] + engines]
    # Passes before kernels: in the order in which they came, which is by model, then contexts and rows.
    places = {what: i for i, what in enumerate(dict.fromkeys(k[0] for k in rows))}
    for key in sorted(rows, key=lambda k: (k[1] == "", places[k[0]], k[1] or 0, k[2] or 0)):
        by = rows[key]
        of_ours = next(by[e] for e in engines if e in by)
        floor = shown(of_ours["bytes"] / read) if read and of_ours.get("bytes") else ""
        lines.append([*map(str, key), floor] + [cell(by.get(e), read) for e in engines])
    for i, line in enumerate(lines):
        print("| " + " | ".join(line) + " |")
        if i == 0:
            print("|" + "---|" * len(line))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("table.py: which files of measurements?", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
