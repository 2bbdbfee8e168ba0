"""LIBSVM's sparse format, read into a CSR matrix a block of lines at a time and without a loop over rows.

A line is `label index:value index:value ... # comment`; one that begins with `index:value` has no label, which is how a
party without labels can write its rows. Empty lines are skipped. Indices may come in any order, but each only once.
Written by hand, as scikit-learn's reader knows no rows without labels, and a mistake has to be told with its line.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import EXACT
from colonnade.errors import DataError, LabelError
from colonnade.settings.settings import Settings
from colonnade.tables.table import Table, without_label

Array = npt.NDArray[Any]
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BLOCK = 1 << 23  # bytes that are worked on at a time: short enough for the processor's caches to help
_NEWLINE, _COLON, _HASH, _SPACE = b"\n:# "
_MOST = 2**31 - 2  # columns: their numbers are kept in 32 bits

_BLANK = np.zeros(256, dtype=bool)
_BLANK[list(b" \t\r\v\f\n")] = True
_DIGIT = np.zeros(256, dtype=bool)
_DIGIT[list(b"0123456789")] = True
_POINTS = np.zeros(256, dtype=bool)  # in a value, never in an index
_POINTS[list(b"+-.eE")] = True
_KNOWN = _BLANK | _DIGIT | _POINTS
_KNOWN[_COLON] = True


def load_libsvm(settings: Settings, path: Path, labels: bool) -> Table:
    """Read a LIBSVM file; `label = "label"` says that a line's first number is a label, and not just for the format."""
    if settings["label"] not in (None, "label"):
        raise settings.error("label", f'must be "label", for the first number of each line of {path.name}', LabelError)
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            matrix, found = read(file, path.name, settings["first_index"], settings["features"])
    except DataError as error:
        raise settings.error("source", str(error), DataError) from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise settings.error("source", f"{path.name} can't be read ({error})", DataError) from None
    label = None
    if labels and settings["label"] is not None:
        missing = np.isnan(found)
        there = found[~missing]
        if (there == np.trunc(there)).all() and (np.abs(there) < EXACT).all():
            found = np.where(missing, 0, found).astype(np.int64)  # classes 1 and -1, not 1.0 and -1.0
        label = without_label(found, missing, settings, path.name)
    return Table(path.name, matrix, label=label)


class Rows(NamedTuple):
    """Some lines: each row's label (NaN if it has none), how many numbers it has, and these with their columns."""

    labels: Array
    counts: Array
    columns: Array
    values: Array


def read(file: BinaryIO, where: str, first: int = 1, width: int | None = None) -> tuple[Any, Array]:
    """Read a CSR matrix and one label per row; `first` is the index of the first column, `width` how many there are."""
    import scipy.sparse as sp

    parts = [_rows(block, line, where, first, width) for block, line in _blocks(file)]
    if not any(len(part.labels) for part in parts):
        raise DataError(f"{where} has no rows; give a file with at least one line")
    labels, counts, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    width = width or int(columns.max(initial=-1)) + 1
    if not width:
        raise DataError(f"{where} has no number in any line; write index:value behind the labels")
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((values, columns, starts), shape=(len(labels), width)), labels


def _blocks(file: BinaryIO) -> Iterator[tuple[Array, int]]:
    """Yield whole lines, a block at a time, and the number of the first."""
    left, line = b"", 1
    while piece := file.read(_BLOCK):
        head, newline, tail = piece.rpartition(b"\n")
        if newline:
            block = left + head + newline
            yield np.frombuffer(block, dtype=np.uint8), line
            line += block.count(b"\n")
            left = tail
        else:
            left += piece
    if left:
        yield np.frombuffer(left + b"\n", dtype=np.uint8), line


def _without_comments(text: Array) -> Array:
    """Return the text with blanks from each # to the end of its line."""
    here = np.arange(len(text))
    hash_before = np.maximum.accumulate(np.where(text == _HASH, here, -1))
    line_before = np.maximum.accumulate(np.where(text == _NEWLINE, here, -1))
    return np.where(hash_before > line_before, np.uint8(_SPACE), text)


