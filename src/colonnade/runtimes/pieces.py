"""Long messages in pieces: what is sent of one, and what becomes of it where it arrives. No I/O here.

    long    kind, number, step, then u64 bytes that follow in pieces, and the value with holes for them
    piece   kind, number, then u64 position of its first byte, and the bytes
    end     kind, number, then u32 CRC-32 of all pieces; or nothing, where the sender has given the message up

A value keeps its form: what is large in it, arrays and bytes, is left out of the value and follows as raw bytes, one
after another, cut into pieces of one size. The sender makes no copy but that of the piece at hand. The receiver checks
the announced sizes against each other and against the longest message that it takes, and believes none of them for
more: room grows as bytes arrive, never ahead of them by more than a fixed part. The check sum finds a message that was
put together wrongly; that nobody changes it on its way is what TLS is for (see ADR 53).
"""

from __future__ import annotations

import io
import math
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.errors import OversizedMessage, ProtocolError
from colonnade.runtimes.frames import HEAD, HEADER, pack_frame
from colonnade.runtimes.values import CODES, LITTLE, NATIVE, encoded_size
from colonnade.runtimes.wire import Array, Value, decode, encode_apart

# A message of more bytes than this goes in pieces; so do, in their order, the arrays of so many bytes in it.
SHORT, HOLE = 1 << 24, 1 << 8
PIECE = 1 << 20  # bytes of each piece but the last, the same at all parties
# Room is made for what has arrived and an eighth more, at least for this.
_STEP = 1 << 25
_LARGE = 1 << 16  # bytes from which on an array of a whole data set is sent apart

_COUNT = struct.Struct("<Q")
_SUM = struct.Struct("<I")


def is_long(value: Value) -> bool:
    """Whether a message goes in pieces."""
    if type(value) is np.ndarray:
        return value.nbytes > SHORT
    if isinstance(value, bytes):
        return len(value) > SHORT
    return type(value) is tuple and encoded_size(value) > SHORT


class Leaving:
    """A message that leaves in pieces."""

    def __init__(self, kinds: tuple[int, int, int], seq: int, tag: str, value: Value) -> None:
        self.tag = tag
        self._long, self._piece, self._end = kinds
        self._seq = seq
        name = tag.encode()
        form, apart = encode_apart(value, HOLE)
        self._parts = [_Part(each) for each in apart]
        self.total, self.sent = sum(part.nbytes for part in self._parts), 0
        # As long as one frame of it would be: that is what is counted, on every runtime.
        self.size = 8 + HEAD.size + len(name) + encoded_size(value)
        self.head = pack_frame(HEAD.pack(self._long, seq, len(name)), name, _COUNT.pack(self.total), form)
        self._sum = 0

    def frames(self) -> Iterator[bytes]:
        """The frames behind the head, each made when it is asked for."""
        for parts in _cut(self._parts, PIECE):
            head = HEAD.pack(self._piece, self._seq, 0), _COUNT.pack(self.sent)
            for part in parts:
                self._sum = zlib.crc32(part, self._sum)
                self.sent += part.nbytes
            yield pack_frame(*head, *parts)
        yield pack_frame(HEAD.pack(self._end, self._seq, 0), _SUM.pack(self._sum))

    @property
    def withdrawal(self) -> bytes:
        """The frame that says that nothing more will come of it."""
        return pack_frame(HEAD.pack(self._end, self._seq, 0))


