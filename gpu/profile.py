#!/usr/bin/env python3
"""profile.py - the figures of profiled kernels that matter here: gpu/profile.py ncu.csv

Reads what `ncu --page raw --csv` prints with the sections SpeedOfLight, Occupancy, WarpStateStats and LaunchStats. For each kernel:
its time, the throughput of device memory and of the second cache as shares of their peaks, achieved occupancy, registers, and
why warps wait (cycles for each instruction that is issued, by reason, the largest first). Exit status 1: no kernel.
"""
import csv
import re
import sys

FIGURES = [  # name, metrics of which the first that is there counts
    ("time", ["gpu__time_duration.sum"]),
    ("DRAM", ["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed"]),
    ("L2", ["lts__throughput.avg.pct_of_peak_sustained_elapsed"]),
    ("occupancy", ["sm__warps_active.avg.pct_of_peak_sustained_active"]),
    ("instructions issued a cycle", ["smsp__issue_active.avg.per_cycle_active"]),
    ("registers", ["launch__registers_per_thread"]),
]
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def shown(row, units, metrics):
    for metric in metrics:
        value = number(row.get(metric) or "")
        if value is not None:
            return f"{value:.4g} {units.get(metric) or ''}".strip()
    return "?"


def profile_of(row, units):
    figures = ", ".join(f"{name} {shown(row, units, metrics)}" for name, metrics in FIGURES)
    stalls = sorted(((number(row[k]) or 0, m.group(1)) for k in row if k and (m := STALL.fullmatch(k))), reverse=True)
    waits = ", ".join(f"{name} {value:.2f}" for value, name in stalls[:6] if value >= 0.005)
    return f"profile: {row.get('Kernel Name', '?')[:80]}: {figures}; waits: {waits or '?'}"


def main(path):
    with open(path, errors="replace", newline="") as f:
        lines = [line for line in f if line.startswith('"')]  # the program's and ncu's own lines do not
    rows = list(csv.DictReader(lines))
    units, kernels = (rows[0], rows[1:]) if rows else ({}, [])
    for row in kernels:
        print(profile_of(row, units))
    if not kernels:
        print(f"ERROR: {path}: expected a profiled kernel, found none", file=sys.stderr)
    return 0 if kernels else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("profile.py: expected one file of ncu", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
