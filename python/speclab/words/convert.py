"""convert - turns PyTorch's .pt and .bin files into safetensors files, which the engine reads. It needs the standard
library alone.
"""

import json
import os

from speclab import files, safetensors_files, torch_files
from speclab.command import Fault, Options

ABOUT = """Writes the tensors of a file of torch.save (.pt, .bin; a head's or a model's), or of a folder with such files, as safetensors files into a
new folder, with the configuration and the tokenizer that lie beside. PyTorch is not needed, and nothing in the file is executed."""
EXAMPLES = """  ./run convert medusa-vicuna-7b/medusa_lm_head.pt --out medusa
  ./run convert models/old-checkpoint --out models/checkpoint"""
NAMES = ("medusa_lm_head.pt", "pytorch_model.bin.index.json", "pytorch_model.bin")


def renamed(name: str) -> str:
    """Returns the name of the safetensors file: Medusa's own, or a model's."""
    stem = os.path.splitext(name)[0]
    known = stem == "medusa_lm_head" or stem.startswith("pytorch_model-")
    return (stem.removeprefix("pytorch_") if known else "model") + ".safetensors"


def main(words: list[str]) -> int:
    options = Options("convert", ABOUT, EXAMPLES)
    options.add_argument("file", metavar="FILE", help="the file, or a folder with pytorch_model.bin, its index, or medusa_lm_head.pt")
    options.option("--out", metavar="FOLDER", required=True, help="the folder to write, which must not exist yet")
    given = options.read(words)
    path = given.file.rstrip("/") or given.file
    if os.path.isdir(path):
        found = [name for name in NAMES if os.path.exists(f"{path}/{name}")]
        if not found:
            raise Fault(f"{path}: expected {', '.join(NAMES[:-1])} or {NAMES[-1]} in it, found none")
        path = f"{path}/{found[0]}"
    folder = os.path.dirname(path)
    beside = f"{folder}/" if folder else ""
    index = path.endswith(".index.json")
    where = safetensors_files.indexed(path) if index else {}
    tensors = size = 0
    with files.folder(given.out) as part:
        for name in sorted(set(where.values())) if index else [os.path.basename(path)]:
            read = torch_files.read(f"{beside}{name}")
            if index:
                read = [t for t in read if where.get(t.name) == name]
                if missing := {t for t, file in where.items() if file == name} - {t.name for t in read}:
                    raise Fault(f"{path}: tensor {min(missing)} should be in {beside}{name}, and is not")
            with open(f"{part}/{renamed(name)}", "xb") as out:
                safetensors_files.write(out, read, {"format": "pt"})
            tensors += len(read)
            size += sum(t.size for t in read)
        if index:
            content = {"metadata": {"total_size": size}, "weight_map": {t: renamed(file) for t, file in sorted(where.items())}}
            files.write(f"{part}/model.safetensors.index.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        if os.path.exists(f"{beside}config.json"):
            safetensors_files.copy_beside(folder or ".", part)
    print(f"{given.out}: {tensors} tensors, {size / 1e6:.1f} MB")
    return 0
