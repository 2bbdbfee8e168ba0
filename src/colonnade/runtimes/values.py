"""Values that a message can hold, and what can be known of them without building the bytes."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from colonnade.errors import ProtocolError, WrongShape

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Union[bool, int, float, str, bytes, Array, "tuple[Value, ...]", None]

MAX_DEPTH = 32
MAX_NDIM = 8

# The position in this tuple is the dtype byte of an array.
NATIVE: tuple[np.dtype[Any], ...] = (
    np.dtype(np.bool_),
    *(np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    np.dtype(np.float32),
    np.dtype(np.float64),
)
# The same objects as in NATIVE on a little-endian machine, so that `is` decides whether bytes can go out as they are.
LITTLE = NATIVE if sys.byteorder == "little" else tuple(native.newbyteorder("<") for native in NATIVE)
# Both byte orders find their code; a big-endian array is swapped on its way out.
CODES: dict[np.dtype[Any], int] = {
    dtype: code for code, native in enumerate(NATIVE) for dtype in (native.newbyteorder("S"), native)
}

_FIXED_SIZES = {int: 9, float: 9, bool: 2, type(None): 1}
_IMMUTABLE = frozenset((type(None), bool, float, str, bytes))
# What a value takes in memory beside its bytes on the line, about: a pointer and a small object; for an array numpy's
# own record of it; for a letter up to four bytes, which all letters of a text take if a single one of them needs them.
PLAIN, ARRAY, LETTER = 64, 256, 4
# The most that a message of another party may take like this: 65,536 arrays, or four times as many numbers. No value
# takes more than 64 times its bytes, so that a message of 256 KB is never too heavy.
ROOM = 1 << 24
NEVER_TOO_HEAVY = ROOM // 64  # bytes
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_DTYPE_NAMES = ", ".join(dtype.name for dtype in NATIVE)


def refused(what: str) -> ProtocolError:
    """The one sentence for all that can't be sent."""
    return ProtocolError(
        f"a message can't hold {what}; allowed are None, bool, int (64 bits), float, str, bytes, tuples of these "
        f"({MAX_DEPTH} deep) and numpy arrays (ndim <= {MAX_NDIM}) of {_DTYPE_NAMES}; convert it before it is sent"
    )


def code_of(array: Array) -> int:
    """The wire code of an array's dtype, or the error for an array that can't be sent."""
    code = CODES.get(array.dtype)
    if code is None:
        raise refused(f"a numpy array of {array.dtype}")
    if array.ndim > MAX_NDIM:
        raise refused(f"a numpy array of ndim {array.ndim}")
    return code


def checked_int(value: int) -> int:
    """The int, if 64 bits hold it."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise refused(f"an int of {value.bit_length() + 1} bits")


def utf8(value: str) -> bytes:
    """The str as bytes."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise refused("a str with lone surrogates") from None


def plain(value: object) -> bool | int | float | str | bytes:
    """A numpy scalar as the Python scalar; every other type ends here with its error."""
    if isinstance(value, np.generic):
        if isinstance(value, np.str_):
            return str.__str__(value)
        if isinstance(value, np.bytes_):
            return bytes(value)
        if value.dtype in CODES:
            plain: bool | int | float = value.item()
            return plain
        raise refused(f"a numpy scalar of {value.dtype}")
    raise refused(f"a value of type {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", ""))


def too_deep() -> ProtocolError:
    """The error for tuples in tuples in tuples."""
    return refused(f"tuples more than {MAX_DEPTH} deep")


# -- what a simulator needs --------------------------------------------------------------------------------------------


def _size(value: Any, depth: int) -> int:
    kind = type(value)
    if kind is np.ndarray:
        code_of(value)
        return 3 + 8 * int(value.ndim) + int(value.nbytes)
    if kind is tuple:
        if depth == MAX_DEPTH:
            raise too_deep()
        total = 9
        for item in value:
            total += _size(item, depth + 1)
        return total
    if kind is str:
        return 9 + (len(value) if value.isascii() else len(utf8(value)))
    if kind is bytes:
        return 9 + len(value)
    if kind not in _FIXED_SIZES:
        return _size(plain(value), depth)
    if kind is int:
        checked_int(value)
    return _FIXED_SIZES[kind]


def encoded_size(value: Value) -> int:
    """`len(encode(value))` without building the bytes."""
    return _size(value, 0)


def weight(value: Value) -> int:
    """What the receiver of this value needs in memory beside its bytes; `decode` counts the same."""
    if type(value) is tuple:
        return PLAIN + sum(map(weight, value))
    if isinstance(value, np.ndarray):
        return ARRAY
    return PLAIN + LETTER * len(utf8(value)) if isinstance(value, str) else PLAIN


def footprint(value: Value) -> int:
    """What a value that arrived takes in all."""
    return weight(value) + encoded_size(value)


def _freeze(value: Any, depth: int) -> Value:
    kind = type(value)
    if kind is np.ndarray:
        native = NATIVE[code_of(value)]
        if value.dtype is native:
            copied: Array = value.copy()
            return copied
        # Filled, not converted: a conversion between equal dtypes would keep the sender's dtype object and metadata.
        filled = np.empty(value.shape, native)
        filled[...] = value
        return filled
    if kind is tuple:
        if depth == MAX_DEPTH:
            raise too_deep()
        return tuple([_freeze(item, depth + 1) for item in value])
    if kind is int:
        return checked_int(value)
    if kind is str and not value.isascii():
        utf8(value)
    if kind in _IMMUTABLE:
        same: Value = value
        return same
    return _freeze(plain(value), depth)


def freeze(value: Value) -> Value:
    """What the receiver of this value would get: `decode(encode(value))` without building the bytes."""
    return _freeze(value, 0)


# -- what a step expects -----------------------------------------------------------------------------------------------


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"a value of type {type(value).__name__}"


def expect_array(value: Value, shape: tuple[int | None, ...], dtype: npt.DTypeLike, party: str, step: str) -> Array:
    """The value if it is an array of exactly this dtype and shape (None allows any size), else `WrongShape`."""
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        if value.shape == shape:
            return value
        if value.ndim == len(shape) and all(
            want is None or got == want for got, want in zip(value.shape, shape, strict=True)
        ):
            return value
    sizes = ", ".join("any" if size is None else str(size) for size in shape) + ("," if len(shape) == 1 else "")
    raise WrongShape(
        f"{party} sent {_describe(value)} at step {step!r}, expected is an array of {np.dtype(dtype)} with shape "
        f"({sizes}); check that every party uses the same data rows and options"
    )
