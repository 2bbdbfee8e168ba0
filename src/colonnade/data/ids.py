"""Ids as people write them, and in the normal form in which parties compare them.

An id is text or a whole number. Two ids are the same if their normal forms are:

- text in Unicode's NFC (an "é" is one letter, however it was typed), without white space at either end; upper and lower
  case, leading zeros and white space inside count, so "007" is not "7";
- a whole number as its decimal digits, so 7 is "7"; a float that is a whole number below 2^53 (of 32 bits: 2^24) too,
  since tables with gaps turn numbers into floats. From there on a float stands for several numbers.

Missing ids (None, NaN, nothing but white space) are refused, and repeated ones unless a caller can use them, with how
many there are. No error quotes an id. Texts are looked at in pieces and kept in numpy's own form, so that a column of
millions of ids never stands in memory as Python objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from typing import Any
from unicodedata import is_normalized, normalize

import numpy as np
import numpy.typing as npt

from colonnade.data import packed_ids
from colonnade.data.packed_ids import TEXT, Array, all_differ, distinct, packed_numbers, packed_texts, pieces
from colonnade.errors import DataError, ProtocolError

Bytes = packed_ids.Bytes
Packed = packed_ids.Packed  # all ids as UTF-8 one after another, and where each ends

# What becomes of ids in several rows: an error, or later rows are left out, or all stay.
REFUSE, FIRST, EXPAND = DUPLICATES = ("refuse", "first", "expand")
EXACT, EXACT_SINGLE = 2**53, 2**24  # from here on a float, of 64 or of 32 bits, may stand for several whole numbers
_LONGEST = 1024  # bytes, on average over as many ids as another party may send
_WHOLE = (int, np.integer)
# Before every id that is hashed: a digest made here is of no use elsewhere, and the other way round.
_PURPOSE = b"colonnade alignment v1\0"
_FLOATS = "floats that are not whole numbers below 2^53"
_SINGLES = "floats of 32 bits that are not whole numbers below 2^24"


def canonical(ids: Any, who: str, *, repeated: bool = False) -> Array:
    """Return one id per row in its normal form, as an array of integers or of text.

    Errors about ids that are unfit begin with `who`. repeated: whether an id may occur more than once.
    """
    if isinstance(ids, (str, bytes, Mapping, Set)) or not (hasattr(ids, "__iter__") or hasattr(ids, "to_numpy")):
        raise DataError(f"{who}: ids must be a list or column with one id per row, got a {type(ids).__name__}")
    values = _column(ids)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError(f"{who}: ids must be one per row (1 dimension), got shape {values.shape}")
        if values.dtype.kind == "f":
            values = _whole_floats(values, who)
        if values.dtype.kind in "iu":
            return values if repeated else _checked_unique(values, who)
        if values.dtype.kind not in "OUT":
            raise _unfit(who, len(values), [str(values.dtype)])
    found = _whole_numbers(values)
    if found is None:
        found = _texts(values, who)
    return found if repeated else _checked_unique(found, who)


def _column(ids: Any) -> Any:
    """Return an array where that costs no object per id, else something of which pieces can be taken."""
    if hasattr(ids, "to_numpy"):
        flat = hasattr(ids, "__len__") and getattr(ids, "ndim", 1) == 1
        return ids if flat and _piece(ids, slice(0, 1)).dtype.kind == "O" else ids.to_numpy()
    return ids if isinstance(ids, (np.ndarray, list)) else list(ids)


def _piece(values: Any, part: slice) -> Any:
    """Return some rows of a column of pandas, polars or Arrow as an array, and of anything else as what it is."""
    some = values.iloc[part] if hasattr(values, "iloc") else values[part]
    return some.to_numpy() if hasattr(some, "to_numpy") else some


def _in_pieces(values: Any) -> Iterator[tuple[slice, list[Any]]]:
    for part in pieces(len(values)):
        some = _piece(values, part)
        yield part, some.tolist() if isinstance(some, np.ndarray) else some


def _whole_floats(values: Array, who: str) -> Array:
    """Return floats as the whole numbers that they are."""
    missing, single = np.isnan(values), values.dtype.itemsize < 8
    whole = missing | ((values == np.trunc(values)) & (np.abs(values) < (EXACT_SINGLE if single else EXACT)))
    if not whole.all():
        raise _unfit(who, int((~whole).sum()), [_SINGLES if single else _FLOATS])
    _refuse_missing(who, int(missing.sum()), int(missing.argmax()) if missing.any() else 0)
    return values.astype(np.int64)


def _whole_numbers(values: Any) -> Array | None:
    """Return values that all are whole numbers of 64 bits; None where others are among them."""
    found = np.empty(len(values), np.int64)
    for part, some in _in_pieces(values):
        if not all(issubclass(kind, _WHOLE) and kind is not bool for kind in set(map(type, some))):
            return None
        try:
            found[part] = np.array(some, dtype=np.int64)
        except OverflowError:
            return None  # longer numbers are compared as text
    return found


def _texts(values: Any, who: str) -> Array:
    """Return all values as texts in their normal form, or refuse them with how many are unfit."""
    found = np.empty(len(values), dtype=TEXT)
    unfit, kinds, missing, bad = 0, set[str](), list[int](), list[int]()  # rows: the first of each piece counts
    missing_in_all = bad_in_all = 0
    for part, some in _in_pieces(values):
        if set(map(type, some)) == {str}:
            texts = _tidy(some)
        else:
            forms = [normal(value) for value in some]
            others = [value for value, form in zip(some, forms, strict=True) if form is None]
            unfit, kinds = unfit + len(others), kinds | {_kind(value) for value in others}
            texts = [form or "" for form in forms]
        try:
            found[part] = texts
        except UnicodeEncodeError:
            rows = [part.start + row for row, text in enumerate(texts) if not encodable(text)]
            bad, bad_in_all = [*bad, rows[0]], bad_in_all + len(rows)
        if "" in texts:
            missing, missing_in_all = [*missing, part.start + texts.index("")], missing_in_all + texts.count("")
    if unfit:
        raise _unfit(who, unfit, sorted(kinds))
    _refuse_missing(who, missing_in_all, min(missing, default=0))
    if bad:
        raise DataError(
            f"{who}: {bad_in_all} ids hold characters that are not Unicode text (lone surrogates), the first in row "
            f"{bad[0]}; read the file with its right encoding"
        )
    return found


def _refuse_missing(who: str, count: int, first: int) -> None:
    if count:
        raise DataError(
            f"{who}: {count} ids are missing (None, NaN or empty), the first in row {first}; every row needs an id, so "
            f"drop these rows or give them one"
        )


def same(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Say row by row whether two columns of canonical ids agree."""
    if one.dtype.kind not in "iu" or other.dtype.kind not in "iu":
        one, other = one.astype(TEXT), other.astype(TEXT)
    agree: npt.NDArray[np.bool_] = np.asarray(one == other)
    return agree


