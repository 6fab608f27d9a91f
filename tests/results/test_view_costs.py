#!/usr/bin/env python3
"""test_view_costs.py - the work of a view grows with the database, not with its square: test_view_costs.py SOURCE

Twice the prompts, and twice the cells, may take up to three times the operations of SQLite's virtual machine; a join without its index takes four.
A view of two runs is asked about one of them, as a report does (`speclab report --against`).
"""

import json
import sqlite3
import sys
from pathlib import Path

SQL = Path(sys.argv[1]) / "results"
FILES = "schema.sql schema_shards.sql schema_bench.sql schema_exact.sql views.sql views_prediction.sql views_exports.sql"
EVERY = 100  # operations between two counts


def database(cells, prompts, batch):
    """cells, the first of them none, of one experiment; with a batch in one pair of four rounds."""
    c = sqlite3.connect(":memory:", isolation_level=None)
    for name in FILES.split():
        c.executescript((SQL / name).read_text())
    steps, number = 12, 0

    def put(table, **row):
        c.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    c.execute("BEGIN")
    for run in range(1, cells + 1):
        kind = "ngram" if run > 1 else "none"
        put("run", id=run, experiment="e", cell=f"c{run}", peers="p", settings="{}", target="t", target_hash="h", model_type="f32", activations="f32",
            cache="f32", drafter=f"{kind}(tokens={run})", drafter_kind=kind, rule="rejection", lossless=1, drafter_invariant=0, marked_inflated=0,
            sampling="temperature=0", prompts="x", seed=1, batch=batch, device="cpu", machine="m", revision="r", started="now", finished="now")  # fmt: skip
    for prompt in range(prompts):
        pair = 1 if batch > 1 else prompt + 1
        if batch == 1 or prompt == 0:
            put("pair", id=pair, experiment="e", started="now")
        for run in range(1, cells + 1):
            number += 1
            put("sequence", id=number, run=run, pair=pair, prompt=prompt, prompt_id=str(prompt), category="abc"[prompt % 3], turn=0, repeat=0,
                prompt_tokens=5, new_tokens=steps, steps=steps, shared_tokens=0, prefill_ns=1000, decode_ns=steps * 1000, wall_ns=steps * 1100,
                tokens=json.dumps([7] * steps), text_hash="h", text="t", stop="limit")  # fmt: skip
            for step in range(steps):
                drafted = int(run > 1)
                put("step", sequence=number, step=step, drafted=drafted, depth=drafted, accepted=0, tokens=1, propose_ns=10, verify_ns=900 + run, advance_ns=5,
                    at_ns=1000 * step, batch=batch, round=step // 3 if batch > 1 else 0)  # fmt: skip
    c.execute("INSERT INTO slice SELECT DISTINCT q.pair, q.run, s.round, 1000000, 0.0, 0 FROM step AS s JOIN sequence AS q ON q.id = s.sequence")
    c.execute("COMMIT")
    return c


def operations(c, query):
    count = [0]

    def more():
        count[0] += 1

    c.set_progress_handler(more, EVERY)
    c.execute(query).fetchall()
    c.set_progress_handler(None, 0)
    return count[0] * EVERY


bad = tried = 0
for batch in 1, 16:
    sizes = {"prompts": (4, 80), "cells": (8, 40)}
    small = database(4, 40, batch)
    views = [name for (name,) in small.execute("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name")]
    for grown, (cells, prompts) in sizes.items():
        large = database(cells, prompts, batch)
        for view in views:
            query = f"SELECT * FROM {view}" + (" WHERE against = 2" if view.startswith("against_") else "")
            before, after = operations(small, query), operations(large, query)
            tried += 1
            if after > 3 * before + 20000:
                bad += 1
                print(f"{view}: batch {batch}, twice the {grown}: expected at most 3 times {before} operations, found {after}")
print(f"{tried} queries, {bad} of them grow too fast")
sys.exit(bad > 0 or tried < 100)
