"""Ids as people write them, and in the normal form in which parties compare them.

An id is text or a whole number. Two ids are the same if their normal forms are:

- text in Unicode's NFC (an "é" is one letter, however it was typed), without white space at either end; upper and lower
  case, leading zeros and white space inside count, so "007" is not "7";
- a whole number as its decimal digits, so 7 is "7"; a float that is a whole number below 2^53 too, since tables with
  gaps turn numbers into floats.

Missing ids (None, NaN, nothing but white space) and repeated ones are refused, with how many there are. No error quotes
an id.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Set
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError, ProtocolError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Packed = tuple[Bytes, npt.NDArray[np.int64]]  # all ids as UTF-8 one after another, and where each ends

EXACT = 2**53  # from here on a float may stand for several whole numbers
_LONGEST = 1024  # bytes, on average over as many ids as another party may send
# Before every id that is hashed: a digest made here is of no use elsewhere, and the other way round.
_PURPOSE = b"colonnade alignment v1\0"


def canonical(ids: Any, who: str) -> Array:
    """Return one id per row in its normal form, as an array of integers or of text.

    Errors about ids that are unfit begin with `who`.
    """
    values = ids.to_numpy() if hasattr(ids, "to_numpy") else ids
    if isinstance(values, (str, bytes, Mapping, Set)) or not hasattr(values, "__iter__"):
        raise DataError(f"{who}: ids must be a list or column with one id per row, got a {type(ids).__name__}")
    if not isinstance(values, np.ndarray):
        values = list(values)
    elif values.ndim != 1:
        raise DataError(f"{who}: ids must be one per row (1 dimension), got shape {values.shape}")
    elif values.dtype.kind in "iu":
        return _unique(values, who)
    elif values.dtype.kind in "fOUT":
        values = values.tolist()
    else:
        raise _unfit(who, len(values), [str(values.dtype)])
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return _unique(np.array(values, dtype=np.int64), who)
        except OverflowError:
            pass  # longer numbers are compared as text
    texts = _tidy(values) if kinds == {str} else _mixed(values, who)
    missing = [row for row, text in enumerate(texts) if not text]
    if missing:
        raise DataError(
            f"{who}: {len(missing)} ids are missing (None, NaN or empty), the first in row {missing[0]}; every row "
            f"needs an id, so drop these rows or give them one"
        )
    _check_encodable(texts, who)
    found = np.empty(len(texts), dtype=object)  # numpy's own text arrays would lose NUL characters at the end
    found[:] = texts
    return _unique(found, who)


def same(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Say row by row whether two columns of canonical ids agree."""
    if one.dtype.kind == "O" or other.dtype.kind == "O":
        one, other = (np.array(_texts(ids), dtype=object) for ids in (one, other))
    agree: npt.NDArray[np.bool_] = np.asarray(one == other)
    return agree


def pack(ids: Array) -> Packed:
    """Turn canonical ids into two arrays, which a message can hold."""
    raw = [text.encode() for text in _texts(ids)]
    ends = np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)), dtype=np.int64)
    return np.frombuffer(b"".join(raw), np.uint8), ends


def unpack(text: Array, ends: Array, party: str, step: str, most: int) -> list[str]:
    """Unpack at most `most` ids that another party packed and sent; nothing is made of them before all is checked."""
    if ends.ndim != 1 or ends.dtype != np.int64 or text.ndim != 1 or text.dtype != np.uint8:
        raise ProtocolError(f"party {party!r} sent no ids at step {step!r}")
    if len(ends) > most or len(text) > _LONGEST * most:
        raise ProtocolError(
            f"party {party!r} sent {len(ends)} ids of {len(text)} bytes in all at step {step!r}, at most {most} are "
            f"allowed at once, and {_LONGEST} bytes for each of these"
        )
    # Compared and not subtracted: a difference of two such numbers may be more than 64 bits hold, and wrap around.
    last = int(ends[-1]) if len(ends) else 0
    if last != len(text) or (len(ends) and ends[0] < 0) or (ends[1:] < ends[:-1]).any():
        raise ProtocolError(f"party {party!r} sent no ids at step {step!r}")
    stops = ends.tolist()
    try:
        whole = text.tobytes()
        return [whole[start:stop].decode() for start, stop in zip([0, *stops], stops, strict=False)]
    except UnicodeDecodeError:
        raise ProtocolError(f"party {party!r} sent ids that are not UTF-8 at step {step!r}") from None


def digests(packed: Packed, rows: slice) -> Bytes:
    """Hash these ids with SHA-512, to 64 bytes each that anybody who knows an id can make."""
    text, ends = packed
    start = int(ends[rows.start - 1]) if rows.start else 0
    part = text[start : int(ends[rows.stop - 1])].tobytes()
    stops = (ends[rows] - start).tolist()
    starts = [0, *stops[:-1]]
    hashed = [hashlib.sha512(_PURPOSE + part[a:b]).digest() for a, b in zip(starts, stops, strict=True)]
    return np.frombuffer(b"".join(hashed), np.uint8).reshape(-1, 64)


def _texts(ids: Array) -> list[str]:
    return list(map(str, ids.tolist()))


def _tidy(texts: list[str]) -> list[str]:
    return [text.strip() if text.isascii() else normalize("NFC", text).strip() for text in texts]


def _mixed(values: list[Any], who: str) -> list[str]:
    texts, unfit = [], []
    for value in values:
        text = normal(value)
        if text is None:
            unfit.append(value)
        else:
            texts.append(text)
    if unfit:
        raise _unfit(who, len(unfit), sorted({_kind(value) for value in unfit}))
    return texts


def normal(value: Any) -> str | None:
    """Return the normal form of one id, "" if the id is missing, or None if the value can't be an id."""
    if isinstance(value, str):
        return _tidy([str(value)])[0]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own None
        return ""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        whole = number.is_integer() and abs(number) < EXACT
        return "" if math.isnan(number) else str(int(number)) if whole else None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    return None


def _kind(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "floats that are not whole numbers below 2^53"
    return type(value).__name__


def _unfit(who: str, count: int, kinds: list[str]) -> DataError:
    return DataError(
        f"{who}: {count} ids are {', '.join(kinds)}; ids are text or whole numbers, so write them as text first"
    )


def encodable(text: str) -> bool:
    """Whether this is Unicode text; a lone surrogate is not, and no message can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_encodable(texts: list[str], who: str) -> None:
    if not encodable("".join(texts)):  # one pass; who is to blame is only asked when somebody is
        bad = [row for row, text in enumerate(texts) if not encodable(text)]
        raise DataError(
            f"{who}: {len(bad)} ids hold characters that are not Unicode text (lone surrogates), the first in row "
            f"{bad[0]}; read the file with its right encoding"
        )


def _unique(ids: Array, who: str) -> Array:
    if ids.dtype.kind == "O":
        distinct = len(set(ids.tolist()))
        if distinct == len(ids):
            return ids
    counts = np.unique(ids, return_counts=True)[1]
    if len(counts) < len(ids):
        often = counts[counts > 1]
        raise DataError(
            f"{who}: {len(often)} ids occur more than once, in {int(often.sum())} rows; every row needs an id of its "
            f"own"
        )
    return ids