class _Part:
    """An array or bytes, to be read from any byte on."""

    def __init__(self, value: Array | bytes) -> None:
        self._array: Array | None = None
        self._raw = memoryview(b"")
        if isinstance(value, bytes):
            self._raw, self.nbytes = memoryview(value), len(value)
            return
        self.nbytes, self._dtype = value.nbytes, LITTLE[CODES[value.dtype]]
        if value.dtype is self._dtype and value.flags.c_contiguous:
            self._raw = memoryview(value.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        else:
            self._array = value

    def read(self, at: int, size: int) -> memoryview:
        """So many bytes from there on; a copy only of an array whose numbers do not lie as they travel."""
        if self._array is None:
            return self._raw[at : at + size]
        width = self._dtype.itemsize
        first = at // width
        numbers = np.ascontiguousarray(self._array.flat[first : -(-(at + size) // width)], dtype=self._dtype)
        return memoryview(numbers.view(np.uint8))[at - first * width :][:size]  # type: ignore[arg-type]


def _cut(parts: list[_Part], size: int) -> Iterator[list[memoryview]]:
    """The bytes of all parts in their order, `size` at a time."""
    held: list[memoryview] = []
    room = size
    for part in parts:
        at = 0
        while at < part.nbytes:
            some = part.read(at, min(room, part.nbytes - at))
            held.append(some)
            at += some.nbytes
            room -= some.nbytes
            if not room:
                yield held
                held, room = [], size
    if held:
        yield held


# -- where it arrives --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Hole:
    dtype: np.dtype[Any] | None  # None for bytes
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * (1 if self.dtype is None else self.dtype.itemsize)


class _Filled:
    """An array of which some bytes have arrived."""

    def __init__(self, dtype: np.dtype[Any], hole: _Hole) -> None:
        self._dtype, self._shape, self._size, self._at = dtype, hole.shape, hole.nbytes, 0
        self._array: Array = np.empty(self._numbers(_STEP), dtype)

    def _numbers(self, most: int) -> int:
        return min(self._size, most) // self._dtype.itemsize

    @property
    def lacks(self) -> int:
        """Bytes that are still to come."""
        return self._size - self._at

    def fill(self, some: memoryview) -> None:
        """Take the next bytes."""
        until = self._at + some.nbytes
        if until > self._array.nbytes:
            # Nobody else has seen the array yet; the system moves a large one without a copy.
            self._array.resize(self._numbers(max(until + until // 8, until + _STEP)), refcheck=False)
        raw = self._array.view(np.uint8)
        raw[self._at : until] = some
        if self._dtype == np.bool_ and raw[self._at : until].max(initial=0) > 1:
            raise ProtocolError("a long message holds a bool other than 0 and 1 in an array")
        self._at = until

    def whole(self) -> Array:
        """The array, in its shape."""
        self._array.shape = self._shape
        return _native(self._array)


class _FilledBytes:
    """Bytes of which some have arrived."""

    def __init__(self, hole: _Hole) -> None:
        self._size, self._bytes = hole.nbytes, io.BytesIO()

    @property
    def lacks(self) -> int:
        """Bytes that are still to come."""
        return self._size - self._bytes.tell()

    def fill(self, some: memoryview) -> None:
        """Take the next bytes."""
        self._bytes.write(some)

    def whole(self) -> bytes:
        """All of them, without a copy."""
        return self._bytes.getvalue()


class Arriving:
    """A message that arrives in pieces; whatever does not fit raises a ProtocolError."""

    def __init__(self, seq: int, tag: str, payload: memoryview, longest: int) -> None:
        self.seq, self.tag, self.arrived = seq, tag, 0
        if len(payload) < _COUNT.size:
            raise ProtocolError(f"the beginning of a long message for step {tag!r} is cut off")
        (self.total,) = _COUNT.unpack_from(payload)
        self._form = payload[_COUNT.size :].tobytes()
        if self.total + len(self._form) > longest:
            raise OversizedMessage(
                f"a message of {self.total + len(self._form)} bytes for step {tag!r} was announced, at most {longest} "
                f"are taken here; send fewer rows at once, or raise max_message_mb in [policy] of the receiver"
            )
        self._holes: list[_Hole] = []
        decode(self._form, holes=self._note)
        announced = sum(hole.nbytes for hole in self._holes)
        if announced != self.total:
            raise ProtocolError(
                f"a long message for step {tag!r} announces {self.total} bytes in pieces, its arrays have {announced}"
            )
        if self.total + len(self._form) <= SHORT:  # each of them puts a deadline off
            raise ProtocolError(
                f"a message of {self.total + len(self._form)} bytes for step {tag!r} comes in pieces, as only those "
                f"of more than {SHORT} do"
            )
        self._sum = 0
        self._filled: list[_Filled | _FilledBytes] = []

    def _note(self, dtype: np.dtype[Any] | None, shape: tuple[int, ...]) -> None:
        self._holes.append(_Hole(dtype, shape))

    def take(self, payload: memoryview) -> None:
        """Take a piece: exactly the next bytes, and as many as a piece has."""
        if len(payload) < _COUNT.size:
            raise ProtocolError(f"a piece of a message for step {self.tag!r} is cut off")
        (position,) = _COUNT.unpack_from(payload)
        data = payload[_COUNT.size :]
        if position != self.arrived:
            raise ProtocolError(
                f"a piece of a message for step {self.tag!r} begins at byte {position}, the next to come is byte "
                f"{self.arrived} of {self.total}"
            )
        expected = min(PIECE, self.total - self.arrived)
        if data.nbytes != expected or not expected:
            raise ProtocolError(
                f"a piece of a message for step {self.tag!r} has {data.nbytes} bytes, {expected} were to come"
            )
        self._sum = zlib.crc32(data, self._sum)
        self.arrived += data.nbytes
        while data.nbytes:
            if not self._filled or not self._filled[-1].lacks:
                hole = self._holes[len(self._filled)]
                self._filled.append(_FilledBytes(hole) if hole.dtype is None else _Filled(hole.dtype, hole))
            filled = self._filled[-1]
            some = data[: filled.lacks]
            filled.fill(some)
            data = data[some.nbytes :]

    def finish(self, payload: memoryview) -> Any:
        """The value, now that all has arrived."""
        if self.arrived != self.total:
            raise ProtocolError(
                f"a message for step {self.tag!r} ends after {self.arrived} of {self.total} announced bytes"
            )
        if payload.nbytes != _SUM.size or _SUM.unpack(payload)[0] != self._sum:
            raise ProtocolError(f"the pieces of a message for step {self.tag!r} do not have the check sum at its end")
        whole = iter([filled.whole() for filled in self._filled])
        return decode(self._form, holes=lambda *_: next(whole))


# -- whole data sets, from a starter to the processes that it made -----------------------------------------------------


def send_whole(line: socket.socket, value: Value) -> None:
    """Send a value without a copy of its arrays; raises `ProtocolError` before the first byte if none can hold it."""
    form, apart = encode_apart(value, _LARGE)
    line.sendall(pack_frame(form))
    for part in map(_Part, apart):
        for at in range(0, part.nbytes, _STEP):
            line.sendall(part.read(at, min(_STEP, part.nbytes - at)))


def receive_whole(read_into: Callable[[memoryview], None]) -> Any:
    """The value that `send_whole` sent, from a function that fills a buffer from the line.

    It comes from whoever made this process, whose sizes are believed: its arrays are read to where they stay.
    """
    header = bytearray(HEADER.size)
    read_into(memoryview(header))
    form = bytearray(HEADER.unpack(header)[0])
    read_into(memoryview(form))

    def read(dtype: np.dtype[Any] | None, shape: tuple[int, ...]) -> Any:
        array: Array = np.empty(shape, np.uint8 if dtype is None else dtype)
        read_into(memoryview(array.reshape(-1).view(np.uint8)))  # type: ignore[arg-type]
        return array.tobytes() if dtype is None else _native(array)

    return decode(form, room=math.inf, holes=read)


def _native(array: Array) -> Array:
    return array if array.dtype in NATIVE else array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
