"""The text of `run --dry-run`: every line of it, of two targets with a device of their own, and what the program's own words become."""

from speclab.dry_run import text

CELL = {"cell": "0" * 32, "target": 0, "sampling": "temperature=0", "batch": "1", "drafter": "ngram", "rule": "match", "done": 3, "conversations": 40,
        "environment": None}  # fmt: skip
HOST = {"device": "cpu", "bytes": 2_500_000, "of": None, "available": 20_000_000}
TARGET = {"name": "a (b)", "model": "a", "weights": "q8_0", "activations": "int8", "cache": "f32", "device": "cpu", "inflated": False,
          "processor": "a processor", "backend": "avx2, 1 thread", "chat": "none", "prompt_tokens": 10.5, "longest": 12, "context": 64,
          "weight_bytes": 1_000_000, "scratch_bytes": 500_000, "cache_bytes": 250_000, "devices": [HOST]}  # fmt: skip
PLAN = {"experiment": "x", "turns": 7, "estimated_ns": 3e11, "assumes_bandwidth": False, "bytes": 1_240_000.0, "records_more": False, "all_cells": 2,
        "listed_cells": 2, "left_out": 0, "none_added": False, "prompts_file": "p", "prompts": 5, "prompt_turns": 8, "repeat": 1, "all_pairs": 5,
        "new_tokens": 16, "shard": None, "targets": [TARGET], "cells": [CELL, CELL | {"drafter": "none", "environment": "the note"}]}  # fmt: skip


def test_the_text_of_a_plan():
    assert text(PLAN) == f"""\
x: 2 cells, 5 prompts of 8 turns, 1 repeat
target   a: q8_0 weights, int8 activations, f32 cache, on cpu
         a processor, avx2, 1 thread
prompts  p, chat none, first turns of 10 tokens on average, 12 at most;
         at most 16 new tokens a turn, context 64
memory   2 MB, 20 are available: weights 1.0, scratch 0.5; largest group: f32 caches 0.2, logits and drafters 0.8
time     at most 5 min to decode 7 turns, without prompts, at the speed of
         earlier runs in the database
disk     at most 1.2 MB for these turns

  cell              conversations   drafter, rule

temperature=0, batch 1
  {"0" * 32}      3 of 40     ngram, match
  {"0" * 32}      3 of 40     none, match
      the note
"""


def test_what_is_not_always_said():
    gpu = {"device": "cuda:0", "bytes": 2_500_000, "of": 85_899_000_000, "available": None}
    plan = PLAN | {"targets": [TARGET, TARGET | {"name": "c", "inflated": True, "devices": [gpu, HOST | {"available": None}]}], "repeat": 2,
                   "cells": [CELL, CELL | {"target": 1}, CELL | {"target": 1, "batch": "2"}], "turns": 0, "left_out": 1, "listed_cells": 3,
                   "none_added": True, "shard": {"index": 1, "of": 4, "by_slurm": True, "pairs": 2, "conversations": 6}}  # fmt: skip
    said = text(plan)
    for line in ["x: 2 cells, 5 prompts of 8 turns, 2 repeats", "target   a: q8_0 weights, int8 activations, f32 cache, on cpu; marked as inflated",
                 "memory   2 MB of the 85899 on cuda:0: weights 1.0, scratch 0.5; largest group: f32 caches 0.2, logits and drafters 0.8",
                 "         2.5 MB on cpu: drafters", "time     none: all results are in the database",
                 "shard    1/4, by SLURM_ARRAY_TASK_ID: 2 of 5 paired runs, 6 of 20 conversations; what follows is of these",
                 "cells    1 of the 3 that the lists make are left out by zip or exclude",
                 "cells    the baseline `none` was added to the list of drafters", "done     conversations, over all repeats"]:  # fmt: skip
        assert f"{line}\n" in said, line
    row = "  " + "0" * 32 + "      3 of 40     ngram, match\n"
    assert said.endswith(f"\na (b)\n\ntemperature=0, batch 1\n{row}\nc\n\ntemperature=0, batch 1\n{row}\ntemperature=0, batch 2\n{row}")
    unmeasured = text(PLAN | {"assumes_bandwidth": True, "estimated_ns": 8.1e12, "records_more": True})
    assert "at most 2 h 15 min to decode 7 turns, without prompts;\n         estimated from the size of the weights at 10 GB/s" in unmeasured
    assert "for these turns, without what `record` adds\n" in unmeasured


def test_the_program_s_plan_is_printed(tiny, speclab, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "x.yaml").write_text(f"name: x\ntarget: {{model: {tiny}}}\nprompts: {{file: p.jsonl, chat: none}}\ncells: {{drafter: [ngram]}}\n")
    done = speclab("run", "x.yaml", "--dry-run", "--shard=1/2", "--db=none.db")
    assert done.status == 0 and not done.err and done.out.startswith("x: 2 cells, 1 prompts of 1 turns, 1 repeat\n")
    assert speclab("run", "y.yaml", "--dry-run").err == "speclab run: y.yaml: No such file or directory\n"
