"""What a step costs more with an empty drafter in Python than with none: `./run python dev/door_cost.py MODEL` (docs/performance.md).

Each round decodes one text and 41, without and with the drafter, in turn; the difference is of 40 texts of 450 tokens, of a step each. The
processor's time is compared, which other processes disturb less than the clock's.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EMPTY = """
import speclab
class Empty(speclab.Drafter):
    "proposes nothing"
    def propose(self, request, draft):
        pass
"""
FEW, MANY, TOKENS, ROUNDS = 1, 41, 450, 9


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(model: str, folder: Path, drafter: str, texts: int) -> float:
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"id": str(i), "prompt": f"red green red {i}"}) + "\n" for i in range(texts)))
    words = ["generate", model, "--plugin", folder / "empty.py", "--drafter", drafter, "--threads", 1, "--tokens", TOKENS, "--ignore-end",
             "--jsonl", "--batch", 1, "--prompts", folder / "prompts.jsonl"]  # fmt: skip
    before = processor_seconds()
    subprocess.run([sys.executable, "-m", "speclab", *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return processor_seconds() - before


def main(model: str) -> None:
    more = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty.py").write_text(EMPTY)
        for k in range(ROUNDS):
            step = {}
            for drafter in ("none", "empty") if k % 2 else ("empty", "none"):
                both = [seconds(model, folder, drafter, n) for n in (FEW, MANY)]
                step[drafter] = (both[1] - both[0]) / ((MANY - FEW) * TOKENS) * 1e6
            more.append(step["empty"] - step["none"])
            print(f"us a step: none {step['none']:.1f}, empty {step['empty']:.1f}", flush=True)
    print(f"the door: {statistics.median(more):.1f} us a step ({min(more):.1f} to {max(more):.1f})")


if __name__ == "__main__":
    main(sys.argv[1])
