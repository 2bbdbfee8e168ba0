"""Messages as bytes: a small codec without pickle.

A message is one value: None, a bool, an int of 64 bits, a float, a str, bytes, an array of plain numbers, or a tuple
of values. Nothing that arrives can name a class or run code, and no length that arrives is believed before it is
compared with the bytes that are there. Many small values take far more memory than bytes on the line, and time as well:
what they take is counted before they are made, and a message that takes too much is refused. Everything is little
endian:

    N                                   None
    ?  byte 0 or 1                      bool
    i  int64                            int
    f  float64                          float
    s  u64 length, UTF-8                str
    b  u64 length, bytes                bytes
    (  u64 count, values                tuple, at most 32 deep
    a  dtype byte, ndim byte, u64 dims, raw bytes in C order

A long message leaves holes for what is large in it, whose bytes follow in pieces (see `pieces`); in no other message
may there be one:

    B  u64 length                       bytes that follow
    A  dtype byte, ndim byte, u64 dims  array of which the raw bytes follow

`encode`, `encoded_size` and `freeze` accept the same values and refuse the others with the same sentence, so that a
simulated run (which never builds the bytes) and a run over sockets can't differ.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.errors import OversizedMessage, ProtocolError, TruncatedMessage
from colonnade.runtimes.values import (
    ARRAY,
    INT_MAX,
    LETTER,
    LITTLE,
    MAX_DEPTH,
    MAX_NDIM,
    NATIVE,
    PLAIN,
    ROOM,
    Array,
    Value,
    checked_int,
    code_of,
    encoded_size,
    expect_array,
    freeze,
    plain,
    too_deep,
    utf8,
)

__all__ = [
    "Array",
    "Value",
    "decode",
    "encode",
    "encode_apart",
    "encoded_parts",
    "encoded_size",
    "expect_array",
    "freeze",
]

# What stands for a hole: made of its dtype (None for bytes) and its shape.
Holes = Callable[["np.dtype[Any] | None", tuple[int, ...]], Any]

_ITEMSIZES = tuple(dtype.itemsize for dtype in NATIVE)

_NONE, _BOOL, _INT, _FLOAT, _STR, _BYTES, _TUPLE, _ARRAY = b"N?ifsb(a"
_LATER_BYTES, _LATER_ARRAY = b"BA"
_PACK_INT = struct.Struct("<Bq")
_PACK_FLOAT = struct.Struct("<Bd")
_PACK_LENGTH = struct.Struct("<BQ")
_PACK_ARRAY = tuple(struct.Struct(f"<BBB{ndim}Q") for ndim in range(MAX_NDIM + 1))
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")
_FLOAT64 = struct.Struct("<d")
_DIMS = tuple(struct.Struct(f"<{ndim}Q") for ndim in range(MAX_NDIM + 1))
_TRUE, _FALSE, _NOTHING = bytes((_BOOL, 1)), bytes((_BOOL, 0)), bytes((_NONE,))


# -- encode ------------------------------------------------------------------------------------------------------------


class _Apart:
    """What is left out of a message, in its order: whatever has so many bytes."""

    __slots__ = ("least", "out")

    def __init__(self, least: int) -> None:
        self.least, self.out = least, list[Array | bytes]()


def _put_array(array: Array, parts: list[bytes | Array], apart: _Apart | None) -> None:
    code = code_of(array)
    if apart is not None and array.nbytes >= apart.least:
        parts.append(_PACK_ARRAY[array.ndim].pack(_LATER_ARRAY, code, array.ndim, *array.shape))
        apart.out.append(array)
        return
    parts.append(_PACK_ARRAY[array.ndim].pack(_ARRAY, code, array.ndim, *array.shape))
    if array.dtype is not LITTLE[code] or not array.flags.c_contiguous:
        array = np.array(array, dtype=LITTLE[code], order="C")
    parts.append(array)


def _put(value: Any, parts: list[bytes | Array], depth: int, apart: _Apart | None) -> None:
    kind = type(value)
    if kind is np.ndarray:
        _put_array(value, parts, apart)
    elif kind is tuple:
        if depth == MAX_DEPTH:
            raise too_deep()
        parts.append(_PACK_LENGTH.pack(_TUPLE, len(value)))
        for item in value:
            _put(item, parts, depth + 1, apart)
    elif kind is int:
        parts.append(_PACK_INT.pack(_INT, checked_int(value)))
    elif kind is float:
        parts.append(_PACK_FLOAT.pack(_FLOAT, value))
    elif kind is str:
        raw = utf8(value)
        parts.append(_PACK_LENGTH.pack(_STR, len(raw)))
        parts.append(raw)
    elif kind is bytes and apart is not None and len(value) >= apart.least:
        parts.append(_PACK_LENGTH.pack(_LATER_BYTES, len(value)))
        apart.out.append(value)
    elif kind is bytes:
        parts.append(_PACK_LENGTH.pack(_BYTES, len(value)))
        parts.append(value)
    elif value is None:
        parts.append(_NOTHING)
    elif kind is bool:
        parts.append(_TRUE if value else _FALSE)
    else:
        _put(plain(value), parts, depth, apart)


def encode(value: Value, head: bytes = b"") -> bytes:
    """The value as bytes, after `head`. A value that a message can't hold raises `ProtocolError`."""
    parts: list[bytes | Array] = [head]
    _put(value, parts, 0, None)
    # join reads arrays through the buffer protocol: a large array is copied once, not twice.
    return b"".join(parts)  # type: ignore[arg-type]


