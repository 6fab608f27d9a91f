"""user_file - a Python file of the user's that declares a dataset, an export or a figure. It needs the standard library
alone.
"""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speclab import files
from speclab.command import Fault


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns what the file's code raises in the block into a Fault, with its line."""
    try:
        yield
    except (Fault, BrokenPipeError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as why:  # includes sys.exit()
        try:
            text = " ".join(str(why).split())[:1000]
        except Exception:
            text = "(which has no text)"
        lines = [f.lineno for f in traceback.extract_tb(why.__traceback__) if f.filename == path]
        line = why.lineno if isinstance(why, SyntaxError) else lines[-1] if lines else 1
        raise Fault(f"{path}:{line}: {type(why).__name__}: {text}") from None


def load(path: str) -> dict[str, Any]:
    """Returns the names of the file, which is run. Raises Fault."""
    source = files.read_text(path)
    names: dict[str, Any] = {"__name__": Path(path).stem, "__file__": path}
    with explained(path):
        exec(compile(source, path, "exec"), names)
    return names