def _rows(text: Array, line: int, where: str, first: int, width: int | None) -> Rows:
    if (text == _HASH).any():
        text = _without_comments(text)
    newlines = np.nonzero(text == _NEWLINE)[0]

    def refuse(at: Any, sentence: str) -> DataError:
        return DataError(f"{where}, line {line + int(np.searchsorted(newlines, at))}: {sentence}")

    strange = np.nonzero(~_KNOWN[text])[0]
    if len(strange):
        raise refuse(strange[0], _strange(text, newlines, int(strange[0])))

    # Words: where each begins, whether it is the first of its line, and where its colon is.
    solid = ~_BLANK[text]
    begins = np.nonzero(solid & ~np.concatenate([[False], solid[:-1]]))[0]
    opens = np.diff(np.searchsorted(newlines, begins), prepend=-1) > 0
    colons = np.nonzero(text == _COLON)[0]
    word_of = np.searchsorted(begins, colons, side="right") - 1
    how_many = np.bincount(word_of, minlength=len(begins)) if len(colons) else np.zeros(len(begins), dtype=np.int64)
    pairs = how_many == 1
    wrong = np.nonzero((how_many > 1) | (~opens & ~pairs))[0]
    if len(wrong):
        raise refuse(begins[wrong[0]], "every word but the label must be index:value, with one colon")
    at = np.full(len(begins), -1)
    at[word_of] = colons
    points = np.nonzero(_POINTS[text])[0]
    early = points[points < at[np.searchsorted(begins, points, side="right") - 1]]
    lonely = colons[(colons == begins[word_of]) | ~solid[colons + 1]]
    if len(early) or len(lonely):
        first_wrong = min([*early[:1], *lonely[:1]])
        raise refuse(first_wrong, "every word but the label must be index:value, with a whole number before the colon")

    numbers = _numbers(np.where(text == _COLON, np.uint8(_SPACE), text), len(begins) + len(colons))
    if numbers is None:
        raise refuse(_malformed(text, newlines), "a word is not a number; write label index:value index:value ...")
    if not np.isfinite(numbers).all():
        raise refuse(_malformed(text, newlines), "a number is too large; values up to 1e308 are allowed")
    places = np.cumsum(1 + pairs) - 1 - pairs  # of each word's first number
    row_of = np.cumsum(opens) - 1
    rows = int(opens.sum())
    labels = np.full(rows, np.nan)
    labels[row_of[~pairs]] = numbers[places[~pairs]]
    return Rows(
        labels,
        np.bincount(row_of[pairs], minlength=rows),
        *_entries(numbers, places[pairs], row_of[pairs], begins[pairs], first, width, refuse),
    )


def _entries(
    numbers: Array, places: Array, rows: Array, begins: Array, first: int, width: int | None, refuse: Any
) -> tuple[Array, Array]:
    """Return columns, ascending in each row, and values."""
    columns, values = numbers[places] - first, numbers[places + 1]
    most = width if width is not None else _MOST
    outside = np.nonzero((columns < 0) | (columns >= most))[0]
    if len(outside):
        index = int(columns[outside[0]]) + first
        advice = "set first_index = 0 if indices begin at 0" if index < first else "correct it, or set features higher"
        raise refuse(begins[outside[0]], f"index {index} is not between {first} and {most - 1 + first}; {advice}")
    columns = columns.astype(np.int32)
    same = rows[1:] == rows[:-1]
    if (same & (np.diff(columns) <= 0)).any():
        order = np.lexsort((columns, rows))
        columns, values, begins = columns[order], values[order], begins[order]
        twice = np.nonzero(same & (np.diff(columns) == 0))[0]
        if len(twice):
            index = int(columns[twice[0]]) + first
            raise refuse(begins[twice[0]], f"index {index} occurs twice; give each index once per line")
    return columns, values


def _numbers(text: Array, expected: int) -> Array | None:
    """Return all numbers of the text, or None unless there are as many as there are words."""
    if not expected:
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how numpy says that it could not read on
        try:
            numbers = np.fromstring(text.tobytes().decode("ascii"), dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    # "1.2.3" is read as two numbers, so that there are too many
    return numbers if len(numbers) == expected else None


def _malformed(text: Array, newlines: Array) -> int:
    """Find, by halves, where the first line begins that has a word that is no finite number."""
    ends = newlines + 1
    low, high = 0, len(ends)
    begin = 0
    while high - low > 1:
        middle = (low + high) // 2
        part = np.where(text[begin : ends[middle - 1]] == _COLON, np.uint8(_SPACE), text[begin : ends[middle - 1]])
        solid = ~_BLANK[part]
        words = int((solid & ~np.concatenate([[False], solid[:-1]])).sum())
        found = _numbers(part, words)
        if found is not None and np.isfinite(found).all():
            low, begin = middle, int(ends[middle - 1])
        else:
            high = middle
    return begin


def _strange(text: Array, newlines: Array, at: int) -> str:
    """Return the sentence for a line with a character that does not belong there."""
    number = int(np.searchsorted(newlines, at))
    line = text[newlines[number - 1] + 1 if number else 0 : newlines[number]].tobytes()
    if b"qid:" in line:
        return "groups of rows (qid) are for ranking, which is not supported; remove the qid words"
    if b"," in line.split(b":")[0]:
        return "several labels per row are not supported; write one number, or none"
    if any(word.lower().rpartition(b":")[2].lstrip(b"+-") in (b"nan", b"inf", b"infinity") for word in line.split()):
        return "values must be finite numbers; leave an entry out where there is no value"
    sign = bytes(text[at : at + 1]).decode("latin-1")
    return f"the character {sign!r} does not belong here; write label index:value index:value ..."
