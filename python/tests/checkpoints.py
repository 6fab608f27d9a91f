"""What tests of models' files share: models made by the tests' writers, their tensors, and what the engine computes with them."""

import json
import subprocess
from pathlib import Path

import gguf
import numpy as np
from conftest import BUILD, engine

from speclab import checkpoint
from speclab.safetensors_files import Tensor, write

TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"]
TEXT = json.dumps({"ids": [1, 20, 100, 269, 7, 66, 2, 35, 5, 90, 41]}) + "\n"


def small(path: Path, *keys: str) -> Path:
    """A model with random weights, a GGUF file or a directory (tests/support/write_small_model.c)."""
    subprocess.run([BUILD / "write_small_model", path, *keys], check=True)
    return path


def logprobs(path, texts=TEXT, *how) -> str:
    """The logarithms of the probabilities of a text's tokens, with all digits."""
    return engine("inspect", "--score", path, "--threads", "1", *how, stdin=texts)


def fp8_of(golden) -> list[dict]:
    """The models of FP8 among those of the fixture: name, fp8, and plain, the same numbers in F32."""
    return [m for m in golden.values() if "fp8" in m]


def numbers(line: str) -> np.ndarray:
    return np.array(json.loads(line)["logprobs"])


def tensors(path) -> dict[str, tuple]:
    """{name: (type, shape, bytes)} of a GGUF file, or of a directory or file of safetensors."""
    found = checkpoint.stored_in_gguf(str(path))[0] if str(path).endswith(".gguf") else checkpoint.stored_in(str(path))
    return {t.name: (t.kind, t.shape, b"".join(t.pieces())) for t in found}


def metadata(path) -> dict:
    """GGUF's keys and values."""
    return {k: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}


def edit_json(path: Path, **keys):
    config = json.loads(path.read_text())
    config.update(keys)
    path.write_text(json.dumps(config))


def edit_tensors(path: Path, change):
    """`change` gets {name: (type, shape, bytes)} of a directory's one safetensors file, and returns it changed."""
    found = change(tensors(path))
    with open(path / "model.safetensors", "wb") as f:
        write(f, [Tensor(name, kind, shape, len(raw), made=lambda raw=raw: [raw]) for name, (kind, shape, raw) in found.items()])
