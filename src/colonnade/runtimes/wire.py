"""Messages as bytes: a small codec without pickle.

A message is one value: None, a bool, an int of 64 bits, a float, a str, bytes, an array of plain numbers, or a tuple
of values. Nothing that arrives can name a class or run code, and no length that arrives is believed before it is
compared with the bytes that are there. Everything is little endian:

    N                                   None
    ?  byte 0 or 1                      bool
    i  int64                            int
    f  float64                          float
    s  u64 length, UTF-8                str
    b  u64 length, bytes                bytes
    (  u64 count, values                tuple, at most 32 deep
    a  dtype byte, ndim byte, u64 dims, raw bytes in C order

`encode`, `encoded_size` and `freeze` accept the same values and refuse the others with the same sentence, so that a
simulated run (which never builds the bytes) and a run over sockets can't differ.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from colonnade.errors import ProtocolError, TruncatedMessage, WrongShape

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Union[bool, int, float, str, bytes, Array, "tuple[Value, ...]", None]

MAX_DEPTH = 32
MAX_NDIM = 8

# The position in this tuple is the dtype byte of an array.
_NATIVE: tuple[np.dtype[Any], ...] = (
    np.dtype(np.bool_),
    *(np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    np.dtype(np.float32),
    np.dtype(np.float64),
)
# The same objects as in _NATIVE on a little-endian machine, so that `is` decides whether bytes can go out as they are.
_LITTLE = _NATIVE if sys.byteorder == "little" else tuple(native.newbyteorder("<") for native in _NATIVE)
# Both byte orders find their code; a big-endian array is swapped on its way out.
_CODES: dict[np.dtype[Any], int] = {
    dtype: code for code, native in enumerate(_NATIVE) for dtype in (native.newbyteorder("S"), native)
}
_ITEMSIZES = tuple(dtype.itemsize for dtype in _NATIVE)

_NONE, _BOOL, _INT, _FLOAT, _STR, _BYTES, _TUPLE, _ARRAY = b"N?ifsb(a"
_PACK_INT = struct.Struct("<Bq")
_PACK_FLOAT = struct.Struct("<Bd")
_PACK_LENGTH = struct.Struct("<BQ")
_PACK_ARRAY = tuple(struct.Struct(f"<BBB{ndim}Q") for ndim in range(MAX_NDIM + 1))
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")
_FLOAT64 = struct.Struct("<d")
_DIMS = tuple(struct.Struct(f"<{ndim}Q") for ndim in range(MAX_NDIM + 1))
_TRUE, _FALSE, _NOTHING = bytes((_BOOL, 1)), bytes((_BOOL, 0)), bytes((_NONE,))
_FIXED_SIZES = {int: 9, float: 9, bool: 2, type(None): 1}
_IMMUTABLE = frozenset((type(None), bool, float, str, bytes))
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DTYPE_NAMES = ", ".join(dtype.name for dtype in _NATIVE)


def _refused(what: str) -> ProtocolError:
    return ProtocolError(
        f"a message can't hold {what}; allowed are None, bool, int (64 bits), float, str, bytes, tuples of these "
        f"({MAX_DEPTH} deep) and numpy arrays (ndim <= {MAX_NDIM}) of {_DTYPE_NAMES}; convert it before it is sent"
    )


def _code(array: Array) -> int:
    """The wire code of an array's dtype, or the error for an array that can't be sent."""
    code = _CODES.get(array.dtype)
    if code is None:
        raise _refused(f"a numpy array of {array.dtype}")
    if array.ndim > MAX_NDIM:
        raise _refused(f"a numpy array of ndim {array.ndim}")
    return code


def _checked_int(value: int) -> int:
    if _INT_MIN <= value <= _INT_MAX:
        return value
    raise _refused(f"an int of {value.bit_length() + 1} bits")


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _refused("a str with lone surrogates") from None


def _plain(value: object) -> bool | int | float | str | bytes:
    """A numpy scalar as the Python scalar; every other type ends here with its error."""
    if isinstance(value, np.generic):
        if isinstance(value, np.str_):
            return str.__str__(value)
        if isinstance(value, np.bytes_):
            return bytes(value)
        if value.dtype in _CODES:
            plain: bool | int | float = value.item()
            return plain
        raise _refused(f"a numpy scalar of {value.dtype}")
    raise _refused(f"a value of type {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", ""))


def _too_deep() -> ProtocolError:
    return _refused(f"tuples more than {MAX_DEPTH} deep")


# -- encode ------------------------------------------------------------------------------------------------------------


def _put_array(array: Array, parts: list[bytes | Array]) -> None:
    code = _code(array)
    parts.append(_PACK_ARRAY[array.ndim].pack(_ARRAY, code, array.ndim, *array.shape))
    if array.dtype is not _LITTLE[code] or not array.flags.c_contiguous:
        array = np.array(array, dtype=_LITTLE[code], order="C")
    parts.append(array)


def _put(value: Any, parts: list[bytes | Array], depth: int) -> None:
    kind = type(value)
    if kind is np.ndarray:
        _put_array(value, parts)
    elif kind is tuple:
        if depth == MAX_DEPTH:
            raise _too_deep()
        parts.append(_PACK_LENGTH.pack(_TUPLE, len(value)))
        for item in value:
            _put(item, parts, depth + 1)
    elif kind is int:
        parts.append(_PACK_INT.pack(_INT, _checked_int(value)))
    elif kind is float:
        parts.append(_PACK_FLOAT.pack(_FLOAT, value))
    elif kind is str:
        raw = _utf8(value)
        parts.append(_PACK_LENGTH.pack(_STR, len(raw)))
        parts.append(raw)
    elif kind is bytes:
        parts.append(_PACK_LENGTH.pack(_BYTES, len(value)))
        parts.append(value)
    elif value is None:
        parts.append(_NOTHING)
    elif kind is bool:
        parts.append(_TRUE if value else _FALSE)
    else:
        _put(_plain(value), parts, depth)


def encode(value: Value) -> bytes:
    """The value as bytes. A value that a message can't hold raises `ProtocolError`."""
    parts: list[bytes | Array] = []
    _put(value, parts, 0)
    # join reads arrays through the buffer protocol: a large array is copied once, not twice.
    return b"".join(parts)  # type: ignore[arg-type]


