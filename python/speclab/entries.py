"""entries - reads the entries of a dataset's file, one object at a time: JSON Lines, one JSON list, either gzipped;
parquet by pyarrow. Except for parquet it needs the standard library alone.

Each entry of a list is parsed separately, so that an error names the entry.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from speclab.command import Fault
from speclab.datasets import Dataset
from speclab.digest import content_hash
from speclab.files import open_input, read
from speclab.strict_json import lines_of, parse, reason
from speclab.user_file import explained

MOST = 4 << 30  # maximum bytes of a file, unpacked

_OTHERS = {
    b"PK\3\4": "a ZIP archive; `unzip` unpacks it", b"\x28\xb5\x2f\xfd": "a Zstandard file; `zstd -d` unpacks it",
    b"BZh": "a bzip2 file; `bunzip2 -k` unpacks it", b"\xfd7zXZ": "an XZ file; `unxz -k` unpacks it", b"\xff\xfe": "UTF-16 (its byte order mark)",
    b"version https://git-lfs": "Git LFS's pointer to the file; `git lfs pull` fetches it"}  # fmt: skip
_BLANK, _BEHIND = re.compile(r"[ \t\r\n]*"), re.compile(r"[ \t\r\n]*([],])[ \t\r\n]*")


def _unpacked(path: str) -> bytes:
    """Returns the content of a file that may be JSON. Raises Fault."""
    data = read(path, MOST)
    for begin, what in _OTHERS.items():
        if data.startswith(begin):
            raise Fault(f"{path}: expected JSON lines or one JSON list in UTF-8, found {what}")
    if not data:
        raise Fault(f"{path}: the file is empty")
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST + 1)
        except (OSError, EOFError, zlib.error):
            raise Fault(f"{path}: expected a gzip file, found one that is damaged or cut off") from None
        if len(data) > MOST:
            raise Fault(f"{path}: expected a gzip file of at most {MOST >> 30} GiB unpacked, found more")
    return data


def _elements(path: str, text: str, at: int) -> Iterator[tuple[str, Any]]:
    """Returns the entries of a list. `text`: a character for each byte, which leaves JSON's signs in their places."""
    decode, at, n = json.JSONDecoder().raw_decode, _BLANK.match(text, at).end(), 0
    more, at = (False, at + 1) if text[at : at + 1] == "]" else (True, at)
    while more:
        try:
            end = decode(text, at)[1]
            value = parse(text[at:end].encode("latin-1"))
        except RecursionError:
            raise Fault(f"{path}[{n}]: not valid JSON: nested too deeply") from None
        except ValueError as why:
            cut = "" if text.rstrip().endswith("]") else "; the file ends in this entry: is it complete?"
            raise Fault(f"{path}[{n}]: {reason(why)}{cut}") from None
        yield f"{path}[{n}]", value
        behind = _BEHIND.match(text, end)
        if behind is None:
            found = "something else" if text[end:].strip() else "the end of the file: is it complete?"
            raise Fault(f"{path}[{n}]: expected a comma or the end of the list behind the object, found {found}")
        more, at, n = behind[1] == ",", behind.end(), n + 1
    if text[at:].strip():
        raise Fault(f"{path}: expected the end of the file behind the list, found more")


def _plain(row: Any) -> Any:
    """Returns a row of pandas or pyarrow as JSON represents it: NaN is null; a date is a text."""
    text = json.dumps(row, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))
    return json.loads(text, parse_constant=lambda _: None)


def _parquet(path: str) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Fault(f"{path}: expected JSON lines or one JSON list, found a parquet file, which is read by pyarrow: pip install pyarrow; of ./run: "
                    "./run python -m pip install pyarrow") from None  # fmt: skip
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(64):
            yield from map(_plain, batch.to_pylist())
    except (pyarrow.ArrowException, OSError) as why:
        raise Fault(f"{path}: expected a parquet file, found one that is damaged: {str(why).splitlines()[0]}") from None


def _declared_rows(d: Dataset, path: str) -> Iterator[Any]:
    with explained(d.rows.__code__.co_filename if hasattr(d.rows, "__code__") else path):
        yield from map(_plain, d.rows(path))


def entries(d: Dataset, path: str) -> tuple[str, Iterator[tuple[str, dict[str, Any]]]]:
    """Returns the hash of a file's bytes (those within a gzip file), and its entries, each with its place: "file:LINE",
    or "file[NUMBER]", from 0. Raises Fault."""
    with open_input(path) as f:
        parquet = f.read(4) == b"PAR1"
    if d.rows or parquet:
        rows = _declared_rows(d, path) if d.rows else _parquet(path)
        return content_hash(read(path, MOST)), ((f"{path}[{n}]", row) for n, row in enumerate(rows))
    data = _unpacked(path)
    found = content_hash(data)
    if begin := re.match(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[", data):
        return found, _elements(path, data.decode("latin-1"), begin.end())
    return found, lines_of(path, io.BytesIO(data), MOST)
