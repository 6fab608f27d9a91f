"""datastore - texts as tokens with their suffix array, in the file that the drafter `rest` reads
(models/formats/datastore.h).

Texts of evaluation files can be excluded: no document may share 13 words in a row with one of them
(Exclusions).
"""

import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from speclab import files
from speclab.command import Fault, placed
from speclab.decoding import Tokenizer
from speclab.digest import content_hash
from speclab.strict_json import lines_of
from speclab.texts.distillation import NO_TEXT, Exclusions
from speclab.texts.features import check_ids

MAGIC = b"speclab-datastore-2".ljust(24, b"\0")
CHUNK = 1 << 20  # suffixes that are sorted at a time
_MOST = 1 << 31  # tokens, less one


# ---- texts


def _texts(value: Any, key: str | None = None) -> Iterator[str]:
    """Yields the texts of a line, whatever their key, except ids, categories, and the speaker in conversations of
    {from, value}."""
    if isinstance(value, str):
        if key != "from":
            yield value
    elif isinstance(value, list):
        for v in value:
            yield from _texts(v, key)
    elif isinstance(value, dict):
        for k, v in value.items():
            if k not in NO_TEXT:
                yield from _texts(v, k)


class Corpus:
    """Documents as tokens, each followed by the id after the vocabulary."""

    def __init__(self, tokenizer: Tokenizer, exclusions: Exclusions):
        self.tokenizer, self.exclusions = tokenizer, exclusions
        self.parts: list[np.ndarray] = []
        self.documents = self.excluded = 0

    def _end(self, ids: np.ndarray) -> None:
        if len(ids):
            self.parts += [ids, np.array([self.tokenizer.size], np.int32)]
            self.documents += 1

    def _add_text(self, text: str) -> None:
        if "\0" in text:
            raise Fault(f"a NUL character, at byte {len(text[: text.index(chr(0))].encode())}, is no text")
        if self.exclusions.match(text):
            self.excluded += 1
        else:
            self._end(self.tokenizer.encode(text))

    def _add_line(self, line: Any) -> None:
        """A line with token ids is one document, of exactly these tokens; its texts tell whether it is excluded."""
        if not isinstance(line, dict):
            raise Fault('expected a JSON object, as in {"text": "..."}')
        if "input_ids" not in line:
            for text in _texts(line):
                self._add_text(text)
        elif any(map(self.exclusions.match, _texts(line))):
            self.excluded += 1
        else:
            check_ids(line["input_ids"], self.tokenizer.size)
            self._end(np.array(line["input_ids"], np.int32))

    def add(self, path: str) -> None:
        """Adds the documents of a file: the texts of JSON Lines, or one. Raises Fault."""
        if path.endswith(".jsonl") or path == "-":
            with files.open_input(path, stream=True) as f:
                for place, line in lines_of("stdin" if path == "-" else path, f):
                    with placed(f"{place}: "):
                        self._add_line(line)
            return
        data = files.read(path, files.TEXTS)
        with placed(f"{path}: "):
            try:
                text = data.decode()
            except UnicodeDecodeError as why:
                raise Fault(f"expected UTF-8, found byte 0x{data[why.start]:02X} at byte {why.start}") from None
            self._add_text(text)


# ---- the suffix array


def _first(begins: np.ndarray) -> np.ndarray:
    """Returns for each place the place where its group begins."""
    at = np.arange(len(begins), dtype=np.uint32)
    at[~begins] = 0
    return np.maximum.accumulate(at, out=at)


def suffix_array(token: np.ndarray, most: int) -> np.ndarray:
    """Returns the positions (n,) of uint32 in the order of the texts that begin there, a text before its continuations.
    token (n,): from 0 to `most`.

    Prefix doubling (Manber, Myers 1993) with groups that are refined in place (Larsson, Sadakane 2007): suffixes in
    order of their first h tokens, equal ones as a group, are put in order of 2h tokens by the ranks of what follows
    after h, until no group has two.
    """
    n, bits = len(token), int(most + 1).bit_length()
    h = 63 // bits  # tokens, and 0 for the end of the text, in an integer
    key = np.zeros(n, np.int64)
    for i in range(min(h, n)):
        key[: n - i] |= (token[i:].astype(np.int64) + 1) << bits * (h - 1 - i)
    order = np.argsort(key).astype(np.uint32)
    key = key[order]
    begins = np.append(True, key[1:] != key[:-1])  # whether a group begins at this place of `order`
    del key
    rank = np.empty(n, np.uint32)  # place where the group of the suffix at a position begins
    rank[order] = _first(begins)
    while True:
        # Places in groups of two or more
        at = np.flatnonzero(~(begins & np.append(begins[1:], True))).astype(np.uint32)
        if not len(at):
            return order
        cuts = np.flatnonzero(begins[at])
        cuts = cuts[np.unique(np.searchsorted(cuts, np.arange(0, len(at), CHUNK), "right") - 1)]
        for a, b in zip(cuts, [*cuts[1:], len(at)], strict=True):
            place = at[a:b]
            suffix = order[place]
            key = rank[suffix].astype(np.int64) << 32
            longer = np.flatnonzero(suffix < n - h)
            key[longer] |= rank[suffix[longer] + np.uint32(h)].astype(np.int64) + 1
            by = np.argsort(key)
            key, suffix = key[by], suffix[by]
            new = np.append(True, key[1:] != key[:-1])
            order[place], begins[place[new]], rank[suffix] = suffix, True, place[_first(new)]
        h *= 2


# ---- the file


def _check_output(path: str) -> None:
    """Another file than a datastore is not replaced."""
    if not os.path.exists(path):
        return
    with files.open_input(path) as f:
        if f.read(len(MAGIC)) != MAGIC:
            raise Fault(f"--datastore: {path} exists, and is no datastore; it is not replaced")


def make(model: str, paths: list[str], exclude: list[str], out: str) -> str:
    """Writes the datastore of the texts in files, with tokens of the model's tokenizer. Returns a line about it. Raises
    Fault."""
    tokenizer, exclusions = Tokenizer(model), Exclusions()
    _check_output(out)
    for path in exclude:
        exclusions.read(path)
    corpus = Corpus(tokenizer, exclusions)
    for path in paths:
        corpus.add(path)
    if not corpus.parts:
        raise Fault("expected texts, found none")
    token, size = np.concatenate(corpus.parts), tokenizer.size
    corpus.parts.clear()
    if len(token) >= _MOST:
        raise Fault(f"{len(token)} tokens are more than a datastore can have, {_MOST - 1}")
    narrow = size <= 0xFFFF
    halves = (int(h[i : i + 16], 16) for h in (content_hash(token.tobytes()), tokenizer.identity) for i in (0, 16))
    header = MAGIC + struct.pack("<IIQQ4Q", 2 if narrow else 4, size, len(token), corpus.documents, *halves)
    suffix = suffix_array(token, size)
    with files.writing(out) as to:
        to.write(header)
        n = to.write(memoryview(token.astype(np.uint16) if narrow else token).cast("B"))
        to.write(bytes(-n % 8))
        to.write(memoryview(suffix).cast("B"))
    tokenizer.close()
    return f"{out}: {len(token) - corpus.documents} tokens in {corpus.documents} documents, {corpus.excluded} excluded"
