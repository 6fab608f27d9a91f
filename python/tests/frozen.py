"""A database of results whose numbers are the same on every machine: a small experiment, with times that are functions of its rows."""

import os
import sqlite3
import subprocess
from pathlib import Path

from conftest import ROOT

EXPERIMENT = """name: frozen
target: {{model: {model}, device: cpu}}
threads: 1
prompts: {{file: {prompts}, chat: chatml}}
limits: {{new_tokens: 16, context: 448}}
seed: 7
cells:
  sampling: [{{temperature: 0}}, {{temperature: 0.8}}]
  rule: [rejection, {{kind: typical}}]
  drafter: [{{kind: none}}, {{kind: ngram, longest: 2, tokens: {{any: [3, 6]}}}}, {{kind: recycling}}]
"""


def freeze(path: Path) -> None:
    """Makes times functions of the rows, dates and machines constants."""
    db = sqlite3.connect(path)
    noise = "((sequence * 7919 + step * 104729 + {} * 1299709) % 100003)"
    steps = f"propose_ns = 20000 * drafted + {noise.format(1)}, verify_ns = 900000 + 40000 * drafted + {noise.format(2)}, advance_ns = 10000"
    db.executescript(f"""
        UPDATE step SET {steps}, round = step / 16;
        UPDATE step SET at_ns = (SELECT sum(s.propose_ns + s.verify_ns + s.advance_ns) FROM step AS s
                                 WHERE s.sequence = step.sequence AND s.step <= step.step);
        UPDATE sequence SET prefill_ns = 1500000 + id * 7919 % 100003,
            decode_ns = (SELECT coalesce(sum(propose_ns + verify_ns + advance_ns), 0) FROM step WHERE sequence = sequence.id);
        UPDATE sequence SET wall_ns = decode_ns + 5000;
        DELETE FROM slice;
        INSERT INTO slice SELECT DISTINCT q.pair, q.run, s.round, 100000000, 0.0, 0 FROM step AS s JOIN sequence AS q ON q.id = s.sequence;
        UPDATE run SET started = '2026-01-01T00:00:00Z', finished = started, machine = 'm, 1 threads', revision = 'r', folder = '/f',
            model_path = '/m', prompts_path = '/p';
        UPDATE pair SET started = '2026-01-01T00:00:00Z', uuid = printf('%032x', id);""")
    db.close()


def make(tiny: Path, folder: Path) -> Path:
    """frozen.db in the folder."""
    (folder / "frozen.yaml").write_text(EXPERIMENT.format(model=tiny, prompts=ROOT / "experiments/data/smoke.jsonl"))
    subprocess.run([os.environ["SPECLAB_PROGRAM"], "run", folder / "frozen.yaml", "--db", folder / "frozen.db", "--no-probe"],
                   check=True, capture_output=True)  # fmt: skip
    freeze(folder / "frozen.db")
    return folder / "frozen.db"