def encoded_parts(value: Value) -> list[bytes | Array]:
    """What `encode` makes, without putting it together: bytes, and arrays that stand for theirs."""
    parts: list[bytes | Array] = []
    _put(value, parts, 0, None)
    return parts


def encode_apart(value: Value, least: int) -> tuple[bytes, list[Array | bytes]]:
    """The value with holes in place of all arrays and bytes of `least` bytes or more, and these, in their order."""
    parts: list[bytes | Array] = []
    apart = _Apart(least)
    _put(value, parts, 0, apart)
    return b"".join(parts), apart.out  # type: ignore[arg-type]


# -- decode ------------------------------------------------------------------------------------------------------------


def _truncated(what: str, need: int, left: int) -> TruncatedMessage:
    return TruncatedMessage(
        f"{what} of a message needs {need} bytes, {left} are left; the sender stopped early or is not a colonnade party"
    )


def _garbled(what: str) -> ProtocolError:
    return ProtocolError(f"a message holds {what}; check that every party runs the same version of colonnade")


class _Room:
    """What may still be made of a message."""

    __slots__ = ("holes", "left")

    def __init__(self, left: float, holes: Holes | None) -> None:
        self.left, self.holes = left, holes

    def take(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise OversizedMessage(
                f"a message holds more than fits into {ROOM} bytes of memory beside its arrays' numbers, as many small "
                f"values do; send them as one array"
            )


def _array_head(data: bytes | memoryview, pos: int, end: int, room: _Room) -> tuple[int, tuple[int, ...], int, int]:
    """The code of an array's dtype, its shape, the bytes that it needs, and where its head ends."""
    room.take(ARRAY - PLAIN)
    if end - pos < 2:
        raise _truncated("the header of an array", 2, end - pos)
    code, ndim = data[pos], data[pos + 1]
    pos += 2
    if code >= len(NATIVE):
        raise _garbled(f"the unknown dtype code {code}, known are 0 to {len(NATIVE) - 1}")
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
    return code, shape, need, pos


def _take_array(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Array, int]:
    code, shape, need, pos = _array_head(data, pos, end, room)
    if need > end - pos:
        raise _truncated(f"an array of shape {shape}", need, end - pos)
    if need == 0:
        # An empty array with sizes that numpy can't even multiply: (0, 2**63, 2**63).
        extent = _ITEMSIZES[code]
        for size in shape:
            extent *= size or 1
        if extent > INT_MAX:
            raise _truncated(f"an array of shape {shape}", extent, end - pos)
    array: Array = np.ndarray(shape, LITTLE[code], data, pos)
    if code == 0 and array.view(np.uint8).max(initial=0) > 1:
        raise _garbled("a bool other than 0 and 1 in an array")
    return array.astype(NATIVE[code]), pos + need


def _eight(unpack: struct.Struct, data: bytes | memoryview, pos: int, end: int) -> Any:
    if end - pos < 8:
        raise _truncated("a number", 8, end - pos)
    return unpack.unpack_from(data, pos)[0]


def _take_none(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    return None, pos


def _take_bool(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    if pos >= end:
        raise _truncated("a bool", 1, 0)
    if data[pos] > 1:
        raise _garbled(f"the bool {data[pos]}, allowed are 0 and 1")
    return data[pos] == 1, pos + 1


def _take_int(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    return _eight(_INT64, data, pos, end), pos + 8


def _take_float(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    return _eight(_FLOAT64, data, pos, end), pos + 8


def _take_bytes(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[bytes, int]:
    size: int = _eight(_UINT64, data, pos, end)
    pos += 8
    if size > end - pos:
        raise _truncated("a str or bytes", size, end - pos)
    return bytes(data[pos : pos + size]), pos + size


def _take_str(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    raw, pos = _take_bytes(data, pos, end, depth, room)
    room.take(LETTER * len(raw))
    try:
        return raw.decode(), pos
    except UnicodeDecodeError as error:
        raise _garbled(f"a str that is not UTF-8 ({error.reason})") from None


def _take_tuple(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    if depth == MAX_DEPTH:
        raise _garbled(f"tuples more than {MAX_DEPTH} deep")
    size: int = _eight(_UINT64, data, pos, end)
    pos += 8
    if size > end - pos:  # every item has at least its type byte
        raise _truncated(f"a tuple of {size}", size, end - pos)
    room.take(PLAIN * size)
    items = []
    for _ in range(size):
        item, pos = _take(data, pos, end, depth + 1, room)
        items.append(item)
    return tuple(items), pos


def _take_later_array(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Any, int]:
    if room.holes is None:
        raise _garbled("a hole where its bytes should be")
    code, shape, need, pos = _array_head(data, pos, end, room)
    if not 0 < need <= INT_MAX:
        raise _garbled(f"a hole for an array of shape {shape}")
    return room.holes(LITTLE[code], shape), pos


def _take_later_bytes(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Any, int]:
    if room.holes is None:
        raise _garbled("a hole where its bytes should be")
    size: int = _eight(_UINT64, data, pos, end)
    if not 0 < size <= INT_MAX:
        raise _garbled(f"a hole for {size} bytes")
    return room.holes(None, (size,)), pos + 8


_TAKE: dict[int, Callable[[bytes | memoryview, int, int, int, _Room], tuple[Value, int]]] = {
    _NONE: _take_none,
    _BOOL: _take_bool,
    _INT: _take_int,
    _FLOAT: _take_float,
    _STR: _take_str,
    _BYTES: _take_bytes,
    _TUPLE: _take_tuple,
    _ARRAY: _take_array,
    _LATER_BYTES: _take_later_bytes,
    _LATER_ARRAY: _take_later_array,
}


def _take(data: bytes | memoryview, pos: int, end: int, depth: int, room: _Room) -> tuple[Value, int]:
    if pos >= end:
        raise _truncated("a value", 1, 0)
    taker = _TAKE.get(data[pos])
    if taker is None:
        raise _garbled(f"the unknown type code {data[pos]}")
    return taker(data, pos + 1, end, depth, room)


def decode(
    data: bytes | bytearray | memoryview, start: int = 0, room: float = ROOM, holes: Holes | None = None
) -> Value:
    """The value that `encode` made the bytes from `start` on. Arrays are writable, aligned copies in native byte order.

    Bytes that `encode` can't have made raise `TruncatedMessage` or another `ProtocolError`, before anything of an
    announced size is allocated. room: what the values may take in memory beside their bytes (see `values.weight`); inf
    is for what a party itself has written. holes: what stands in the place of each hole; None where there may be none.
    """
    if type(data) is not bytes:
        view = memoryview(data)
        data = view.cast("B") if view.c_contiguous else view.tobytes()
    end = len(data)
    value, pos = _take(data, start, end, 0, _Room(room - PLAIN, holes))
    if pos != end:
        raise _garbled(f"{end - pos} bytes after its end")
    return value