def pack(ids: Array) -> Packed:
    """Turn canonical ids into two arrays, which a message can hold."""
    return packed_numbers(ids) if ids.dtype.kind in "iu" else packed_texts(ids)


def digests(packed: Packed, rows: slice) -> Bytes:
    """Hash these ids with SHA-512, to 64 bytes each that anybody who knows an id can make."""
    return packed_ids.sha512(_PURPOSE, packed, rows)


def names_of(packed: Packed, rows: slice) -> npt.NDArray[np.uint64]:
    """Return the first 128 bits of these ids' digests, as two words each."""
    return digests(packed, rows)[:, :16].copy().view(">u8").astype(np.uint64)


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


def _tidy(texts: list[str]) -> list[str]:
    # A line's end neither composes with a letter nor is reordered, so that all texts are in NFC if they are together.
    joined = "\n".join(texts)
    if not joined.isascii() and not is_normalized("NFC", joined):
        texts = [normalize("NFC", text) for text in texts]
    return list(map(str.strip, texts))


def normal(value: Any) -> str | None:
    """Return the normal form of one id, "" if the id is missing, or None if the value can't be an id."""
    if isinstance(value, str):
        return _tidy([str(value)])[0]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own None
        return ""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        whole = number.is_integer() and abs(number) < (EXACT_SINGLE if _single(value) else EXACT)
        return "" if math.isnan(number) else str(int(number)) if whole else None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    return None


def _kind(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return _SINGLES if _single(value) else _FLOATS
    return type(value).__name__


def _single(value: Any) -> bool:
    return isinstance(value, np.floating) and value.dtype.itemsize < 8


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


def _checked_unique(ids: Array, who: str) -> Array:
    if ids.dtype.kind in "iu":
        in_order = np.sort(ids)
        if not (in_order[1:] == in_order[:-1]).any():
            return ids
    packed = pack(ids)
    if all_differ(packed):
        return ids
    counts = np.bincount(distinct(packed)[1])
    often = counts[counts > 1]
    raise DataError(
        f"{who}: {len(often)} ids occur more than once, in {int(often.sum())} rows; every row needs an id of its own"
    )