# -- decode ------------------------------------------------------------------------------------------------------------


def _truncated(what: str, need: int, left: int) -> TruncatedMessage:
    return TruncatedMessage(
        f"{what} of a message needs {need} bytes, {left} are left; the sender stopped early or is not a colonnade party"
    )


def _garbled(what: str) -> ProtocolError:
    return ProtocolError(f"a message holds {what}; check that every party runs the same version of colonnade")


def _take_array(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Array, int]:
    if end - pos < 2:
        raise _truncated("the header of an array", 2, end - pos)
    code, ndim = data[pos], data[pos + 1]
    pos += 2
    if code >= len(_NATIVE):
        raise _garbled(f"the unknown dtype code {code}, known are 0 to {len(_NATIVE) - 1}")
    if ndim > MAX_NDIM:
        raise _garbled(f"an array of ndim {ndim}, at most {MAX_NDIM} is allowed")
    if end - pos < 8 * ndim:
        raise _truncated("the shape of an array", 8 * ndim, end - pos)
    shape = _DIMS[ndim].unpack_from(data, pos)
    pos += 8 * ndim
    # Python's ints don't overflow, so a product of hostile dims is simply large.
    need = _ITEMSIZES[code]
    for size in shape:
        need *= size
    if need > end - pos:
        raise _truncated(f"an array of shape {shape}", need, end - pos)
    if need == 0:
        # An empty array with sizes that numpy can't even multiply: (0, 2**63, 2**63).
        extent = _ITEMSIZES[code]
        for size in shape:
            extent *= size or 1
        if extent > _INT_MAX:
            raise _truncated(f"an array of shape {shape}", extent, end - pos)
    array: Array = np.ndarray(shape, _LITTLE[code], data, pos)
    if code == 0 and array.view(np.uint8).max(initial=0) > 1:
        raise _garbled("a bool other than 0 and 1 in an array")
    return array.astype(_NATIVE[code]), pos + need


def _eight(unpack: struct.Struct, data: bytes | memoryview, pos: int, end: int) -> Any:
    if end - pos < 8:
        raise _truncated("a number", 8, end - pos)
    return unpack.unpack_from(data, pos)[0]


def _take_none(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    return None, pos


def _take_bool(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    if pos >= end:
        raise _truncated("a bool", 1, 0)
    if data[pos] > 1:
        raise _garbled(f"the bool {data[pos]}, allowed are 0 and 1")
    return data[pos] == 1, pos + 1


def _take_int(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    return _eight(_INT64, data, pos, end), pos + 8


def _take_float(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    return _eight(_FLOAT64, data, pos, end), pos + 8


def _take_bytes(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[bytes, int]:
    size: int = _eight(_UINT64, data, pos, end)
    pos += 8
    if size > end - pos:
        raise _truncated("a str or bytes", size, end - pos)
    return bytes(data[pos : pos + size]), pos + size


def _take_str(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    raw, pos = _take_bytes(data, pos, end, depth)
    try:
        return raw.decode(), pos
    except UnicodeDecodeError as error:
        raise _garbled(f"a str that is not UTF-8 ({error.reason})") from None


def _take_tuple(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    if depth == MAX_DEPTH:
        raise _garbled(f"tuples more than {MAX_DEPTH} deep")
    size: int = _eight(_UINT64, data, pos, end)
    pos += 8
    if size > end - pos:  # every item has at least its type byte
        raise _truncated(f"a tuple of {size}", size, end - pos)
    items = []
    for _ in range(size):
        item, pos = _take(data, pos, end, depth + 1)
        items.append(item)
    return tuple(items), pos


_TAKE: dict[int, Callable[[bytes | memoryview, int, int, int], tuple[Value, int]]] = {
    _NONE: _take_none,
    _BOOL: _take_bool,
    _INT: _take_int,
    _FLOAT: _take_float,
    _STR: _take_str,
    _BYTES: _take_bytes,
    _TUPLE: _take_tuple,
    _ARRAY: _take_array,
}


def _take(data: bytes | memoryview, pos: int, end: int, depth: int) -> tuple[Value, int]:
    if pos >= end:
        raise _truncated("a value", 1, 0)
    taker = _TAKE.get(data[pos])
    if taker is None:
        raise _garbled(f"the unknown type code {data[pos]}")
    return taker(data, pos + 1, end, depth)


def decode(data: bytes | bytearray | memoryview) -> Value:
    """The value that `encode` made these bytes from. Arrays are writable, aligned copies in native byte order.

    Bytes that `encode` can't have made raise `TruncatedMessage` or another `ProtocolError`, before anything of an
    announced size is allocated.
    """
    if type(data) is not bytes:
        view = memoryview(data)
        data = view.cast("B") if view.c_contiguous else view.tobytes()
    end = len(data)
    value, pos = _take(data, 0, end, 0)
    if pos != end:
        raise _garbled(f"{end - pos} bytes after its end")
    return value


# -- what a simulator needs --------------------------------------------------------------------------------------------


def _size(value: Any, depth: int) -> int:
    kind = type(value)
    if kind is np.ndarray:
        _code(value)
        return 3 + 8 * int(value.ndim) + int(value.nbytes)
    if kind is tuple:
        if depth == MAX_DEPTH:
            raise _too_deep()
        total = 9
        for item in value:
            total += _size(item, depth + 1)
        return total
    if kind is str:
        return 9 + (len(value) if value.isascii() else len(_utf8(value)))
    if kind is bytes:
        return 9 + len(value)
    if kind not in _FIXED_SIZES:
        return _size(_plain(value), depth)
    if kind is int:
        _checked_int(value)
    return _FIXED_SIZES[kind]


def encoded_size(value: Value) -> int:
    """`len(encode(value))` without building the bytes."""
    return _size(value, 0)


def _freeze(value: Any, depth: int) -> Value:
    kind = type(value)
    if kind is np.ndarray:
        native = _NATIVE[_code(value)]
        if value.dtype is native:
            copied: Array = value.copy()
            return copied
        # Filled, not converted: a conversion between equal dtypes would keep the sender's dtype object and metadata.
        filled = np.empty(value.shape, native)
        filled[...] = value
        return filled
    if kind is tuple:
        if depth == MAX_DEPTH:
            raise _too_deep()
        return tuple([_freeze(item, depth + 1) for item in value])
    if kind is int:
        return _checked_int(value)
    if kind is str and not value.isascii():
        _utf8(value)
    if kind in _IMMUTABLE:
        same: Value = value
        return same
    return _freeze(_plain(value), depth)


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
